//! Checking an archive: every record and section, every hash, every reference from one part to another.
//!
//! What a recording that was killed leaves behind is no fault as long as it is consistent: calls in flight, results that
//! nothing ever observed, an unfinished manifest. A fault is what cannot be what the recorder wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::archive::{Archive, ArchiveError, ArchiveRoot, Damaged, MissingProcesses, Warning};
use crate::blob_store::{BlobStore, INDEX_FILE};
use crate::manifest;
use crate::packed::{PackedError, PackedFile};
use crate::record::{BlobRef, Presence, Record, Section, SectionTag, flag, marker};
use crate::stream_file::{ContentsMode, StreamFile};

/// Most faults of one kind that are told one by one in a file.
const TOLD: u64 = 5;

/// How far contents are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// They are there.
    Presence,
    /// They are what was recorded.
    Hashes,
}

/// What checking a process archive came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Stream files.
    pub streams: u64,
    /// Records, markers included.
    pub records: u64,
    /// Contents whose hash was checked, equal ones counted once.
    pub contents: u64,
    /// Bytes of these.
    pub content_bytes: u64,
    /// References to contents that were not written before the process ended, or that repair took out.
    pub lost: u64,
    /// One line on each fault; of very many faults of one kind the first few and their number.
    pub faults: Vec<String>,
}

/// Checks the hash of every file of a packed archive. A directory has none to check.
///
/// # Errors
/// What is wrong first.
pub fn verify_packed(path: &Path) -> Result<(), PackedError> {
    let packed = match PackedFile::open(path) {
        Ok(packed) => packed,
        Err(PackedError::NotPacked { .. } | PackedError::Io { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let names: Vec<String> = packed.names().map(str::to_owned).collect();
    names.iter().filter_map(|name| packed.content(name)).try_for_each(|content| content.verify())
}

/// Checks the processes at a path, a root or one process, each by itself.
///
/// # Errors
/// Why there is nothing to check. A process that cannot be opened at all is a fault of it.
pub fn verify(path: &Path) -> Result<Vec<(String, Report)>, ArchiveError> {
    let name = |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match Archive::open_with(path, Damaged::Tolerate) {
        Ok(archive) => Ok(vec![(name(archive.path()), verify_archive(&archive))]),
        Err(ArchiveError::Several { path, .. }) => {
            let root = ArchiveRoot::open(&path)?;
            let report = |path: &Path| match Archive::open_with(path, Damaged::Tolerate) {
                Ok(archive) => verify_archive(&archive),
                Err(error) => Report { faults: vec![error.to_string()], ..Report::default() },
            };
            let missing = MissingProcesses::of(&path).map(|missing| {
                (manifest::FILE.to_owned(), Report { faults: vec![missing.to_string()], ..Report::default() })
            });
            let checked = root.processes.iter().map(|process| (name(&process.path), report(&process.path)));
            Ok(checked.chain(missing).collect())
        }
        Err(error) => Err(error),
    }
}

/// Checks an opened archive, its contents included.
pub fn verify_archive(archive: &Archive) -> Report {
    verify_archive_to(archive, Depth::Hashes)
}

/// Checks an opened archive.
pub fn verify_archive_to(archive: &Archive, depth: Depth) -> Report {
    let mut report = Report { streams: archive.streams().len() as u64, ..Report::default() };
    // A thread that was killed before its first record wrote nothing wrong.
    let faulty = archive.warnings().iter().filter(|warning| !matches!(warning, Warning::Unstarted { .. }));
    report.faults.extend(faulty.map(ToString::to_string));
    let mut calls = 0;
    for stream in archive.streams() {
        calls += verify_stream(archive, stream, &mut report);
    }
    verify_store(archive.blobs(), depth, &mut report);
    verify_store(archive.code_objects(), depth, &mut report);
    verify_kernels(archive, &mut report);
    let manifest = archive.manifest();
    // Threads that were still in calls when the process ended may have returned from some behind the count.
    let mut fewer = |what: &str, counted: u64, found: u64| {
        if manifest.complete && found < counted {
            report.faults.push(format!("the manifest counts {counted} {what} and there are {found}"));
        }
    };
    fewer("events", manifest.event_count, calls);
    fewer("kernels", manifest.kernel_count, archive.kernels().kernels().len() as u64);
    if let Some(stored) = manifest.stored {
        verify_stored(archive, archive.blobs(), stored.blobs, &mut report);
        verify_stored(archive, archive.code_objects(), stored.code_objects, &mut report);
    }
    report
}

/// Faults of one file, gathered by kind.
struct Faults<'a> {
    file: String,
    report: &'a mut Report,
    counts: BTreeMap<&'static str, u64>,
}

impl Faults<'_> {
    fn add(&mut self, kind: &'static str, offset_bytes: usize, what: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= TOLD {
            self.report.faults.push(format!("{}, byte {offset_bytes}: {}", self.file, what()));
        }
    }
}

impl Drop for Faults<'_> {
    fn drop(&mut self) {
        for (kind, count) in &self.counts {
            if *count > TOLD {
                self.report.faults.push(format!("{}: {} more: {kind}", self.file, count - TOLD));
            }
        }
    }
}

/// Checks the records of a stream, and returns how many are calls.
fn verify_stream(archive: &Archive, stream: &StreamFile, report: &mut Report) -> u64 {
    let file = stream.path().display().to_string();
    let mut faults = Faults { file, report, counts: BTreeMap::new() };
    let mut records = stream.records();
    let mut calls = 0;
    while let Some(record) = records.next() {
        let at = records.offset() - record.len_bytes();
        faults.report.records += 1;
        if record.api() >= marker::FIRST {
            verify_marker(archive, &record, at, &mut faults);
            continue;
        }
        calls += 1;
        verify_call(archive, &record, at, &mut faults);
    }
    if let Some(damage) = records.damage() {
        let error = &damage.error;
        faults.add("damaged records", damage.offset_bytes as usize, || error.to_string());
    } else if stream.header().used_bytes != 0 && stream.used_after(records.offset()) {
        // In a file that was not closed it is what its thread was about to record.
        faults.add("bytes behind the last record", records.offset(), || "bytes follow the last record".to_owned());
    }
    calls
}

fn verify_marker(archive: &Archive, record: &Record<'_>, at: usize, faults: &mut Faults<'_>) {
    if marker::is_timed(record.api()) {
        verify_host_memory(archive, record, at, faults);
    } else if record.api() != marker::OBSERVED {
        faults.add("unknown markers", at, || format!("marker {:#x} is unknown", record.api()));
    } else if archive.contents() == ContentsMode::Contents && archive.blobs().index().get(record.word(0)).is_none() {
        let blob = record.word(0);
        if may_lack_contents(archive) {
            faults.report.lost += 1;
            return;
        }
        faults.add("observed results without contents", at, || {
            format!("blob {blob} was observed and is not in the index")
        });
    }
}

/// A marker about host memory: its ranges lie in order inside the allocation, and its contents are as long as they are.
fn verify_host_memory(archive: &Archive, record: &Record<'_>, at: usize, faults: &mut Faults<'_>) {
    if record.word(2) & marker::host_wrote::NOT_RECORDED != 0 && record.api() == marker::HOST_WROTE {
        return;
    }
    let mut ranges_bytes = None;
    if let Some(ranges) = record.section_tagged(SectionTag::HostRanges) {
        let mut end = 0u64;
        let in_order = ranges.host_ranges().all(|(offset, len)| {
            let fits = offset >= end && offset.checked_add(len).is_some_and(|behind| behind <= record.word(1));
            end = offset.saturating_add(len);
            fits
        });
        if in_order && ranges.payload.len().is_multiple_of(16) {
            ranges_bytes = Some(ranges.host_ranges().map(|(_, len)| len).sum::<u64>());
        }
    }
    let Some(ranges_bytes) = ranges_bytes else {
        return faults
            .add("host memory ranges", at, || "the ranges of a host memory marker are not in order".to_owned());
    };
    for tag in [SectionTag::BlobIn, SectionTag::HostBefore] {
        let Some(blob) = record.section_tagged(tag).and_then(|section| section.blob()) else { continue };
        if blob.size_bytes != ranges_bytes {
            faults.add("host memory contents", at, || {
                format!("{} bytes of host memory for ranges of {ranges_bytes}", blob.size_bytes)
            });
        } else if blob.size_bytes != 0 && archive.blobs().index().get(blob.number).is_none() {
            if may_lack_contents(archive) {
                faults.report.lost += 1;
            } else {
                faults.add("host memory without contents", at, || format!("blob {} is not in the index", blob.number));
            }
        }
    }
}

/// Whether the recording ended without its last contents having been written.
fn may_lack_contents(archive: &Archive) -> bool {
    !archive.manifest().complete || archive.repaired().is_some()
}

fn verify_call(archive: &Archive, record: &Record<'_>, at: usize, faults: &mut Faults<'_>) {
    let api = archive.api(record.api());
    if usize::from(record.api()) >= archive.manifest().apis.len() {
        faults.add("unnamed APIs", at, || format!("API {} has no name in the manifest", record.api()));
    }
    if record.flags() & !flag::ALL != 0 {
        faults.add("unknown flags", at, || format!("{} has flags {:#x}", api.name, record.flags()));
    }
    if !record.in_flight() && record.end() < record.begin() {
        faults.add("calls that return before they are entered", at, || {
            format!("{} returns at tick {} and is entered at {}", api.name, record.end(), record.begin())
        });
    }
    let params = api.known.filter(|_| archive.row_of(record).is_some()).map(|api| api.params.len());
    if api.known.is_some() && params.is_none() {
        let words = record.word_count();
        faults.add("calls with other arguments than this build's", at, || {
            format!("{} has {words} argument words", api.name)
        });
    }
    if let Some(kernel) = record.kernel() {
        verify_launch(archive, record, kernel, api.name, at, faults);
    }
    for section in record.sections() {
        match section {
            Ok(section) => {
                if params.is_some_and(|count| {
                    section.param != crate::record::NO_PARAM && usize::from(section.param) >= count
                }) {
                    let param = section.param;
                    faults.add("sections of no parameter", at, || format!("{} has no parameter {param}", api.name));
                }
                verify_section(archive, &section, api.name, at, faults);
            }
            Err(error) => faults.add("malformed sections", at, || format!("{}: {error}", api.name)),
        }
    }
}

fn verify_launch(archive: &Archive, record: &Record<'_>, kernel: u32, api: &str, at: usize, faults: &mut Faults<'_>) {
    let Some(known) = archive.kernels().get(kernel) else {
        faults
            .add("launches of unlisted kernels", at, || format!("{api} launches kernel {kernel}, which is not listed"));
        return;
    };
    let args = record.section_tagged(SectionTag::KernelArgs).filter(|args| args.presence != Presence::Absent);
    if let (Some(args), Some(explicit)) = (args, known.explicit_bytes())
        && args.payload.len() < explicit as usize
        && record.ret() == 0
    {
        let found = args.payload.len();
        faults.add("launches with too few arguments", at, || {
            format!("{api} has {found} bytes of arguments for {}, which takes {explicit}", known.name)
        });
    }
}

fn verify_section(archive: &Archive, section: &Section<'_>, api: &str, at: usize, faults: &mut Faults<'_>) {
    let is_reference = matches!(
        section.tag,
        SectionTag::BlobIn
            | SectionTag::BlobOut
            | SectionTag::Code
            | SectionTag::GraphHostIn
            | SectionTag::GraphHostOut
    );
    if !is_reference || section.presence == Presence::Absent {
        return;
    }
    let Some(BlobRef { number, size_bytes }) = section.blob() else {
        faults.add("references that are cut off", at, || format!("{api}: a {:?} section is too short", section.tag));
        return;
    };
    if section.presence == Presence::Withheld || number == BlobRef::WITHHELD {
        if archive.contents() == ContentsMode::Contents {
            faults.add("withheld contents", at, || format!("{api}: contents are withheld in an archive with contents"));
        }
        return;
    }
    let (store, what) = match section.tag {
        SectionTag::Code => (archive.code_objects(), "code object"),
        _ => (archive.blobs(), "blob"),
    };
    match store.index().get(number) {
        // A result without contents was never observed, or lost with the process.
        None if matches!(section.tag, SectionTag::BlobOut | SectionTag::GraphHostOut) => {}
        None if may_lack_contents(archive) => faults.report.lost += 1,
        None => faults.add("missing contents", at, || format!("{api}: {what} {number} is not in the index")),
        Some(entry) if entry.len_bytes != size_bytes => {
            let found = entry.len_bytes;
            faults.add("contents of another length", at, || {
                format!("{api}: {what} {number} is {found} bytes long where {size_bytes} were recorded")
            });
        }
        Some(_) => {}
    }
}

fn verify_store(store: &BlobStore, depth: Depth, report: &mut Report) {
    // The same of a pack for each content in it.
    let mut told = BTreeSet::new();
    for entry in store.distinct() {
        report.contents += 1;
        report.content_bytes = report.content_bytes.saturating_add(entry.len_bytes);
        let found = match depth {
            Depth::Presence => store.holds(entry.number).map(drop),
            Depth::Hashes => store.get(entry.number).map(drop),
        };
        if let Err(error) = found {
            let error = error.to_string();
            if told.insert(error.clone()) {
                report.faults.push(error);
            }
        }
    }
}

/// An index must lead to as many contents as were stored: a result that is not in it looks like one that nobody waited for.
fn verify_stored(archive: &Archive, store: &BlobStore, stored: u64, report: &mut Report) {
    let found = store.len() as u64;
    if found >= stored {
        return;
    }
    if archive.repaired().is_some() {
        report.lost = report.lost.max(stored - found);
    } else {
        let index = store.dir().join(INDEX_FILE);
        report.faults.push(format!("{} leads to {found} contents, and {stored} were stored", index.display()));
    }
}

fn verify_kernels(archive: &Archive, report: &mut Report) {
    for kernel in archive.kernels().kernels() {
        if let Some(number) = kernel.code_object
            && archive.code_objects().index().get(number).is_none()
        {
            let name = &kernel.name;
            report
                .faults
                .push(format!("kernel {} ({name:?}) is of code object {number}, which is not there", kernel.kernel));
        }
    }
}

//! A native archive as AMD's in-tree HRR would have written it, format version 8.
//!
//! Upstream's format holds less: what would be lost is counted and named first, and only written around where the caller
//! says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::events::{self, FLAG_PACKED, FileHeader};
use super::hash::ContentHash;
use super::layout::{Extra, Kind, Layout, Layouts, Meaning, Subject};
use super::translate::Live;
use crate::archive::Archive;
use crate::blob_store::BlobError;
use crate::catalogue::{Api, Policy, Returns, Role};
use crate::code_object::{self, ArgKind};
use crate::ordered::merged;
use crate::record::{BlobRef, Presence, Record, Section, SectionTag, flag, marker};

/// Format version that is written.
pub const VERSION: u16 = 8;
/// Runtime entries of a version 8 file.
const RUNTIME_ENTRIES: u16 = super::ids::OLDEST_RUNTIME_ENTRIES;
/// The id that upstream writes plain launches under.
const LAUNCH: &str = "hipModuleLaunchKernel";

/// What to do where something would be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossy {
    /// Write nothing.
    Refuse,
    /// Write what can be.
    Accept,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Something would be lost.
    #[error("{}", Listing(losses))]
    Losses {
        /// What, and how often.
        losses: BTreeMap<String, u64>,
    },
    /// A file could not be written.
    #[error("{}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// Contents cannot be read.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

struct Listing<'a>(&'a BTreeMap<String, u64>);

impl std::fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the in-tree format does not hold all of it; lost would be:")?;
        self.0.iter().try_for_each(|(what, count)| write!(f, "\n  {count} x {what}"))
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub events: u64,
    /// Blobs and code objects.
    pub contents: u64,
    /// What was lost, and how often.
    pub losses: BTreeMap<String, u64>,
}

/// A call with its place in the order of return.
struct Placed<'a> {
    end: u64,
    begin: u64,
    tid: u64,
    thread: usize,
    record: Record<'a>,
}

struct Writer<'a> {
    archive: &'a Archive,
    layouts: &'static Layouts,
    path: PathBuf,
    losses: BTreeMap<String, u64>,
    blobs: HashMap<u64, ContentHash>,
    codes: HashMap<u64, ContentHash>,
    kernels: HashMap<u32, ContentHash>,
    fat_binaries: HashSet<u64>,
    /// Host memory that graphs read, by address: the contents of the first launch.
    graph_reads: HashMap<u64, BlobRef>,
    live: Live,
    modules: u32,
    contents: u64,
    events: Vec<u8>,
    sequence: u64,
}

/// Writes an archive in the in-tree format to a new process directory.
///
/// # Errors
/// [`WriteError`].
pub fn write(archive: &Archive, path: &Path, lossy: Lossy) -> Result<Written, WriteError> {
    let mut writer = Writer {
        archive,
        layouts: Layouts::of_version(VERSION),
        path: path.to_owned(),
        losses: BTreeMap::new(),
        blobs: HashMap::new(),
        codes: HashMap::new(),
        kernels: HashMap::new(),
        fat_binaries: HashSet::new(),
        graph_reads: HashMap::new(),
        live: Live::default(),
        modules: 0,
        contents: 0,
        events: events::file_header_bytes(FileHeader { version: VERSION, flags: FLAG_PACKED }).to_vec(),
        sequence: 0,
    };
    let calls = writer.calls();
    // Twice: what would be lost is known before anything is written.
    writer.survey(&calls);
    if !writer.losses.is_empty() && lossy == Lossy::Refuse {
        return Err(WriteError::Losses { losses: writer.losses });
    }
    let io_error = |path: &Path, reason| WriteError::Write { path: path.to_owned(), reason };
    fs::create_dir_all(path).map_err(|reason| io_error(path, reason))?;
    writer.losses.clear();
    writer.survey(&calls);
    for call in &calls {
        writer.call(call)?;
    }
    let count = writer.sequence;
    writer.events.extend(events::trailer_bytes(count, count));
    writer.put(&path.join(super::archive::EVENTS_FILE), &writer.events)?;
    let manifest = writer.manifest(count);
    writer.put(&path.join(crate::manifest::FILE), manifest.as_bytes())?;
    Ok(Written { events: count, contents: writer.contents, losses: writer.losses })
}

impl<'a> Writer<'a> {
    fn lose(&mut self, what: impl Into<String>) {
        *self.losses.entry(what.into()).or_default() += 1;
    }

    /// The calls in the order in which they returned: upstream writes a record then.
    fn calls(&mut self) -> Vec<Placed<'a>> {
        let streams = self.archive.streams();
        let mut calls: Vec<Placed<'a>> = Vec::new();
        let mut in_flight = 0u64;
        for ordered in merged(streams) {
            let record = ordered.record;
            if record.api() >= marker::FIRST || record.flags() & flag::ADDED != 0 {
                continue;
            }
            if record.in_flight() {
                in_flight += 1;
                continue;
            }
            let tid = streams[ordered.stream].header().tid;
            let (begin, end) = (record.begin(), record.end());
            calls.push(Placed { end, begin, tid, thread: ordered.stream, record });
        }
        if in_flight > 0 {
            self.losses.insert("calls that had not returned".to_owned(), in_flight);
        }
        calls.sort_by_key(|call| (call.end, call.begin));
        calls
    }

    /// Names what would be lost, and finds what graphs read.
    fn survey(&mut self, calls: &[Placed<'a>]) {
        let mut captured = HashSet::new();
        for call in calls {
            let record = call.record;
            if let Some(api) = self.archive.row_of(&record) {
                let copies_in = api.effect == crate::catalogue::Effect::Enqueue
                    && record.section_tagged(SectionTag::BlobIn).is_none()
                    && api.params.iter().any(|param| param.name == "kind" && record.word(usize::from(param.word)) == 1);
                if copies_in && let Some(param) = api.params.iter().find(|param| param.name == "src") {
                    captured.insert(record.word(usize::from(param.word)));
                }
                if api.name == "__hipRegisterFatBinary" {
                    self.fat_binaries.extend(
                        record
                            .section_tagged(SectionTag::Code)
                            .and_then(|section| section.blob())
                            .map(|blob| blob.number),
                    );
                }
            }
        }
        for call in calls {
            self.survey_call(call, &captured);
        }
    }

    fn survey_call(&mut self, call: &Placed<'a>, captured: &HashSet<u64>) {
        let record = call.record;
        let Some(api) = self.archive.row_of(&record) else {
            let name = self.archive.api(record.api()).name.to_owned();
            return self.lose(format!("calls of {name}, which this build does not know"));
        };
        if api.ret == Returns::Error && record.ret() != 0 {
            return self.lose(format!("calls of {} that did not succeed", api.name));
        }
        let is_kept_only = record.flags() & (flag::LEFT_OUT | flag::REFUSED) != 0;
        if is_launch(api) {
            self.survey_launch(api, &record);
        }
        let layout = layout_of(self.layouts, api);
        for section in record.sections().map_while(Result::ok) {
            if section.presence == Presence::Withheld {
                self.lose(format!("withheld contents of {}", api.name));
                continue;
            }
            if section.presence == Presence::Absent || is_kept_only {
                continue;
            }
            match section.tag {
                SectionTag::GraphHostIn => self.survey_read(api, &section, captured),
                SectionTag::GraphHostOut => self.lose("results that graphs leave in host memory"),
                SectionTag::In | SectionTag::Text if !is_launch(api) => {
                    self.survey_inline(api, layout, &record, &section)
                }
                SectionTag::BlobIn if !has(layout, Extra::BlobLo) => {
                    self.lose(format!("contents of the host memory that {} reads", api.name));
                }
                SectionTag::BlobOut if !has(layout, Extra::BlobLo) && !has(layout, Extra::ResultLo) => {
                    self.lose(format!("results that {} leaves in host memory", api.name));
                }
                SectionTag::Code if !has(layout, Extra::CodeLo) && !has(layout, Extra::BlobLo) => {
                    self.lose(format!("code objects of {}", api.name));
                }
                _ => {}
            }
        }
    }

    fn survey_read(&mut self, api: &Api, section: &Section<'_>, captured: &HashSet<u64>) {
        let Some((address, blob)) = section.host_address().zip(section.blob()) else { return };
        if is_launch(api) || api.name == "hipRuntimeGetVersion" {
            return;
        }
        let known = *self.graph_reads.entry(address).or_insert(blob);
        let same = self.archive.blobs().hash(known.number) == self.archive.blobs().hash(blob.number);
        if !same || known.size_bytes != blob.size_bytes {
            self.lose("host memory that a graph reads, where it changed between launches");
        } else if !captured.contains(&address) {
            self.lose("host memory that graph nodes read, unless they were captured");
        }
    }

    fn survey_inline(&mut self, api: &Api, layout: Option<(u16, &Layout)>, record: &Record<'_>, section: &Section<'_>) {
        if matches!(api.policy, Policy::Skip(_)) || names_itself(api.name) {
            return;
        }
        let Some(param) = api.params.get(usize::from(section.param)) else { return };
        let field = layout.and_then(|(_, layout)| {
            let of = |meaning| layout.of_param(section.param, meaning);
            of(Meaning::Bytes).or_else(|| of(Meaning::Inline))
        });
        let room = field.map_or(0, |field| field.size_bytes as usize);
        let needs = section.payload.len() + usize::from(section.tag == SectionTag::Text);
        let told_twice = api.name == "__hipRegisterVar" && param.name == "hostVar";
        if needs > room && needs > 0 && !told_twice && record.word(usize::from(param.word)) != 0 {
            let more = if room > 0 { " beyond what fits" } else { "" };
            self.lose(format!("what {} of {} points to{more}", param.name, api.name));
        }
    }

    fn survey_launch(&mut self, api: &Api, record: &Record<'_>) {
        if api.params.iter().all(|param| !matches!(param.role, Role::KernelParams)) {
            return self.lose(format!("launches by {}", api.name));
        }
        let kernel = self.archive.kernels().of_launch(record.aux());
        let Some(kernel) = kernel else { return self.lose("launches of kernels without a name") };
        if kernel.args.is_none() {
            self.lose(format!("arguments of {}, which has no metadata", kernel.name));
        }
        for name in ["startEvent", "stopEvent", "flags"] {
            let set = api.params.iter().any(|param| param.name == name && record.word(usize::from(param.word)) != 0);
            if set {
                self.lose(format!("{name} of {}", api.name));
            }
        }
        // attrs and numAttrs of hipLaunchConfig_t and HIP_LAUNCH_CONFIG.
        let config =
            record.section(SectionTag::In, 0).filter(|_| api.params.first().is_some_and(|p| p.name == "config"));
        if config.is_some_and(|config| config.payload.get(48..52).is_some_and(|count| count != [0; 4])) {
            self.lose(format!("launch attributes of {}", api.name));
        }
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
        let failed = |reason| WriteError::Write { path: path.to_owned(), reason };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut file = BufWriter::new(fs::File::create(path).map_err(failed)?);
        file.write_all(bytes).and_then(|()| file.flush()).map_err(failed)
    }

    /// Stores a blob; none for contents that are not there.
    fn blob(&mut self, reference: BlobRef) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.blobs.get(&reference.number) {
            return Ok(hash);
        }
        let archive = self.archive;
        let hash = match archive.blobs().get(reference.number)? {
            None => ContentHash::NONE,
            Some(contents) => self.store_blob(&contents)?,
        };
        self.blobs.insert(reference.number, hash);
        Ok(hash)
    }

    fn store_blob(&mut self, contents: &[u8]) -> Result<ContentHash, WriteError> {
        let hash = ContentHash::of(contents);
        let name = hash.to_string();
        self.store(hash, &self.path.join("blobs").join(&name[..2]).join(format!("{name}.blob")), contents)
    }

    fn store_code(&mut self, image: &[u8]) -> Result<ContentHash, WriteError> {
        let hash = ContentHash::of(image);
        self.store(hash, &self.path.join("code_objects").join(format!("{hash}.hsaco")), image)
    }

    fn store(&mut self, hash: ContentHash, path: &Path, contents: &[u8]) -> Result<ContentHash, WriteError> {
        if !path.exists() {
            self.put(path, contents)?;
            self.contents += 1;
        }
        Ok(hash)
    }

    /// Stores a code object.
    fn code(&mut self, number: u64) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.codes.get(&number) {
            return Ok(hash);
        }
        let archive = self.archive;
        let hash = match archive.code_objects().get(number)? {
            None => ContentHash::NONE,
            Some(image) => self.store_code(&image)?,
        };
        self.codes.insert(number, hash);
        Ok(hash)
    }

    /// The code object that a launch of a kernel names: of a fat binary, the device's image in it.
    fn kernel_code(&mut self, kernel: u32) -> Result<ContentHash, WriteError> {
        if let Some(&hash) = self.kernels.get(&kernel) {
            return Ok(hash);
        }
        let archive = self.archive;
        let known = archive.kernels().of_launch(kernel.saturating_add(1));
        let hash = match known.and_then(|known| Some((known, known.code_object?))) {
            None => ContentHash::NONE,
            Some((known, number)) if self.fat_binaries.contains(&number) => {
                let image = archive.code_objects().get(number)?;
                let part = image.as_deref().and_then(|image| device_image(archive, image, &known.name));
                match part {
                    Some(part) => self.store_code(&part)?,
                    None => self.code(number)?,
                }
            }
            Some((_, number)) => self.code(number)?,
        };
        self.kernels.insert(kernel, hash);
        Ok(hash)
    }

    fn time_ns(&self, tick: u64) -> u64 {
        let clock = self.archive.manifest().clock;
        clock.ticks_to_ns(clock.tick_at_start).saturating_add(clock.ns_since_start(tick))
    }

    fn emit(&mut self, call: &Placed<'_>, table_id: u16, body: &[u8]) {
        let id = match table_id.checked_sub(super::layout::TABLE_RUNTIME_ENTRIES) {
            Some(compiler) => RUNTIME_ENTRIES + compiler,
            None => table_id,
        };
        let len = (super::layout::HEADER_BYTES + body.len()) as u32;
        let header = events::header_bytes(id, self.sequence, self.time_ns(call.end), call.tid, len);
        self.events.extend(header);
        self.events.extend(body);
        self.sequence += 1;
    }

    fn call(&mut self, call: &Placed<'a>) -> Result<(), WriteError> {
        let record = call.record;
        let Some(api) = self.archive.row_of(&record) else { return Ok(()) };
        if api.ret == Returns::Error && record.ret() != 0 {
            return Ok(());
        }
        if is_launch(api) && api.params.iter().any(|param| matches!(param.role, Role::KernelParams)) {
            return self.launch(call, api);
        }
        let Some((id, layout)) = layout_of(self.layouts, api).filter(|(_, layout)| layout.kind != Kind::Launch) else {
            return Ok(());
        };
        // The two entry points behind the oldest table have no number in it.
        if (RUNTIME_ENTRIES..super::layout::TABLE_RUNTIME_ENTRIES).contains(&id) {
            self.lose(format!("calls of {}, which format version {VERSION} does not number", api.name));
            return Ok(());
        }
        let mut body = vec![0; layout.size_bytes as usize - super::layout::HEADER_BYTES];
        for field in &layout.fields {
            let value = self.field(&record, api, field.subject, field.size_bytes as usize)?;
            let at = field.offset_bytes as usize - super::layout::HEADER_BYTES;
            let len = value.len().min(field.size_bytes as usize);
            body[at..at + len].copy_from_slice(&value[..len]);
        }
        if layout.kind == Kind::Node {
            body.extend(self.node_kernel(&record)?);
        }
        self.emit(call, id, &body);
        self.live.apply(api, &record, call.thread);
        Ok(())
    }

    /// The bytes of a field.
    fn field(&mut self, record: &Record<'a>, api: &Api, subject: Subject, size: usize) -> Result<Vec<u8>, WriteError> {
        let number = |value: u64| value.to_le_bytes().to_vec();
        let (param, meaning) = match subject {
            Subject::Extra(extra) => return self.extra(record, api, extra),
            Subject::Param(param, meaning) => (param, meaning),
        };
        let known = &api.params[usize::from(param)];
        let first = usize::from(known.word);
        let present = |tag| record.section(tag, param).filter(|section| section.presence == Presence::Present);
        Ok(match meaning {
            Meaning::Value if known.words > 1 => {
                (0..usize::from(known.words)).flat_map(|word| record.word(first + word).to_le_bytes()).collect()
            }
            Meaning::Value => number(record.word(first)),
            Meaning::Member(0) => number(record.word(first) & u64::from(u32::MAX)),
            Meaning::Member(1) => number(record.word(first) >> 32),
            Meaning::Member(_) => number(record.word(first + 1)),
            Meaning::Pointee => match present(SectionTag::Out) {
                Some(section) => section.payload.to_vec(),
                // What is read through a double pointer, or was not recorded: that there is something.
                None => number(record.word(first)),
            },
            Meaning::Inline | Meaning::Bytes => {
                let section =
                    present(SectionTag::In).or_else(|| present(SectionTag::Text)).or_else(|| present(SectionTag::Out));
                section.map_or_else(Vec::new, |section| section.payload[..section.payload.len().min(size)].to_vec())
            }
            Meaning::Present => {
                let is_there =
                    [SectionTag::In, SectionTag::Text, SectionTag::Out].into_iter().any(|tag| present(tag).is_some());
                vec![u8::from(is_there)]
            }
            Meaning::Count => {
                let len = present(SectionTag::In).map_or(0, |section| section.payload.len());
                number((len / super::translate::element_bytes(&known.role).max(1) as usize) as u64)
            }
        })
    }

    fn extra(&mut self, record: &Record<'a>, api: &Api, extra: Extra) -> Result<Vec<u8>, WriteError> {
        let number = |value: u64| value.to_le_bytes().to_vec();
        let has_result_field = self.layouts.of_api(api).is_some_and(|(_, layout)| has_extra(layout, Extra::ResultLo));
        let section = |tag| {
            record
                .section_tagged(tag)
                .filter(|section| section.presence == Presence::Present)
                .and_then(|section| section.blob())
        };
        let hash = match extra {
            Extra::Ret => {
                let returned = record.section_tagged(SectionTag::Return);
                return Ok(
                    returned.map_or_else(|| record.ret().to_le_bytes().to_vec(), |section| section.payload.to_vec())
                );
            }
            Extra::ModuleId => {
                self.modules += 1;
                return Ok(number(u64::from(self.modules)));
            }
            Extra::BlobSize => return Ok(number(section(SectionTag::Code).map_or(0, |blob| blob.size_bytes))),
            Extra::DeviceAddress => return Ok(number(0)),
            Extra::BlobLo | Extra::BlobHi => {
                if let Some(code) = section(SectionTag::Code) {
                    let archive = self.archive;
                    match archive.code_objects().get(code.number)? {
                        Some(image) => self.store_blob(&image)?,
                        None => ContentHash::NONE,
                    }
                } else if let Some(blob) = section(SectionTag::BlobIn) {
                    self.blob(blob)?
                } else if let Some(blob) = section(SectionTag::BlobOut).filter(|_| !has_result_field) {
                    self.blob(blob)?
                } else {
                    self.captured_source(record, api)?
                }
            }
            Extra::ResultLo | Extra::ResultHi => match section(SectionTag::BlobOut) {
                Some(blob) => self.blob(blob)?,
                None => ContentHash::NONE,
            },
            Extra::CodeLo | Extra::CodeHi => match section(SectionTag::Code) {
                Some(code) => self.code(code.number)?,
                None => ContentHash::NONE,
            },
        };
        let is_low = matches!(extra, Extra::BlobLo | Extra::ResultLo | Extra::CodeLo);
        Ok(number(if is_low { hash.lo } else { hash.hi }))
    }

    /// The contents of a captured copy's source: those that the first launch of its graph read.
    fn captured_source(&mut self, record: &Record<'a>, api: &Api) -> Result<ContentHash, WriteError> {
        if api.effect != crate::catalogue::Effect::Enqueue {
            return Ok(ContentHash::NONE);
        }
        let source =
            api.params.iter().find(|param| param.name == "src").map(|param| record.word(usize::from(param.word)));
        match source.and_then(|source| self.graph_reads.get(&source).copied()) {
            Some(blob) => self.blob(blob),
            None => Ok(ContentHash::NONE),
        }
    }

    fn kernel_bytes(&mut self, record: &Record<'a>) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
        let archive = self.archive;
        let kernel = archive.kernels().of_launch(record.aux());
        let code = self.kernel_code(record.aux().saturating_sub(1))?;
        let name = kernel.map_or("", |kernel| kernel.name.as_str());
        let mut head = (name.len().min(usize::from(u16::MAX)) as u16).to_le_bytes().to_vec();
        head.extend(&name.as_bytes()[..name.len().min(usize::from(u16::MAX))]);
        head.extend(code.lo.to_le_bytes());
        head.extend(code.hi.to_le_bytes());
        let payload = record.section_tagged(SectionTag::KernelArgs).map_or(&[][..], |section| section.payload);
        let args = kernel.and_then(|kernel| kernel.args.as_deref()).unwrap_or_default();
        let mut body = (args.len() as u16).to_le_bytes().to_vec();
        for arg in args {
            let size = arg.size as usize;
            let value = payload.get(arg.offset as usize..).and_then(|rest| rest.get(..size));
            let value = value.map_or_else(|| vec![0; size], <[u8]>::to_vec);
            let pointers = if size >= 8 { self.live.pointers(&value) } else { Vec::new() };
            let kind = match arg.kind {
                ArgKind::GlobalBuffer if size == 8 => 1,
                _ if pointers.is_empty() => 0,
                _ => 3u8,
            };
            body.push(kind);
            body.extend((size.min(usize::from(u16::MAX)) as u16).to_le_bytes());
            body.extend(&value);
            if kind == 3 {
                body.extend((pointers.len() as u16).to_le_bytes());
                body.extend(pointers.iter().flat_map(|offset| offset.to_le_bytes()));
            }
        }
        Ok((head, body))
    }

    fn node_kernel(&mut self, record: &Record<'a>) -> Result<Vec<u8>, WriteError> {
        let (mut head, body) = self.kernel_bytes(record)?;
        head.extend(body);
        Ok(head)
    }

    fn launch(&mut self, call: &Placed<'a>, api: &'static Api) -> Result<(), WriteError> {
        let record = call.record;
        let word = |name: &str| {
            let param = api.params.iter().find(|param| param.name == name)?;
            Some((record.word(usize::from(param.word)), record.word(usize::from(param.word) + 1)))
        };
        let one = |name: &str| word(name).map(|words| words.0 as u32);
        let cube = |name: &str| word(name).map(|(xy, z)| [xy as u32, (xy >> 32) as u32, z as u32]);
        let axes = |prefix: &str| {
            Some([one(&format!("{prefix}X"))?, one(&format!("{prefix}Y"))?, one(&format!("{prefix}Z"))?])
        };
        let config = record
            .section(SectionTag::In, 0)
            .filter(|_| api.params.first().is_some_and(|param| param.name == "config"));
        let block = cube("dimBlocks")
            .or_else(|| cube("blockDimX"))
            .filter(|_| word("gridDim").is_some() || word("numBlocks").is_some());
        let block = block.or_else(|| cube("blockDim")).or_else(|| axes("blockDim")).or_else(|| axes("localWorkSize"));
        let grid = cube("numBlocks").or_else(|| cube("gridDim")).or_else(|| axes("gridDim"));
        let grid = grid.or_else(|| {
            let (global, local) = (axes("globalWorkSize")?, axes("localWorkSize")?);
            Some([0, 1, 2].map(|axis| global[axis].div_ceil(local[axis].max(1))))
        });
        let shared = one("sharedMemBytes").or_else(|| one("sharedMem"));
        let stream = api.stream_param().map(|param| record.word(usize::from(api.params[param].word)));
        let in_config = |at: usize| {
            let bytes = config.and_then(|config| config.payload.get(at..at + 4)).unwrap_or(&[0; 4]);
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let (grid, block, shared, stream) = match config {
            // hipLaunchConfig_t and HIP_LAUNCH_CONFIG: grid, block, shared bytes, stream.
            Some(_) => (
                [in_config(0), in_config(4), in_config(8)],
                [in_config(12), in_config(16), in_config(20)],
                in_config(24),
                u64::from(in_config(32)) | u64::from(in_config(36)) << 32,
            ),
            None => (grid.unwrap_or_default(), block.unwrap_or_default(), shared.unwrap_or(0), stream.unwrap_or(0)),
        };
        let (head, arguments) = self.kernel_bytes(&record)?;
        let mut snapshots = Vec::new();
        for section in record.sections().map_while(Result::ok).filter(|section| section.tag == SectionTag::GraphHostIn)
        {
            if let Some((address, blob)) = section.host_address().zip(section.blob()) {
                snapshots.push((address, blob, self.blob(blob)?));
            }
        }
        let mut body = stream.to_le_bytes().to_vec();
        body.extend(head);
        body.extend(grid.iter().chain(&block).flat_map(|extent| extent.to_le_bytes()));
        body.extend(shared.to_le_bytes());
        body.extend(&arguments[..2]);
        body.extend((snapshots.len() as u16).to_le_bytes());
        body.extend(&arguments[2..]);
        body.extend([0; 8]);
        for (address, blob, hash) in snapshots {
            for word in [address, 0, blob.size_bytes, hash.lo, hash.hi] {
                body.extend(word.to_le_bytes());
            }
            body.push(0);
        }
        let name = match api.name {
            name if name.contains("Cooperative") || name == "hipLaunchKernel_spt" => name,
            "hipLaunchKernelExC" | "hipDrvLaunchKernelEx" => api.name,
            _ => LAUNCH,
        };
        let id = Api::by_name(name).and_then(|api| self.layouts.of_api(api)).map_or(308, |(id, _)| id);
        self.emit(call, id, &body);
        Ok(())
    }

    fn manifest(&self, events: u64) -> String {
        let native = self.archive.manifest();
        format!(
            "{{\n  \"pid\": {},\n  \"parent_pid\": {},\n  \"complete\": true,\n  \"event_count\": {events},\n  \"blob_count\": {}\n}}\n",
            native.pid, native.parent_pid, self.contents
        )
    }
}

/// Whether an entry point launches a kernel, graph nodes apart.
fn is_launch(api: &Api) -> bool {
    api.effect == crate::catalogue::Effect::Enqueue
        && (api.params.iter().any(|param| matches!(param.role, Role::KernelParams | Role::Extra))
            || api.name == "hipLaunchByPtr"
            || api.name.contains("MultiDevice"))
}

fn layout_of(layouts: &'static Layouts, api: &Api) -> Option<(u16, &'static Layout)> {
    layouts.of_api(api)
}

fn has(layout: Option<(u16, &Layout)>, extra: Extra) -> bool {
    layout.is_some_and(|(_, layout)| has_extra(layout, extra))
}

fn has_extra(layout: &Layout, extra: Extra) -> bool {
    layout.field(Subject::Extra(extra)).is_some()
}

/// Calls whose names launches repeat, or whose options replay does not use.
fn names_itself(name: &str) -> bool {
    name.starts_with("hipModuleLoad")
        || matches!(
            name,
            "hipModuleGetFunction" | "__hipRegisterFunction" | "__hipRegisterSurface" | "__hipRegisterTexture"
        )
}

/// The image in a fat binary that has a kernel, for the recorded device where there is a choice.
fn device_image(archive: &Archive, image: &[u8], kernel: &str) -> Option<Vec<u8>> {
    let arch = archive.manifest().devices.first().map_or("", |device| device.arch.as_str());
    let arch = arch.split(':').next().unwrap_or_default();
    let mut found: Option<Vec<u8>> = None;
    // An image that cannot be read is not the one.
    let _ = code_object::visit_targets(image, |target| {
        let names = code_object::signatures(target.image).unwrap_or_default();
        if names.iter().any(|known| known.name == kernel) {
            let preferred = !arch.is_empty() && target.id.contains(arch);
            if found.is_none() || preferred {
                found = Some(target.image.to_vec());
            }
        }
        Ok(())
    });
    found
}

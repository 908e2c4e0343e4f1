//! Making a packed archive.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::layout::{self, Extent, File, Trailer};
use super::unpack::make_folder_of;
use super::{ALIGN_BYTES, FRAME_BYTES, HEADER_BYTES, MAGIC, Method, PackedError, VERSION};
use crate::archive::{ArchiveError, EVENTS_DIR, PROCESS_PREFIX, STREAM_EXTENSION};
use crate::blob_store::{BLOBS_DIR, BlobIndex, CODE_OBJECTS_DIR, INDEX_FILE};
use crate::files;
use crate::manifest::{self, ProcessManifest};

/// Compression level: zstd's own default, where a core packs some hundred MB a second.
const LEVEL: i32 = 3;
/// Of contents longer than this only samples are compressed to find out whether the whole should be.
const SAMPLE_BYTES: usize = 1 << 20;
/// Contents shorter than this share a frame with their neighbours.
const SHARED_BYTES: u64 = 64 << 10;
/// Bytes that are compressed at once, over all cores, before they are written.
const BATCH_BYTES: u64 = 64 << 20;
/// Deepest folder in an archive that is followed.
const MAX_DEPTH: usize = 8;

/// What packing an archive came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files.
    pub files: u64,
    /// Bytes they take together, as their directory lists them.
    pub file_bytes: u64,
    /// Size of the packed archive in bytes.
    pub packed_bytes: u64,
    /// Things in the directory that are no regular files, and were left out.
    pub left_out: u64,
}

/// Packs the archive at a path, a root or one process of one, into a new file. The file appears under its name once it is
/// whole.
///
/// # Errors
/// Why the archive cannot be read or the file not be written; that there is one of its name.
pub fn pack(archive: &Path, target: &Path) -> Result<Packed, ArchiveError> {
    if target.symlink_metadata().is_ok() {
        return Err(ArchiveError::Packed(PackedError::Exists { path: target.to_owned() }));
    }
    match super::PackedFile::open(archive) {
        Ok(_) => return Err(ArchiveError::Packed(PackedError::AlreadyPacked { path: archive.to_owned() })),
        // A directory, or whatever else: what it lacks as an archive is told below.
        Err(PackedError::NotPacked { .. } | PackedError::Io { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    // The archives of AMD's in-tree HRR are packed in their native form.
    let translated = crate::upstream::Translated::root_of(archive)?;
    let archive = translated.as_ref().map_or(archive, crate::upstream::Translated::path);
    let mut names = Vec::new();
    let mut packed = Packed::default();
    let prefix = process_prefix(archive)?;
    list(archive, &prefix, 0, &mut names, &mut packed.left_out).map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => ArchiveError::Missing { path: archive.to_owned() },
        io::ErrorKind::NotADirectory => ArchiveError::NotADirectory { path: archive.to_owned() },
        _ => ArchiveError::Directory { path: archive.to_owned(), reason },
    })?;
    if !names.iter().any(|(name, _)| name.starts_with(PROCESS_PREFIX)) {
        return Err(ArchiveError::Empty { path: archive.to_owned() });
    }
    names.sort();
    let mut temporary = target.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // What cannot be made is told by the name that was given.
    let at_target = |error| match error {
        PackedError::Io { path, reason } if path == temporary => PackedError::Io { path: target.to_owned(), reason },
        other => other,
    };
    make_folder_of(target)?;
    let written = write(&names, &temporary, &mut packed)
        .map_err(at_target)
        .and_then(|()| fs::rename(&temporary, target).map_err(PackedError::io(target)));
    if written.is_err() {
        // What could not be finished goes, as far as it can; the error that matters is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(ArchiveError::Packed)?;
    Ok(packed)
}

/// What the names of a process directory that stands alone begin with in the packed root.
fn process_prefix(archive: &Path) -> Result<String, ArchiveError> {
    if !archive.join(EVENTS_DIR).is_dir() {
        return Ok(String::new());
    }
    let manifest = ProcessManifest::read(&archive.join(manifest::FILE))?;
    Ok(format!("{PROCESS_PREFIX}{}/", manifest.pid))
}

/// Lists the regular files below a directory as names and paths.
fn list(
    dir: &Path,
    prefix: &str,
    depth: usize,
    found: &mut Vec<(String, PathBuf)>,
    left_out: &mut u64,
) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        match entry.file_name().into_string() {
            Ok(name) if kind.is_dir() && depth < MAX_DEPTH => {
                list(&entry.path(), &format!("{prefix}{name}/"), depth + 1, found, left_out)?;
            }
            Ok(name) if kind.is_file() => found.push((format!("{prefix}{name}"), entry.path())),
            _ => *left_out += 1,
        }
    }
    Ok(())
}

fn write(names: &[(String, PathBuf)], path: &Path, packed: &mut Packed) -> Result<(), PackedError> {
    let io = PackedError::io(path);
    // An archive with contents is private, and so is this.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(&io)?;
    let mut output = Output { file: BufWriter::with_capacity(1 << 20, file), at_bytes: 0 };
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    output.put(&header).map_err(&io)?;
    let mut files = Vec::with_capacity(names.len());
    for (name, source) in names {
        let map = files::map(source).map_err(PackedError::io(source))?;
        let bytes: &[u8] = map.as_deref().unwrap_or_default();
        let parts = parts_of(source, bytes);
        let mut file = File {
            name: name.clone(),
            len_bytes: bytes.len() as u64,
            hash: [0; 32],
            extents: Vec::with_capacity(parts.len()),
        };
        let mut hasher = blake3::Hasher::new();
        let mut parts = parts.as_slice();
        while !parts.is_empty() {
            let mut batch_bytes = 0;
            let count = parts.iter().take_while(|part| {
                let fits = batch_bytes < BATCH_BYTES;
                batch_bytes += part.end - part.start;
                fits
            });
            let (batch, rest) = parts.split_at(count.count());
            for (part, frame) in batch.iter().zip(compressed(batch, bytes)) {
                let raw = slice(bytes, part);
                hasher.update(raw);
                file.extents.push(output.extent(part, raw, frame).map_err(&io)?);
            }
            parts = rest;
        }
        file.hash = *hasher.finalize().as_bytes();
        packed.files += 1;
        packed.file_bytes += file.len_bytes;
        files.push(file);
    }
    let table = layout::encode(&files);
    let stored = zstd::bulk::compress(&table, LEVEL).map_err(&io)?;
    let trailer = Trailer {
        table_at_bytes: output.at_bytes,
        stored_bytes: stored.len() as u64,
        len_bytes: table.len() as u64,
        hash: *blake3::hash(&stored).as_bytes(),
    };
    output
        .put(&stored)
        .and_then(|()| output.put(&trailer.to_bytes()))
        .and_then(|()| output.file.flush())
        .map_err(&io)?;
    packed.packed_bytes = output.at_bytes;
    Ok(())
}

struct Output {
    file: BufWriter<fs::File>,
    at_bytes: u64,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at_bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn extent(&mut self, part: &Range<u64>, raw: &[u8], frame: Option<Vec<u8>>) -> io::Result<Extent> {
        let (method, stored): (Method, &[u8]) = match &frame {
            Some(frame) => (Method::Zstd, frame),
            None => (Method::Stored, raw),
        };
        if method == Method::Stored {
            let padding = [0; ALIGN_BYTES as usize];
            let missing = self.at_bytes.next_multiple_of(ALIGN_BYTES) - self.at_bytes;
            self.put(&padding[..missing as usize])?;
        }
        let at_bytes = self.at_bytes;
        self.put(stored)?;
        let (offset_bytes, len_bytes) = (part.start, part.end - part.start);
        Ok(Extent { offset_bytes, len_bytes, at_bytes, stored_bytes: stored.len() as u64, method })
    }
}

/// The frames of parts, `None` where one is better stored as it is. On all cores.
fn compressed(parts: &[Range<u64>], bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = parts.len().div_ceil(cores).max(1);
    let mut frames = Vec::with_capacity(parts.len());
    std::thread::scope(|scope| {
        let work = |parts: &[Range<u64>]| parts.iter().map(|part| frame(slice(bytes, part))).collect::<Vec<_>>();
        let threads: Vec<_> = parts.chunks(share).map(|parts| (parts, scope.spawn(move || work(parts)))).collect();
        for (parts, thread) in threads {
            // A compressor that panicked compressed nothing: its parts are stored as they are.
            frames.extend(thread.join().unwrap_or_else(|_| vec![None; parts.len()]));
        }
    });
    frames
}

/// Bytes as one frame, if that saves at least an eighth.
fn frame(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() as u64 > FRAME_BYTES {
        // Only what was found not to compress is given in parts of this length.
        return None;
    }
    zstd::bulk::compress(raw, LEVEL).ok().filter(|frame| frame.len() <= raw.len() / 8 * 7)
}

/// Whether contents compress, by samples from their start and middle.
fn compresses(raw: &[u8]) -> bool {
    let middle = raw.len() / 2;
    let sample = |at: usize| frame(&raw[at..(at + SAMPLE_BYTES).min(raw.len())]).is_some();
    sample(0) || sample(middle)
}

/// How a file is taken apart. What no part covers is zeros.
fn parts_of(path: &Path, bytes: &[u8]) -> Vec<Range<u64>> {
    let regions = if is_pack(path) { contents_of(path, bytes.len() as u64) } else { Vec::new() };
    let mut parts = Vec::new();
    let mut shared: Option<Range<u64>> = None;
    let mut at = 0;
    let end = bytes.len() as u64;
    // Contents, and what lies between them and around them.
    let rest = std::iter::once(end..end);
    for region in regions.into_iter().chain(rest) {
        if region.start > at {
            push_frames(at..region.start, bytes, &mut shared, &mut parts);
        }
        if region.end - region.start < SHARED_BYTES {
            push_shared(region.clone(), &mut shared, &mut parts);
        } else {
            parts.extend(shared.take());
            if region.end - region.start > FRAME_BYTES && !compresses(slice(bytes, &region)) {
                parts.push(region.clone());
            } else {
                push_frames(region.clone(), bytes, &mut shared, &mut parts);
            }
        }
        at = region.end;
    }
    parts.extend(shared);
    parts.retain(|part| part.start < part.end);
    parts
}

fn push_shared(region: Range<u64>, shared: &mut Option<Range<u64>>, parts: &mut Vec<Range<u64>>) {
    match shared {
        // What lies between is zeros, and few of them.
        Some(open) if open.end - open.start < SHARED_BYTES && region.end - open.start <= 2 * SHARED_BYTES => {
            open.end = region.end;
        }
        _ => {
            parts.extend(shared.take());
            *shared = Some(region);
        }
    }
}

/// Frames over a range, without the zeros at the end of each.
fn push_frames(range: Range<u64>, bytes: &[u8], shared: &mut Option<Range<u64>>, parts: &mut Vec<Range<u64>>) {
    let mut start = range.start;
    while start < range.end {
        let stop = (start + FRAME_BYTES).min(range.end);
        let used = slice(bytes, &(start..stop)).iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
        if used > 0 {
            parts.extend(shared.take());
            parts.push(start..start + used);
        }
        start = stop;
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// Whether a file is a pack of a blob store.
fn is_pack(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let is_store = matches!(folder, Some(BLOBS_DIR | CODE_OBJECTS_DIR));
    is_store && path.extension().is_some_and(|extension| extension != STREAM_EXTENSION) && pack_number(path).is_some()
}

fn pack_number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("pack-")?.strip_suffix(".bin")?.parse().ok()
}

/// The contents in a pack by offset, none overlapping another. An index that cannot be read names none.
fn contents_of(path: &Path, pack_bytes: u64) -> Vec<Range<u64>> {
    let number = pack_number(path);
    let index = BlobIndex::open(&path.with_file_name(INDEX_FILE)).unwrap_or_default();
    let mut ranges: Vec<Range<u64>> = index
        .entries()
        .iter()
        .filter(|entry| Some(entry.pack) == number && entry.len_bytes > 0)
        .filter_map(|entry| Some(entry.offset_bytes..entry.offset_bytes.checked_add(entry.len_bytes)?))
        .filter(|range| range.end <= pack_bytes)
        .collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut contents: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match contents.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => contents.push(range),
        }
    }
    contents
}

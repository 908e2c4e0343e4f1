//! Reading a packed archive in place.

use std::borrow::Cow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Mmap, MmapMut, MmapOptions};

use super::layout::{self, Extent, File, Trailer};
use super::{
    EXTENSION, HEADER_BYTES, MAGIC, MAX_TABLE_BYTES, Method, PackedError, TRAILER_BYTES, VERSION, decompress,
    decompress_into,
};
use crate::files;

/// Frames kept unpacked for the next read: neighbours in a frame are mostly read one after the other.
const KEPT_FRAMES: usize = 16;
/// Largest frame in bytes that is kept unpacked.
const KEPT_FRAME_BYTES: u64 = 1 << 18;

/// Bytes of whole files that are unpacked into memory at most. Event streams beyond that go to a file that nobody else sees, so
/// that the system may take their memory back.
const MEMORY_BYTES: u64 = 128 << 20;

/// A frame's offset in the packed file and what it unpacks to.
type KeptFrame = (u64, Arc<Vec<u8>>);

/// A packed archive, mapped.
#[derive(Debug)]
pub struct PackedFile {
    path: PathBuf,
    map: Mmap,
    files: Vec<File>,
    /// Bytes of whole files that may still be unpacked into memory.
    memory_left_bytes: AtomicU64,
    /// Frames that were read last.
    kept: [Mutex<Option<KeptFrame>>; KEPT_FRAMES],
}

impl PackedFile {
    /// Opens a packed archive and reads its table of contents.
    ///
    /// # Errors
    /// [`PackedError::NotPacked`] where it is another kind of file; else what is wrong with it.
    pub fn open(path: &Path) -> Result<Arc<Self>, PackedError> {
        let not_packed = || PackedError::NotPacked { path: path.to_owned() };
        if path.is_dir() {
            return Err(not_packed());
        }
        let cut_short = |len: usize| PackedError::CutShort { path: path.to_owned(), len_bytes: len as u64 };
        let Some(map) = files::map(path).map_err(PackedError::io(path))? else {
            // Of an empty file only the name says what it was to be.
            let is_named_so = path.extension().is_some_and(|extension| extension == EXTENSION);
            return Err(if is_named_so { cut_short(0) } else { not_packed() });
        };
        if map[..map.len().min(MAGIC.len())] != MAGIC[..map.len().min(MAGIC.len())] {
            return Err(not_packed());
        }
        let header: &[u8; HEADER_BYTES] = map.first_chunk().ok_or_else(|| cut_short(map.len()))?;
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(PackedError::Version { path: path.to_owned(), found: version });
        }
        let trailer = map
            .last_chunk::<TRAILER_BYTES>()
            .filter(|_| map.len() >= HEADER_BYTES + TRAILER_BYTES)
            .and_then(Trailer::parse)
            .ok_or_else(|| cut_short(map.len()))?;
        let files = read_table(&map, &trailer).map_err(|(offset_bytes, reason)| PackedError::Damaged {
            path: path.to_owned(),
            offset_bytes,
            reason,
        })?;
        let memory_left_bytes = AtomicU64::new(MEMORY_BYTES);
        Ok(Arc::new(PackedFile { path: path.to_owned(), map, files, memory_left_bytes, kept: Default::default() }))
    }

    /// Takes memory for a whole file out of what may be used; false where it is not there any more.
    fn take_memory(&self, len_bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(len_bytes);
        // Relaxed: a bound that nothing else depends on.
        self.memory_left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the packed file in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Names of the files in it, in ascending order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// The file with a name.
    pub fn content(self: &Arc<Self>, name: &str) -> Option<PackedContent> {
        let position = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        Some(PackedContent { packed: Arc::clone(self), position })
    }

    fn stored(&self, extent: &Extent) -> &[u8] {
        // The table was only accepted with extents inside the file.
        let range = extent.at_bytes as usize..(extent.at_bytes + extent.stored_bytes) as usize;
        self.map.get(range).unwrap_or_default()
    }

    fn damaged(&self, extent: &Extent, reason: String) -> PackedError {
        PackedError::Damaged { path: self.path.clone(), offset_bytes: extent.at_bytes, reason }
    }

    /// Puts the bytes of an extent from `skip` on over `target`.
    fn read(&self, extent: &Extent, skip: u64, target: &mut [u8]) -> Result<(), PackedError> {
        let from = |bytes: &[u8], target: &mut [u8]| match bytes
            .get(skip as usize..)
            .and_then(|rest| rest.get(..target.len()))
        {
            Some(bytes) => {
                target.copy_from_slice(bytes);
                Ok(())
            }
            None => Err("it is shorter than its table says".to_owned()),
        };
        let read = match extent.method {
            Method::Stored => from(self.stored(extent), target),
            Method::Zstd
                if skip == 0 && target.len() as u64 == extent.len_bytes && extent.len_bytes > KEPT_FRAME_BYTES =>
            {
                decompress_into(self.stored(extent), target)
            }
            Method::Zstd => self.unpacked(extent).and_then(|frame| from(&frame, target)),
        };
        read.map_err(|reason| self.damaged(extent, reason))
    }

    fn unpacked(&self, extent: &Extent) -> Result<Arc<Vec<u8>>, String> {
        let slot = &self.kept[(extent.at_bytes / 64) as usize % KEPT_FRAMES];
        let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at_bytes, frame)) = &*lock()
            && *at_bytes == extent.at_bytes
        {
            return Ok(Arc::clone(frame));
        }
        let frame = Arc::new(decompress(self.stored(extent), extent.len_bytes)?);
        if extent.len_bytes <= KEPT_FRAME_BYTES {
            *lock() = Some((extent.at_bytes, Arc::clone(&frame)));
        }
        Ok(frame)
    }
}

fn read_table(map: &[u8], trailer: &Trailer) -> Result<Vec<File>, (u64, String)> {
    let end = map.len() as u64;
    let &Trailer { table_at_bytes, stored_bytes, len_bytes, hash } = trailer;
    let at = |reason: String| (table_at_bytes, format!("its table of contents is wrong: {reason}"));
    let table_end = end - TRAILER_BYTES as u64;
    if table_at_bytes < HEADER_BYTES as u64 || table_at_bytes.checked_add(stored_bytes) != Some(table_end) {
        return Err((end, "its table of contents does not lie before its end".to_owned()));
    }
    if len_bytes > MAX_TABLE_BYTES {
        return Err(at(format!("it is {len_bytes} bytes long")));
    }
    let stored = &map[table_at_bytes as usize..table_end as usize];
    if *blake3::hash(stored).as_bytes() != hash {
        return Err(at("its hash differs".to_owned()));
    }
    let table = decompress(stored, len_bytes).map_err(at)?;
    layout::decode(&table, table_at_bytes).map_err(at)
}

/// A whole file of a packed archive.
#[derive(Debug)]
pub(crate) enum WholeFile {
    /// In memory.
    Memory(MmapMut),
    /// In a file without a name.
    File(Mmap),
}

/// A file in a packed archive.
#[derive(Clone, Debug)]
pub struct PackedContent {
    packed: Arc<PackedFile>,
    position: usize,
}

impl PackedContent {
    fn file(&self) -> &File {
        &self.packed.files[self.position]
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.file().len_bytes
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// A part of the file: borrowed where it is stored as it is, unpacked otherwise. `None` where the file is shorter.
    ///
    /// # Errors
    /// A frame that cannot be unpacked.
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Result<Option<Cow<'_, [u8]>>, PackedError> {
        let file = self.file();
        let Some(end) = offset_bytes.checked_add(len_bytes).filter(|&end| end <= file.len_bytes) else {
            return Ok(None);
        };
        let first = file.extents.partition_point(|extent| extent.end_bytes() <= offset_bytes);
        if let Some(extent) = file.extents.get(first)
            && extent.method == Method::Stored
            && extent.offset_bytes <= offset_bytes
            && end <= extent.end_bytes()
        {
            let start = (offset_bytes - extent.offset_bytes) as usize;
            return Ok(self.packed.stored(extent).get(start..start + len_bytes as usize).map(Cow::Borrowed));
        }
        // The length is at most the file's, which is no more than its parts unpack to and a bounded number of zeros.
        let Ok(len) = usize::try_from(len_bytes) else { return Ok(None) };
        let mut bytes = vec![0; len];
        self.fill(first, offset_bytes, &mut bytes)?;
        Ok(Some(Cow::Owned(bytes)))
    }

    /// The whole file in memory of its own.
    ///
    /// # Errors
    /// A frame that cannot be unpacked, a hash that differs, or not enough memory.
    pub fn whole(&self) -> Result<MmapMut, PackedError> {
        let file = self.file();
        let io = PackedError::io(&self.packed.path);
        let len = usize::try_from(file.len_bytes).map_err(|_| io(std::io::ErrorKind::OutOfMemory.into()))?;
        let mut memory = MmapOptions::new().len(len.max(1)).map_anon().map_err(io)?;
        self.fill(0, 0, &mut memory[..len])?;
        let mut hasher = blake3::Hasher::new();
        for extent in &file.extents {
            hasher.update(&memory[extent.offset_bytes as usize..extent.end_bytes() as usize]);
        }
        self.check_hash(&hasher)?;
        Ok(memory)
    }

    /// The whole file, mapped: in memory of its own while that is little, else from a file without a name in the system's
    /// directory for temporary files. Frames are unpacked one at a time.
    ///
    /// # Errors
    /// As [`Self::whole`], and no room in that directory.
    pub(crate) fn mapped(&self) -> Result<WholeFile, PackedError> {
        if self.packed.take_memory(self.len_bytes()) {
            return self.whole().map(WholeFile::Memory);
        }
        self.spilled().map(WholeFile::File)
    }

    fn spilled(&self) -> Result<Mmap, PackedError> {
        let parent = std::env::temp_dir();
        let io = PackedError::io(&parent);
        let file = tempfile::tempfile_in(&parent).map_err(&io)?;
        file.set_len(self.len_bytes()).map_err(&io)?;
        self.visit(|offset_bytes, bytes| file.write_all_at(bytes, offset_bytes).map_err(&io))?;
        // SAFETY: a file mapping is only sound to borrow while no one changes or truncates the file. This one has no name, and
        // its only descriptor is closed here.
        unsafe { Mmap::map(&file) }.map_err(io)
    }

    /// Checks the file's hash without keeping its bytes.
    ///
    /// # Errors
    /// A frame that cannot be unpacked, or a hash that differs.
    pub fn verify(&self) -> Result<(), PackedError> {
        self.visit(|_, _| Ok(()))
    }

    /// Gives the parts of the file that are there, in order, with their offsets.
    pub(super) fn visit(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), PackedError>,
    ) -> Result<(), PackedError> {
        let mut hasher = blake3::Hasher::new();
        for extent in &self.file().extents {
            let stored = self.packed.stored(extent);
            let bytes = match extent.method {
                Method::Stored => Cow::Borrowed(stored),
                Method::Zstd => {
                    let frame = decompress(stored, extent.len_bytes);
                    Cow::Owned(frame.map_err(|reason| self.packed.damaged(extent, reason))?)
                }
            };
            hasher.update(&bytes);
            visit(extent.offset_bytes, &bytes)?;
        }
        self.check_hash(&hasher)
    }

    fn check_hash(&self, hasher: &blake3::Hasher) -> Result<(), PackedError> {
        let file = self.file();
        if *hasher.finalize().as_bytes() == file.hash {
            return Ok(());
        }
        let offset_bytes = file.extents.first().map_or(0, |extent| extent.at_bytes);
        let reason = format!("{} does not have the hash that the table of contents gives", file.name);
        Err(PackedError::Damaged { path: self.packed.path.clone(), offset_bytes, reason })
    }

    /// Fills zeroed memory with the file's bytes from an offset on, beginning with extent `first`.
    fn fill(&self, first: usize, offset_bytes: u64, target: &mut [u8]) -> Result<(), PackedError> {
        let end = offset_bytes + target.len() as u64;
        for extent in self.file().extents[first..].iter().take_while(|extent| extent.offset_bytes < end) {
            let start = extent.offset_bytes.max(offset_bytes);
            let stop = extent.end_bytes().min(end);
            let part = &mut target[(start - offset_bytes) as usize..(stop - offset_bytes) as usize];
            self.packed.read(extent, start - extent.offset_bytes, part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Deref;

    use super::*;
    use crate::archive_writer::ArchiveWriter;
    use crate::packed::pack;
    use crate::record_builder::RecordBuilder;
    use crate::stream_file::ContentsMode;

    #[test]
    fn a_file_that_memory_has_no_room_for_reads_the_same_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = ArchiveWriter::create(&dir.path().join("a/pid-7"), 7, ContentsMode::Contents).unwrap();
        let records: Vec<Vec<u8>> =
            (0..150_000u64).map(|n| RecordBuilder::new(3, &[n, n * n]).ticks(n, n).build()).collect();
        writer.stream(0, 7, "main", &records).unwrap();
        writer.finish().unwrap();
        let target = dir.path().join("a.hrrz");
        pack(&dir.path().join("a"), &target).unwrap();
        let packed = PackedFile::open(&target).unwrap();
        let stream = packed.content("pid-7/events/0.evs").unwrap();
        assert!(stream.file().extents.len() > 1, "it takes more than one frame");
        let WholeFile::Memory(memory) = stream.mapped().unwrap() else { panic!("there is room in memory") };
        // Relaxed: no other thread looks at it.
        packed.memory_left_bytes.store(stream.len_bytes() - 1, Ordering::Relaxed);
        let WholeFile::File(file) = stream.mapped().unwrap() else { panic!("there is no room in memory") };
        assert!(memory.deref() == file.deref());
        assert!(file.deref() == std::fs::read(dir.path().join("a/pid-7/events/0.evs")).unwrap());
    }
}

//! Writes a whole process archive from one thread, for whatever has records at hand rather than a running program:
//! conversion, repair, tests.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::archive::{EVENTS_DIR, stream_path};
use crate::blob_store::{
    ALIGN_BYTES, BLOBS_DIR, CODE_OBJECTS_DIR, INDEX_FILE, IndexEntry, PACK_BYTES, content_hash, index_header,
    pack_file_name,
};
use crate::catalogue::APIS;
use crate::kernel_table::{self, Kernel};
use crate::manifest::{self, Clock, ProcessManifest, Runtime};
use crate::record::{Record, marker};
use crate::stream_file::{ContentsMode, StreamHeader, offset};

/// A process archive under construction.
#[derive(Debug)]
pub struct ArchiveWriter {
    path: PathBuf,
    manifest: ProcessManifest,
    blobs: StoreWriter,
    code_objects: StoreWriter,
    kernels: String,
}

impl ArchiveWriter {
    /// Makes the directory of a process archive, with this build's catalogue.
    ///
    /// # Errors
    /// The system's reason.
    pub fn create(path: &Path, pid: u64, contents: ContentsMode) -> io::Result<Self> {
        create_dir(&path.join(EVENTS_DIR))?;
        let manifest = ProcessManifest {
            format: manifest::FORMAT.to_owned(),
            version: manifest::VERSION,
            pid,
            parent_pid: 0,
            complete: false,
            contents,
            event_count: 0,
            blob_count: 0,
            code_object_count: 0,
            stored: None,
            kernel_count: 0,
            thread_count: 0,
            clock: Clock::default(),
            runtime: Runtime::default(),
            devices: Vec::new(),
            command: Vec::new(),
            capture_version: String::new(),
            unsized_launches: 0,
            host_snapshots: manifest::HostSnapshots::default(),
            rank: None,
            imported: None,
            window: None,
            flight_recorder_bytes: None,
            stopped: None,
            apis: APIS.iter().map(|api| api.name.to_owned()).collect(),
        };
        manifest.write(&path.join(manifest::FILE))?;
        Ok(ArchiveWriter {
            path: path.to_owned(),
            manifest,
            blobs: StoreWriter::create(&path.join(BLOBS_DIR))?,
            code_objects: StoreWriter::create(&path.join(CODE_OBJECTS_DIR))?,
            kernels: String::new(),
        })
    }

    /// The manifest as [`Self::finish`] will write it; counts are kept by the writer.
    pub fn manifest_mut(&mut self) -> &mut ProcessManifest {
        &mut self.manifest
    }

    /// Writes the stream file of a thread: its records, each as [`RecordBuilder`](crate::record_builder::RecordBuilder)
    /// makes them.
    ///
    /// # Errors
    /// The system's reason.
    pub fn stream<R: AsRef<[u8]>>(&mut self, thread: u32, tid: u64, name: &str, records: &[R]) -> io::Result<()> {
        let header = StreamHeader {
            contents: self.manifest.contents,
            thread,
            tid,
            pid: self.manifest.pid,
            open_tick: self.manifest.clock.tick_at_start,
            used_bytes: 0,
            name: name.to_owned(),
            ring_part_bytes: 0,
        };
        let mut bytes = header.to_page().to_vec();
        for record in records {
            bytes.extend(record.as_ref());
        }
        let used_bytes = bytes.len() as u64;
        bytes[offset::USED..][..8].copy_from_slice(&used_bytes.to_le_bytes());
        self.manifest.thread_count += 1;
        // Markers are no calls.
        let is_call = |record: &&R| {
            Record::parse(record.as_ref()).is_ok_and(|record| record.is_some_and(|record| record.api() < marker::FIRST))
        };
        self.manifest.event_count += records.iter().filter(is_call).count() as u64;
        write_file(&stream_path(&self.path, thread), &bytes)
    }

    /// Stores contents under a blob number.
    ///
    /// # Errors
    /// The system's reason.
    pub fn blob(&mut self, number: u64, contents: &[u8]) -> io::Result<()> {
        self.manifest.blob_count = self.manifest.blob_count.max(number.saturating_add(1));
        self.blobs.put(number, contents)
    }

    /// Has a number stand for the contents of another, which [`Self::blob`] stored.
    ///
    /// # Errors
    /// The system's reason; a number that nothing was stored under is invalid input.
    pub fn same_blob(&mut self, number: u64, stored: u64) -> io::Result<()> {
        self.manifest.blob_count = self.manifest.blob_count.max(number.saturating_add(1));
        self.blobs.put_again(number, stored)
    }

    /// Stores a code object under a number.
    ///
    /// # Errors
    /// The system's reason.
    pub fn code_object(&mut self, number: u64, image: &[u8]) -> io::Result<()> {
        self.manifest.code_object_count = self.manifest.code_object_count.max(number.saturating_add(1));
        self.code_objects.put(number, image)
    }

    /// Adds a kernel to the kernel table.
    pub fn kernel(&mut self, kernel: &Kernel) {
        self.manifest.kernel_count += 1;
        self.kernels.push_str(&kernel.to_line());
    }

    /// Writes the kernel table, and the manifest of a capture that was seen to its end.
    ///
    /// # Errors
    /// The system's reason.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_unfinished()?;
        self.manifest.complete = true;
        self.manifest.write(&self.path.join(manifest::FILE))
    }

    /// Writes what there is as a capture that was killed leaves it: the counts are not in the manifest.
    ///
    /// # Errors
    /// The system's reason.
    pub fn abandon(self) -> io::Result<()> {
        self.write_unfinished()?;
        let manifest = ProcessManifest {
            event_count: 0,
            blob_count: 0,
            code_object_count: 0,
            kernel_count: 0,
            thread_count: 0,
            ..self.manifest
        };
        manifest.write(&self.path.join(manifest::FILE))
    }

    fn write_unfinished(&self) -> io::Result<()> {
        write_file(&self.path.join(kernel_table::FILE), &self.kernels)
    }
}

/// Files that are written are for their owner alone, as a recorder's are.
const FILE_MODE: u32 = 0o600;
/// So are directories.
const DIR_MODE: u32 = 0o700;

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options
}

fn private_appended() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE);
    options
}

fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    private().truncate(true).open(path)?.write_all(bytes.as_ref())
}

/// A blob store under construction. The layout is that of [`crate::blob_store`].
#[derive(Debug)]
struct StoreWriter {
    dir: PathBuf,
    index: File,
    pack: u32,
    pack_bytes: u64,
    /// By hash, the entry that the contents were first stored under.
    stored: HashMap<[u8; 32], IndexEntry>,
    /// By number.
    numbers: HashMap<u64, IndexEntry>,
}

impl StoreWriter {
    fn create(dir: &Path) -> io::Result<Self> {
        create_dir(dir)?;
        let mut index = private().truncate(true).open(dir.join(INDEX_FILE))?;
        index.write_all(&index_header())?;
        Ok(StoreWriter {
            dir: dir.to_owned(),
            index,
            pack: 0,
            pack_bytes: 0,
            stored: HashMap::new(),
            numbers: HashMap::new(),
        })
    }

    fn put(&mut self, number: u64, contents: &[u8]) -> io::Result<()> {
        let hash = content_hash(contents);
        let entry = match self.stored.get(&hash) {
            Some(first) => IndexEntry { number, ..*first },
            None => {
                if self.pack_bytes >= PACK_BYTES {
                    self.pack += 1;
                    self.pack_bytes = 0;
                }
                let offset_bytes = self.pack_bytes.next_multiple_of(ALIGN_BYTES);
                let mut pack = private_appended().open(self.dir.join(pack_file_name(self.pack)))?;
                let padding = vec![0; (offset_bytes - self.pack_bytes) as usize];
                pack.write_all(&padding)?;
                pack.write_all(contents)?;
                self.pack_bytes = offset_bytes + contents.len() as u64;
                let entry =
                    IndexEntry { number, hash, pack: self.pack, offset_bytes, len_bytes: contents.len() as u64 };
                self.stored.insert(hash, entry);
                entry
            }
        };
        self.numbers.insert(number, entry);
        self.index.write_all(&entry.to_bytes())
    }

    fn put_again(&mut self, number: u64, stored: u64) -> io::Result<()> {
        let entry = self.numbers.get(&stored).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let entry = IndexEntry { number, ..*entry };
        self.index.write_all(&entry.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Archive;
    use crate::record_builder::RecordBuilder;

    #[test]
    fn what_is_written_opens_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid-7");
        let mut writer = ArchiveWriter::create(&path, 7, ContentsMode::Contents).unwrap();
        writer.blob(0, b"abc").unwrap();
        writer.blob(1, b"hello").unwrap();
        writer.blob(2, b"abc").unwrap();
        writer.code_object(0, b"code").unwrap();
        writer.stream(1, 71, "second", &[RecordBuilder::new(5, &[]).ticks(3, 4).build()]).unwrap();
        writer.stream(0, 70, "first", &[RecordBuilder::new(6, &[1, 2]).ticks(1, 2).build()]).unwrap();
        writer.finish().unwrap();

        let archive = Archive::open(dir.path()).unwrap();
        assert_eq!(archive.path(), path);
        assert!(archive.warnings().is_empty(), "{:?}", archive.warnings());
        assert!(archive.manifest().complete);
        assert_eq!((archive.manifest().event_count, archive.manifest().thread_count), (2, 2));
        assert_eq!(archive.streams().iter().map(|s| s.header().name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(archive.blobs().get(1).unwrap().as_deref(), Some(&b"hello"[..]));
        assert_eq!(archive.blobs().get(2).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(archive.blobs().stored().contents, 2);
        assert_eq!(archive.code_objects().get(0).unwrap().as_deref(), Some(&b"code"[..]));
        // Equal contents take their place in the pack once.
        assert_eq!(std::fs::metadata(path.join("blobs/pack-0.bin")).unwrap().len(), 64 + 5);
    }
}

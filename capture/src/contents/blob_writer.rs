//! Hashing contents, storing each once, and indexing it by number; away from the program's threads where the buffer
//! budget allows it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::memory::Trust;
use super::pool::{Buffer, LONGEST_BYTES, Pool};
use super::region::Region;
use super::shared_copy::SharedCopy;
use super::store::Store;
use crate::guest::{notice, threads};
use crate::process;

/// Most writer threads.
const MAX_THREADS: usize = 8;
/// Most contents that are written together.
const BATCH_JOBS: usize = 1024;
/// Most bytes of contents that are written together.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Contents from this length on are copied by several threads.
const SHARED_COPY_BYTES: usize = 4 << 20;
/// Cores for each writer thread.
const CORES_PER_THREAD: usize = 2;

/// The program's memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Contents to be stored.
#[derive(Debug)]
pub(super) struct Job {
    store: &'static Store,
    pub(super) number: u64,
    pub(super) buffer: Buffer,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Copies that threads of the program wait for: they come first.
    copies: Vec<Arc<SharedCopy>>,
    /// Writers that are at work.
    active: usize,
    /// Writers that wait for work: waking costs a system call, and nobody is woken in vain.
    waiting: usize,
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    queue: Mutex<Queue>,
    more: Condvar,
    idle: Condvar,
}

/// The two stores of an archive and the threads that write them.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    /// Host contents.
    pub(crate) blobs: &'static Store,
    /// Code objects.
    pub(crate) code_objects: &'static Store,
    shared: &'static Shared,
    has_threads: bool,
    said_slow: AtomicBool,
}

impl BlobWriter {
    /// Starts the writers for two store directories, which are made when first needed.
    pub(crate) fn start(blobs: PathBuf, code_objects: PathBuf) -> Self {
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            pool: Pool::new(),
            queue: Mutex::default(),
            more: Condvar::new(),
            idle: Condvar::new(),
        }));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = (cores / CORES_PER_THREAD).clamp(1, MAX_THREADS);
        let started = (0..wanted).filter(|_| threads::spawn("hrr-blobs", || serve(shared))).count();
        BlobWriter {
            blobs: Box::leak(Box::new(Store::new(blobs))),
            code_objects: Box::leak(Box::new(Store::new(code_objects))),
            shared,
            has_threads: started > 0,
            said_slow: AtomicBool::new(false),
        }
    }

    /// Records the contents of a region under a number of a store; says whether the memory could be read.
    ///
    /// # Safety
    /// As [`Region::read`].
    pub(crate) unsafe fn add(&self, store: &'static Store, number: u64, region: &Region, trust: Trust) -> bool {
        let Some(len_bytes) = region.len_bytes() else {
            return false;
        };
        // SAFETY: by the caller's contract.
        let gathered = unsafe { self.gather(region, trust) };
        if matches!(gathered, Ok(None)) && len_bytes <= LONGEST_BYTES as u64 {
            self.say_slow();
        }
        match gathered {
            Ok(Some(buffer)) => self.submit(store, number, buffer),
            Err(Unreadable) => return false,
            // SAFETY: by the caller's contract.
            Ok(None) => match unsafe { store.store_region(number, region, len_bytes, trust) } {
                Ok(read) => return read,
                Err(error) => cannot_write(store, &error),
            },
        }
        true
    }

    /// Copies a region with the help of writers that have nothing else to do; says whether it could be read.
    fn copy_with_help(&self, copy: SharedCopy) -> bool {
        let copy = Arc::new(copy);
        let waiting = {
            let mut queue = self.shared.lock();
            if queue.waiting > 0 {
                queue.copies.push(Arc::clone(&copy));
            }
            queue.waiting
        };
        if waiting > 0 {
            self.shared.more.notify_all();
        }
        copy.help();
        let read = copy.wait();
        if waiting > 0 {
            self.shared.lock().copies.retain(|other| !Arc::ptr_eq(other, &copy));
        }
        read
    }

    /// Says, once, that the program now waits for the disk.
    fn say_slow(&self) {
        // Relaxed: only keeps the line from being repeated.
        if !self.said_slow.swap(true, Ordering::Relaxed) {
            notice::line(format_args!(
                "Contents come faster than they can be stored: calls that carry contents now take as long as storing them"
            ));
        }
    }

    /// Copies the contents of a region into a buffer; `Ok(None)` where the budget has no room for it now.
    ///
    /// # Errors
    /// The memory could not be read.
    ///
    /// # Safety
    /// As [`Region::read`].
    pub(crate) unsafe fn gather(&self, region: &Region, trust: Trust) -> Result<Option<Buffer>, Unreadable> {
        let len_bytes = region.len_bytes().and_then(|len_bytes| usize::try_from(len_bytes).ok()).ok_or(Unreadable)?;
        let Some(mut buffer) = self.shared.pool.take(len_bytes) else {
            return Ok(None);
        };
        if self.has_threads && len_bytes >= SHARED_COPY_BYTES {
            // SAFETY: by the caller's contract.
            let copy = unsafe { SharedCopy::new(*region, trust, &mut buffer) };
            return if self.copy_with_help(copy) { Ok(Some(buffer)) } else { Err(Unreadable) };
        }
        let mut done = 0;
        for piece in buffer.pieces_mut() {
            let len = piece.len() as u64;
            // SAFETY: by the caller's contract; the piece ends inside the region.
            if !unsafe { region.read(done, piece, trust) } {
                return Err(Unreadable);
            }
            done += len;
        }
        Ok(Some(buffer))
    }

    /// A buffer of this length, once there is room for it; `None` where there never is.
    pub(crate) fn buffer(&self, len_bytes: usize) -> Option<Buffer> {
        self.shared.pool.take(len_bytes).or_else(|| {
            self.flush();
            self.shared.pool.take(len_bytes)
        })
    }

    /// Has contents stored under a number.
    pub(crate) fn submit(&self, store: &'static Store, number: u64, contents: Buffer) {
        let job = Job { store, number, buffer: contents };
        if self.has_threads {
            let mut queue = self.shared.lock();
            queue.jobs.push_back(job);
            if queue.waiting > 0 {
                self.shared.more.notify_one();
            }
        } else {
            perform(&[job], &mut Vec::new());
        }
    }

    /// Returns when everything added until now is written or has failed; the calling thread helps.
    pub(crate) fn flush(&self) {
        let mut staging = Vec::new();
        let mut queue = self.shared.lock();
        loop {
            let batch = queue.take_batch();
            if !batch.is_empty() {
                drop(queue);
                perform(&batch, &mut staging);
                queue = self.shared.lock();
            } else if queue.active > 0 {
                queue = self.shared.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                return;
            }
        }
    }

    /// As [`Self::flush`], at the end of recording.
    pub(crate) fn finish(&self) {
        self.flush();
        for store in [self.blobs, self.code_objects] {
            store.trim();
        }
    }
}

impl Queue {
    /// The next job, and those after it that can be written together with it.
    fn take_batch(&mut self) -> Vec<Job> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(job) = self.jobs.front() {
            bytes += job.buffer.len_bytes();
            let fits = batch.first().is_none_or(|first: &Job| {
                std::ptr::eq(first.store, job.store) && bytes <= BATCH_BYTES && batch.len() < BATCH_JOBS
            });
            if !fits {
                break;
            }
            batch.extend(self.jobs.pop_front());
        }
        batch
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared) {
    let mut staging = Vec::new();
    let mut queue = shared.lock();
    loop {
        if let Some(copy) = queue.copies.iter().find(|copy| copy.has_work()).cloned() {
            drop(queue);
            copy.help();
            drop(copy);
            queue = shared.lock();
            continue;
        }
        let batch = queue.take_batch();
        if batch.is_empty() {
            queue.waiting += 1;
            queue = shared.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
            continue;
        }
        queue.active += 1;
        drop(queue);
        perform(&batch, &mut staging);
        drop(batch);
        queue = shared.lock();
        queue.active -= 1;
        if queue.active == 0 {
            shared.idle.notify_all();
        }
    }
}

fn perform(batch: &[Job], staging: &mut Vec<u8>) {
    if let Some(first) = batch.first()
        && let Err(error) = first.store.store_batch(batch, staging)
    {
        cannot_write(first.store, &error);
    }
}

fn cannot_write(store: &Store, error: &io::Error) {
    process::stop(format_args!("{} cannot be written: {error}", store.dir().display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use hrr_format::blob_store::BlobStore;

    fn writer(dir: &tempfile::TempDir) -> BlobWriter {
        BlobWriter::start(dir.path().join("blobs"), dir.path().join("code_objects"))
    }

    fn add(writer: &BlobWriter, bytes: &[u8]) -> u64 {
        let number = writer.blobs.next_number();
        let region = Region::range(bytes.as_ptr() as u64, bytes.len() as u64);
        // SAFETY: the region is the slice.
        assert!(unsafe { writer.add(writer.blobs, number, &region, Trust::Readable) });
        number
    }

    #[test]
    fn contents_are_stored_once_and_read_back_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let long: Vec<u8> = (0..5_000_000u32).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
        let contents: [&[u8]; 5] = [b"token", b"", &long, b"token", &long];
        let numbers: Vec<u64> = contents.iter().map(|bytes| add(&writer, bytes)).collect();
        writer.flush();
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        for (number, bytes) in numbers.iter().zip(contents) {
            assert_eq!(store.get(*number).unwrap().map(|found| found.to_vec()), Some(bytes.to_vec()));
        }
        assert_eq!(store.stored().contents, 3);
        assert!(!dir.path().join("code_objects").exists());
    }

    #[test]
    fn contents_beyond_the_budget_are_written_by_the_caller() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let long = vec![3u8; 70 << 20];
        let numbers = [add(&writer, &long), add(&writer, &long)];
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        for number in numbers {
            assert_eq!(store.get(number).unwrap().map(|found| found.len()), Some(long.len()));
        }
        assert_eq!(store.stored().contents, 1);
    }

    #[test]
    fn doubtful_memory_that_is_not_there_gives_no_blob() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let number = writer.blobs.next_number();
        // SAFETY: doubtful memory need not be readable.
        assert!(!unsafe { writer.add(writer.blobs, number, &Region::range(16, 1 << 10), Trust::Doubtful) });
        // SAFETY: as above.
        assert!(!unsafe { writer.add(writer.blobs, number, &Region::range(16, 80 << 20), Trust::Doubtful) });
        writer.flush();
        assert_eq!(writer.blobs.stored(), 0);
    }

    #[test]
    fn contents_that_were_buffered_are_known_when_they_come_without_a_buffer() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let bytes: Vec<u8> = (0..3_000_001u32).map(|index| (index.wrapping_mul(index) >> 9) as u8).collect();
        for len in [5, 200_000, bytes.len()] {
            let region = Region::range(bytes.as_ptr() as u64, len as u64);
            let first = add(&writer, &bytes[..len]);
            writer.flush();
            let second = writer.blobs.next_number();
            // SAFETY: the region lies in the vector.
            assert!(unsafe { writer.blobs.store_region(second, &region, len as u64, Trust::Doubtful) }.unwrap());
            let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
            assert_eq!(store.get(first).unwrap().as_deref(), Some(&bytes[..len]));
            assert_eq!(store.index().get(first).unwrap().offset_bytes, store.index().get(second).unwrap().offset_bytes);
        }
    }

    #[test]
    fn rows_with_gaps_and_ranges_with_holes_are_stored_whole_or_not_at_all() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let bytes: Vec<u8> = (0..4_000_000u32).map(|index| (index.wrapping_mul(index) >> 9) as u8).collect();
        let rows = Region::rows(bytes.as_ptr() as u64, 3001, 1000, 4000).unwrap();
        let len_bytes = rows.len_bytes().unwrap();
        for trust in [Trust::Doubtful, Trust::Readable] {
            let number = writer.blobs.next_number();
            // SAFETY: the rows lie in the vector.
            assert!(unsafe { writer.blobs.store_region(number, &rows, len_bytes, trust) }.unwrap());
            let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
            let expected: Vec<u8> = bytes.chunks(4000).flat_map(|row| &row[..3001]).copied().collect();
            assert!(store.get(number).unwrap().is_some_and(|found| found == expected));
        }
        let mut map = memmap2::MmapMut::map_anon(8 << 20).unwrap();
        map.fill(3);
        // SAFETY: a page of this mapping, which is not looked at before it is unmapped.
        unsafe { libc::mprotect(map.as_mut_ptr().add(5 << 20).cast(), 4096, libc::PROT_NONE) };
        let number = writer.blobs.next_number();
        let region = Region::range(map.as_ptr() as u64, 8 << 20);
        // SAFETY: doubtful memory need not be readable.
        assert!(!unsafe { writer.blobs.store_region(number, &region, 8 << 20, Trust::Doubtful) }.unwrap());
        // As a program gives it that has its units wrong.
        let region = Region::range(map.as_ptr() as u64, 1 << 40);
        // SAFETY: as above.
        assert!(!unsafe { writer.blobs.store_region(number, &region, 1 << 40, Trust::Doubtful) }.unwrap());
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        assert_eq!(store.get(number), Ok(None));
        let pack = std::fs::metadata(dir.path().join("blobs/pack-0.bin")).unwrap();
        assert!(pack.blocks() * 512 < 128 << 20, "{} blocks for what could not be read", pack.blocks());
        // What comes next lies where the unreadable would have lain.
        let next = add(&writer, b"next");
        writer.finish();
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        assert_eq!(store.get(next).unwrap().as_deref(), Some(&b"next"[..]));
        assert!(std::fs::metadata(dir.path().join("blobs/pack-0.bin")).unwrap().len() < 16 << 20);
    }

    #[test]
    fn what_a_pack_is_given_ahead_it_gives_back() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        let bytes: Vec<u8> = (0..5 << 20u32).map(|index: u32| (index.wrapping_mul(index) >> 9) as u8).collect();
        add(&writer, &bytes);
        writer.finish();
        let pack = std::fs::metadata(dir.path().join("blobs/pack-0.bin")).unwrap();
        assert_eq!(pack.len(), bytes.len() as u64);
        assert!(pack.blocks() * 512 <= pack.len() + (64 << 10), "{} blocks", pack.blocks());
    }

    #[test]
    fn many_threads_store_equal_contents_once() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(&dir);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for value in 0..200u8 {
                        add(&writer, &[value; 3000]);
                    }
                });
            }
        });
        writer.flush();
        let store = BlobStore::open(&dir.path().join("blobs")).unwrap();
        assert_eq!((store.len(), store.stored().contents), (800, 200));
    }
}

//! Hashing contents, storing each once, and indexing it by number; away from the program's threads where the buffer
//! budget allows it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hrr_format::blob_store::{
    ALIGN_BYTES, HEADER_BYTES, INDEX_FILE, IndexEntry, PACK_BYTES, index_header, pack_file_name,
};

use super::memory::Trust;
use super::pool::{Buffer, CHUNK_BYTES, LONGEST_BYTES, Pool};
use super::region::Region;
use crate::files::{self, GuardedFile};
use crate::writer::segment::check_size_limit;
use crate::{notice, process, threads};

type Hash = [u8; 32];

/// Most writer threads.
const MAX_THREADS: usize = 4;
/// Most contents that are written together.
const BATCH_JOBS: usize = 1024;
/// Most bytes of contents that are written together.
const BATCH_BYTES: usize = 1 << 20;
/// Cores for each writer thread.
const CORES_PER_THREAD: usize = 4;

/// A store of an archive, being written.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    numbers: AtomicU64,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    known: HashMap<Hash, Known>,
    index: Option<GuardedFile>,
    index_bytes: u64,
    /// Index entries that are not written yet.
    entries: Vec<u8>,
    pack: Option<(u32, Arc<GuardedFile>)>,
    pack_bytes: u64,
}

/// What became of contents with a hash.
#[derive(Debug)]
enum Known {
    /// They are being written; these numbers wait for it. An entry never points at bytes that are not there.
    Writing(Vec<u64>),
    /// They lie here.
    Written(Place),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    pack: u32,
    offset_bytes: u64,
    len_bytes: u64,
}

/// What is to be done with contents whose hash is known.
enum Decision {
    /// Nothing more: they are there, or somebody is writing them.
    Done,
    /// They are to be written at this place of this pack.
    Write(Place, Arc<GuardedFile>),
}

impl Store {
    fn new(dir: PathBuf) -> Self {
        Store { dir, numbers: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Gives out a number.
    pub(crate) fn next_number(&self) -> u64 {
        // Relaxed: numbers only have to differ.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Numbers given out so far.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do with contents; index entries that it makes wait for [`Self::write_entries`].
    fn decide(&self, state: &mut StoreState, number: u64, hash: &Hash, len_bytes: u64) -> io::Result<Decision> {
        match state.known.get_mut(hash) {
            Some(Known::Writing(waiting)) => {
                waiting.push(number);
                return Ok(Decision::Done);
            }
            Some(Known::Written(place)) => {
                let place = *place;
                state.add_entry(number, hash, place);
                return Ok(Decision::Done);
            }
            None => {}
        }
        let (pack, file, offset_bytes) = self.reserve(state, len_bytes)?;
        state.known.insert(*hash, Known::Writing(Vec::new()));
        Ok(Decision::Write(Place { pack, offset_bytes, len_bytes }, file))
    }

    fn reserve(&self, state: &mut StoreState, len_bytes: u64) -> io::Result<(u32, Arc<GuardedFile>, u64)> {
        let full = state.pack_bytes >= PACK_BYTES;
        let (pack, file) = match &state.pack {
            Some((pack, file)) if !full => (*pack, Arc::clone(file)),
            last => {
                let pack = last.as_ref().map_or(0, |(pack, _)| pack + 1);
                if pack == 0 {
                    files::ensure_dir(&self.dir)?;
                }
                let file = Arc::new(GuardedFile::create(self.dir.join(pack_file_name(pack)))?);
                state.pack_bytes = 0;
                state.pack = Some((pack, Arc::clone(&file)));
                (pack, file)
            }
        };
        let offset_bytes = state.pack_bytes.next_multiple_of(ALIGN_BYTES);
        check_size_limit(offset_bytes + len_bytes)?;
        state.pack_bytes = offset_bytes + len_bytes;
        Ok((pack, file, offset_bytes))
    }

    /// Appends the index entries that were made, in one write.
    fn write_entries(&self, state: &mut StoreState) -> io::Result<()> {
        if state.entries.is_empty() {
            return Ok(());
        }
        if state.index.is_none() {
            let index = GuardedFile::create(self.dir.join(INDEX_FILE))?;
            index.write_all_at(&index_header(), 0)?;
            state.index = Some(index);
            state.index_bytes = HEADER_BYTES as u64;
        }
        let entries = std::mem::take(&mut state.entries);
        check_size_limit(state.index_bytes + entries.len() as u64)?;
        if let Some(index) = &state.index {
            index.write_all_at(&entries, state.index_bytes)?;
        }
        state.index_bytes += entries.len() as u64;
        Ok(())
    }

    /// Stores a batch of contents: those that are new with as few writes as possible, since writing a short content costs
    /// several times what hashing it does.
    fn store_batch(&self, batch: &[Job], staging: &mut Vec<u8>) -> io::Result<()> {
        let hashes: Vec<Hash> = batch.iter().map(|job| hash_of(&job.buffer)).collect();
        let mut new = Vec::new();
        {
            let mut state = self.state();
            for (job, hash) in batch.iter().zip(&hashes) {
                let len_bytes = job.buffer.len_bytes() as u64;
                if let Decision::Write(place, pack) = self.decide(&mut state, job.number, hash, len_bytes)? {
                    new.push((job, hash, place, pack));
                }
            }
            self.write_entries(&mut state)?;
        }
        let mut rest = &new[..];
        while let Some((first, _, place, pack)) = rest.first() {
            // Those that follow each other in one pack, as far as they fit the staging buffer.
            let end_of = |place: &Place| place.offset_bytes + place.len_bytes;
            let run = rest
                .iter()
                .take_while(|(_, _, next, _)| {
                    next.pack == place.pack && end_of(next) - place.offset_bytes <= BATCH_BYTES as u64
                })
                .count();
            if run > 1 {
                staging.clear();
                for (job, _, next, _) in &rest[..run] {
                    staging.resize((next.offset_bytes - place.offset_bytes) as usize, 0);
                    job.buffer.pieces().for_each(|piece| staging.extend_from_slice(piece));
                }
                pack.write_all_at(staging, place.offset_bytes)?;
            } else {
                let mut at = place.offset_bytes;
                for piece in first.buffer.pieces() {
                    pack.write_all_at(piece, at)?;
                    at += piece.len() as u64;
                }
            }
            rest = &rest[run.max(1)..];
        }
        let mut state = self.state();
        for (job, hash, place, _) in new {
            state.written(job.number, hash, hash, place);
        }
        self.write_entries(&mut state)
    }

    /// Stores contents straight from the program's memory, on the calling thread. `Ok(false)`: it could not be read.
    ///
    /// # Safety
    /// As [`Region::read`].
    unsafe fn store_region(&self, number: u64, region: &Region, len_bytes: u64, trust: Trust) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut walk = |visit: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>| -> io::Result<bool> {
            let mut done = 0;
            while done < len_bytes {
                let len = usize::try_from(len_bytes - done).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                // SAFETY: by this function's contract; the piece ends inside the region.
                if !unsafe { region.read(done, &mut chunk[..len], trust) } {
                    return Ok(false);
                }
                visit(done, &chunk[..len])?;
                done += len as u64;
            }
            Ok(true)
        };
        let mut hasher = blake3::Hasher::new();
        match region.as_range() {
            Some((address, len_bytes)) if trust == Trust::Readable => {
                // SAFETY: the range is readable by this function's contract. Another thread of the program may write to it,
                // which the second hash below notices.
                hasher.update(unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes as usize) });
            }
            _ => {
                if !walk(&mut |_, piece| {
                    hasher.update(piece);
                    Ok(())
                })? {
                    return Ok(false);
                }
            }
        }
        let planned = *hasher.finalize().as_bytes();
        let decision = {
            let mut state = self.state();
            let decision = self.decide(&mut state, number, &planned, len_bytes)?;
            self.write_entries(&mut state)?;
            decision
        };
        if let Decision::Write(place, pack) = decision {
            let mut hasher = blake3::Hasher::new();
            walk(&mut |done, piece| {
                hasher.update(piece);
                pack.write_all_at(piece, place.offset_bytes + done)
            })?;
            let mut state = self.state();
            state.written(number, &planned, hasher.finalize().as_bytes(), place);
            self.write_entries(&mut state)?;
        }
        Ok(true)
    }
}

impl StoreState {
    fn add_entry(&mut self, number: u64, hash: &Hash, Place { pack, offset_bytes, len_bytes }: Place) {
        let entry = IndexEntry { number, hash: *hash, pack, offset_bytes, len_bytes };
        self.entries.extend_from_slice(&entry.to_bytes());
    }

    /// The contents of `planned` have been written as what hashes to `written`.
    fn written(&mut self, number: u64, planned: &Hash, written: &Hash, place: Place) {
        let waiting = match self.known.remove(planned) {
            Some(Known::Writing(waiting)) => waiting,
            _ => Vec::new(),
        };
        self.known.insert(*written, Known::Written(place));
        self.add_entry(number, written, place);
        if planned == written {
            for number in waiting {
                self.add_entry(number, written, place);
            }
        }
        // Otherwise the memory changed between hashing and writing; those who waited for the first hash find their
        // numbers without an entry, as if never written.
    }
}

fn hash_of(buffer: &Buffer) -> Hash {
    let mut hasher = blake3::Hasher::new();
    buffer.pieces().for_each(|piece| {
        hasher.update(piece);
    });
    *hasher.finalize().as_bytes()
}

/// The program's memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

#[derive(Debug)]
struct Job {
    store: &'static Store,
    number: u64,
    buffer: Buffer,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
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
    process::stop(format_args!("{} cannot be written: {error}", store.dir.display()));
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
        assert!(!dir.path().join("blobs").exists());
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

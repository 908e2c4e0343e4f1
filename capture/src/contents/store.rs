//! One of an archive's two stores, being written: contents by hash, each once, and an index by number.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hrr_format::blob_store::{
    ALIGN_BYTES, HEADER_BYTES, INDEX_FILE, IndexEntry, PACK_BYTES, index_header, pack_file_name,
};

use super::blob_writer::{BATCH_BYTES, Job};
use super::memory::Trust;
use super::pool::{Buffer, CHUNK_BYTES};
use super::region::Region;
use crate::files::{self, GuardedFile};
use crate::writer::segment::check_size_limit;

type Hash = [u8; 32];

/// Writes a piece of contents at its place in a pack, now or soon.
pub(super) type WritePiece<'a> = dyn FnMut(&Arc<GuardedFile>, u64, &[u8]) -> io::Result<()> + 'a;

/// Bytes at the start of long contents by which they are told apart before they are hashed.
const PREFIX_BYTES: usize = 256 << 10;

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
    /// Length, and hash of the first bytes, of long contents that are there or on their way.
    prefixes: HashSet<(u64, Hash)>,
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
    pub(super) fn new(dir: PathBuf) -> Self {
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

    /// Where it lies.
    pub(super) fn dir(&self) -> &std::path::Path {
        &self.dir
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
    pub(super) fn store_batch(&self, batch: &[Job], staging: &mut Vec<u8>) -> io::Result<()> {
        let hashes: Vec<Hash> = batch.iter().map(|job| hash_of(&job.buffer)).collect();
        let mut new: Vec<New<'_>> = Vec::new();
        let mut decided = Ok(());
        {
            let mut state = self.state();
            for (job, hash) in batch.iter().zip(&hashes) {
                match self.decide(&mut state, job.number, hash, job.buffer.len_bytes() as u64) {
                    Ok(Decision::Write(place, pack)) => new.push((job, hash, place, pack)),
                    Ok(Decision::Done) => {}
                    Err(error) => {
                        decided = Err(error);
                        break;
                    }
                }
            }
            decided = decided.and(self.write_entries(&mut state));
        }
        // Where there is no room for all, what there is room for is stored all the same.
        let (count, written) = write_runs(&new, staging);
        let mut state = self.state();
        for (job, hash, place, _) in new.into_iter().take(count) {
            state.written(job.number, hash, hash, place);
        }
        decided.and(written).and(self.write_entries(&mut state))
    }

    /// Stores contents straight from the program's memory, on the calling thread. `Ok(false)`: it could not be read.
    ///
    /// Contents that begin like some that are there, and are as long, are hashed before anything is written, since they are
    /// likely to be the same. Others are written while they are hashed: `write` is given each piece and its place.
    ///
    /// # Safety
    /// As [`Region::read`].
    pub(super) unsafe fn store_region(
        &self,
        number: u64,
        region: &Region,
        len_bytes: u64,
        trust: Trust,
        write: &mut WritePiece<'_>,
        finish: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<bool> {
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
        let mut first = vec![0; usize::try_from(len_bytes).unwrap_or(usize::MAX).min(PREFIX_BYTES)];
        // SAFETY: as above.
        if !unsafe { region.read(0, &mut first, trust) } {
            return Ok(false);
        }
        let prefix = (len_bytes, *blake3::hash(&first).as_bytes());
        let place = {
            let mut state = self.state();
            match state.prefixes.insert(prefix) {
                true => Some(self.reserve(&mut state, len_bytes)?),
                false => None,
            }
        };
        if let Some((pack, file, offset_bytes)) = place {
            let mut hasher = blake3::Hasher::new();
            let read = walk(&mut |done, piece| {
                hasher.update(piece);
                write(&file, offset_bytes + done, piece)
            })?;
            finish()?;
            let hash = *hasher.finalize().as_bytes();
            let mut state = self.state();
            if read {
                state.written(number, &hash, &hash, Place { pack, offset_bytes, len_bytes });
                self.write_entries(&mut state)?;
            }
            return Ok(read);
        }
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
                write(&pack, place.offset_bytes + done, piece)
            })?;
            finish()?;
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

/// Contents that are not there yet: the job, the hash, and the place they are to have.
type New<'a> = (&'a Job, &'a Hash, Place, Arc<GuardedFile>);

/// Writes contents, those that follow each other in a pack together. Returns how many of them were written whole, from the
/// first on.
fn write_runs(new: &[New<'_>], staging: &mut Vec<u8>) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some((_, _, place, pack)) = new.get(written) {
        // Those that follow each other, as far as they fit the staging buffer.
        let end_of = |place: &Place| place.offset_bytes + place.len_bytes;
        let run = new[written..]
            .iter()
            .take_while(|(_, _, next, _)| {
                next.pack == place.pack && end_of(next) - place.offset_bytes <= BATCH_BYTES as u64
            })
            .count();
        if run > 1 {
            staging.clear();
            for (job, _, next, _) in &new[written..written + run] {
                staging.resize((next.offset_bytes - place.offset_bytes) as usize, 0);
                job.buffer.pieces().for_each(|piece| staging.extend_from_slice(piece));
            }
            if pack.write_all_at(staging, place.offset_bytes).is_ok() {
                written += run;
                continue;
            }
            // One by one, to keep what there is room for.
        }
        for one in &new[written..written + run.max(1)] {
            if let Err(error) = write_one(one) {
                return (written, Err(error));
            }
            written += 1;
        }
    }
    (written, Ok(()))
}

fn write_one((job, _, place, pack): &New<'_>) -> io::Result<()> {
    let mut at = place.offset_bytes;
    for piece in job.buffer.pieces() {
        pack.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn hash_of(buffer: &Buffer) -> Hash {
    let mut hasher = blake3::Hasher::new();
    buffer.pieces().for_each(|piece| {
        hasher.update(piece);
    });
    *hasher.finalize().as_bytes()
}

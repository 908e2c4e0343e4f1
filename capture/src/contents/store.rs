//! One of an archive's two stores, being written: contents by hash, each once, and an index by number.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hrr_format::blob_store::{
    ALIGN_BYTES, ENTRY_BYTES, HEADER_BYTES, INDEX_FILE, IndexEntry, PACK_BYTES, index_header, pack_file_name,
};

use super::blob_writer::{BATCH_BYTES, Job};
use super::memory::Trust;
use super::pool::Buffer;
use super::region::Region;
use crate::files::{self, GuardedFile};
use crate::writer::segment::check_size_limit;

type Hash = [u8; 32];

/// Bytes at the start of long contents by which they are told apart before they are hashed.
const PREFIX_BYTES: usize = 16 << 10;
/// Contents longer than this are long: they are stored piece by piece, of this length, so that what is hashed is in the
/// processor's cache from being copied.
const PIECE_BYTES: usize = 256 << 10;
/// Least and most that a pack's blocks are asked for at a time, in bytes. It makes writes to them cheaper (on ext4 by half),
/// and is given back when recording ends.
const PREALLOCATE_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);

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
    pack: Option<(u32, Arc<Pack>)>,
    pack_bytes: u64,
    /// Length, and hash of the first bytes, of long contents that are there or on their way.
    prefixes: HashSet<(u64, Hash)>,
    /// Buffers of [`PIECE_BYTES`] that nobody uses now.
    pieces: Vec<Vec<u8>>,
}

/// A pack file that is being written.
#[derive(Debug)]
struct Pack {
    file: GuardedFile,
    /// Up to where it has been given blocks; `u64::MAX` where the file system gives none ahead.
    preallocated_bytes: AtomicU64,
}

impl Pack {
    fn create(path: PathBuf) -> io::Result<Self> {
        Ok(Pack { file: GuardedFile::create(path)?, preallocated_bytes: AtomicU64::new(0) })
    }

    /// Has blocks made for what is about to be written up to `end_bytes`, and for some more.
    ///
    /// Never for all that was reserved: a program may give a length that no memory has.
    fn prepare(&self, end_bytes: u64) {
        let (least, most) = PREALLOCATE_BYTES.into_inner();
        // Relaxed: a hint; blocks that are asked for twice are there the second time.
        let before = self.preallocated_bytes.load(Ordering::Relaxed);
        if end_bytes <= before.max(least) {
            return;
        }
        // As much again as there is, so that a short recording does not ask for much.
        let end_bytes = end_bytes + end_bytes.clamp(least, most);
        let start_bytes = before.max(end_bytes.saturating_sub(2 * most));
        let made = self.file.preallocate(start_bytes, end_bytes - start_bytes);
        self.preallocated_bytes.store(if made.is_ok() { end_bytes } else { u64::MAX }, Ordering::Relaxed);
    }
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
    Write(Place, Arc<Pack>),
}

impl Store {
    pub(super) fn new(dir: PathBuf) -> Self {
        Store { dir, numbers: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Gives out a number.
    pub(crate) fn next_number(&self) -> u64 {
        // Relaxed: numbers only have to differ.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            // Whoever stores the contents tries again, and tells why there are no files.
            let _ = self.make_files(&mut self.state());
        }
        number
    }

    /// Makes the files that the first contents need, before the program goes on: contents are written beside it, and by then it
    /// may have given up the rights to make any.
    fn make_files(&self, state: &mut StoreState) -> io::Result<()> {
        files::ensure_dir(&self.dir)?;
        if state.pack.is_none() {
            state.pack = Some((0, Arc::new(Pack::create(self.dir.join(pack_file_name(0)))?)));
        }
        self.make_index(state)
    }

    fn make_index(&self, state: &mut StoreState) -> io::Result<()> {
        if state.index.is_none() {
            let index = GuardedFile::create(self.dir.join(INDEX_FILE))?;
            index.write_all_at(&index_header(), 0)?;
            state.index = Some(index);
            state.index_bytes = HEADER_BYTES as u64;
        }
        Ok(())
    }

    /// Numbers given out so far.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// Numbers that point at contents by now.
    pub(crate) fn stored(&self) -> u64 {
        self.state().index_bytes.saturating_sub(HEADER_BYTES as u64) / ENTRY_BYTES as u64
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

    fn reserve(&self, state: &mut StoreState, len_bytes: u64) -> io::Result<(u32, Arc<Pack>, u64)> {
        let full = state.pack_bytes >= PACK_BYTES;
        let (pack, file) = match &state.pack {
            Some((pack, file)) if !full => (*pack, Arc::clone(file)),
            last => {
                let pack = last.as_ref().map_or(0, |(pack, _)| pack + 1);
                if pack == 0 {
                    files::ensure_dir(&self.dir)?;
                }
                let file = Arc::new(Pack::create(self.dir.join(pack_file_name(pack)))?);
                state.trim_pack();
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

    /// Gives back blocks that the pack was given ahead; recording ends.
    pub(super) fn trim(&self) {
        self.state().trim_pack();
    }

    /// Appends the index entries that were made, in one write.
    fn write_entries(&self, state: &mut StoreState) -> io::Result<()> {
        if state.entries.is_empty() {
            return Ok(());
        }
        self.make_index(state)?;
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
                    Ok(Decision::Write(place, pack)) => {
                        state.prefixes.extend(prefix_of(&job.buffer));
                        new.push((job, hash, place, pack));
                    }
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
    /// Long contents that begin like some that are there, and are as long, are hashed before anything is written, since they
    /// are likely to be the same. Others are written first, and what was written is hashed.
    ///
    /// # Safety
    /// As [`Region::read`].
    pub(super) unsafe fn store_region(
        &self,
        number: u64,
        region: &Region,
        len_bytes: u64,
        trust: Trust,
    ) -> io::Result<bool> {
        let mut piece = self.state().pieces.pop().unwrap_or_else(|| vec![0; PIECE_BYTES]);
        // SAFETY: by this function's contract.
        let stored = unsafe { self.store_by_pieces(number, region, len_bytes, trust, &mut piece) };
        self.state().pieces.push(piece);
        stored
    }

    /// As [`Self::store_region`], with a buffer of [`PIECE_BYTES`].
    unsafe fn store_by_pieces(
        &self,
        number: u64,
        region: &Region,
        len_bytes: u64,
        trust: Trust,
        piece: &mut [u8],
    ) -> io::Result<bool> {
        let whole = usize::try_from(len_bytes).ok().filter(|len| *len <= piece.len());
        let first = &mut piece[..whole.unwrap_or(PREFIX_BYTES)];
        // SAFETY: by this function's contract; what is not whole is longer than a piece, which is longer than a prefix.
        if !unsafe { region.read(0, first, trust) } {
            return Ok(false);
        }
        let known = *blake3::hash(first).as_bytes();
        if whole.is_some() {
            if let Some((place, pack)) = self.decide_and_index(number, &known, len_bytes)? {
                pack.prepare(place.offset_bytes + place.len_bytes);
                pack.file.write_all_at(first, place.offset_bytes)?;
                self.written(number, &known, &known, place)?;
            }
            return Ok(true);
        }
        let new = {
            let mut state = self.state();
            match state.prefixes.insert((len_bytes, known)) {
                true => Some(self.reserve(&mut state, len_bytes)?),
                false => None,
            }
        };
        let (planned, place, pack) = match new {
            Some((pack, file, offset_bytes)) => (None, Place { pack, offset_bytes, len_bytes }, file),
            None => {
                // SAFETY: by this function's contract.
                let Some(planned) = (unsafe { hash_region(region, len_bytes, trust, piece) }) else {
                    return Ok(false);
                };
                match self.decide_and_index(number, &planned, len_bytes)? {
                    Some((place, pack)) => (Some(planned), place, pack),
                    None => return Ok(true),
                }
            }
        };
        // SAFETY: by this function's contract.
        let hash = unsafe { write_region(&pack, place.offset_bytes, region, len_bytes, trust, piece) }?;
        match hash {
            Some(hash) => self.written(number, &planned.unwrap_or(hash), &hash, place)?,
            None => self.state().give_back(&place),
        }
        Ok(hash.is_some())
    }

    /// Where contents with a hash are to be written; `None` where they are there, or will be, and the number points at them.
    fn decide_and_index(&self, number: u64, hash: &Hash, len_bytes: u64) -> io::Result<Option<(Place, Arc<Pack>)>> {
        let mut state = self.state();
        let decision = self.decide(&mut state, number, hash, len_bytes)?;
        self.write_entries(&mut state)?;
        Ok(match decision {
            Decision::Done => None,
            Decision::Write(place, pack) => Some((place, pack)),
        })
    }

    fn written(&self, number: u64, planned: &Hash, written: &Hash, place: Place) -> io::Result<()> {
        let mut state = self.state();
        state.written(number, planned, written, place);
        self.write_entries(&mut state)
    }
}

/// Hashes contents piece by piece; `None` where they cannot be read.
///
/// # Safety
/// As [`Region::read`].
unsafe fn hash_region(region: &Region, len_bytes: u64, trust: Trust, piece: &mut [u8]) -> Option<Hash> {
    let mut hasher = blake3::Hasher::new();
    if let Some((address, len_bytes)) = region.as_range()
        && trust == Trust::Readable
    {
        // SAFETY: the range is readable by this function's contract. Another thread of the program may write to it: what
        // is written is hashed once more.
        hasher.update(unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes as usize) });
        return Some(*hasher.finalize().as_bytes());
    }
    let mut done = 0;
    while done < len_bytes {
        let len = usize::try_from(len_bytes - done).unwrap_or(usize::MAX).min(piece.len());
        // SAFETY: by this function's contract; the piece ends inside the region.
        if !unsafe { region.read(done, &mut piece[..len], trust) } {
            return None;
        }
        hasher.update(&piece[..len]);
        done += len as u64;
    }
    Some(*hasher.finalize().as_bytes())
}

/// Writes contents at a place of a pack piece by piece, and returns the hash of what was written; `None` where they cannot be
/// read.
///
/// A range is written straight from the program's memory, whose reading is the kernel's then, and read back from the page
/// cache: both together cost less than a copy that the kernel checks page by page, and the hash is that of the bytes stored,
/// whatever another thread does to the memory meanwhile.
///
/// # Safety
/// As [`Region::read`].
unsafe fn write_region(
    pack: &Pack,
    offset_bytes: u64,
    region: &Region,
    len_bytes: u64,
    trust: Trust,
    piece: &mut [u8],
) -> io::Result<Option<Hash>> {
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    while done < len_bytes {
        let len = usize::try_from(len_bytes - done).unwrap_or(usize::MAX).min(piece.len());
        let piece = &mut piece[..len];
        pack.prepare(offset_bytes + done + len as u64);
        match region.as_range() {
            Some((address, _)) => {
                match pack.file.write_memory_at((address + done) as *const u8, len, offset_bytes + done) {
                    Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(None),
                    written => written?,
                }
                pack.file.read_exact_at(piece, offset_bytes + done)?;
            }
            // SAFETY: by this function's contract; the piece ends inside the region.
            None if unsafe { region.read(done, piece, trust) } => pack.file.write_all_at(piece, offset_bytes + done)?,
            None => return Ok(None),
        }
        hasher.update(piece);
        done += len as u64;
    }
    Ok(Some(*hasher.finalize().as_bytes()))
}

impl StoreState {
    /// Gives back blocks behind the pack's end.
    fn trim_pack(&self) {
        if let Some((_, pack)) = &self.pack
            && (1..u64::MAX).contains(&pack.preallocated_bytes.load(Ordering::Relaxed))
        {
            // What stays costs disk space until the archive is removed, and nothing else.
            let _ = pack.file.truncate(self.pack_bytes);
        }
    }

    /// Gives back room that was reserved last and is not used: the contents could not be read.
    fn give_back(&mut self, place: &Place) {
        let is_last = self.pack.as_ref().is_some_and(|(pack, _)| *pack == place.pack);
        if is_last && self.pack_bytes == place.offset_bytes + place.len_bytes {
            self.pack_bytes = place.offset_bytes;
        }
    }

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

/// By what long contents are told apart before they are hashed.
fn prefix_of(buffer: &Buffer) -> Option<(u64, Hash)> {
    let first = buffer.pieces().next().filter(|_| buffer.len_bytes() > PIECE_BYTES)?;
    Some((buffer.len_bytes() as u64, *blake3::hash(first.get(..PREFIX_BYTES)?).as_bytes()))
}

/// Contents that are not there yet: the job, the hash, and the place they are to have.
type New<'a> = (&'a Job, &'a Hash, Place, Arc<Pack>);

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
            pack.prepare(place.offset_bytes + staging.len() as u64);
            if pack.file.write_all_at(staging, place.offset_bytes).is_ok() {
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
    pack.prepare(at + place.len_bytes);
    for piece in job.buffer.pieces() {
        pack.file.write_all_at(piece, at)?;
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

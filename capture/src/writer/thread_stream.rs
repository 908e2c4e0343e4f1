//! One captured thread's stream file, and where in it the next record goes.
//!
//! Only the owning thread writes records. Other threads touch a stream in two ways: the background thread prepares its
//! next segment, and the thread that ends the process closes it, once it is known that the owner will not record again.

use std::cell::UnsafeCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hrr_format::record::{self, marker};
use hrr_format::stream_file::{HEADER_BYTES, StreamHeader, offset};

use super::background::Background;
use super::segment::{GRANULE_BYTES, Segment};
use crate::files::GuardedFile;
use crate::guest::unnoticed::{SignalsBlocked, Unnoticed};
use crate::recorder::Scratch;

/// Length of the first segment in bytes, header page included.
const FIRST_SEGMENT_BYTES: usize = 2 * GRANULE_BYTES;
/// Factor from one segment's length to the next one's.
const GROWTH: usize = 2;
/// Longest ordinary segment in bytes.
const LARGEST_SEGMENT_BYTES: usize = 4 << 20;
/// Part of a segment after which the next one is asked for. Preparing a segment twice as long takes less time than a
/// thread in a tight loop of calls (1.3 GB/s of records) takes for the rest of this one (at 6 GB/s).
const ASK_AFTER: usize = 8;
/// Kept free at the end of a segment, so that a pad record, which has a header, always fits.
const TAIL_BYTES: usize = record::HEADER_BYTES;
/// Parts of a ring: what is lost at a time is one of them.
pub(crate) const RING_PARTS: usize = 8;

/// States of the segment prepared ahead.
mod ahead {
    /// None was asked for.
    pub(super) const IDLE: u32 = 0;
    /// Asked for, and not begun.
    pub(super) const REQUESTED: u32 = 1;
    /// Being made by the thread that set this state.
    pub(super) const PREPARING: u32 = 2;
    /// Made, or failed: the outcome is there to be taken.
    pub(super) const READY: u32 = 3;
    /// No segment will ever be asked for again.
    pub(super) const CLOSED: u32 = 4;
}

/// Who a stream belongs to; goes into its header.
#[derive(Debug)]
pub(crate) struct StreamIdentity {
    /// Where the file is made.
    pub(crate) path: PathBuf,
    /// Header fields.
    pub(crate) header: StreamHeader,
}

/// A thread's stream file.
#[derive(Debug)]
pub(crate) struct ThreadStream {
    /// Where the next record goes. Written by the owner.
    at: AtomicPtr<u8>,
    /// How far records may reach before something must be done. Written by the owner.
    limit: AtomicPtr<u8>,
    /// The owner is inside a recorded call. Written by the owner, with a barrier on the other side (see `process`).
    busy: AtomicBool,
    /// Calls recorded. Written by the owner.
    events: AtomicU64,
    current: UnsafeCell<Option<Segment>>,
    file: GuardedFile,
    ahead: AtomicU32,
    /// Owned by whoever holds the `PREPARING` state, or by the owner in `READY`.
    prepared: UnsafeCell<Option<io::Result<Segment>>>,
    /// What the owner remembers between entry and return.
    scratch: UnsafeCell<Scratch>,
    /// Length of a part of the ring that the file is; zero where it grows.
    ring_part_bytes: usize,
}

// SAFETY: `current` and `scratch` are touched by the owner only, or by the closing thread after the owner has stopped
// (see `close`); `prepared` is guarded by the `ahead` state machine.
unsafe impl Send for ThreadStream {}
// SAFETY: as above.
unsafe impl Sync for ThreadStream {}

impl ThreadStream {
    /// Makes the file with its header and its first segment.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn create(identity: &StreamIdentity) -> io::Result<Self> {
        let ring_part_bytes = identity.header.ring_part_bytes as usize;
        let file = GuardedFile::create(identity.path.clone())?;
        let len_bytes =
            if ring_part_bytes == 0 { FIRST_SEGMENT_BYTES } else { HEADER_BYTES + RING_PARTS * ring_part_bytes };
        let segment = Segment::create(&file, 0, len_bytes)?;
        let page = identity.header.to_page();
        // SAFETY: the segment is mapped writable and longer than the header page.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), segment.base(), HEADER_BYTES) };
        let at = segment.base().wrapping_add(HEADER_BYTES);
        let stream = ThreadStream {
            at: AtomicPtr::new(at),
            limit: AtomicPtr::new(at),
            busy: AtomicBool::new(false),
            events: AtomicU64::new(0),
            current: UnsafeCell::new(None),
            file,
            ahead: AtomicU32::new(ahead::IDLE),
            prepared: UnsafeCell::new(None),
            scratch: UnsafeCell::new(Scratch::default()),
            ring_part_bytes,
        };
        let limit = match ring_part_bytes {
            0 => soft_limit(&segment),
            part_bytes => at.wrapping_add(part_bytes - TAIL_BYTES),
        };
        stream.limit.store(limit, Ordering::Relaxed);
        // SAFETY: no other thread has the stream yet.
        unsafe { *stream.current.get() = Some(segment) };
        Ok(stream)
    }

    /// Where the file lies.
    pub(crate) fn file(&self) -> &GuardedFile {
        &self.file
    }

    /// Length of a part of the ring that the file is; zero where it grows.
    pub(crate) fn ring_part_bytes(&self) -> usize {
        self.ring_part_bytes
    }

    /// Calls recorded so far.
    pub(crate) fn events(&self) -> u64 {
        // Relaxed: a count; exact once the owner has stopped.
        self.events.load(Ordering::Relaxed)
    }

    /// Counts a recorded call. Called by the owner.
    #[inline(always)]
    pub(crate) fn count_event(&self) {
        // Relaxed, and not a read-modify-write: the owner is the only writer.
        self.events.store(self.events.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Says whether the owner is inside a recorded call. Called by the owner.
    #[inline(always)]
    pub(crate) fn set_busy(&self, busy: bool) {
        // Release: whoever sees the stream idle again sees the records of the call. That the owner sees the gate closed
        // after it set itself busy is the business of the barrier in `process::finish`.
        self.busy.store(busy, Ordering::Release);
    }

    /// Whether the owner is inside a recorded call.
    pub(crate) fn is_busy(&self) -> bool {
        // Acquire: pairs with the release in `set_busy`.
        self.busy.load(Ordering::Acquire)
    }

    /// What the owner remembers between entry and return.
    ///
    /// # Safety
    /// Called by the owner, with no other reference from this method alive.
    #[expect(clippy::mut_from_ref, reason = "the cell is the owner's; the caller vouches for it")]
    pub(crate) unsafe fn scratch(&self) -> &mut Scratch {
        // SAFETY: the caller is the owner and holds no other reference.
        unsafe { &mut *self.scratch.get() }
    }

    /// Room for a record of `need` bytes, a multiple of 8. The memory is zero.
    ///
    /// # Errors
    /// Why the file could not grow.
    ///
    /// # Safety
    /// Called by the owner.
    #[inline(always)]
    pub(crate) unsafe fn reserve(
        &self,
        need: usize,
        background: &Background,
        this: *const Self,
    ) -> io::Result<*mut u8> {
        // Relaxed: both are the owner's own values.
        let at = self.at.load(Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed);
        if need <= (limit as usize).saturating_sub(at as usize) {
            return Ok(at);
        }
        // SAFETY: the caller is the owner.
        unsafe { self.make_room(need, background, this) }
    }

    /// Publishes the record of `need` bytes whose other fields were stored at `at`.
    ///
    /// # Safety
    /// `at` came from [`Self::reserve`] for `need` bytes. Called by the owner.
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, at: *mut u8, need: usize) {
        // SAFETY: `at` has room for a record and is 8-byte aligned, since segments and record lengths are.
        let len = unsafe { AtomicU32::from_ptr(at.add(record::offset::LEN).cast()) };
        // Release: a reader that sees the length sees the record. What a killed process published is in the page cache in
        // this order too, because stores to one mapping reach it in program order.
        len.store(need as u32, Ordering::Release);
        self.at.store(at.wrapping_add(need), Ordering::Relaxed);
    }

    /// Where the next record goes, if it fits the segment.
    #[inline(always)]
    pub(crate) fn cursor(&self) -> *mut u8 {
        // Relaxed: the owner's own value.
        self.at.load(Ordering::Relaxed)
    }

    #[cold]
    unsafe fn make_room(&self, need: usize, background: &Background, this: *const Self) -> io::Result<*mut u8> {
        // A thread that ended in here, or left by a jump, would wait at its end for what it has left undone.
        let _unnoticed = Unnoticed::new();
        let _signals = SignalsBlocked::new();
        loop {
            // SAFETY: the caller is the owner, which alone touches `current` while it records.
            let current = unsafe { &mut *self.current.get() };
            let Some(segment) = current.as_ref() else {
                return Err(io::Error::other("the stream file is closed"));
            };
            let at = self.at.load(Ordering::Relaxed);
            if self.ring_part_bytes != 0 {
                return self.next_part(segment, at, need);
            }
            let hard_limit = segment.end().wrapping_sub(TAIL_BYTES);
            if self.limit.load(Ordering::Relaxed) != hard_limit {
                // Time to have the next segment made.
                self.limit.store(hard_limit, Ordering::Relaxed);
                self.request_ahead(background, this);
            }
            if need <= (hard_limit as usize).saturating_sub(at as usize) {
                return Ok(at);
            }
            let next = self.next_segment(segment, need)?;
            // SAFETY: `at` is at least a header before the segment's end, and the rest of the segment is unpublished.
            unsafe { write_pad(at, segment.end() as usize - at as usize) };
            self.at.store(next.base(), Ordering::Relaxed);
            self.limit.store(soft_limit(&next), Ordering::Relaxed);
            if let Some(old) = current.replace(next) {
                // Unmapping costs more than a few calls; the background thread does it.
                background.unmap(old);
            }
        }
    }

    /// Goes on in the next part of the ring, which is cleared first.
    fn next_part(&self, segment: &Segment, at: *mut u8, need: usize) -> io::Result<*mut u8> {
        let part_bytes = self.ring_part_bytes;
        if need > part_bytes - TAIL_BYTES {
            return Err(io::Error::other("a record is longer than a part of the ring"));
        }
        let parts = segment.base().wrapping_add(HEADER_BYTES);
        let current = (at as usize - parts as usize) / part_bytes;
        let end = parts.wrapping_add((current + 1) * part_bytes);
        let next = parts.wrapping_add((current + 1) % RING_PARTS * part_bytes);
        // SAFETY: the part that is left has a tail in which a pad fits, and the next one lies in the mapping; both are the
        // owner's to write. No record in it is still being written: the owner is between two records.
        unsafe {
            write_pad(at, end as usize - at as usize);
            // Release: whoever reads the part meanwhile finds it empty before any of its records is torn.
            AtomicU32::from_ptr(next.cast()).store(0, Ordering::Release);
            std::ptr::write_bytes(next, 0, part_bytes);
        }
        self.limit.store(next.wrapping_add(part_bytes - TAIL_BYTES), Ordering::Relaxed);
        self.at.store(next, Ordering::Relaxed);
        Ok(next)
    }

    /// The segment after `current`: the one prepared ahead, or one made now.
    fn next_segment(&self, current: &Segment, need: usize) -> io::Result<Segment> {
        let mut spins = 0u32;
        loop {
            // Acquire: READY pairs with the preparer's release, so that its outcome is seen.
            match self.ahead.load(Ordering::Acquire) {
                ahead::READY => {
                    // SAFETY: in READY the outcome belongs to the owner.
                    let outcome = unsafe { (*self.prepared.get()).take() };
                    self.ahead.store(ahead::IDLE, Ordering::Relaxed);
                    if let Some(outcome) = outcome {
                        return outcome;
                    }
                }
                ahead::PREPARING => {
                    // The background thread is in the middle of it, and its segment comes first in the file.
                    spins += 1;
                    if spins < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
                ahead::CLOSED => return Err(io::Error::other("the stream file is closed")),
                state => {
                    // Acquire on success: the request may not be seen by the background thread any more.
                    if self
                        .ahead
                        .compare_exchange(state, ahead::PREPARING, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                    {
                        let made = self.make_segment_after(current.offset_bytes(), current.len_bytes(), need);
                        self.ahead.store(ahead::IDLE, Ordering::Release);
                        return made;
                    }
                }
            }
        }
    }

    fn make_segment_after(&self, offset_bytes: u64, len_bytes: usize, need: usize) -> io::Result<Segment> {
        let ordinary = len_bytes.saturating_mul(GROWTH).min(LARGEST_SEGMENT_BYTES);
        let len = ordinary.max((need + TAIL_BYTES).next_multiple_of(GRANULE_BYTES));
        Segment::create(&self.file, offset_bytes + len_bytes as u64, len)
    }

    fn request_ahead(&self, background: &Background, this: *const Self) {
        let idle = self.ahead.compare_exchange(ahead::IDLE, ahead::REQUESTED, Ordering::Relaxed, Ordering::Relaxed);
        if idle.is_ok() {
            // SAFETY: `this` is the pointer that `Arc::into_raw` gave for this stream, which is alive while its owner
            // records; the count is raised for the `Arc` that goes to the background thread.
            let stream = unsafe {
                Arc::increment_strong_count(this);
                Arc::from_raw(this)
            };
            background.prepare(stream);
        }
    }

    /// Makes the segment that was asked for, unless its owner has made it meanwhile. Called by the background thread.
    pub(crate) fn prepare_ahead(&self) {
        // Acquire: pairs with nothing written by the requester but its claim; the segment's place is read below.
        let claimed =
            self.ahead.compare_exchange(ahead::REQUESTED, ahead::PREPARING, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_err() {
            return;
        }
        // SAFETY: the owner replaces `current` only with the segment after it, which it cannot get while this thread
        // holds PREPARING; and it closes the stream only after waiting for this state to pass.
        let place =
            unsafe { (*self.current.get()).as_ref().map(|segment| (segment.offset_bytes(), segment.len_bytes())) };
        let outcome = match place {
            Some((offset_bytes, len_bytes)) => self.make_segment_after(offset_bytes, len_bytes, 0),
            None => Err(io::Error::other("the stream file is closed")),
        };
        // SAFETY: in PREPARING the cell belongs to this thread.
        unsafe { *self.prepared.get() = Some(outcome) };
        // Release: the owner that sees READY sees the outcome.
        self.ahead.store(ahead::READY, Ordering::Release);
    }

    /// Ends the file: cuts it to what is used and says so in its header.
    ///
    /// # Errors
    /// Why the header or the length could not be written; what was recorded stays readable.
    ///
    /// # Safety
    /// Called by the owner outside a recorded call, or by another thread once the owner can record no more.
    pub(crate) unsafe fn close(&self) -> io::Result<()> {
        let mut state = self.ahead.load(Ordering::Acquire);
        loop {
            match state {
                ahead::CLOSED => return Ok(()),
                ahead::PREPARING => {
                    std::thread::yield_now();
                    state = self.ahead.load(Ordering::Acquire);
                }
                // Acquire: from READY, the outcome must be seen to be dropped.
                _ => match self.ahead.compare_exchange(state, ahead::CLOSED, Ordering::Acquire, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(found) => state = found,
                },
            }
        }
        // SAFETY: CLOSED ends the background thread's claims; the owner is this thread or records no more.
        let (current, _prepared) = unsafe { ((*self.current.get()).take(), (*self.prepared.get()).take()) };
        let Some(segment) = current else {
            return Ok(());
        };
        let at = self.at.load(Ordering::Relaxed);
        let used_bytes = segment.offset_bytes() + (at as usize - segment.base() as usize) as u64;
        // Nothing fits from now on, should the owner come by again after all.
        self.limit.store(at, Ordering::Relaxed);
        drop(segment);
        if self.ring_part_bytes != 0 {
            // All of it may be in use.
            return Ok(());
        }
        self.file.truncate(used_bytes)?;
        self.file.write_all_at(&used_bytes.to_le_bytes(), offset::USED as u64)
    }
}

/// Where in a segment its owner asks for the next one.
fn soft_limit(segment: &Segment) -> *mut u8 {
    segment.base().wrapping_add(segment.len_bytes() / ASK_AFTER)
}

/// Fills `len_bytes` from `at` on with a pad record.
///
/// # Safety
/// `at` is 8-byte aligned and writable for `len_bytes`, at least a record header.
unsafe fn write_pad(at: *mut u8, len_bytes: usize) {
    // SAFETY: the caller vouches for room for a header and for its alignment.
    unsafe {
        at.add(record::offset::API).cast::<u16>().write(marker::PAD);
        // Release: as in `publish`.
        AtomicU32::from_ptr(at.add(record::offset::LEN).cast()).store(len_bytes as u32, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hrr_format::stream_file::{ContentsMode, StreamFile};

    fn stream(dir: &tempfile::TempDir) -> Arc<ThreadStream> {
        let header = StreamHeader {
            contents: ContentsMode::MetadataOnly,
            thread: 4,
            tid: 9,
            pid: 8,
            open_tick: 1,
            used_bytes: 0,
            name: "t".into(),
            ring_part_bytes: 0,
        };
        Arc::new(ThreadStream::create(&StreamIdentity { path: dir.path().join("4.evs"), header }).unwrap())
    }

    /// Writes a record with `api` whose payload is `words` zero words.
    fn write(stream: &Arc<ThreadStream>, background: &Background, api: u16, words: usize) {
        let need = record::HEADER_BYTES + words * 8;
        // SAFETY: this test is the stream's owner; the record is as long as was reserved.
        unsafe {
            let at = stream.reserve(need, background, Arc::as_ptr(stream)).unwrap();
            at.add(record::offset::API).cast::<u16>().write(api);
            stream.publish(at, need);
        }
        stream.count_event();
    }

    #[test]
    fn records_cross_segments_in_order_and_close_cuts_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start();
        let stream = stream(&dir);
        let count = 300_000u32;
        for index in 0..count {
            write(&stream, &background, (index % 500) as u16, (index % 13) as usize);
        }
        // SAFETY: this test is the stream's owner.
        unsafe { stream.close().unwrap() };
        let file = StreamFile::open(&dir.path().join("4.evs")).unwrap();
        let mut records = file.records();
        for index in 0..count {
            let record = records.next().unwrap();
            assert_eq!((u32::from(record.api()), record.len_bytes()), (index % 500, 32 + (index as usize % 13) * 8));
        }
        assert!(records.next().is_none());
        assert_eq!(records.damage(), None);
        let len = std::fs::metadata(file.path()).unwrap().len();
        assert_eq!(file.header().used_bytes, len);
        assert!(records.offset() as u64 == len);
        assert_eq!(stream.events(), u64::from(count));
    }

    #[test]
    fn a_record_longer_than_the_next_segment_gets_one_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start();
        let stream = stream(&dir);
        write(&stream, &background, 1, 0);
        write(&stream, &background, 2, 100_000);
        write(&stream, &background, 3, 0);
        // SAFETY: this test is the stream's owner.
        unsafe { stream.close().unwrap() };
        let file = StreamFile::open(&dir.path().join("4.evs")).unwrap();
        assert_eq!(file.records().map(|record| record.api()).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_ring_keeps_the_last_records_and_its_length() {
        const PART: usize = 4096;
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start();
        let header = StreamHeader {
            contents: ContentsMode::MetadataOnly,
            thread: 4,
            tid: 9,
            pid: 8,
            open_tick: 1,
            used_bytes: 0,
            name: "t".into(),
            ring_part_bytes: PART as u32,
        };
        let path = dir.path().join("4.evs");
        let stream = Arc::new(ThreadStream::create(&StreamIdentity { path: path.clone(), header }).unwrap());
        let len_bytes = std::fs::metadata(&path).unwrap().len();
        assert_eq!(len_bytes, (HEADER_BYTES + RING_PARTS * PART) as u64);
        for tick in 1..=5000u64 {
            let need = record::HEADER_BYTES + (tick as usize % 5) * 8;
            // SAFETY: this test is the stream's owner; the record is as long as was reserved.
            unsafe {
                let at = stream.reserve(need, &background, Arc::as_ptr(&stream)).unwrap();
                at.add(record::offset::API).cast::<u16>().write(7);
                at.add(record::offset::BEGIN).cast::<u64>().write(tick);
                stream.publish(at, need);
            }
            if tick % 777 == 0 || tick == 5000 {
                let ticks: Vec<u64> = StreamFile::open(&path).unwrap().records().map(|record| record.begin()).collect();
                assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ticks:?}");
                assert_eq!(ticks.last(), Some(&tick));
                assert!(tick < 1000 || ticks.len() >= (RING_PARTS - 2) * PART / 64, "{} records are left", ticks.len());
            }
        }
        // SAFETY: this test is the stream's owner, which records no more.
        unsafe {
            assert!(stream.reserve(PART, &background, Arc::as_ptr(&stream)).is_err());
            stream.close().unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), len_bytes);
    }

    #[test]
    fn a_closed_stream_refuses_records() {
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start();
        let stream = stream(&dir);
        // SAFETY: this test is the stream's owner.
        unsafe {
            stream.close().unwrap();
            stream.close().unwrap();
            assert!(stream.reserve(32, &background, Arc::as_ptr(&stream)).is_err());
        }
    }
}

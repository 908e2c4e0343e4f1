//! The flight recorder: the last calls of each thread, without contents, in a bounded part of the disk.
//!
//! `HIP_HRR_FLIGHT_RECORDER=SIZE` (a number with `K`, `M` or `G`) bounds the stream files of a process. Each thread has a
//! ring of a sixteenth of what is left, so that later threads have one too, and no less than [`LEAST_RING_BYTES`]. The rings of
//! threads that have ended go, oldest first, when they and the living ones have taken more than half. A thread for which there is no room at all is not recorded, which is said once.
//! Rings are mapped files like other streams, so what a process that hangs, crashes or is killed had done is there.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hrr_format::record::MAX_RECORD_BYTES;
use hrr_format::stream_file::HEADER_BYTES;

use crate::files;
use crate::writer::thread_stream::RING_PARTS;

/// Smallest ring of a thread in bytes, header page included.
const LEAST_RING_BYTES: u64 = 64 << 10;
/// Largest ring of a thread in bytes.
const MOST_RING_BYTES: u64 = 64 << 20;
/// A thread's share of what is left.
const SHARE: u64 = 16;
/// Granularity of rings: a page.
const PAGE_BYTES: u64 = 4096;

/// The room of a process's rings.
#[derive(Debug)]
pub(crate) struct Rings {
    size_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left_bytes: u64,
    /// Rings of threads that have ended, oldest first.
    ended: VecDeque<(PathBuf, u64)>,
}

/// Room for a ring.
#[derive(Debug)]
pub(crate) struct Room {
    /// Length of one of its parts.
    pub(crate) part_bytes: u32,
    /// Ring files that went for it.
    pub(crate) removed: u32,
}

impl Rings {
    /// Rings of at most this many bytes.
    pub(crate) fn new(size_bytes: u64) -> Self {
        Rings { size_bytes, state: Mutex::new(State { left_bytes: size_bytes, ended: VecDeque::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more ring, for which those of threads that have ended may go.
    pub(crate) fn take(&self) -> Option<Room> {
        let mut state = self.state();
        let mut removed = 0;
        while state.left_bytes < (self.size_bytes / 2).max(LEAST_RING_BYTES)
            && let Some((path, bytes)) = state.ended.pop_front()
        {
            // Where it cannot be taken away, its room stays taken.
            if files::remove(&path).is_ok() {
                state.left_bytes += bytes;
                removed += 1;
            }
        }
        let ring_bytes = (state.left_bytes / SHARE).clamp(LEAST_RING_BYTES, MOST_RING_BYTES) / PAGE_BYTES * PAGE_BYTES;
        if ring_bytes > state.left_bytes {
            return None;
        }
        let part_bytes = (ring_bytes - HEADER_BYTES as u64) / RING_PARTS as u64 / 8 * 8;
        state.left_bytes -= ring_bytes;
        Some(Room { part_bytes: u32::try_from(part_bytes).ok()?, removed })
    }

    /// The thread of a ring has ended.
    pub(crate) fn ended(&self, path: PathBuf, part_bytes: usize) {
        let ring_bytes = ((HEADER_BYTES + RING_PARTS * part_bytes) as u64).next_multiple_of(PAGE_BYTES);
        self.state().ended.push_back((path, ring_bytes));
    }

    /// Longest record in bytes that fits every ring.
    pub(crate) fn longest_record_bytes() -> usize {
        (LEAST_RING_BYTES as usize / RING_PARTS / 2).min(MAX_RECORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_never_take_more_than_their_size() {
        let dir = tempfile::tempdir().unwrap();
        let rings = Rings::new(512 << 10);
        let bytes = |room: &Room| HEADER_BYTES as u64 + RING_PARTS as u64 * u64::from(room.part_bytes);
        let taken: Vec<Room> = std::iter::from_fn(|| rings.take()).collect();
        assert_eq!(taken.len(), 8);
        assert!(taken.iter().map(bytes).sum::<u64>() <= 512 << 10);
        let path = dir.path().join("0.evs");
        std::fs::write(&path, "").unwrap();
        rings.ended(path.clone(), taken[0].part_bytes as usize);
        let again = rings.take().unwrap();
        assert_eq!((again.removed, path.exists()), (1, false));
        assert!(rings.take().is_none());
    }

    #[test]
    fn many_threads_at_once_all_have_a_ring() {
        let rings = Rings::new(64 << 20);
        let parts: Vec<u32> = std::iter::from_fn(|| Some(rings.take()?.part_bytes)).collect();
        assert_eq!(parts.len(), 80);
        assert!(parts.is_sorted_by(|earlier, later| earlier >= later), "{parts:?}");
    }
}

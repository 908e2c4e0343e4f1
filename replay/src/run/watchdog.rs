//! The sync watchdog: no call and no wait takes longer than it allows.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hrr_format::catalogue::APIS;

use super::worker::Shared;

/// What a runner was found stuck in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    /// Event number.
    pub(crate) event: u64,
    /// Captured thread, by position in the archive.
    pub(crate) lane: u32,
    /// Catalogue id.
    pub(crate) api: u16,
    /// Whether the runner is in the call, or still waits for calls of other threads.
    pub(crate) in_call: bool,
    /// For how long at least.
    pub(crate) stuck_for: Duration,
}

/// Watches all runners until told to stop. Returns what is stuck once something has been for `limit`.
pub(crate) fn watch(
    shared: &Arc<Shared>,
    limit: Duration,
    done: &crossbeam::channel::Receiver<()>,
) -> Option<Vec<Stuck>> {
    let mut seen: Vec<(u64, Instant)> = Vec::new();
    let poll = (limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(50));
    loop {
        match done.recv_timeout(poll) {
            Err(crossbeam::channel::RecvTimeoutError::Timeout) => {}
            _ => return None,
        }
        let now = Instant::now();
        let boards = shared.boards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut stuck = Vec::new();
        let mut moved = false;
        for (number, board) in boards.iter().enumerate() {
            // Relaxed: samples; a torn pair only delays the verdict by a poll.
            let event = board.event.load(Ordering::Relaxed);
            let what = board.what.load(Ordering::Relaxed);
            if number == seen.len() {
                seen.push((event, now));
            }
            if seen[number].0 != event {
                seen[number] = (event, now);
                moved = moved || event != 0;
            } else if event != 0 && now - seen[number].1 >= limit {
                stuck.push(Stuck {
                    event: event - 1,
                    lane: (what >> 32) as u32,
                    api: what as u16,
                    in_call: what >> 16 & 1 == 1,
                    stuck_for: now - seen[number].1,
                });
            }
        }
        // A runner that only waits for another is no hang while the other makes progress.
        if stuck.iter().any(|stuck| stuck.in_call) || (!stuck.is_empty() && !moved) {
            stuck.sort_by_key(|stuck| (!stuck.in_call, stuck.event));
            return Some(stuck);
        }
    }
}

/// One line on each stuck runner.
pub(crate) fn describe(stuck: &[Stuck], thread_of: impl Fn(u32) -> u32) -> String {
    let mut text = String::new();
    for stuck in stuck {
        let name = APIS.get(usize::from(stuck.api)).map_or("?", |api| api.name);
        let doing = if stuck.in_call { "has not returned from" } else { "waits for other threads before" };
        let line = format!(
            "[HRR][WATCHDOG] captured thread {} {doing} {name} (event {}) for {} ms\n",
            thread_of(stuck.lane),
            stuck.event,
            stuck.stuck_for.as_millis()
        );
        text.push_str(&line);
    }
    text
}

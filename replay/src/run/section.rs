//! The timed section: from the first call to the last device being idle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::worker::{Sequence, Shared};
use crate::driver::ReplayError;
use crate::plan::Planned;
use crate::triage::diagnosis::Phase;

/// How long the end of a stopped replay waits for threads that are still in the runtime.
const GRACE: Duration = Duration::from_secs(2);

/// What the timed section came to.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// From the first call, or the first of the range, to the last device being idle.
    pub(crate) wall: Duration,
    /// Replaying what comes before the range.
    pub(crate) prefix: Duration,
    /// Whether threads are still in the runtime.
    pub(crate) abandoned: bool,
}

/// A run that is about to begin.
pub(crate) struct Start<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    /// Yields each worker's number when its sequence has ended.
    pub(crate) ended: &'a Receiver<u32>,
    pub(crate) sequences: Vec<Sequence>,
    /// Told where the run has come to.
    pub(crate) phase: &'a dyn Fn(Phase),
    /// Devices that are used, as far as that is known.
    pub(crate) devices: &'a [i32],
    /// Where there is a range to be measured: yields how many instructions each captured thread has before it.
    pub(crate) range: Option<Receiver<Vec<u64>>>,
}

/// The timed section. `plan` gives what was planned once the workers have come to its end.
pub(crate) fn execute(
    start: Start<'_>,
    mut plan: impl FnMut() -> Result<Planned, ReplayError>,
) -> (Run, Result<Planned, ReplayError>) {
    let Start { shared, ended, sequences, phase, devices, range } = start;
    phase(Phase::Run);
    let workers = sequences.len();
    let entered = Instant::now();
    if range.is_none() {
        open(shared, devices);
    }
    let mut begun = Instant::now();
    let mut prefix = Duration::ZERO;
    for sequence in sequences {
        shared.dispatch(Box::new(sequence));
    }
    if let Some(range) = range {
        match reach_range(shared, &range) {
            Reached::Range => {
                await_idle(shared, devices);
                open(shared, devices);
            }
            // The replay was stopped, or there is no range: the run comes to its end by itself.
            Reached::End => {}
        }
        prefix = entered.elapsed();
        begun = Instant::now();
        shared.progress.publish(shared.gate(), 1);
    }
    for _ in 0..workers {
        if ended.recv().is_err() {
            shared.progress.stop();
            return (Run { wall: begun.elapsed(), abandoned: true, prefix }, plan());
        }
    }
    let planned = match plan() {
        Ok(planned) => planned,
        Err(error) => {
            shared.progress.stop();
            let abandoned = !runners_idle(shared);
            return (Run { wall: begun.elapsed(), abandoned, prefix }, Err(error));
        }
    };
    // Blocking calls that were handed off may still be on their way.
    for (lane, &total) in planned.lane_totals.iter().enumerate() {
        while shared.progress.done(lane as u32) < total && !shared.progress.stopped() {
            std::thread::yield_now();
        }
    }
    if shared.progress.stopped() {
        let wall = begun.elapsed();
        let abandoned = !runners_idle(shared);
        return (Run { wall, abandoned, prefix }, Ok(planned));
    }
    // The timed section ends when the devices are idle.
    phase(Phase::Drain);
    await_idle(shared, &planned.devices);
    let wall = begun.elapsed();
    shared.dismiss();
    (Run { wall, abandoned: false, prefix }, Ok(planned))
}

/// The timed section begins: the devices are idle.
fn open(shared: &Shared, devices: &[i32]) {
    if let Some(metering) = &shared.metering {
        if let Some(timer) = &metering.timer {
            timer.begin(&shared.runtime, devices, metering.kept());
        }
        metering.open();
    }
}

/// Whether the range was reached.
enum Reached {
    /// All calls before it have returned.
    Range,
    /// The replay ended before it.
    End,
}

/// Waits until every call before the range has returned.
fn reach_range(shared: &Shared, range: &Receiver<Vec<u64>>) -> Reached {
    /// Between two looks.
    const POLL: Duration = Duration::from_micros(200);
    let mut totals: Option<Vec<u64>> = None;
    loop {
        if shared.progress.stopped() {
            return Reached::End;
        }
        match &totals {
            Some(totals) => {
                let there = |(lane, &total): (usize, &u64)| shared.progress.done(lane as u32) >= total;
                if totals.iter().enumerate().all(there) {
                    return Reached::Range;
                }
                std::thread::sleep(POLL);
            }
            None => match range.recv_timeout(POLL) {
                Ok(found) => totals = Some(found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Reached::End,
            },
        }
    }
}

/// Waits for the devices to be idle, in a thread of its own, whose device is nobody else's.
fn await_idle(shared: &Shared, devices: &[i32]) {
    let (runtime, devices) = (Arc::clone(&shared.runtime), devices.to_vec());
    let waiting = std::thread::spawn(move || {
        for device in devices {
            if runtime.set_device(device).is_ok() {
                let _ = runtime.synchronize();
            }
        }
    });
    // Joined, so that nothing the runtime keeps for the thread is left when another run begins. A panic in it was printed.
    let _ = waiting.join();
}

/// Waits a while for every runner to leave the runtime.
fn runners_idle(shared: &Shared) -> bool {
    let deadline = Instant::now() + GRACE;
    loop {
        let boards = shared.boards.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a runner that has just gone idle is seen at the next look.
        if boards.iter().all(|board| board.event.load(Ordering::Relaxed) == 0) {
            return true;
        }
        drop(boards);
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

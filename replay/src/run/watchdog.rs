//! The sync watchdog: no call and no wait takes longer than it allows.
//!
//! It watches the runners' boards, and the calls and work of replay's own. When something has been under way for too long
//! it examines what is known, tells it, and ends the process with exit code 124: from its own thread, because every other
//! thread may be waiting for a runtime that never returns.
//!
//! A runner that waits for another captured thread is no hang by itself while something moves: what counts is that nothing
//! has moved for so long, or that the wait is part of a cycle.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use hrr_format::archive::Archive;
use hrr_format::catalogue::APIS;

use super::worker::{Board, Shared};
use crate::machine::runtime::Runtime;
use crate::triage::HangHandler;
use crate::triage::diagnosis::{Diagnosis, Phase, Stuck};
use crate::triage::event_index::EventIndex;
use crate::triage::examine::{Subject, wait_cycles};
use crate::triage::marks::{MarkPolicy, Marks};
use crate::triage::own_calls;

/// Exit code of a replay that the watchdog ended, as upstream and as `timeout` have it.
pub(crate) const EXIT_CODE: i32 = 124;
/// How often it looks, at most and at least.
const POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// What telling may take; then the process ends with what was told.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// What a runner was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Event number.
    pub(crate) event: u64,
    /// Captured thread, by position in the archive.
    pub(crate) lane: u32,
    /// Catalogue id.
    pub(crate) api: u16,
    /// Whether the runner is in the call, or still waits for calls of other threads.
    pub(crate) in_call: bool,
    /// What it waits for.
    pub(crate) waits_for: Option<WaitSeen>,
    /// The worker whose sequence it executes.
    pub(crate) worker: Option<u32>,
    /// For how long at least.
    pub(crate) stuck_for: Duration,
}

/// A captured thread that has not come far enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitSeen {
    /// The captured thread.
    pub(crate) lane: u32,
    /// Instructions it must have done.
    pub(crate) count: u64,
    /// Instructions it has done.
    pub(crate) done: u64,
}

/// The runners of a replay.
struct Run {
    shared: Arc<Shared>,
    worker_of: Vec<u32>,
}

/// A watchdog of one replay.
pub(crate) struct Watch<'a> {
    archive: &'a Archive,
    limit: Duration,
    handler: HangHandler,
    /// From event numbers to records.
    pub(crate) index: Arc<EventIndex<'a>>,
    /// How far streams have come, where the runtime has events.
    pub(crate) marks: Option<Arc<Marks>>,
    phase: AtomicU8,
    run: Mutex<Option<Arc<Run>>>,
}

/// What the watchdog has found.
struct Finding {
    stuck: Stuck,
    what: String,
    since: Instant,
    sightings: Vec<Sighting>,
}

const PHASES: [Phase; 4] = [Phase::SetUp, Phase::Run, Phase::Drain, Phase::TearDown];

impl<'a> Watch<'a> {
    /// A watchdog that allows `limit`.
    pub(crate) fn new(
        archive: &'a Archive,
        runtime: &Runtime,
        limit: Duration,
        marks: MarkPolicy,
        handler: HangHandler,
    ) -> Self {
        Watch {
            archive,
            limit,
            handler,
            index: Arc::new(EventIndex::new(archive.streams().len())),
            marks: Marks::new(runtime, marks).map(Arc::new),
            phase: AtomicU8::new(0),
            run: Mutex::new(None),
        }
    }

    /// The replay has come to `phase`.
    pub(crate) fn phase(&self, phase: Phase) {
        let number = PHASES.iter().position(|&known| known == phase).unwrap_or(0);
        // Relaxed: for people.
        self.phase.store(number as u8, Ordering::Relaxed);
    }

    /// Watches these runners from now on.
    pub(crate) fn watch_runners(&self, shared: &Arc<Shared>, worker_of: &[u32]) {
        let run = Arc::new(Run { shared: Arc::clone(shared), worker_of: worker_of.to_vec() });
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
    }

    fn run(&self) -> Option<Arc<Run>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Watches until the sender of `over` is dropped. Ends the process if something takes too long.
    pub(crate) fn watch(&self, over: &Receiver<()>) {
        let mut boards = Boards::default();
        let poll = (self.limit / 8).clamp(POLL.0, POLL.1);
        while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(poll) {
            if let Some(finding) = self.look(&mut boards) {
                self.fire(finding);
            }
        }
    }

    fn look(&self, boards: &mut Boards) -> Option<Finding> {
        let run = self.run();
        if let Some(run) = &run
            && let Some(sightings) = boards.look(run, self.limit)
        {
            let first = sightings.first()?;
            return Some(Finding {
                stuck: if first.in_call { Stuck::Call } else { Stuck::Wait },
                what: APIS.get(usize::from(first.api)).map_or("?", |api| api.name).to_owned(),
                since: Instant::now().checked_sub(first.stuck_for)?,
                sightings,
            });
        }
        let (what, elapsed) = own_calls::overdue(self.limit)?;
        Some(Finding {
            stuck: Stuck::OwnCall,
            what: what.to_owned(),
            since: Instant::now().checked_sub(elapsed)?,
            sightings: run.map(|run| boards.all(&run)).unwrap_or_default(),
        })
    }

    /// Examines, tells, and ends the process.
    fn fire(&self, finding: Finding) -> ! {
        let stuck_ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        // Relaxed: for people.
        let phase = PHASES[usize::from(self.phase.load(Ordering::Relaxed)) % PHASES.len()];
        let mut diagnosis = Diagnosis::of_own_call(phase, &finding.what, stuck_ms(finding.since), limit_ms);
        diagnosis.stuck = finding.stuck;
        end_anyway(&self.handler, &diagnosis);
        let run = self.run();
        let subject = Subject {
            archive: self.archive,
            index: &self.index,
            marks: self.marks.as_ref(),
            sightings: finding.sightings,
            worker_of: run.as_ref().map_or(&[], |run| run.worker_of.as_slice()),
        };
        subject.examine(&mut diagnosis);
        diagnosis.stuck_ms = stuck_ms(finding.since);
        tell_and_end(&self.handler, &diagnosis)
    }
}

fn tell_and_end(handler: &HangHandler, diagnosis: &Diagnosis) -> ! {
    handler.tell(diagnosis);
    // SAFETY: `_exit` ends the process at once, without running anything.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Ends the process after a while whatever happens to the examination, which may ask a runtime that never answers. What is
/// known without it is told, if there is somebody to take it.
fn end_anyway(handler: &HangHandler, diagnosis: &Diagnosis) {
    /// What telling that may take.
    const TELLING: Duration = Duration::from_millis(500);
    let (handler, mut diagnosis) = (handler.clone(), diagnosis.clone());
    let _ = std::thread::Builder::new().name("hrr-last-resort".to_owned()).spawn(move || {
        std::thread::sleep(LAST_RESORT);
        diagnosis.streams_unknown = Some("the runtime was asked and did not answer".to_owned());
        let telling = std::thread::Builder::new().spawn(move || handler.tell(&diagnosis));
        if telling.is_ok() {
            std::thread::sleep(TELLING);
        }
        // SAFETY: as above.
        unsafe { libc::_exit(EXIT_CODE) }
    });
}

/// Bounds what replay does before there is a watch and after there is one: the process ends with a diagnosis if the guard
/// is not dropped in time. `what` names it.
pub(crate) fn bound(what: &'static str, limit: Duration, handler: HangHandler) -> Bound {
    let (alive, over) = crossbeam::channel::bounded::<()>(0);
    let watching = std::thread::Builder::new().name("hrr-watchdog".to_owned()).spawn(move || {
        let begun = Instant::now();
        if let Err(RecvTimeoutError::Timeout) = over.recv_timeout(limit) {
            let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            let phase = if what.starts_with("load") { Phase::SetUp } else { Phase::TearDown };
            let diagnosis = Diagnosis::of_own_call(phase, what, begun.elapsed().as_secs_f64() * 1e3, limit_ms);
            end_anyway(&handler, &diagnosis);
            tell_and_end(&handler, &diagnosis);
        }
    });
    if let Err(error) = watching {
        tracing::warn!("{what} is not watched: {error}");
    }
    Bound { _alive: alive }
}

/// See [`bound`].
#[derive(Debug)]
pub(crate) struct Bound {
    _alive: crossbeam::channel::Sender<()>,
}

/// What was seen of the boards.
#[derive(Default)]
struct Boards {
    /// Event number + 1 and state of each runner, and since when.
    seen: Vec<(u64, u64, Instant)>,
    moved: Option<Instant>,
    /// Whose boards they are.
    of: Option<Arc<Shared>>,
}

impl Boards {
    /// All runners that do not move, if that is a hang: those in a call first.
    fn look(&mut self, run: &Run, limit: Duration) -> Option<Vec<Sighting>> {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &run.shared)) {
            *self = Boards { of: Some(Arc::clone(&run.shared)), ..Boards::default() };
        }
        let now = Instant::now();
        let boards = run.shared.boards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut in_call = false;
        for (number, board) in boards.iter().enumerate() {
            // Relaxed: samples; a torn pair only delays the verdict by a poll.
            let (event, what) = (board.event.load(Ordering::Relaxed), board.what.load(Ordering::Relaxed));
            match self.seen.get_mut(number) {
                None => {
                    self.seen.push((event, what, now));
                    self.moved = Some(now);
                }
                Some(seen) if (seen.0, seen.1) != (event, what) => {
                    *seen = (event, what, now);
                    self.moved = Some(now);
                }
                Some(seen) => in_call |= event != 0 && is_in_call(what) && now - seen.2 >= limit,
            }
        }
        if own_calls::is_working() {
            // The planner may be about to hand out what is waited for; its own standing still is seen elsewhere.
            self.moved = Some(now);
        }
        let still = self.moved.is_some_and(|moved| now - moved >= limit);
        let mut waiting = false;
        for (&(event, what, since), board) in self.seen.iter().zip(&boards) {
            let long = event != 0 && !is_in_call(what) && now - since >= limit;
            // Where the count is reached the runner is on its way.
            waiting |= long && run.shared.progress.done(board.waits_for().lane) < board.waits_for().count;
        }
        if !(in_call || still || waiting) {
            return None;
        }
        let mut sightings = self.all(run);
        if !in_call {
            sightings.retain(|sighting| sighting.stuck_for >= limit);
            if !still && wait_cycles(&sightings, &run.worker_of).is_empty() {
                return None;
            }
        }
        (!sightings.is_empty()).then_some(sightings)
    }

    /// What every runner that is not idle is in, those in a call for longest first.
    fn all(&self, run: &Run) -> Vec<Sighting> {
        let now = Instant::now();
        let boards = run.shared.boards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut sightings: Vec<Sighting> = boards
            .iter()
            .zip(&self.seen)
            .filter(|(board, _)| board.event.load(Ordering::Relaxed) != 0 && !at_gate(run, board))
            .map(|(board, &(_, _, since))| {
                // Relaxed: samples.
                let (event, what) = (board.event.load(Ordering::Relaxed), board.what.load(Ordering::Relaxed));
                let wait = board.waits_for();
                let in_call = is_in_call(what);
                Sighting {
                    event: event.saturating_sub(1),
                    lane: (what >> 32) as u32,
                    api: what as u16,
                    in_call,
                    waits_for: (!in_call && wait.count > 0).then(|| WaitSeen {
                        lane: wait.lane,
                        count: wait.count,
                        done: run.shared.progress.done(wait.lane),
                    }),
                    worker: board.worker.load(Ordering::Relaxed).checked_sub(1),
                    stuck_for: now.saturating_duration_since(since),
                }
            })
            .collect();
        sightings.sort_by_key(|sighting| (!sighting.in_call, std::cmp::Reverse(sighting.stuck_for), sighting.event));
        sightings
    }
}

/// Whether a runner waits for the timed section to begin, which the driver sees to.
fn at_gate(run: &Run, board: &Board) -> bool {
    let wait = board.waits_for();
    !is_in_call(board.what.load(Ordering::Relaxed))
        && wait.lane == run.shared.gate()
        && run.shared.progress.done(wait.lane) < wait.count
}

fn is_in_call(what: u64) -> bool {
    what >> 16 & 1 == 1
}

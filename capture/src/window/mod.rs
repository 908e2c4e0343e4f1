//! Recording only a window of a program.
//!
//! | part | idea |
//! |---|---|
//! | [`trigger`] | what opens and closes a window |
//! | [`keep`], [`objects`] | outside a window: which calls matter later, and what the program has made and not ended |
//! | [`exports`] | what the program has exported, by which it may have more |
//! | [`holders`] | what holds contents beside memory, in windows and outside |
//! | [`contexts`] | what each thread has pushed on its stack of contexts |
//! | [`outside`] | entry and return of a call outside a window |
//! | [`preamble`], [`contents`] | at its opening: the kept calls, and what device memory holds, written in front of it |
//! | [`api`] | `hrr_capture_start` and `hrr_capture_stop` |
//!
//! Outside a window calls that do work pass unrecorded. A window is opened at the entry of a call, which is the first one in
//! it. Until it is open, calls of other threads wait at their entry, and those that are in the runtime, unless they only
//! wait for something, are let out first: then nothing is half before the window and half in it. Opening waits for the
//! devices once, and with contents reads back what device memory holds.
//!
//! While a stream is being captured no window is opened or closed: reading back would spoil the capture.

pub(crate) mod api;
mod contents;
pub(crate) mod contexts;
mod exports;
pub(crate) mod holders;
mod idle;
pub(crate) mod keep;
pub(crate) mod objects;
pub(crate) mod outside;
mod preamble;
pub(crate) mod trigger;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::contents::graph_copies;
use crate::guest::{notice, small_stack};
use crate::manifest;
use crate::plan::Plan;
use crate::process::{self, Process};
use crate::settings::Trigger;
use crate::writer::ThreadStream;
use holders::Holders;
use idle::For;
use objects::Objects;
use trigger::Moment;

/// Values of [`STATE`].
mod state {
    /// No window is open.
    pub(super) const OUTSIDE: u8 = 0;
    /// One is being opened: calls wait.
    pub(super) const OPENING: u8 = 1;
    /// One is open: calls are recorded.
    pub(super) const INSIDE: u8 = 2;
}

static STATE: AtomicU8 = AtomicU8::new(state::OUTSIDE);
/// Windows opened so far; tells a thread whether it has made a call in this one.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Work of the window that is open may wait for a value that something writes.
static AWAITS: AtomicBool = AtomicBool::new(false);

/// How long the end of a window waits for work that may wait for a value.
const SHORT_PATIENCE: Duration = Duration::from_millis(5);
/// How long opening waits for calls of other threads to return.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at whether a window has been opened, or whether calls have returned.
const PAUSE: Duration = Duration::from_micros(50);
/// Most bytes of calls that are kept outside a window.
const MOST_KEPT_BYTES: usize = 512 << 20;

/// The windows of a process.
#[derive(Debug)]
pub(crate) struct Windows {
    trigger: Trigger,
    objects: Mutex<Objects>,
    holders: Mutex<Holders>,
    began: Instant,
    /// Records in front of the first window.
    preamble_calls: AtomicU64,
    restored_bytes: AtomicU64,
    unrestored: AtomicU64,
}

/// Where a call stands that is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Outside a window.
    Outside,
    /// In one, of this number.
    Inside(u64),
}

/// What an entering call has to do next.
pub(crate) enum Next {
    /// Go on.
    Go(Standing),
    /// Wait, without counting as being in a call, and ask again.
    Wait,
}

/// Forgets the parent's window, in a forked child.
pub(crate) fn forget() {
    STATE.store(state::OUTSIDE, Ordering::Relaxed);
    OPENED.store(0, Ordering::Relaxed);
    AWAITS.store(false, Ordering::Relaxed);
}

/// Lets the thread that opens a window go on with it.
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

impl Windows {
    /// No window yet.
    pub(crate) fn new(trigger: Trigger) -> Self {
        Windows {
            trigger,
            objects: Mutex::default(),
            holders: Mutex::default(),
            began: Instant::now(),
            preamble_calls: AtomicU64::new(0),
            restored_bytes: AtomicU64::new(0),
            unrestored: AtomicU64::new(0),
        }
    }

    /// What is alive outside the windows.
    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What holds contents beside memory.
    pub(crate) fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the manifest says of the windows.
    pub(crate) fn for_manifest(&self) -> hrr_format::manifest::Window {
        // Relaxed: counts, which the thread that writes the manifest has made itself or waited for.
        hrr_format::manifest::Window {
            trigger: self.trigger.to_string(),
            opened: OPENED.load(Ordering::Relaxed),
            preamble_calls: self.preamble_calls.load(Ordering::Relaxed),
            restored_bytes: self.restored_bytes.load(Ordering::Relaxed),
            unrestored: self.unrestored.load(Ordering::Relaxed),
            contexts: true,
        }
    }

    /// Where a call stands that a thread enters; opens or closes a window where it is time.
    ///
    /// The thread's stream is busy, and the calling thread counts as inside a call.
    pub(crate) fn next(&self, process: &'static Process, stream: &ThreadStream, moment: &Moment) -> Next {
        // Acquire: whoever sees a window open sees its preamble written.
        match STATE.load(Ordering::Acquire) {
            state::OPENING => Next::Wait,
            state::INSIDE => {
                if self.trigger.closes(moment, self.began) && self.close(process) {
                    return Next::Go(Standing::Outside);
                }
                Next::Go(Standing::Inside(OPENED.load(Ordering::Relaxed)))
            }
            _ => {
                if self.trigger.opens(moment, self.began) {
                    match self.open(process, stream) {
                        Opening::Opened => return Next::Go(Standing::Inside(OPENED.load(Ordering::Relaxed))),
                        Opening::Others => return Next::Wait,
                        Opening::NotNow => {}
                    }
                }
                Next::Go(Standing::Outside)
            }
        }
    }

    /// Opens a window.
    fn open(&self, process: &'static Process, own: &ThreadStream) -> Opening {
        if graph_copies::capturing() {
            return Opening::NotNow;
        }
        // Acquire: this thread sees what the one that closed the window before did.
        if STATE.compare_exchange(state::OUTSIDE, state::OPENING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Opening::Others;
        }
        let opened = small_stack::with_own_stack(|| self.open_now(process, own));
        opened.unwrap_or_else(|| {
            process::stop(format_args!("an internal error occurred while a window was opened"));
            STATE.store(state::OUTSIDE, Ordering::Release);
            Opening::NotNow
        })
    }

    /// Opens a window, for which this thread has set the state.
    fn open_now(&self, process: &'static Process, own: &ThreadStream) -> Opening {
        let let_out = process::await_idle(process, own, PATIENCE);
        if graph_copies::capturing() {
            // A capture began just before calls were held up.
            STATE.store(state::OUTSIDE, Ordering::Release);
            return Opening::NotNow;
        }
        if !let_out {
            notice::line(format_args!(
                "A window is opened while calls of other threads have not returned; their work may be in it in part"
            ));
        }
        let devices = self.objects().devices().to_vec();
        if !idle::devices_are(devices, PATIENCE, For::Opening) {
            STATE.store(state::OUTSIDE, Ordering::Release);
            return Opening::NotNow;
        }
        process.pending().reset();
        process.host_memory().inspect(|memory| memory.begin_anew());
        let first = OPENED.load(Ordering::Relaxed) == 0;
        let written = preamble::write(process, &mut self.objects(), &self.holders());
        // Relaxed: whoever reads these waits for the state below, or is this thread.
        if first {
            self.preamble_calls.store(written.calls, Ordering::Relaxed);
        }
        self.restored_bytes.fetch_add(written.restored_bytes, Ordering::Relaxed);
        self.unrestored.fetch_add(written.unrestored, Ordering::Relaxed);
        OPENED.fetch_add(1, Ordering::Relaxed);
        // Best effort: it counts for a process that is killed in the window.
        let _ = manifest::write(process, manifest::Completeness::Begun);
        notice::line(format_args!(
            "Window {} opened: {} earlier calls, {} bytes of device memory",
            OPENED.load(Ordering::Relaxed),
            written.calls,
            written.restored_bytes
        ));
        // Release: pairs with the acquire in `next`.
        STATE.store(state::INSIDE, Ordering::Release);
        Opening::Opened
    }

    /// Whether no work of the window waits for a value any more.
    fn nothing_awaits(&self) -> bool {
        let devices = self.objects().devices().to_vec();
        let done = idle::devices_are(devices, SHORT_PATIENCE, For::Closing);
        if done {
            AWAITS.store(false, Ordering::Relaxed);
        }
        done
    }

    /// Closes the window; says whether this thread did, or another one has.
    fn close(&self, process: &'static Process) -> bool {
        // Relaxed: a thread that closes the window after another one's call came after that.
        if graph_copies::capturing() || (AWAITS.load(Ordering::Relaxed) && !self.nothing_awaits()) {
            return false;
        }
        // Release: a thread that opens the next window sees what was recorded in this one.
        if STATE.compare_exchange(state::INSIDE, state::OUTSIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // Results that the program has not seen by now it will see outside.
            process.pending().reset();
            notice::line(format_args!("Window {} closed", OPENED.load(Ordering::Relaxed)));
        }
        true
    }

    /// Ends the recording where more is kept than can be.
    pub(crate) fn check_kept(&self, objects: &mut Objects) {
        if objects.bytes() > MOST_KEPT_BYTES {
            objects.sweep();
            if objects.bytes() > MOST_KEPT_BYTES {
                process::stop(format_args!(
                    "the calls that a window would need take more than {} MiB",
                    MOST_KEPT_BYTES >> 20
                ));
            }
        }
    }
}

/// What became of opening a window.
enum Opening {
    /// It is open.
    Opened,
    /// Another thread opens it.
    Others,
    /// A stream is being captured, or work does not end: it is tried again at the next call.
    NotNow,
}

/// A call in a window has work wait for a value.
pub(crate) fn note_await() {
    // Relaxed: as in `close`.
    AWAITS.store(true, Ordering::Relaxed);
}

/// Number of the window that is open, or was last.
pub(crate) fn number() -> u64 {
    // Relaxed: who asks has seen the window open.
    OPENED.load(Ordering::Relaxed)
}

/// Whether a window is open. Asked after a call that was entered outside one.
pub(crate) fn is_open() -> bool {
    // Acquire: as in `next`.
    STATE.load(Ordering::Acquire) == state::INSIDE
}

/// Whether an entry point is one of those that the trigger counts.
pub(crate) fn counts(plan: &Plan) -> bool {
    plan.launch.is_some() || plan.api.name.starts_with("hipGraphLaunch")
}

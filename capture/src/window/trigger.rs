//! What opens and closes a window: launches that are counted, time that passes, signals and the program's own requests.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Instant;

use crate::settings::Trigger;

/// Launches entered so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// Signals received so far.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// The program asked for a window.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The handler that SIGUSR2 had before ours.
static BEFORE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What a call that is entered tells a trigger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Launches entered before this call; `None` where it is none.
    pub(crate) launch: Option<u64>,
}

impl Moment {
    /// The moment at which a call is entered, `launches` telling whether it launches something.
    pub(crate) fn of(launches: impl FnOnce() -> bool) -> Self {
        // Relaxed: numbers only have to differ.
        Moment { launch: launches().then(|| LAUNCHES.fetch_add(1, Ordering::Relaxed)) }
    }
}

impl Trigger {
    /// Whether a window is to be opened before a call that is entered now.
    pub(super) fn opens(&self, moment: &Moment, began: Instant) -> bool {
        match *self {
            Trigger::Launches { from, to } => {
                moment.launch.is_some_and(|number| number >= from && to.is_none_or(|to| number < to))
            }
            Trigger::Time { from, to } => {
                let now = began.elapsed();
                now >= from && to.is_none_or(|to| now < to)
            }
            // Relaxed: a request, which carries no data.
            Trigger::Signal => SIGNALS.load(Ordering::Relaxed) % 2 == 1,
            Trigger::Api => ASKED.load(Ordering::Relaxed),
        }
    }

    /// Whether the window is to be closed before a call that is entered now.
    pub(super) fn closes(&self, moment: &Moment, began: Instant) -> bool {
        match *self {
            Trigger::Launches { to, .. } => to.is_some_and(|to| moment.launch.is_some_and(|number| number >= to)),
            Trigger::Time { to, .. } => to.is_some_and(|to| began.elapsed() >= to),
            Trigger::Signal => SIGNALS.load(Ordering::Relaxed).is_multiple_of(2),
            Trigger::Api => !ASKED.load(Ordering::Relaxed),
        }
    }

    /// Makes the signal a request, where it is one. Called when the library is loaded, so that an early signal ends nothing.
    pub(crate) fn arm(&self) {
        if *self != Trigger::Signal {
            return;
        }
        // SAFETY: the handler touches atomics only, and passes the signal on to the program's own handler, of which the
        // flags are kept. A program that sets a handler later takes the signal away from capture.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut before);
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
                BEFORE.store(before.sa_sigaction as *mut libc::c_void, Ordering::Relaxed);
            }
            let mut ours = before;
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags |= libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR2, &ours, std::ptr::null_mut());
        }
    }
}

/// Asks for a window, or for its end.
pub(super) fn ask(wanted: Wanted) {
    // Relaxed: a request; what it opens is synchronised by the window's state.
    ASKED.store(wanted == Wanted::Open, Ordering::Relaxed);
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A window.
    Open,
    /// Its end.
    Closed,
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let before = BEFORE.load(Ordering::Relaxed);
    if !before.is_null() {
        // SAFETY: the address is that of the handler which the program had set. One that takes the number only ignores the
        // other two arguments, which travel in registers.
        unsafe {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(before);
            handler(signal, info, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_open_and_close_at_their_numbers() {
        let (trigger, began) = (Trigger::Launches { from: 2, to: Some(4) }, Instant::now());
        let at = |number| {
            (trigger.opens(&Moment { launch: number }, began), trigger.closes(&Moment { launch: number }, began))
        };
        assert_eq!(at(Some(1)), (false, false));
        assert_eq!(at(Some(2)), (true, false));
        assert_eq!(at(None), (false, false));
        assert_eq!(at(Some(3)), (true, false));
        assert_eq!(at(Some(4)), (false, true));
    }
}

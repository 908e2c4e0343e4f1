//! What opens and closes a window: `HIP_HRR_CAPTURE_WINDOW`.
//!
//! | value | a window is open |
//! |---|---|
//! | `launches:A..B` | from launch A, counted from 0, up to, not including, launch B; kernels and graphs count one each |
//! | `time:A..B` | from A to B after the process's first HIP call: numbers with `ms`, `s` (or nothing) or `m` |
//! | `signal` | between an odd SIGUSR2 and the next one |
//! | `api` | between `hrr_capture_start()` and `hrr_capture_stop()` |
//!
//! B may be left out: the window is then open until the process ends.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Launches entered so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// Signals received so far.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// The program asked for a window.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The handler that SIGUSR2 had before ours.
static BEFORE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// When windows are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Between two launches.
    Launches { from: u64, to: Option<u64> },
    /// Between two moments after the first call.
    Time { from: Duration, to: Option<Duration> },
    /// From one SIGUSR2 to the next.
    Signal,
    /// As the program says.
    Api,
}

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
    /// Reads the variable's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "HIP_HRR_CAPTURE_WINDOW={text} is none of launches:A..B, time:A..B, signal and api, with A less than B"
            )
        };
        let (word, range) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let trigger = match (word, range.split_once("..")) {
            ("signal", None) if range.is_empty() => Some(Trigger::Signal),
            ("api", None) if range.is_empty() => Some(Trigger::Api),
            ("launches", Some((from, to))) => {
                let number = |text: &str| text.trim().parse::<u64>().ok();
                ends(from, to, number).map(|(from, to)| Trigger::Launches { from, to })
            }
            ("time", Some((from, to))) => ends(from, to, duration).map(|(from, to)| Trigger::Time { from, to }),
            _ => None,
        };
        trigger.ok_or_else(wrong)
    }

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

fn ends<T: PartialOrd + Copy>(from: &str, to: &str, parse: impl Fn(&str) -> Option<T>) -> Option<(T, Option<T>)> {
    let from = parse(from)?;
    let to = if to.trim().is_empty() { None } else { Some(parse(to)?) };
    to.is_none_or(|to| from < to).then_some((from, to))
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * seconds).ok()
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Launches { from, to } => {
                write!(f, "launches:{from}..")?;
                to.map_or(Ok(()), |to| write!(f, "{to}"))
            }
            Trigger::Time { from, to } => {
                write!(f, "time:{}ms..", from.as_millis())?;
                to.map_or(Ok(()), |to| write!(f, "{}ms", to.as_millis()))
            }
            Trigger::Signal => f.write_str("signal"),
            Trigger::Api => f.write_str("api"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_and_written_alike() {
        let time = |from, to| Trigger::Time { from: Duration::from_millis(from), to: Some(Duration::from_millis(to)) };
        for (text, expected, written) in [
            ("launches:100..200", Trigger::Launches { from: 100, to: Some(200) }, "launches:100..200"),
            ("launches:5..", Trigger::Launches { from: 5, to: None }, "launches:5.."),
            ("time:1.5s..2m", time(1500, 120_000), "time:1500ms..120000ms"),
            ("time:20ms..1", time(20, 1000), "time:20ms..1000ms"),
            (" signal ", Trigger::Signal, "signal"),
            ("api", Trigger::Api, "api"),
        ] {
            let trigger = Trigger::parse(text).unwrap();
            assert_eq!((trigger, trigger.to_string().as_str()), (expected, written));
            assert_eq!(Trigger::parse(written), Ok(trigger));
        }
        for text in
            ["", "launches", "launches:2..1", "launches:1..1", "launches:..5", "time:1h..", "signal:1..2", "time:-1..2"]
        {
            assert!(Trigger::parse(text).is_err(), "{text}");
        }
    }

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

//! Lines printed while calls are issued: an instruction before the call prints what was laid out for it, so that the last
//! line tells what the replay was about to do.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::thunk::Outcome;

/// Prints a line. Words: address and length of the text.
///
/// # Safety
/// The words are those of text that stays where it is.
pub(crate) unsafe fn print_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays out two words: text in the chunk's memory and its length.
    let text = unsafe { std::slice::from_raw_parts(words.read() as *const u8, words.add(1).read() as usize) };
    // One write, so that lines of several threads do not mix. Where it fails there is nobody to tell.
    // SAFETY: the text is readable for its length.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    Outcome { code: 0, raw: 0 }
}

/// Results compared so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    /// So many passed and failed by now.
    pub(crate) fn set(&self, passed: u64, failed: u64) {
        // Relaxed: figures for people, each by itself.
        self.passed.store(passed, Ordering::Relaxed);
        self.failed.store(failed, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        // Relaxed: as above.
        (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// What progress lines tell.
#[derive(Debug)]
pub(crate) struct Live {
    begun: Instant,
    /// Kernels launched.
    kernels: AtomicU64,
    /// Event number + 1 of the last launch, and its kernel's number + 1.
    last: AtomicU64,
    /// Launches between two lines; 0 = none.
    every: u64,
    /// Names of the archive's kernels.
    names: Vec<String>,
    /// Results compared so far.
    pub(crate) tally: Tally,
    printing: Mutex<()>,
}

/// Bits of [`Live::last`] that hold the kernel.
const KERNEL_BITS: u32 = 24;

impl Live {
    /// Progress that is told every so many launches.
    pub(crate) fn new(every: u64, names: Vec<String>) -> Self {
        Live {
            begun: Instant::now(),
            kernels: AtomicU64::new(0),
            last: AtomicU64::new(0),
            every,
            names,
            tally: Tally::default(),
            printing: Mutex::new(()),
        }
    }

    /// One more launch, of the kernel that a record's `aux` names.
    fn launched(&self, event: u64, aux: u32) {
        // Relaxed throughout: figures for people, each by itself.
        self.last.store((event + 1) << KERNEL_BITS | u64::from(aux) & ((1 << KERNEL_BITS) - 1), Ordering::Relaxed);
        let kernels = self.kernels.fetch_add(1, Ordering::Relaxed) + 1;
        if self.every != 0 && kernels.is_multiple_of(self.every) {
            self.print();
        }
    }

    /// Prints a progress line.
    pub(crate) fn print(&self) {
        let last = self.last.load(Ordering::Relaxed);
        let (event, aux) = (last >> KERNEL_BITS, last & ((1 << KERNEL_BITS) - 1));
        let name = (aux as usize).checked_sub(1).and_then(|kernel| self.names.get(kernel)).map_or("", String::as_str);
        let (passed, failed) = self.tally.read();
        let mut line = String::new();
        let _ = writeln!(
            line,
            "[HRR progress] elapsed_s={:.1} seq={} kernels={} d2h_pass={passed} d2h_fail={failed} d2h_attempted={} last=\"{}\"",
            self.begun.elapsed().as_secs_f64(),
            event.saturating_sub(1),
            self.kernels.load(Ordering::Relaxed),
            passed + failed,
            crate::info::printable(name),
        );
        let _one_at_a_time = self.printing.lock();
        eprint!("{line}");
    }
}

/// Counts a launch. Words: the [`Live`], the event number, the record's `aux`.
///
/// # Safety
/// The first word is the address of a [`Live`] that outlives the call.
pub(crate) unsafe fn count_thunk(_: *const c_void, words: *const u64) -> Outcome {
    // SAFETY: the planner lays out three words and keeps the `Live` for as long as its chunks.
    let (live, event, aux) = unsafe { (&*(words.read() as *const Live), words.add(1).read(), words.add(2).read()) };
    live.launched(event, aux as u32);
    Outcome { code: 0, raw: 0 }
}

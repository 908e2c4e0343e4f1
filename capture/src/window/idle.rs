//! Waiting for the devices before a window is opened, without staking the program on it.
//!
//! What memory holds can be read only when nothing is at work. But work may wait for a later call of the very thread that opens the
//! window (`hipStreamWaitValue32`, whose value that thread writes), or for what the program stores. So another thread waits, and
//! where it has not come back in time the window is opened later. Nor is a window closed while its work may wait for such a value: what
//! writes it would be in no window, and a replay would wait for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::guest::{notice, threads};
use crate::runtime;

/// A thread waits for the devices.
static WAITING: AtomicBool = AtomicBool::new(false);
/// It has been said that a window is opened later.
static SAID: AtomicBool = AtomicBool::new(false);

/// What is held up by a device that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The opening of a window.
    Opening,
    /// The end of one.
    Closing,
}

/// Whether the devices are idle, or were within this time. Until a wait that took longer has ended the answer is no, at once.
pub(super) fn devices_are(devices: Vec<i32>, patience: Duration, held_up: For) -> bool {
    /// How often the other thread is looked at.
    const STEP: Duration = Duration::from_micros(50);
    /// On a busy machine the other thread may get its first turn late, which says nothing of the devices.
    const FIRST_TURN: Duration = Duration::from_secs(1);
    // Acquire: pairs with the release below, so that a wait which has ended is over.
    if WAITING.swap(true, Ordering::Acquire) {
        return false;
    }
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&has_begun);
    let started = threads::spawn("hrr-window", move || {
        // Relaxed: only how long is waited hangs on it.
        begins.store(true, Ordering::Relaxed);
        for device in devices {
            // SAFETY: the device is one that the program has used; this thread's own device concerns nobody.
            unsafe {
                if runtime::set_device(device) == 0 {
                    runtime::device_synchronize();
                }
            }
        }
        // Release: pairs with the acquires.
        WAITING.store(false, Ordering::Release);
    });
    if !started {
        WAITING.store(false, Ordering::Release);
        return false;
    }
    let (mut since, mut limit) = (Instant::now(), patience.max(FIRST_TURN));
    let mut begun = false;
    // Acquire: pairs with the release above.
    while WAITING.load(Ordering::Acquire) {
        if !begun && has_begun.load(Ordering::Relaxed) {
            (begun, since, limit) = (true, Instant::now(), patience);
        }
        if since.elapsed() > limit {
            // Relaxed: only who says it.
            if held_up == For::Opening && !SAID.swap(true, Ordering::Relaxed) {
                notice::line(format_args!(
                    "A window is opened later: work on a device has not ended after {} s, and may wait for the program",
                    patience.as_secs()
                ));
            }
            return false;
        }
        std::thread::sleep(STEP);
    }
    true
}

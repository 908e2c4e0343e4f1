//! Waiting for threads that are inside a call, and making sure that the others see what was stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Process;
use crate::writer::ThreadStream;

/// Waits until no thread but the owner of a stream is in a call that it counts as being in; says whether it came to that.
/// New ones must have been held up before: as in `close_idle_streams`, a barrier makes sure that they see it.
pub(crate) fn await_idle(process: &Process, own: &ThreadStream, patience: Duration) -> bool {
    /// Where threads cannot be fenced, their stores are waited for.
    const SETTLING: Duration = Duration::from_millis(10);
    const PAUSE: Duration = Duration::from_micros(50);
    if !barrier() {
        std::thread::sleep(SETTLING);
    }
    let deadline = Instant::now() + patience;
    loop {
        let busy = |stream: &Arc<ThreadStream>| stream.is_busy() && !std::ptr::eq(Arc::as_ptr(stream), own);
        if !process.streams().iter().any(busy) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration (linux/membarrier.h).
const BARRIER: libc::c_int = 1 << 3;
const REGISTER_BARRIER: libc::c_int = 1 << 4;

pub(super) fn register_barrier() {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_BARRIER, 0, 0) };
}

pub(super) fn barrier() -> bool {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, BARRIER, 0, 0) == 0 }
}

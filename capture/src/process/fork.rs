//! A forked child begins anew.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{FORKED, GATE, PROCESS, STARTING, gate, thread_streams};
use crate::contents::{graph_copies, host_memory, pending_results};
use crate::{recorder, window};

static FORK_HANDLER: AtomicBool = AtomicBool::new(false);

pub(super) fn install_fork_handler() {
    if !FORK_HANDLER.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler may run in a child at any time: it only stores to atomics and to this thread's state.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

unsafe extern "C" fn in_child() {
    if GATE.load(Ordering::Relaxed) != gate::OFF {
        FORKED.store(!PROCESS.load(Ordering::Relaxed).is_null(), Ordering::Relaxed);
        GATE.store(gate::UNKNOWN, Ordering::Relaxed);
    }
    PROCESS.store(std::ptr::null_mut(), Ordering::Relaxed);
    STARTING.store(false, Ordering::Relaxed);
    pending_results::forget();
    graph_copies::forget();
    host_memory::forget();
    window::forget();
    // The stream is the parent's: neither the child's calls nor the end of its thread may touch it.
    recorder::forget_stream();
    thread_streams::forget();
}

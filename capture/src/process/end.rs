//! How a recording ends: with the process, or before it where it cannot go on.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::quiet::barrier;
use super::{GATE, PROCESS, Process, gate};
use crate::guest::unnoticed::Unnoticed;
use crate::guest::{notice, reserve};
use crate::{journal, manifest, recorder};

/// Ends the recording for good, with one line that says why. What was recorded stays readable.
pub(crate) fn stop(reason: fmt::Arguments<'_>) {
    // Relaxed: whoever makes the exchange says the line; the gate itself carries no data when it closes.
    let close = |from| GATE.compare_exchange(from, gate::STOPPED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if close(gate::RECORDING) || close(gate::WINDOWED) || close(gate::ENDING) {
        told(reason);
    }
}

fn told(reason: fmt::Arguments<'_>) {
    let process = PROCESS.load(Ordering::Acquire);
    if !process.is_null() {
        // The first reason is the one.
        // SAFETY: the pointer is to the leaked process.
        let _ = unsafe { &*process }.stopped.set(reason.to_string());
    }
    journal::stopped(reason);
    notice::line(format_args!("Capture stopped: {reason}; what was recorded until now stays, and the program runs on"));
}

/// Ends the recording for good where the process has no memory left. Called by the allocator, whatever its caller holds, so the line
/// is said later.
pub(crate) fn memory_ran_out() {
    for from in [gate::RECORDING, gate::WINDOWED, gate::ENDING] {
        // Relaxed: as in `stop`.
        let _ = GATE.compare_exchange(from, gate::STOPPED, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Ends the recording with the process. Called when the library's own destructors run: after `main`, exit handlers and
/// the destructors of everything that was loaded with the program.
pub(crate) fn finish() {
    let _unnoticed = Unnoticed::new();
    let state = GATE.load(Ordering::Acquire);
    if state == gate::UNKNOWN {
        journal::idle();
    }
    if !matches!(state, gate::RECORDING | gate::WINDOWED | gate::STOPPED) {
        return;
    }
    if state == gate::STOPPED && reserve::take_ran_out() {
        told(format_args!("the process had no memory left"));
    }
    let process = PROCESS.load(Ordering::Acquire);
    if process.is_null() {
        return;
    }
    // SAFETY: the pointer is to the leaked process.
    let process = unsafe { &*process };
    if process.pid != std::process::id() {
        // A child made without fork handlers (by a bare clone): the archive is the parent's.
        return;
    }
    // A recording that was stopped stays so: its line has been said.
    let end = |from| GATE.compare_exchange(from, gate::ENDING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    let was_stopped = !end(gate::RECORDING) && !end(gate::WINDOWED);
    if let Some(blobs) = process.blobs() {
        blobs.finish();
    }
    let closed = close_idle_streams(process);
    // What could not be written meanwhile has stopped the recording too, however late.
    let stopped = GATE.swap(gate::STOPPED, Ordering::SeqCst) == gate::STOPPED || was_stopped;
    let completeness = match (stopped, closed) {
        (false, Ok(())) => manifest::Completeness::Complete,
        _ => manifest::Completeness::Stopped,
    };
    if let Err(error) = manifest::write(process, completeness) {
        notice::line(format_args!("{}: the manifest could not be written: {error}", process.dir.display()));
    }
    let _ = manifest::write_root(process);
}

/// Closes the streams of threads that are not inside a call.
///
/// A thread that records says that it is busy and then looks at the gate; here the gate is closed and then the threads
/// are looked at. One of the two must see the other's store. The threads do not fence, since they would pay for it at
/// each call: the barrier system call fences all of them once, on their behalf.
fn close_idle_streams(process: &Process) -> io::Result<()> {
    let own = recorder::own_stream();
    let fenced = barrier();
    let streams = process.streams();
    for stream in streams.iter() {
        if stream.is_busy() || !(fenced || std::ptr::eq(Arc::as_ptr(stream), own)) {
            // Its mapping stays, for the record it is in the middle of.
            continue;
        }
        // SAFETY: the gate is closed and the owner was idle after every core had passed a barrier, so it has seen or will
        // see the closed gate before it touches the stream.
        unsafe { process.close_stream(stream) }?;
    }
    Ok(())
}

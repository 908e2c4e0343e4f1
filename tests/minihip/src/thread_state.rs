//! What HIP keeps per OS thread: current device, last error, capture mode, pushed call configurations, and
//! the thread's own default streams.

use crate::abi::Dim3;
use crate::device::{Device, device, devices};
use crate::error::{HipError, HipResult};
use crate::stream::{Stream, StreamKind};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// One `<<<grid, block, shared, stream>>>`, between its push and its pop.
#[derive(Clone, Debug)]
pub(crate) struct CallConfiguration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: usize,
    /// Arguments collected by `hipSetupArgument`, for `hipLaunchByPtr`.
    pub(crate) arguments: Vec<u8>,
}

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
    static COMMAND_ERROR: Cell<i32> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    static THREAD_ID: Cell<u64> = const { Cell::new(0) };
    static CONFIGURATIONS: RefCell<Vec<CallConfiguration>> = const { RefCell::new(Vec::new()) };
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static PER_THREAD: PerThreadStreams = const { PerThreadStreams(RefCell::new(Vec::new())) };
}

/// The thread's default streams, by device; closed (and drained by their queues) when the thread ends.
struct PerThreadStreams(RefCell<Vec<Arc<Stream>>>);

impl Drop for PerThreadStreams {
    fn drop(&mut self) {
        for stream in self.0.get_mut().drain(..) {
            stream.close();
        }
    }
}

/// The thread's current device.
pub(crate) fn current_device() -> HipResult<&'static Device> {
    device(DEVICE.get())
}

/// `hipSetDevice`.
pub(crate) fn set_current_device(index: i32) -> HipResult {
    if devices().is_empty() {
        return Err(HipError::NO_DEVICE);
    }
    match usize::try_from(index) {
        Ok(index) if index < devices().len() => {
            DEVICE.set(index);
            Ok(())
        }
        _ => Err(HipError::INVALID_DEVICE),
    }
}

/// Keeps a call's result for `hipGetLastError` (errors stay until read; "not ready" is not an error) and
/// `hipExtGetLastError` (the last call's code, whatever it was).
pub(crate) fn note_result(code: i32) {
    COMMAND_ERROR.set(code);
    if code != 0 && code != HipError::NOT_READY.0 {
        LAST_ERROR.set(code);
    }
}

/// The last error, left in place.
pub(crate) fn peek_last_error() -> i32 {
    LAST_ERROR.get()
}

/// The last error, cleared.
pub(crate) fn take_last_error() -> i32 {
    LAST_ERROR.replace(0)
}

/// The previous call's code, cleared.
pub(crate) fn take_command_error() -> i32 {
    COMMAND_ERROR.replace(0)
}

/// The thread's stream capture interaction mode (`hipStreamCaptureMode`), replaced.
pub(crate) fn exchange_capture_mode(mode: i32) -> i32 {
    CAPTURE_MODE.replace(mode)
}

/// The thread's stream capture interaction mode.
pub(crate) fn capture_mode() -> i32 {
    CAPTURE_MODE.get()
}

/// A number that identifies this thread for the life of the process (OS ids are reused).
pub(crate) fn thread_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    match THREAD_ID.get() {
        0 => {
            // Relaxed: only uniqueness matters.
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            THREAD_ID.set(id);
            id
        }
        id => id,
    }
}

/// `__hipPushCallConfiguration` and `hipConfigureCall`.
pub(crate) fn push_configuration(configuration: CallConfiguration) {
    CONFIGURATIONS.with_borrow_mut(|stack| stack.push(configuration));
}

/// `__hipPopCallConfiguration` and `hipLaunchByPtr`.
pub(crate) fn pop_configuration() -> HipResult<CallConfiguration> {
    CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(HipError::MISSING_CONFIGURATION)
}

/// `hipSetupArgument`: places `bytes` at `offset` in the innermost configuration's arguments.
pub(crate) fn set_argument(bytes: &[u8], offset: usize) -> HipResult {
    /// Kernel arguments of real devices end at 4 KiB.
    const LIMIT_BYTES: usize = 4096;
    let end = offset.checked_add(bytes.len()).filter(|end| *end <= LIMIT_BYTES).ok_or(HipError::INVALID_VALUE)?;
    CONFIGURATIONS.with_borrow_mut(|stack| {
        let arguments = &mut stack.last_mut().ok_or(HipError::MISSING_CONFIGURATION)?.arguments;
        if arguments.len() < end {
            arguments.resize(end, 0);
        }
        arguments[offset..end].copy_from_slice(bytes);
        Ok(())
    })
}

/// The thread's stack of pushed contexts.
pub(crate) fn with_contexts<R>(body: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    CONTEXTS.with_borrow_mut(body)
}

/// The thread's default stream on its current device, made on first use.
pub(crate) fn per_thread_stream() -> HipResult<Arc<Stream>> {
    let device = current_device()?;
    PER_THREAD
        .try_with(|streams| {
            let mut streams = streams.0.borrow_mut();
            if let Some(stream) = streams.iter().find(|stream| stream.device == device.index) {
                return Arc::clone(stream);
            }
            let stream = Stream::create(device, StreamKind::PerThread, 0, 0);
            streams.push(Arc::clone(&stream));
            stream
        })
        // The thread is being torn down and its streams are gone.
        .map_err(|_| HipError::DEINITIALIZED)
}

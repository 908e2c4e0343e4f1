//! The stream of each thread: opened at its first call, closed when it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hrr_format::archive::stream_path;
use hrr_format::stream_file::StreamHeader;

use super::{PROCESS, Process, stop};
use crate::guest::notice;
use crate::guest::unnoticed::Unnoticed;
use crate::writer::{StreamIdentity, ThreadStream};
use crate::{clock, files, recorder};

/// The thread-exit key plus one; zero before it exists.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

impl Process {
    fn identity(&self, name: String, ring_part_bytes: u32) -> StreamIdentity {
        // Relaxed: numbers only have to differ.
        let thread = self.threads.fetch_add(1, Ordering::Relaxed);
        let header = StreamHeader {
            contents: self.config.contents,
            thread,
            tid: thread_id(),
            pid: u64::from(self.pid),
            open_tick: clock::tick(),
            used_bytes: 0,
            name,
            ring_part_bytes,
        };
        StreamIdentity { path: stream_path(&self.dir, thread), header }
    }

    /// Opens a stream of capture's own.
    ///
    /// # Errors
    /// Why its file cannot be made.
    pub(crate) fn open_side_stream(&self, name: &str) -> io::Result<Arc<ThreadStream>> {
        ThreadStream::create(&self.identity(name.to_owned(), 0)).map(Arc::new)
    }

    /// Closes a stream of capture's own.
    ///
    /// # Errors
    /// As [`ThreadStream::close`].
    pub(crate) fn close_side_stream(&self, stream: &ThreadStream) -> io::Result<()> {
        self.closed_events.fetch_add(stream.events(), Ordering::Relaxed);
        // SAFETY: the caller is its only writer.
        unsafe { self.close_stream(stream) }
    }

    /// Opens the calling thread's stream; the thread holds a count on what is returned.
    pub(crate) fn open_stream(&self) -> Option<*const ThreadStream> {
        let mut ring_part_bytes = 0;
        if let Some(rings) = &self.rings {
            let Some(room) = rings.take() else {
                static SAID: AtomicBool = AtomicBool::new(false);
                if !SAID.swap(true, Ordering::Relaxed) {
                    notice::line(format_args!(
                        "HIP_HRR_FLIGHT_RECORDER has no room for so many threads; the later ones are not recorded"
                    ));
                }
                return None;
            };
            ring_part_bytes = room.part_bytes;
            self.threads_gone.fetch_add(room.removed, Ordering::Relaxed);
        }
        let identity = self.identity(thread_name(), ring_part_bytes);
        let stream = match ThreadStream::create(&identity) {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                stop(format_args!("{} cannot be made: {error}", identity.path.display()));
                return None;
            }
        };
        self.streams().push(Arc::clone(&stream));
        let stream = Arc::into_raw(stream);
        if let Some(key) = exit_key() {
            // SAFETY: the key exists. Where the value cannot be stored, the stream is closed at process exit.
            unsafe { libc::pthread_setspecific(key, stream.cast()) };
        }
        Some(stream)
    }

    /// Closes a stream whose owner is gone or records no more.
    ///
    /// # Safety
    /// As [`ThreadStream::close`].
    pub(super) unsafe fn close_stream(&self, stream: &ThreadStream) -> io::Result<()> {
        // SAFETY: by the caller's contract.
        unsafe { stream.close() }?;
        if let Some(rings) = &self.rings {
            rings.ended(stream.file().path().to_owned(), stream.ring_part_bytes());
        }
        if self.windows.is_some() && stream.events() == 0 {
            // A thread that made calls outside windows only. Where the file cannot be taken away it stays, empty.
            if files::remove(stream.file().path()).is_ok() {
                self.threads_gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The key whose destructor closes a thread's stream.
fn exit_key() -> Option<libc::pthread_key_t> {
    if let Some(key) = EXIT_KEY.load(Ordering::Acquire).checked_sub(1) {
        return Some(key);
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is writable, and the destructor has the right prototype.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_exits)) } != 0 {
        return None;
    }
    match EXIT_KEY.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(theirs) => {
            // SAFETY: the key was made just above and nobody else knows it.
            unsafe { libc::pthread_key_delete(key) };
            Some(theirs - 1)
        }
    }
}

/// The calling thread's stream is the parent's.
pub(super) fn forget() {
    if let Some(key) = EXIT_KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
}

/// Closes the stream of a thread that ends. A call that the thread still makes, from a later destructor, opens a new one.
unsafe extern "C" fn thread_exits(stream: *mut libc::c_void) {
    let _unnoticed = Unnoticed::new();
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: the value of the key is the pointer that `open_stream` made from an `Arc`, given up here.
        let stream = unsafe { Arc::from_raw(stream.cast::<ThreadStream>()) };
        recorder::forget_stream();
        let process = PROCESS.load(Ordering::Acquire);
        if process.is_null() {
            return;
        }
        // SAFETY: the pointer is to the leaked process.
        let process = unsafe { &*process };
        // SAFETY: this is the owner, outside any call.
        if let Err(error) = unsafe { process.close_stream(&stream) } {
            stop(format_args!("{} cannot be closed: {error}", stream.file().path().display()));
        }
        let mut streams = process.streams();
        streams.retain(|other| !Arc::ptr_eq(other, &stream));
        process.closed_events.fetch_add(stream.events(), Ordering::Relaxed);
    });
}

fn thread_id() -> u64 {
    // SAFETY: the call has no preconditions.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    id as u64
}

fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, NUL included.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..len]).into_owned()
}

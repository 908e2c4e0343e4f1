//! What copies read of a result that is written over before the program has waited for either.
//!
//! Memory by which data goes from one device to another is used like that, ordered by streams and events alone: no call of the
//! program's comes at a moment when the memory is known to hold what was read. The stream that is to write it anew therefore stores
//! it first, by a function of capture's own: the program has ordered that stream behind the readers, or at least, where the work there
//! only may write the memory, behind the result. Nothing waits.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::blob_writer::BlobWriter;
use super::memory::Trust;
use super::region::Region;
use crate::runtime::{self, LastError};

/// A copy that reads host memory which a result has yet to be written to.
#[derive(Debug)]
pub(super) struct Reader {
    /// Blob number of what it reads.
    pub(super) number: u64,
    pub(super) region: Region,
    pub(super) trust: Trust,
}

impl Reader {
    /// Has what it reads stored, which the memory holds now.
    ///
    /// # Safety
    /// As [`Region::read`].
    pub(super) unsafe fn store(&self, writer: &BlobWriter) {
        // SAFETY: by the caller's contract. Memory that cannot be read leaves the number without contents.
        unsafe { writer.add(writer.blobs, self.number, &self.region, self.trust) };
    }
}

/// What a stream's function is given.
struct Stored {
    readers: Vec<Reader>,
    writer: &'static BlobWriter,
}

/// Has a stream store what these read, before what is enqueued on it next. Where the runtime does not take it, their numbers are left
/// without contents.
pub(super) fn store_in_order(readers: Vec<Reader>, stream: u64, writer: &'static BlobWriter) {
    let last_error = LastError::keep();
    if readers.is_empty() || !last_error.may_fail() {
        return;
    }
    let stored = Box::into_raw(Box::new(Stored { readers, writer }));
    // SAFETY: the program is about to use the stream; the function is called once with what it takes over.
    if unsafe { runtime::launch_host_func(stream as *mut c_void, store, stored.cast()) } != 0 {
        // SAFETY: the runtime has not taken it.
        drop(unsafe { Box::from_raw(stored) });
    }
}

unsafe extern "C" fn store(stored: *mut c_void) {
    // SAFETY: the pointer is the one that `store_in_order` gave away, and the function is called once.
    let stored = unsafe { Box::from_raw(stored.cast::<Stored>()) };
    // A panic must not cross into the runtime; what is not stored is missing.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        for reader in &stored.readers {
            // SAFETY: the program has the copies read the memory until what is behind this function is done.
            unsafe { reader.store(stored.writer) };
        }
    }));
}

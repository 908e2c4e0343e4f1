//! A segment of a stream file: a range whose blocks are allocated before it is mapped.
//!
//! A store to a mapped page that the file system has no block for kills the program with SIGBUS. So the range is
//! allocated first, and a disk that is full says so here, where it can still be handled. The pages are then brought into
//! the page cache by writing zeros and mapped writable in one go, away from the path of the program's calls. (Writing in
//! long pieces lets the file system use large folios: measured on ext4, 0.7 us a page all told, against 3.3 us where
//! each page of the fresh allocation is faulted in for writing.)

use std::io;

use crate::files::{GuardedFile, check};
use crate::guest::quiet_write::quietly;

/// Allocation granularity of segments in bytes; a multiple of the page size of every x86-64 system.
pub(crate) const GRANULE_BYTES: usize = 64 << 10;

/// A mapped range of a stream file.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    len_bytes: usize,
    offset_bytes: u64,
}

// SAFETY: a segment is an owned address range; it may be unmapped by another thread than the one that mapped it.
unsafe impl Send for Segment {}

impl Segment {
    /// Allocates `len_bytes` of `file` from `offset_bytes` on, maps them and makes them writable without a fault.
    ///
    /// # Errors
    /// Why the file cannot grow (a full disk, a quota, a file size limit) or cannot be mapped.
    pub(crate) fn create(file: &GuardedFile, offset_bytes: u64, len_bytes: usize) -> io::Result<Self> {
        let end_bytes = offset_bytes + len_bytes as u64;
        check_size_limit(end_bytes)?;
        let fd = file.fd()?;
        quietly(|| {
            allocate(fd, offset_bytes, len_bytes)?;
            write_zeros(fd, offset_bytes, len_bytes)
        })?;
        // SAFETY: a new shared mapping of a file that is open for reading and writing, at an address of the kernel's
        // choice; the offset is a multiple of the page size.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                offset_bytes as i64,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let segment = Segment { base: base.cast(), len_bytes, offset_bytes };
        // SAFETY: the range is the mapping made above. A forked child must not write to its parent's streams.
        unsafe { libc::madvise(base, len_bytes, libc::MADV_DONTFORK) };
        // A kernel older than 5.14 lacks this advice; the pages then fault one by one as they are first written.
        // SAFETY: the range is the mapping made above.
        unsafe { libc::madvise(base, len_bytes, libc::MADV_POPULATE_WRITE) };
        Ok(segment)
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// One past the last byte.
    pub(crate) fn end(&self) -> *mut u8 {
        self.base.wrapping_add(self.len_bytes)
    }

    /// Offset of the first byte in the file.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value and its owner has no pointer into it any more.
        unsafe { libc::munmap(self.base.cast(), self.len_bytes) };
    }
}

/// Whether RLIMIT_FSIZE lets a file grow so far: nothing need be written, or made longer, that the limit would cut.
pub(crate) fn check_size_limit(end_bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable memory of the right type.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) })?;
    if limit.rlim_cur != libc::RLIM_INFINITY && end_bytes > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(())
}

fn allocate(fd: libc::c_int, offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
    loop {
        // SAFETY: `fallocate` touches no memory of ours.
        match check(unsafe { libc::fallocate(fd, 0, offset_bytes as i64, len_bytes as i64) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file system without the call: writing zeros, which follows, allocates too.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            done => return done,
        }
    }
}

fn write_zeros(fd: libc::c_int, offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
    /// Takes no memory: it is never written to, so that all of it is the kernel's one page of zeros.
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    let mut done = 0;
    while done < len_bytes {
        let step = ZEROS.len().min(len_bytes - done);
        // SAFETY: `ZEROS` is readable for `step` bytes.
        let written = unsafe { libc::pwrite(fd, ZEROS.as_ptr().cast(), step, (offset_bytes + done as u64) as i64) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_in_a_segment_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = GuardedFile::create(dir.path().join("s")).unwrap();
        let segment = Segment::create(&file, GRANULE_BYTES as u64, GRANULE_BYTES).unwrap();
        // SAFETY: the segment is mapped writable and longer than a byte.
        unsafe { segment.base().write(7) };
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), 2 * GRANULE_BYTES);
        assert_eq!(bytes[GRANULE_BYTES], 7);
    }

    #[test]
    fn zeros_allocate_where_fallocate_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let file = GuardedFile::create(dir.path().join("s")).unwrap();
        write_zeros(file.fd().unwrap(), 100, 40_000).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 40_100);
    }
}

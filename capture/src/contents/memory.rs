//! Reading the program's memory.

use std::sync::OnceLock;

/// Whether memory is known to be readable for as long as it is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The runtime has just read or written all of it, or is known to be about to, or it is pinned memory whose end
    /// capture sees.
    Readable,
    /// The program may have made a mistake that the runtime refuses, or may have unmapped the memory meanwhile.
    Doubtful,
}

/// Whether so much memory is worth trying to read. A length above all the machine's memory, which nobody vouches for, is a
/// mistake of the program's that the runtime will refuse: reading as far as there happens to be something, such as the address
/// space that a runtime reserved, once filled the disk.
pub(crate) fn is_plausible(len_bytes: u64, trust: Trust) -> bool {
    static MACHINE_BYTES: OnceLock<u64> = OnceLock::new();
    let machine_bytes = || {
        // SAFETY: sysconf has no preconditions.
        let [pages, page_bytes] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
        u64::try_from(pages).ok().zip(u64::try_from(page_bytes).ok()).map_or(u64::MAX, |(pages, page)| pages * page)
    };
    trust == Trust::Readable || len_bytes <= *MACHINE_BYTES.get_or_init(machine_bytes)
}

/// Copies `len_bytes` of the program's memory to `to`; says whether all of it could be read.
///
/// # Safety
/// `to` is writable for `len_bytes`; with [`Trust::Readable`], so is `from` readable.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len_bytes: usize, trust: Trust) -> bool {
    if trust == Trust::Readable {
        // SAFETY: by the caller's contract; the ranges cannot overlap, since `to` is capture's own buffer.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len_bytes) };
        return true;
    }
    let mut done = 0;
    while done < len_bytes {
        let (from, to, left) = (from.wrapping_add(done), to.wrapping_add(done), len_bytes - done);
        // SAFETY: `to` is writable by the caller's contract; the kernel checks `from`.
        let read = unsafe { read_checked(from, to, left) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => done += read,
            _ => return false,
        }
    }
    true
}

/// Reads this process's memory through the kernel, which answers with an error where a plain read would end the program.
///
/// # Safety
/// `to` is writable for `len_bytes`.
unsafe fn read_checked(from: *const u8, to: *mut u8, len_bytes: usize) -> isize {
    let local = libc::iovec { iov_base: to.cast(), iov_len: len_bytes };
    let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len_bytes };
    // SAFETY: by the caller's contract.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    // Sandboxes forbid the call with one of these, whatever the memory.
    let forbidden = || {
        let error = std::io::Error::last_os_error().raw_os_error();
        matches!(error, Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
    };
    if read >= 0 || !forbidden() {
        return read;
    }
    // SAFETY: by the caller's contract.
    unsafe { read_through_pipe(from, to, len_bytes) }
}

/// As [`read_checked`], by a pipe: writing to it reads the memory, and fails where that cannot be read.
unsafe fn read_through_pipe(from: *const u8, to: *mut u8, len_bytes: usize) -> isize {
    /// What an empty pipe takes at once.
    const PIPE_BYTES: usize = 64 << 10;
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return -1;
    }
    // SAFETY: the kernel checks `from`; `to` is writable by the caller's contract, and no more is read than was written. The
    // descriptors are this function's own.
    unsafe {
        let mut read = libc::write(ends[1], from.cast(), len_bytes.min(PIPE_BYTES));
        if let Ok(written @ 1..) = usize::try_from(read) {
            read = libc::read(ends[0], to.cast(), written);
        }
        libc::close(ends[0]);
        libc::close(ends[1]);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubtful_memory_is_read_or_refused() {
        let from: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
        let mut to = vec![0; from.len()];
        // SAFETY: both vectors are as long as is said.
        assert!(unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len(), Trust::Doubtful) });
        assert_eq!(from, to);
        // SAFETY: the target is writable; the source need not be anything.
        assert!(is_plausible(4096, Trust::Doubtful) && is_plausible(1 << 50, Trust::Readable));
        assert!(!is_plausible(1 << 50, Trust::Doubtful));
        assert!(!unsafe { copy(std::ptr::dangling(), to.as_mut_ptr(), 16, Trust::Doubtful) });
    }

    #[test]
    fn a_pipe_serves_where_the_call_is_forbidden() {
        let from: Vec<u8> = (0..100_000u32).map(|index| index as u8).collect();
        let mut to = vec![0; from.len()];
        let mut done = 0;
        while done < from.len() {
            // SAFETY: both vectors are as long as is said.
            let read = unsafe { read_through_pipe(from[done..].as_ptr(), to[done..].as_mut_ptr(), from.len() - done) };
            assert!(read > 0);
            done += read as usize;
        }
        assert_eq!(from, to);
        // SAFETY: the target is writable; the source need not be anything.
        assert!(unsafe { read_through_pipe(std::ptr::dangling(), to.as_mut_ptr(), 16) } < 0);
    }
}

//! Reading the program's memory.

/// Whether memory is known to be readable for as long as it is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The runtime has just read or written all of it, or is known to be about to, or it is pinned memory whose end
    /// capture sees.
    Readable,
    /// The program may have made a mistake that the runtime refuses, or may have unmapped the memory meanwhile.
    Doubtful,
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
        let local = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: len_bytes - done };
        let remote = libc::iovec { iov_base: from.wrapping_add(done).cast_mut().cast(), iov_len: len_bytes - done };
        // The system call answers with an error where a plain read would end the program.
        // SAFETY: `local` is writable by the caller's contract; the kernel checks `remote`.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => done += read,
            _ => return false,
        }
    }
    true
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
        assert!(!unsafe { copy(std::ptr::dangling(), to.as_mut_ptr(), 16, Trust::Doubtful) });
    }
}

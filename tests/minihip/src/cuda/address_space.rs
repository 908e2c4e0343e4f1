//! Addresses that are kept free for later, out of the driver's sight when it starts.
//!
//! NVIDIA's driver (580) looks once at which addresses of the process are in use, in `cuInit`, and never gives those out,
//! also when they are free by the time they are asked for. HIP's runtime asks the kernel each time. So a replay that keeps
//! the recorded addresses free from before the runtime is loaded, with mappings that have nothing behind them, would get
//! none of them. Such mappings are taken away while the driver starts and put back behind it.

use std::ffi::c_void;
use std::time::Duration;

/// An allocator's new arena is such a mapping too, for the moment until its owner makes a part of it accessible. What is
/// kept free stays as it is, so what is hidden looked the same this often, this far apart.
const LOOKS: u32 = 4;
const APART: Duration = Duration::from_millis(8);

/// What the driver gives out by address it gives out in multiples of this, so only such mappings matter. Guards of stacks and
/// the unused rest of arenas lie at other addresses.
const BLOCK_BYTES: usize = 32 << 20;

/// Runs `start` while no whole blocks without access are mapped.
pub(super) fn with_kept_addresses_hidden<T>(start: impl FnOnce() -> T) -> T {
    let look = || kept(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default());
    let mut kept = look();
    for _ in 1..LOOKS {
        if kept.is_empty() {
            break;
        }
        std::thread::sleep(APART);
        let again = look();
        kept.retain(|mapping| again.contains(mapping));
    }
    for &(begin, end) in &kept {
        // SAFETY: a private anonymous mapping without access has no contents that anybody could miss.
        unsafe { libc::munmap(begin as *mut c_void, end - begin) };
    }
    let result = start();
    for (begin, end) in kept {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: what was mapped there meanwhile is left alone (MAP_FIXED_NOREPLACE).
        unsafe { libc::mmap(begin as *mut c_void, end - begin, libc::PROT_NONE, flags, -1, 0) };
    }
    result
}

/// The private anonymous mappings without access that are whole blocks, of the text of `/proc/self/maps`.
fn kept(maps: &str) -> Vec<(usize, usize)> {
    maps.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (begin, end) = fields.next()?.split_once('-')?;
            let (access, _offset, device, inode) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let anonymous = access == "---p" && device == "00:00" && inode == "0" && fields.next().is_none();
            let begin = usize::from_str_radix(begin, 16).ok()?;
            let end = usize::from_str_radix(end, 16).ok()?;
            let whole = begin.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
            (anonymous && whole).then_some((begin, end))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_with_nothing_behind_are_hidden() {
        let maps = "\
7f0000000000-7f0002000000 ---p 00000000 00:00 0 
7f0010000000-7f0011000000 ---p 00000000 00:00 0 
7f0020021000-7f0024000000 ---p 00000000 00:00 0 
7f0030000000-7f0032000000 r--p 00000000 00:00 0 
7f0040000000-7f0042000000 ---p 00000000 fe:10 42                         /lib/libx.so
7f0050000000-7f0052000000 ---p 00000000 00:00 0                          [stack:7]
7f0060000000-7f0068000000 ---p 00000000 00:00 0
";
        assert_eq!(kept(maps), [(0x7f00_0000_0000, 0x7f00_0200_0000), (0x7f00_6000_0000, 0x7f00_6800_0000)]);
    }

    #[test]
    fn they_are_gone_meanwhile_and_back_afterwards() {
        // A place far from where the kernel puts things, so that no other thread's mapping comes there.
        let wanted = 0x5c00_0000_0000usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let map = || {
            // SAFETY: nothing that is mapped already is touched.
            unsafe { libc::mmap(wanted as *mut c_void, BLOCK_BYTES, libc::PROT_NONE, flags, -1, 0) as usize }
        };
        assert_eq!(map(), wanted);
        let is_mapped = || {
            let mut resident = 0u8;
            // SAFETY: mincore only looks, and reports one page.
            unsafe { libc::mincore(wanted as *mut c_void, 4096, &raw mut resident) == 0 }
        };
        assert!(with_kept_addresses_hidden(|| !is_mapped()));
        assert!(is_mapped());
        // SAFETY: mapped above for this test.
        unsafe { libc::munmap(wanted as *mut c_void, BLOCK_BYTES) };
    }
}

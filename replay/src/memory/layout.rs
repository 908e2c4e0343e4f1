//! Where this process lies in its address space, and another try at it where recorded addresses are in the way.
//!
//! The system lays out each process anew. A program with much device memory has some tens of gigabytes of addresses in the
//! same part of the address space (of a tebibyte, on x86-64) in which a process's own libraries come to lie, so now and then
//! they meet: such addresses cannot be kept for device memory. Starting again costs milliseconds and gives another layout.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::machine::mappings::{self, Mapping};
use crate::memory::addresses::PAGE_BYTES;
use crate::survey::Survey;

/// Counts the tries of one replay, from one process image to the next.
pub(crate) const TRIES_VARIABLE: &str = "HRR_REPLAY_ADDRESS_TRIES";
const MAX_TRIES: u32 = 8;
/// A runtime that starts maps areas of its own right below what is mapped already (NVIDIA's driver: 8 GiB and some). What is
/// kept free there is safe from runtimes that ask the system for room, not from those that have a map of their own.
const ROOM_BYTES: u64 = 16 << 30;
/// What the system is asked to find room for, to see where it maps next, in bytes.
const PROBE_BYTES: usize = 64 << 20;

/// Whether this process image is one of several tries: what was told before is not told again.
pub(crate) fn is_another_try() -> bool {
    tries() > 0
}

fn tries() -> u32 {
    std::env::var(TRIES_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Replaces this process by the same program with the same arguments if recorded addresses lie where it has, or where its
/// runtime will have, mappings of its own. Returns where they do not, and where another layout cannot be had.
pub(crate) fn try_again_if_crowded(survey: &Survey) {
    let recorded = survey.device_ranges(PAGE_BYTES);
    let Some(next) = next_mapping() else { return };
    if !is_crowded(&recorded, &mappings::own(), next) || tries() >= MAX_TRIES || has_fixed_layout() {
        return;
    }
    tracing::info!(tries = tries(), "recorded addresses meet this process's own; starting again for another layout");
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // It returns only where it failed; the replay then goes on with what addresses it can have.
    let error = command.args(arguments).env(TRIES_VARIABLE, (tries() + 1).to_string()).exec();
    tracing::info!(%error, "cannot start again");
}

/// Where the system would map something large next.
fn next_mapping() -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), PROBE_BYTES, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped just now, and nobody else has its address.
    unsafe { libc::munmap(address, PROBE_BYTES) };
    Some(address as u64 + PROBE_BYTES as u64)
}

/// Whether processes started by this one all have the same layout.
fn has_fixed_layout() -> bool {
    /// `personality` with this value only tells.
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: takes a number, and changes nothing for this one.
    let persona = unsafe { libc::personality(QUERY) };
    persona != -1 && persona & libc::ADDR_NO_RANDOMIZE != 0
}

/// Whether ranges meet a mapping, or the room below `next`.
fn is_crowded(ranges: &[(u64, u64)], mapped: &[Mapping], next: u64) -> bool {
    let meets = |start: u64, end: u64| ranges.iter().any(|&(from, to)| from < end && start < to);
    meets(next.saturating_sub(ROOM_BYTES), next) || mapped.iter().any(|mapping| meets(mapping.start, mapping.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program, a library and a stack.
    const MAPPED: [Mapping; 3] = [
        Mapping { start: 0x55d0_0000_0000, end: 0x55d0_0010_0000, is_reserved: false },
        Mapping { start: 0x7f60_0000_0000, end: 0x7f60_0040_0000, is_reserved: false },
        Mapping { start: 0x7ffc_0000_0000, end: 0x7ffc_0002_1000, is_reserved: false },
    ];
    const NEXT: u64 = 0x7f60_0000_0000;

    #[test]
    fn ranges_in_mappings_or_right_below_them_are_crowded_and_others_are_not() {
        let is = |start: u64, end: u64| is_crowded(&[(0x1000, 0x2000), (start, end)], &MAPPED, NEXT);
        assert!(is(0x7f60_003f_f000, 0x7f60_1000_0000));
        assert!(is(0x7f5f_0000_0000, 0x7f7f_0000_0000));
        assert!(is(NEXT - (1 << 20), NEXT));
        assert!(is(NEXT - ROOM_BYTES - 1, NEXT - ROOM_BYTES + 1));
        assert!(!is(NEXT - ROOM_BYTES - 0x1000, NEXT - ROOM_BYTES));
        assert!(!is(0x7f60_0040_0000, 0x7f61_0000_0000));
        assert!(!is_crowded(&[], &MAPPED, NEXT));
    }

    #[test]
    fn the_next_mapping_lies_where_nothing_is_mapped() {
        let next = next_mapping().expect("there is room");
        let mapped = mappings::own();
        // Other threads map and unmap meanwhile, but not as much as the probe.
        assert!(!is_crowded(&[(next - 4096, next)], &mapped, 0), "{next:#x} in {mapped:x?}");
    }
}

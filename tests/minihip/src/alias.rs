//! Other addresses of memory, with `MINIHIP_ALIAS=1`: device addresses of host memory that differ from the host's, and device
//! memory opened from a handle. The same pages are mapped twice.
//!
//! Only shared mappings can be mapped again, so the heaps are shared ones then; registered memory that is private keeps the
//! host's address, as on devices that share the address space.

use crate::config::config;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

const PAGE_BYTES: usize = 4096;

/// A second mapping of some pages.
#[derive(Clone, Copy, Debug)]
struct Alias {
    len_bytes: usize,
    /// First of the pages.
    first: usize,
    /// The host allocation it is the device address of; [`OPENED`] or [`IMPORTED`] where it is device memory's second name.
    owner: usize,
}

/// In the place of an owner: opened from a handle of `hipIpcGetMemHandle`.
pub(crate) const OPENED: usize = 0;
/// In the place of an owner: had from an imported pool.
pub(crate) const IMPORTED: usize = 1;

/// By first address.
static ALIASES: RwLock<BTreeMap<usize, Alias>> = RwLock::new(BTreeMap::new());
/// How many there are; most programs have none, and then nobody looks.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The device's address of `address` in the host memory of `len_bytes` from `base` on.
pub(crate) fn device_address(base: usize, len_bytes: usize, address: usize) -> usize {
    if !config().alias {
        return address;
    }
    let known = {
        let aliases = ALIASES.read().unwrap_or_else(PoisonError::into_inner);
        aliases.iter().find(|(_, alias)| alias.owner == base).map(|(alias, known)| alias + (base - known.first))
    };
    known.or_else(|| map_again(base, len_bytes, base)).map_or(address, |alias| alias + (address - base))
}

/// Another address of the `len_bytes` from `base` on; `None` where they cannot be mapped again.
pub(crate) fn map_again(base: usize, len_bytes: usize, owner: usize) -> Option<usize> {
    let first = base / PAGE_BYTES * PAGE_BYTES;
    let len_bytes = (base + len_bytes).next_multiple_of(PAGE_BYTES) - first;
    // SAFETY: an old length of zero maps the pages again, elsewhere, and leaves the first mapping alone; the kernel refuses it
    // for private mappings.
    let alias = unsafe { libc::mremap(first as *mut libc::c_void, 0, len_bytes, libc::MREMAP_MAYMOVE) };
    if alias == libc::MAP_FAILED {
        return None;
    }
    let mut aliases = ALIASES.write().unwrap_or_else(PoisonError::into_inner);
    aliases.insert(alias as usize, Alias { len_bytes, first, owner });
    // Relaxed: a program that uses an alias has synchronised with the call that gave it out.
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(alias as usize + (base - first))
}

/// Whether `address` lies in a mapping of this owner.
pub(crate) fn is_of(address: usize, owner: usize) -> bool {
    // Relaxed: as in `host_address`.
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let aliases = ALIASES.read().unwrap_or_else(PoisonError::into_inner);
    aliases.get(&(address / PAGE_BYTES * PAGE_BYTES)).is_some_and(|known| known.owner == owner)
}

/// Takes a mapping that is a second name away, if it is of this owner; says whether there was one.
pub(crate) fn close(address: usize, owner: usize) -> bool {
    let first = address / PAGE_BYTES * PAGE_BYTES;
    let mut aliases = ALIASES.write().unwrap_or_else(PoisonError::into_inner);
    if aliases.get(&first).is_none_or(|known| known.owner != owner) {
        return false;
    }
    if let Some(known) = aliases.remove(&first) {
        unmap(first, &known);
    }
    true
}

fn unmap(alias: usize, known: &Alias) {
    COUNT.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the mapping is this module's own, and the device is done with it.
    unsafe { libc::munmap(alias as *mut libc::c_void, known.len_bytes) };
}

/// The host's address for the device's, and how far apart they are.
pub(crate) fn host_address(address: usize) -> Option<usize> {
    // Relaxed: as above.
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let aliases = ALIASES.read().unwrap_or_else(PoisonError::into_inner);
    let (first, alias) = aliases.range(..=address).next_back()?;
    (address - first < alias.len_bytes).then(|| alias.first + (address - first))
}

/// Host memory is given back.
pub(crate) fn forget(base: usize) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    ALIASES.write().unwrap_or_else(PoisonError::into_inner).retain(|&alias, known| {
        let gone = known.owner == base;
        if gone {
            unmap(alias, known);
        }
        !gone
    });
}

//! Handles for memory and events, opened by the process that exported them. Memory then gets a second address, which takes
//! heaps that can be mapped twice (`MINIHIP_ALIAS=1`); handles of other processes are refused.

use crate::alias;
use crate::api::{Out, hip_api};
use crate::error::HipError;
use crate::event;
use crate::memory::{self, MemoryKind};

/// `hipIpcMemHandle_t` and `hipIpcEventHandle_t`: 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct IpcHandle {
    magic: u64,
    process: u64,
    /// The object: first address, or event handle.
    object: u64,
    /// What tells it from another one at the same place.
    pub(crate) id: u64,
    rest: [u64; 4],
}

const MEMORY: u64 = 0x4d45_4d00_4d48_4950;
/// Memory of an exported pool.
pub(crate) const POOL_MEMORY: u64 = 0x504f_4f4c_4d48_4950;
const EVENT: u64 = 0x4556_5400_4d48_4950;

pub(crate) fn handle(magic: u64, object: usize, id: u64) -> IpcHandle {
    IpcHandle { magic, process: u64::from(std::process::id()), object: object as u64, id, rest: [0; 4] }
}

/// First address or handle of what a handle stands for.
pub(crate) fn check(handle: &IpcHandle, magic: u64) -> Result<usize, HipError> {
    if handle.magic != magic {
        return Err(HipError::INVALID_VALUE);
    }
    if handle.process != u64::from(std::process::id()) {
        return Err(HipError::NOT_SUPPORTED);
    }
    Ok(handle.object as usize)
}

hip_api! {
    fn hipIpcGetMemHandle(out: Out<IpcHandle>, address: usize) {
        out.check()?;
        // Memory of the virtual memory interface has handles of its own kind.
        let found = memory::find(address).filter(|found| found.kind == MemoryKind::Device).ok_or(HipError::INVALID_VALUE)?;
        out.set(handle(MEMORY, found.base, found.id))
    }
    fn hipIpcOpenMemHandle(out: Out<usize>, wanted: IpcHandle, flags: u32) {
        /// `hipIpcMemLazyEnablePeerAccess`.
        const LAZY_PEER_ACCESS: u32 = 1;
        out.check()?;
        if flags & !LAZY_PEER_ACCESS != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let base = check(&wanted, MEMORY)?;
        let found = memory::find(base).filter(|found| found.base == base && found.id == wanted.id).ok_or(HipError::INVALID_VALUE)?;
        out.set(alias::map_again(base, found.len_bytes, alias::OPENED).ok_or(HipError::NOT_SUPPORTED)?)
    }
    fn hipIpcCloseMemHandle(address: usize) {
        crate::device::devices().iter().for_each(crate::device::Device::synchronize);
        if alias::close(address, alias::OPENED) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipIpcGetEventHandle(out: Out<IpcHandle>, event: usize) {
        out.check()?;
        let found = event::resolve(event)?;
        if found.flags & event::INTERPROCESS == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(handle(EVENT, event, found.flags.into()))
    }
    fn hipIpcOpenEventHandle(out: Out<usize>, wanted: IpcHandle) {
        out.check()?;
        let found = event::resolve(check(&wanted, EVENT)?)?;
        out.set(event::open(&found)?)
    }
}

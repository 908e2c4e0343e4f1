//! Handles of memory and events for other processes: a process that opens one of its own gets `hipErrorInvalidContext`, as
//! HIP has it.

use super::context::current_index;
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{EVENTS, event};
use crate::api::Out;
use crate::error::{HipError, HipResult};
use crate::exports::IpcHandle;
use crate::registry::lock;
use std::collections::HashSet;
use std::sync::Mutex;

/// `hipIpcMemLazyEnablePeerAccess`, which the driver shares.
const LAZY_PEER_ACCESS: u32 = 1;

/// Handles this process made.
static OWN: Mutex<Option<HashSet<IpcHandle>>> = Mutex::new(None);

fn give(out: Out<IpcHandle>, handle: IpcHandle) -> HipResult {
    lock(&OWN).get_or_insert_default().insert(handle);
    out.set(handle)
}

fn check_other(handle: &IpcHandle) -> HipResult {
    let is_own = lock(&OWN).as_ref().is_some_and(|own| own.contains(handle));
    if is_own { Err(HipError::INVALID_CONTEXT) } else { Ok(()) }
}

cuda_api! {
    fn hipIpcGetMemHandle(out: Out<IpcHandle>, address: usize) {
        out.check()?;
        give(out, got(|handle| cu::ipc_get_mem_handle(handle, address))?)
    }
    fn hipIpcOpenMemHandle(out: Out<usize>, wanted: IpcHandle, flags: u32) {
        out.check()?;
        if flags & !LAZY_PEER_ACCESS != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        check_other(&wanted)?;
        // The driver has no other way to open them.
        out.set(got(|address| cu::ipc_open_mem_handle(address, wanted, LAZY_PEER_ACCESS))?)
    }
    fn hipIpcCloseMemHandle(address: usize) { cu::ipc_close_mem_handle(address) }
    fn hipIpcGetEventHandle(out: Out<IpcHandle>, handle: usize) {
        out.check()?;
        let event = event(handle)?;
        give(out, got(|handle| cu::ipc_get_event_handle(handle, event))?)
    }
    fn hipIpcOpenEventHandle(out: Out<usize>, wanted: IpcHandle) {
        out.check()?;
        check_other(&wanted)?;
        let opened = got(|event| cu::ipc_open_event_handle(event, wanted))?;
        EVENTS.add(opened, current_index());
        out.set(opened)
    }
}

//! Handles of memory and events for other processes. The driver opens them in another process than the one that made
//! them, and calls its own an invalid context, as HIP does.

use super::context::current_index;
use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{EVENTS, event};
use crate::api::Out;
use crate::error::HipError;
use crate::exports::IpcHandle;

/// `hipIpcMemLazyEnablePeerAccess`, which the driver shares.
const LAZY_PEER_ACCESS: u32 = 1;

cuda_api! {
    fn hipIpcGetMemHandle(out: Out<IpcHandle>, address: usize) {
        out.check()?;
        out.set(got(|handle| cu::ipc_get_mem_handle(handle, address))?)
    }
    fn hipIpcOpenMemHandle(out: Out<usize>, wanted: IpcHandle, flags: u32) {
        out.check()?;
        if flags & !LAZY_PEER_ACCESS != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        // The driver has no other way to open them.
        out.set(got(|address| cu::ipc_open_mem_handle(address, wanted, LAZY_PEER_ACCESS))?)
    }
    fn hipIpcCloseMemHandle(address: usize) { cu::ipc_close_mem_handle(address) }
    fn hipIpcGetEventHandle(out: Out<IpcHandle>, handle: usize) {
        out.check()?;
        let event = event(handle)?;
        out.set(got(|handle| cu::ipc_get_event_handle(handle, event))?)
    }
    fn hipIpcOpenEventHandle(out: Out<usize>, wanted: IpcHandle) {
        out.check()?;
        let opened = got(|event| cu::ipc_open_event_handle(event, wanted))?;
        EVENTS.add(opened, current_index());
        out.set(opened)
    }
}

//! What belongs to graphics interfaces. There is none here that could give out a semaphore or a resource, so that every handle
//! of one is invalid; lists of none are carried out.

use crate::abi::ExternalSemaphoreNodeParams;
use crate::api::{In, Out, hip_api};
use crate::error::{HipError, HipResult};
use crate::exports::graph::{add, set, set_exec};
use crate::graph::{self, NodeOp};
use crate::stream::{self, DefaultStream};

/// A list of semaphores or resources on a stream.
fn list(count: u32, stream: usize) -> HipResult {
    stream::resolve(stream, DefaultStream::Legacy)?;
    if count == 0 { Ok(()) } else { Err(HipError::INVALID_HANDLE) }
}

/// A node that signals or waits for no semaphore.
fn node(params: In<ExternalSemaphoreNodeParams>, signals: bool) -> HipResult<NodeOp> {
    if params.get()?.count == 0 { Ok(NodeOp::NoSemaphores { signals }) } else { Err(HipError::INVALID_HANDLE) }
}

fn params_of(handle: usize, signals: bool) -> HipResult<ExternalSemaphoreNodeParams> {
    match graph::node(handle)?.op {
        NodeOp::NoSemaphores { signals: found } if found == signals => {
            Ok(ExternalSemaphoreNodeParams { semaphores: 0, params: 0, count: 0 })
        }
        _ => Err(HipError::INVALID_VALUE),
    }
}

hip_api! {
    fn hipDestroyExternalSemaphore(_semaphore: usize) { Err(HipError::INVALID_HANDLE) }
    fn hipSignalExternalSemaphoresAsync(_semaphores: In<usize>, _params: In<u8>, count: u32, stream: usize) { list(count, stream) }
    fn hipWaitExternalSemaphoresAsync(_semaphores: In<usize>, _params: In<u8>, count: u32, stream: usize) { list(count, stream) }
    fn hipGraphAddExternalSemaphoresSignalNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<ExternalSemaphoreNodeParams>) {
        add(out, graph, deps, count, node(params, true)?)
    }
    fn hipGraphAddExternalSemaphoresWaitNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<ExternalSemaphoreNodeParams>) {
        add(out, graph, deps, count, node(params, false)?)
    }
    fn hipGraphExternalSemaphoresSignalNodeGetParams(node: usize, out: Out<ExternalSemaphoreNodeParams>) { out.set(params_of(node, true)?) }
    fn hipGraphExternalSemaphoresWaitNodeGetParams(node: usize, out: Out<ExternalSemaphoreNodeParams>) { out.set(params_of(node, false)?) }
    fn hipGraphExternalSemaphoresSignalNodeSetParams(handle: usize, params: In<ExternalSemaphoreNodeParams>) { set(handle, node(params, true)?) }
    fn hipGraphExternalSemaphoresWaitNodeSetParams(handle: usize, params: In<ExternalSemaphoreNodeParams>) { set(handle, node(params, false)?) }
    fn hipGraphExecExternalSemaphoresSignalNodeSetParams(exec: usize, handle: usize, params: In<ExternalSemaphoreNodeParams>) {
        set_exec(exec, handle, node(params, true)?)
    }
    fn hipGraphExecExternalSemaphoresWaitNodeSetParams(exec: usize, handle: usize, params: In<ExternalSemaphoreNodeParams>) {
        set_exec(exec, handle, node(params, false)?)
    }
    fn hipGraphicsMapResources(count: i32, _resources: In<usize>, stream: usize) { list(count as u32, stream) }
    fn hipGraphicsUnmapResources(count: i32, _resources: In<usize>, stream: usize) { list(count as u32, stream) }
    fn hipGraphicsResourceGetMappedPointer(out: Out<usize>, size: Out<usize>, _resource: usize) {
        out.check()?;
        size.check()?;
        Err(HipError::INVALID_HANDLE)
    }
    fn hipGraphicsSubResourceGetMappedArray(out: Out<usize>, _resource: usize, _index: u32, _level: u32) {
        out.check()?;
        Err(HipError::INVALID_HANDLE)
    }
    fn hipGraphicsUnregisterResource(_resource: usize) { Err(HipError::INVALID_HANDLE) }
    fn hipMemMapArrayAsync(_parts: In<u8>, count: u32, stream: usize) {
        stream::resolve(stream, DefaultStream::Legacy)?;
        // Parts of sparse arrays, of which there are none.
        if count == 0 { Ok(()) } else { Err(HipError::NOT_SUPPORTED) }
    }
}

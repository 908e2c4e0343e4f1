//! Executable graphs, graphs described by one parameter struct, and what graphs own.

use super::abi::{GraphExecUpdateResultInfo, Memcpy3D};
use super::context::device;
use super::copy::{from_symbol, to_symbol};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::graph::{Place, batch, context, copy, driver_copy, host, memset, row, with_kernel};
use super::graph_rows::{self, change, change_copy, live};
use super::handles::{event, on, spt};
use crate::abi::{
    DrvMemcpy3D, GraphInstantiateParams, GraphNodeParams, HostFn, HostNodeParams, KernelNodeParams, MemAllocNodeParams,
    Memcpy3DParms, MemsetParams,
};
use crate::api::{In, InStr, Out, out_at};
use crate::error::{HipError, HipResult};
use crate::exports::BatchMemOpNodeParams;

/// Every `hipGraphInstantiateFlags`; the driver's numbers are the same.
const ALL_FLAGS: u64 = 0xF;

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> HipResult {
    out.check()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let exec = got(|exec| cu::graph_instantiate(exec, graph, flags))?;
    graph_rows::keep(exec, graph, flags);
    out.set(exec)
}

/// Offset in bytes of the union in `hipGraphNodeParams`.
const UNION_BYTES: usize = 16;
/// Flags and reserved words before the copy in `hipMemcpyNodeParams`.
const COPY_BYTES: usize = 16;

/// A node described by `hipGraphNodeParams`, of which `params` is a copy and `address` the place.
fn add_node(place: Place, params: &GraphNodeParams, address: usize) -> HipResult {
    let union = address + UNION_BYTES;
    let first = params.words[0] as usize;
    match params.node_type {
        0 => place.add_kernel(&In::<KernelNodeParams>::from_address(union).get()?),
        1 => place.add_copy(&copy(&In::<Memcpy3DParms>::from_address(union + COPY_BYTES).get()?)?),
        2 => place.add_memset(&In::<MemsetParams>::from_address(union).get()?),
        3 => place.add_host(&In::<HostNodeParams>::from_address(union).get()?),
        4 => place.add(|node, graph, deps, count| cu::graph_add_child_graph_node(node, graph, deps, count, first)),
        5 => place.add(cu::graph_add_empty_node),
        6 => place.add_event_wait(first),
        7 => place.add_event_record(first),
        10 => {
            let allocation = out_at::<MemAllocNodeParams>(union);
            let mut filled = allocation.read()?;
            filled.pool_props.reserved = [0; 56];
            place
                .add(|node, graph, deps, count| cu::graph_add_mem_alloc_node(node, graph, deps, count, &mut filled))?;
            allocation.set(filled)
        }
        11 => place.add(|node, graph, deps, count| cu::graph_add_mem_free_node(node, graph, deps, count, first)),
        _ => Err(HipError::NOT_SUPPORTED),
    }
}

/// New parameters for a node of a graph.
fn set_node(node: usize, params: &GraphNodeParams, address: usize) -> HipResult {
    let union = address + UNION_BYTES;
    let first = params.words[0] as usize;
    match params.node_type {
        0 => with_kernel(&In::<KernelNodeParams>::from_address(union).get()?, |params| {
            cu::graph_kernel_node_set_params(node, params)
        }),
        1 => cu::graph_memcpy_node_set_params(
            node,
            &copy(&In::<Memcpy3DParms>::from_address(union + COPY_BYTES).get()?)?,
        ),
        2 => cu::graph_memset_node_set_params(node, &memset(&In::<MemsetParams>::from_address(union).get()?)),
        3 => cu::graph_host_node_set_params(node, &host(&In::<HostNodeParams>::from_address(union).get()?)?),
        6 => cu::graph_event_wait_node_set_event(node, event(first)?),
        7 => cu::graph_event_record_node_set_event(node, event(first)?),
        _ => Err(HipError::NOT_SUPPORTED),
    }
}

/// New parameters for a node of an executable graph.
fn set_exec_node(exec: usize, node: usize, params: &GraphNodeParams, address: usize) -> HipResult {
    let union = address + UNION_BYTES;
    let first = params.words[0] as usize;
    match params.node_type {
        0 => exec_kernel(exec, node, &In::<KernelNodeParams>::from_address(union).get()?),
        1 => exec_copy(exec, node, &copy(&In::<Memcpy3DParms>::from_address(union + COPY_BYTES).get()?)?),
        2 => exec_memset(exec, node, &In::<MemsetParams>::from_address(union).get()?),
        3 => exec_host(exec, node, &In::<HostNodeParams>::from_address(union).get()?),
        4 => exec_child(exec, node, first),
        6 => exec_wait(exec, node, first),
        7 => exec_record(exec, node, first),
        _ => Err(HipError::NOT_SUPPORTED),
    }
}

fn exec_kernel(exec: usize, node: usize, params: &KernelNodeParams) -> HipResult {
    with_kernel(params, |params| {
        change(
            exec,
            node,
            |exec, node| cu::graph_exec_kernel_node_set_params(exec, node, params),
            |node| cu::graph_kernel_node_set_params(node, params),
        )
    })
}

fn exec_memset(exec: usize, node: usize, params: &MemsetParams) -> HipResult {
    let (params, context) = (memset(params), context()?);
    change(
        exec,
        node,
        |exec, node| cu::graph_exec_memset_node_set_params(exec, node, &params, context),
        |node| cu::graph_memset_node_set_params(node, &params),
    )
}

fn exec_copy(exec: usize, node: usize, params: &Memcpy3D) -> HipResult {
    let context = context()?;
    change_copy(
        exec,
        node,
        |exec, node| cu::graph_exec_memcpy_node_set_params(exec, node, params, context),
        |node| cu::graph_memcpy_node_set_params(node, params),
    )
}

fn exec_host(exec: usize, node: usize, params: &HostNodeParams) -> HipResult {
    let params = host(params)?;
    change(
        exec,
        node,
        |exec, node| cu::graph_exec_host_node_set_params(exec, node, &params),
        |node| cu::graph_host_node_set_params(node, &params),
    )
}

fn exec_wait(exec: usize, node: usize, handle: usize) -> HipResult {
    let event = event(handle)?;
    change(
        exec,
        node,
        |exec, node| cu::graph_exec_event_wait_node_set_event(exec, node, event),
        |node| cu::graph_event_wait_node_set_event(node, event),
    )
}

fn exec_record(exec: usize, node: usize, handle: usize) -> HipResult {
    let event = event(handle)?;
    change(
        exec,
        node,
        |exec, node| cu::graph_exec_event_record_node_set_event(exec, node, event),
        |node| cu::graph_event_record_node_set_event(node, event),
    )
}

/// A node's child graph can be changed in executable graphs only, so the clone does not follow.
fn exec_child(exec: usize, node: usize, child: usize) -> HipResult {
    change(exec, node, |exec, node| cu::graph_exec_child_graph_node_set_params(exec, node, child), |_| Ok(()))?;
    graph_rows::leave_clone(exec);
    Ok(())
}

/// `hipGraphExecUpdateResult`: CUDA's last one, changed attributes, is HIP's unspecific error.
fn update_result(driver_result: i32) -> i32 {
    if driver_result > 7 { 1 } else { driver_result }
}

cuda_api! {
    fn hipGraphInstantiate(out: Out<usize>, graph: usize, error_node: Out<usize>, log: Out<u8>, log_bytes: usize) {
        error_node.set_if_given(0);
        if log_bytes > 0 {
            log.set_if_given(0);
        }
        instantiate(out, graph, 0)
    }
    fn hipGraphInstantiateWithFlags(out: Out<usize>, graph: usize, flags: u64) { instantiate(out, graph, flags) }
    fn hipGraphInstantiateWithParams(out: Out<usize>, graph: usize, params: Out<GraphInstantiateParams>) {
        let mut filled = params.read()?;
        let result = instantiate(out, graph, filled.flags);
        filled.error_node = 0;
        filled.result = i32::from(result.is_err());
        params.set(filled)?;
        result
    }
    fn hipGraphExecDestroy(exec: usize) {
        graph_rows::forget(exec)?;
        cu::graph_exec_destroy(exec)
    }
    fn hipGraphExecGetFlags(exec: usize, out: Out<u64>) {
        out.check()?;
        out.set(got(|flags| cu::graph_exec_get_flags(live(exec), flags))?)
    }
    fn hipGraphLaunch(exec: usize, stream: usize) { on(stream, |stream| cu::graph_launch(live(exec), stream)) }
    fn hipGraphLaunch_spt(exec: usize, stream: usize) { on(spt(stream), |stream| cu::graph_launch(live(exec), stream)) }
    fn hipGraphUpload(exec: usize, stream: usize) { on(stream, |stream| cu::graph_upload(live(exec), stream)) }
    fn hipGraphExecUpdate(exec: usize, graph: usize, error_node: Out<usize>, result: Out<i32>) {
        result.check()?;
        let mut info = GraphExecUpdateResultInfo::default();
        let outcome = cu::graph_exec_update(live(exec), graph, &mut info);
        graph_rows::leave_clone(exec);
        error_node.set_if_given(info.error_node);
        result.set(update_result(info.result))?;
        outcome
    }
    fn hipGraphExecKernelNodeSetParams(exec: usize, node: usize, params: In<KernelNodeParams>) { exec_kernel(exec, node, &params.get()?) }
    fn hipGraphExecMemcpyNodeSetParams(exec: usize, node: usize, params: In<Memcpy3DParms>) {
        exec_copy(exec, node, &copy(&params.get()?)?)
    }
    fn hipGraphExecMemcpyNodeSetParams1D(exec: usize, node: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) {
        exec_copy(exec, node, &row(dst, src, len_bytes, kind)?)
    }
    fn hipGraphExecMemcpyNodeSetParamsToSymbol(exec: usize, node: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        let params = row(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, kind)?;
        exec_copy(exec, node, &params)
    }
    fn hipGraphExecMemcpyNodeSetParamsFromSymbol(exec: usize, node: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        let params = row(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, kind)?;
        exec_copy(exec, node, &params)
    }
    fn hipGraphExecMemsetNodeSetParams(exec: usize, node: usize, params: In<MemsetParams>) { exec_memset(exec, node, &params.get()?) }
    fn hipGraphExecBatchMemOpNodeSetParams(exec: usize, node: usize, params: In<BatchMemOpNodeParams>) {
        let params = batch(&params.get()?)?;
        change(
            exec,
            node,
            |exec, node| cu::graph_exec_batch_mem_op_node_set_params(exec, node, &params),
            |node| cu::graph_batch_mem_op_node_set_params(node, &params),
        )
    }
    fn hipDrvGraphExecMemcpyNodeSetParams(exec: usize, node: usize, params: In<DrvMemcpy3D>, _context: usize) {
        exec_copy(exec, node, &driver_copy(&params.get()?)?)
    }
    fn hipDrvGraphExecMemsetNodeSetParams(exec: usize, node: usize, params: In<MemsetParams>, _context: usize) {
        exec_memset(exec, node, &params.get()?)
    }
    fn hipGraphExecHostNodeSetParams(exec: usize, node: usize, params: In<HostNodeParams>) {
        exec_host(exec, node, &params.get()?)
    }
    fn hipGraphExecChildGraphNodeSetParams(exec: usize, node: usize, child: usize) { exec_child(exec, node, child) }
    fn hipGraphExecEventRecordNodeSetEvent(exec: usize, node: usize, handle: usize) {
        exec_record(exec, node, handle)
    }
    fn hipGraphExecEventWaitNodeSetEvent(exec: usize, node: usize, handle: usize) {
        exec_wait(exec, node, handle)
    }
    fn hipGraphNodeSetEnabled(exec: usize, node: usize, is_enabled: u32) { graph_rows::set_enabled(exec, node, is_enabled) }
    fn hipGraphNodeGetEnabled(exec: usize, node: usize, out: Out<u32>) {
        out.check()?;
        out.set(graph_rows::get_enabled(exec, node)?)
    }
    fn hipGraphAddNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<GraphNodeParams>) {
        add_node(Place::new(out, graph, deps, count), &params.get()?, params.address())
    }
    fn hipGraphNodeSetParams(node: usize, params: In<GraphNodeParams>) { set_node(node, &params.get()?, params.address()) }
    fn hipGraphExecNodeSetParams(exec: usize, node: usize, params: In<GraphNodeParams>) { set_exec_node(exec, node, &params.get()?, params.address()) }
    fn hipGraphDebugDotPrint(graph: usize, path: InStr, flags: u32) { cu::graph_debug_dot_print(graph, path.get()?.as_ptr(), flags) }
    fn hipDeviceGetGraphMemAttribute(ordinal: i32, attribute: i32, value: Out<u64>) {
        value.check()?;
        cu::device_get_graph_mem_attribute(device(ordinal)?.id, attribute, value.address())
    }
    fn hipDeviceSetGraphMemAttribute(ordinal: i32, attribute: i32, value: In<u64>) {
        value.get()?;
        cu::device_set_graph_mem_attribute(device(ordinal)?.id, attribute, value.address())
    }
    fn hipDeviceGraphMemTrim(ordinal: i32) { cu::device_graph_mem_trim(device(ordinal)?.id) }
    fn hipUserObjectCreate(out: Out<usize>, object: usize, destroy: Option<HostFn>, count: u32, flags: u32) {
        out.check()?;
        let destroy = destroy.filter(|_| count > 0 && flags == 1).ok_or(HipError::INVALID_VALUE)?;
        out.set(got(|made| cu::user_object_create(made, object, destroy, count, flags))?)
    }
    fn hipUserObjectRetain(object: usize, count: u32) { cu::user_object_retain(object, count) }
    fn hipUserObjectRelease(object: usize, count: u32) { cu::user_object_release(object, count) }
    fn hipGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) { cu::graph_retain_user_object(graph, object, count, flags) }
    fn hipGraphReleaseUserObject(graph: usize, object: usize, count: u32) { cu::graph_release_user_object(graph, object, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_results_stay_within_hips() {
        assert_eq!((0..9).map(update_result).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 1]);
    }
}

//! Graphs and their nodes. Handles are the driver's; parameters change their shape between HIP's structs and CUDA's.

use super::abi::{
    DriverBatchNode, HostNodeParams as DriverHost, KernelNodeParams as DriverKernel, Memcpy3D, MemsetNodeParams,
};
use super::context::{current, current_index};
use super::copy::{
    check_kind, from_symbol, hip_driver_volume, hip_volume, of_driver_volume, of_volume, to_symbol, volume,
};
use super::cuda_api;
use super::driver::{self as cu, got};
use super::fat_binary::function;
use super::handles::event;
use super::launch::{Geometry, extra_pointers};
use super::module;
use crate::abi::{DrvMemcpy3D, HostNodeParams, KernelNodeParams, MemAllocNodeParams, Memcpy3DParms, MemsetParams};
use crate::api::{In, Out};
use crate::error::{HipError, HipResult};
use crate::exports::{BatchMemOpNodeParams, Plan, attribute_bytes};

/// A kernel node's parameters for the driver, passed to `body`, which must not keep them.
pub(super) fn with_kernel<R>(
    params: &KernelNodeParams,
    body: impl FnOnce(&DriverKernel) -> HipResult<R>,
) -> HipResult<R> {
    let geometry = Geometry { grid: params.grid, block: params.block, shared_bytes: params.shared_bytes as usize };
    let shared_bytes = geometry.check()?;
    let function = function(params.func, current_index())?;
    module::allow_shared(function, shared_bytes)?;
    let from_extra;
    let kernel_params = if params.extra.is_null() {
        params.kernel_params.address()
    } else {
        from_extra = extra_pointers(function, params.extra)?;
        from_extra.as_ptr() as usize
    };
    body(&DriverKernel {
        function,
        grid: params.grid,
        block: params.block,
        shared_bytes,
        kernel_params,
        ..DriverKernel::default()
    })
}

/// The function as the program named it: by its host stub if it has one.
fn hip_kernel(params: &DriverKernel) -> KernelNodeParams {
    let host = module::known(params.function).map_or(0, |known| known.host);
    KernelNodeParams {
        block: params.block,
        extra: In::from_address(params.extra),
        func: if host == 0 { params.function } else { host },
        grid: params.grid,
        kernel_params: In::from_address(params.kernel_params),
        shared_bytes: params.shared_bytes,
    }
}

/// A memset node's parameters for the driver.
pub(super) fn memset(params: &MemsetParams) -> MemsetNodeParams {
    MemsetNodeParams {
        dst: params.dst,
        pitch: if params.height > 1 { params.pitch } else { 0 },
        value: params.value,
        element_bytes: params.element_size,
        width: params.width,
        height: params.height,
    }
}

fn hip_memset(params: &MemsetNodeParams) -> MemsetParams {
    MemsetParams {
        dst: params.dst,
        element_size: params.element_bytes,
        height: params.height,
        pitch: params.pitch,
        value: params.value,
        width: params.width,
    }
}

/// A host node's parameters for the driver.
pub(super) fn host(params: &HostNodeParams) -> HipResult<DriverHost> {
    params.function.ok_or(HipError::INVALID_VALUE)?;
    Ok(DriverHost { function: params.function, user_data: params.user_data })
}

/// A copy node's parameters for the driver, which has no empty copies.
pub(super) fn copy(params: &Memcpy3DParms) -> HipResult<Memcpy3D> {
    of_volume(params)?.ok_or(HipError::INVALID_VALUE)
}

/// The same from the driver interface's struct.
pub(super) fn driver_copy(params: &DrvMemcpy3D) -> HipResult<Memcpy3D> {
    of_driver_volume(params)?.ok_or(HipError::INVALID_VALUE)
}

/// One row.
pub(super) fn row(dst: usize, src: usize, len_bytes: usize, kind: i32) -> HipResult<Memcpy3D> {
    check_kind(kind)?;
    if len_bytes == 0 { Err(HipError::INVALID_VALUE) } else { volume(&Plan::linear(dst, src, len_bytes, kind)) }
}

/// A batch node's parameters for the driver: in the current context where none is named.
pub(super) fn batch(params: &BatchMemOpNodeParams) -> HipResult<DriverBatchNode> {
    let context = if params.context == 0 { context()? } else { params.context };
    let operations = params.operations.address();
    Ok(DriverBatchNode { context, count: params.count, operations, flags: params.flags })
}

/// The context copies and memsets of a node run in: the current device's.
pub(super) fn context() -> HipResult<usize> {
    current()?.context()
}

/// Where a node is added.
#[derive(Clone, Copy)]
pub(super) struct Place {
    out: Out<usize>,
    graph: usize,
    dependencies: In<usize>,
    count: usize,
}

impl Place {
    pub(super) fn new(out: Out<usize>, graph: usize, dependencies: In<usize>, count: usize) -> Self {
        Self { out, graph, dependencies, count }
    }

    /// Adds a node by `call`, which takes the place for its handle, the graph, and the dependencies.
    pub(super) fn add(self, call: impl FnOnce(&mut usize, usize, usize, usize) -> HipResult) -> HipResult {
        self.out.check()?;
        self.out.set(got(|node| call(node, self.graph, self.dependencies.address(), self.count))?)
    }

    pub(super) fn add_copy(self, params: &Memcpy3D) -> HipResult {
        let context = context()?;
        self.add(|node, graph, deps, count| cu::graph_add_memcpy_node(node, graph, deps, count, params, context))
    }

    pub(super) fn add_memset(self, params: &MemsetParams) -> HipResult {
        let (params, context) = (memset(params), context()?);
        self.add(|node, graph, deps, count| cu::graph_add_memset_node(node, graph, deps, count, &params, context))
    }

    pub(super) fn add_kernel(self, params: &KernelNodeParams) -> HipResult {
        with_kernel(params, |params| {
            self.add(|node, graph, deps, count| cu::graph_add_kernel_node(node, graph, deps, count, params))
        })
    }

    pub(super) fn add_host(self, params: &HostNodeParams) -> HipResult {
        let params = host(params)?;
        self.add(|node, graph, deps, count| cu::graph_add_host_node(node, graph, deps, count, &params))
    }

    pub(super) fn add_event_record(self, handle: usize) -> HipResult {
        let event = event(handle)?;
        self.add(|node, graph, deps, count| cu::graph_add_event_record_node(node, graph, deps, count, event))
    }

    pub(super) fn add_event_wait(self, handle: usize) -> HipResult {
        let event = event(handle)?;
        self.add(|node, graph, deps, count| cu::graph_add_event_wait_node(node, graph, deps, count, event))
    }
}

/// `hipGraphNodeType` of a `CUgraphNodeType`: the same up to memory frees; HIP has two of its own before batches.
fn node_type(driver_type: i32) -> i32 {
    /// `CU_GRAPH_NODE_TYPE_BATCH_MEM_OP` and `hipGraphNodeTypeBatchMemOp`.
    const BATCH: (i32, i32) = (12, 14);
    if driver_type == BATCH.0 { BATCH.1 } else { driver_type }
}

/// A list and its length, by the driver's rule, which is HIP's.
fn list(nodes: Out<usize>, count: Out<usize>, call: impl FnOnce(usize, usize) -> HipResult) -> HipResult {
    count.check()?;
    call(nodes.address(), count.address())
}

cuda_api! {
    fn hipGraphCreate(out: Out<usize>, flags: u32) {
        out.check()?;
        out.set(got(|graph| cu::graph_create(graph, flags))?)
    }
    fn hipGraphDestroy(graph: usize) { cu::graph_destroy(graph) }
    fn hipGraphClone(out: Out<usize>, original: usize) {
        out.check()?;
        out.set(got(|clone| cu::graph_clone(clone, original))?)
    }
    fn hipGraphNodeFindInClone(out: Out<usize>, original: usize, clone: usize) {
        out.check()?;
        out.set(got(|node| cu::graph_node_find_in_clone(node, original, clone))?)
    }
    fn hipGraphAddEmptyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize) {
        Place::new(out, graph, deps, count).add(cu::graph_add_empty_node)
    }
    fn hipGraphAddKernelNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<KernelNodeParams>) {
        Place::new(out, graph, deps, count).add_kernel(&params.get()?)
    }
    fn hipGraphAddMemcpyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<Memcpy3DParms>) {
        Place::new(out, graph, deps, count).add_copy(&copy(&params.get()?)?)
    }
    fn hipGraphAddMemcpyNode1D(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) {
        Place::new(out, graph, deps, count).add_copy(&row(dst, src, len_bytes, kind)?)
    }
    fn hipGraphAddMemcpyNodeToSymbol(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        Place::new(out, graph, deps, count).add_copy(&row(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, kind)?)
    }
    fn hipGraphAddMemcpyNodeFromSymbol(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        Place::new(out, graph, deps, count).add_copy(&row(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, kind)?)
    }
    fn hipGraphAddMemsetNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<MemsetParams>) {
        Place::new(out, graph, deps, count).add_memset(&params.get()?)
    }
    fn hipDrvGraphAddMemsetNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<MemsetParams>, _context: usize) {
        Place::new(out, graph, deps, count).add_memset(&params.get()?)
    }
    fn hipDrvGraphAddMemcpyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<DrvMemcpy3D>, _context: usize) {
        Place::new(out, graph, deps, count).add_copy(&driver_copy(&params.get()?)?)
    }
    fn hipGraphAddHostNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<HostNodeParams>) {
        Place::new(out, graph, deps, count).add_host(&params.get()?)
    }
    fn hipGraphAddChildGraphNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, child: usize) {
        Place::new(out, graph, deps, count).add(|node, graph, deps, count| cu::graph_add_child_graph_node(node, graph, deps, count, child))
    }
    fn hipGraphAddEventRecordNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, event: usize) {
        Place::new(out, graph, deps, count).add_event_record(event)
    }
    fn hipGraphAddEventWaitNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, event: usize) {
        Place::new(out, graph, deps, count).add_event_wait(event)
    }
    fn hipGraphAddMemAllocNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: Out<MemAllocNodeParams>) {
        let mut filled = params.read()?;
        filled.pool_props.reserved = [0; 56];
        Place::new(out, graph, deps, count).add(|node, graph, deps, count| cu::graph_add_mem_alloc_node(node, graph, deps, count, &mut filled))?;
        params.set(filled)
    }
    fn hipGraphAddMemFreeNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, address: usize) {
        Place::new(out, graph, deps, count).add(|node, graph, deps, count| cu::graph_add_mem_free_node(node, graph, deps, count, address))
    }
    fn hipGraphMemAllocNodeGetParams(node: usize, out: Out<MemAllocNodeParams>) {
        out.check()?;
        cu::graph_mem_alloc_node_get_params(node, out.address())
    }
    fn hipGraphMemFreeNodeGetParams(node: usize, out: Out<usize>) {
        out.check()?;
        out.set(got(|address| cu::graph_mem_free_node_get_params(node, address))?)
    }
    fn hipGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) {
        cu::graph_add_dependencies(graph, from.address(), to.address(), count)
    }
    fn hipGraphRemoveDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) {
        cu::graph_remove_dependencies(graph, from.address(), to.address(), count)
    }
    fn hipGraphDestroyNode(node: usize) { cu::graph_destroy_node(node) }
    fn hipGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) { list(nodes, count, |nodes, count| cu::graph_get_nodes(graph, nodes, count)) }
    fn hipGraphGetRootNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) { list(nodes, count, |nodes, count| cu::graph_get_root_nodes(graph, nodes, count)) }
    fn hipGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) {
        if from.is_given() != to.is_given() {
            return Err(HipError::INVALID_VALUE);
        }
        list(from, count, |from, count| cu::graph_get_edges(graph, from, to.address(), count))
    }
    fn hipGraphNodeGetDependencies(node: usize, nodes: Out<usize>, count: Out<usize>) {
        list(nodes, count, |nodes, count| cu::graph_node_get_dependencies(node, nodes, count))
    }
    fn hipGraphNodeGetDependentNodes(node: usize, nodes: Out<usize>, count: Out<usize>) {
        list(nodes, count, |nodes, count| cu::graph_node_get_dependent_nodes(node, nodes, count))
    }
    fn hipGraphNodeGetType(node: usize, out: Out<i32>) {
        out.check()?;
        out.set(node_type(got(|found| cu::graph_node_get_type(node, found))?))
    }
    fn hipGraphChildGraphNodeGetGraph(node: usize, out: Out<usize>) {
        out.check()?;
        out.set(got(|graph| cu::graph_child_graph_node_get_graph(node, graph))?)
    }
    fn hipGraphKernelNodeGetParams(node: usize, out: Out<KernelNodeParams>) {
        out.set(hip_kernel(&got(|params| cu::graph_kernel_node_get_params(node, params))?))
    }
    fn hipGraphKernelNodeSetParams(node: usize, params: In<KernelNodeParams>) {
        with_kernel(&params.get()?, |params| cu::graph_kernel_node_set_params(node, params))
    }
    fn hipGraphMemcpyNodeGetParams(node: usize, out: Out<Memcpy3DParms>) {
        out.set(hip_volume(&got(|params| cu::graph_memcpy_node_get_params(node, params))?))
    }
    fn hipGraphMemcpyNodeSetParams(node: usize, params: In<Memcpy3DParms>) { cu::graph_memcpy_node_set_params(node, &copy(&params.get()?)?) }
    fn hipGraphMemcpyNodeSetParams1D(node: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) {
        cu::graph_memcpy_node_set_params(node, &row(dst, src, len_bytes, kind)?)
    }
    fn hipGraphMemcpyNodeSetParamsToSymbol(node: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        cu::graph_memcpy_node_set_params(node, &row(to_symbol(symbol, len_bytes, offset, kind)?, src, len_bytes, kind)?)
    }
    fn hipGraphMemcpyNodeSetParamsFromSymbol(node: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        cu::graph_memcpy_node_set_params(node, &row(dst, from_symbol(symbol, len_bytes, offset, kind)?, len_bytes, kind)?)
    }
    fn hipGraphMemsetNodeGetParams(node: usize, out: Out<MemsetParams>) {
        out.set(hip_memset(&got(|params| cu::graph_memset_node_get_params(node, params))?))
    }
    fn hipGraphMemsetNodeSetParams(node: usize, params: In<MemsetParams>) { cu::graph_memset_node_set_params(node, &memset(&params.get()?)) }
    fn hipGraphHostNodeGetParams(node: usize, out: Out<HostNodeParams>) {
        let found = got(|params| cu::graph_host_node_get_params(node, params))?;
        out.set(HostNodeParams { function: found.function, user_data: found.user_data })
    }
    fn hipGraphHostNodeSetParams(node: usize, params: In<HostNodeParams>) { cu::graph_host_node_set_params(node, &host(&params.get()?)?) }
    fn hipGraphEventRecordNodeGetEvent(node: usize, out: Out<usize>) {
        out.check()?;
        out.set(got(|event| cu::graph_event_record_node_get_event(node, event))?)
    }
    fn hipGraphEventRecordNodeSetEvent(node: usize, handle: usize) { cu::graph_event_record_node_set_event(node, event(handle)?) }
    fn hipGraphEventWaitNodeGetEvent(node: usize, out: Out<usize>) {
        out.check()?;
        out.set(got(|event| cu::graph_event_wait_node_get_event(node, event))?)
    }
    fn hipGraphEventWaitNodeSetEvent(node: usize, handle: usize) { cu::graph_event_wait_node_set_event(node, event(handle)?) }
    fn hipGraphKernelNodeSetAttribute(node: usize, attribute: i32, value: In<u8>) {
        let mut bytes = value.array(attribute_bytes(attribute)?)?;
        bytes.resize(64, 0);
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        cu::graph_kernel_node_set_attribute(node, attribute, &words)
    }
    fn hipGraphKernelNodeGetAttribute(node: usize, attribute: i32, value: Out<u8>) {
        let len_bytes = attribute_bytes(attribute)?;
        value.check()?;
        let words = got(|words| cu::graph_kernel_node_get_attribute(node, attribute, words))?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len_bytes).collect();
        value.set_array(&bytes)
    }
    fn hipGraphAddBatchMemOpNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<BatchMemOpNodeParams>) {
        let params = batch(&params.get()?)?;
        Place::new(out, graph, deps, count).add(|node, graph, deps, count| cu::graph_add_batch_mem_op_node(node, graph, deps, count, &params))
    }
    fn hipGraphBatchMemOpNodeGetParams(node: usize, out: Out<BatchMemOpNodeParams>) {
        let found: DriverBatchNode = got(|params| cu::graph_batch_mem_op_node_get_params(node, params))?;
        let operations = In::from_address(found.operations);
        out.set(BatchMemOpNodeParams { context: found.context, count: found.count, operations, flags: found.flags })
    }
    fn hipGraphBatchMemOpNodeSetParams(node: usize, params: In<BatchMemOpNodeParams>) {
        cu::graph_batch_mem_op_node_set_params(node, &batch(&params.get()?)?)
    }
    fn hipDrvGraphMemcpyNodeGetParams(node: usize, out: Out<DrvMemcpy3D>) {
        out.set(hip_driver_volume(&got(|params| cu::graph_memcpy_node_get_params(node, params))?))
    }
    fn hipDrvGraphMemcpyNodeSetParams(node: usize, params: In<DrvMemcpy3D>) { cu::graph_memcpy_node_set_params(node, &driver_copy(&params.get()?)?) }
    // HIP names the source first, CUDA the target.
    fn hipGraphKernelNodeCopyAttributes(from: usize, to: usize) { cu::graph_kernel_node_copy_attributes(to, from) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Dim3;

    #[test]
    fn parameters_come_back_as_they_were_given() {
        let params = MemsetParams { dst: 64, element_size: 2, height: 3, pitch: 512, value: 7, width: 100 };
        let back = hip_memset(&memset(&params));
        assert_eq!((back.dst, back.element_size, back.height, back.pitch), (64, 2, 3, 512));
        assert_eq!((back.value, back.width), (7, 100));
        let size = Dim3 { x: 4, y: 5, z: 6 };
        let kernel =
            DriverKernel { function: 0x77, grid: size, shared_bytes: 9, kernel_params: 8, ..DriverKernel::default() };
        let back = hip_kernel(&kernel);
        assert_eq!((back.func, back.grid, back.shared_bytes, back.kernel_params.address()), (0x77, size, 9, 8));
    }

    #[test]
    fn node_types_agree_up_to_batches() {
        assert_eq!((0..12).map(node_type).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        assert_eq!(node_type(12), 14);
    }
}

//! Graphs and their nodes.

use crate::abi::{
    BatchMemOpParams, DrvMemcpy3D, Extent, HostNodeParams, KernelNodeParams, MemAllocNodeParams, Memcpy3DParms,
    MemsetParams, PitchedPtr,
};
use crate::api::{In, Out, hip_alias, hip_api};
use crate::copy::{self, Copy, Shape, Source};
use crate::error::{HipError, HipResult};
use crate::event;
use crate::exports::copy::{Plan, from_symbol, to_symbol};
use crate::exports::stream::batch_op;
use crate::fill::Fill;
use crate::graph::{self, Batch, GraphAllocation, Node, NodeOp};
use crate::graph_exec;
use crate::kernel::Launch;
use crate::launch::{self, Geometry};
use crate::op::Op;
use crate::thread_state::current_device;
use std::sync::Arc;

/// Adds a node and returns its handle.
pub(crate) fn add(out: Out<usize>, graph: usize, dependencies: In<usize>, count: usize, op: NodeOp) -> HipResult {
    out.check()?;
    let graph = graph::resolve(graph)?;
    out.set(graph.add(&dependencies.array(count)?, op)?)
}

/// A kernel node's launch.
pub(crate) fn kernel_op(params: &KernelNodeParams) -> HipResult<NodeOp> {
    let kernel = launch::find_kernel(params.func, current_device()?.index)?;
    let kernarg = launch::gather_arguments(&kernel, params.kernel_params, params.extra)?;
    let geometry =
        Geometry { grid: params.grid, block: params.block, dynamic_shared_bytes: params.shared_bytes as usize };
    Ok(NodeOp::Run(Op::Kernel(Arc::new(launch::prepare(kernel, geometry, kernarg, params.func)?))))
}

/// A memset node's fill.
pub(crate) fn memset_op(params: &MemsetParams) -> HipResult<NodeOp> {
    let pitch =
        if params.height > 1 { params.pitch } else { params.width.saturating_mul(params.element_size as usize) };
    let fill =
        Fill::pitched(params.dst, params.value, params.element_size as usize, params.width, params.height, pitch);
    if params.width == 0 || params.height == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    fill.check()?;
    Ok(NodeOp::Run(Op::Fill(fill)))
}

/// A copy node's copy.
pub(crate) fn copy_op(plan: &Plan) -> HipResult<NodeOp> {
    if plan.shape.is_empty() {
        return Err(HipError::INVALID_VALUE);
    }
    copy::check(plan.dst, plan.src, &plan.shape, plan.kind)?;
    Ok(NodeOp::Run(Op::Copy(Copy { dst: plan.dst, src: Source::Memory(plan.src), shape: plan.shape, kind: plan.kind })))
}

/// A host node's call.
pub(crate) fn host_op(params: &HostNodeParams) -> HipResult<NodeOp> {
    let function = params.function.ok_or(HipError::INVALID_VALUE)?;
    Ok(NodeOp::Run(Op::HostFunction { function, user_data: params.user_data }))
}

fn linear(dst: usize, src: usize, len_bytes: usize, kind: i32) -> Plan {
    Plan { dst, src, shape: Shape::linear(len_bytes), kind }
}

/// Allocates an alloc node's memory and completes its parameters.
fn mem_alloc_op(params: &mut MemAllocNodeParams) -> HipResult<NodeOp> {
    let device = usize::try_from(params.pool_props.location.id).map_err(|_| HipError::INVALID_VALUE)?;
    if params.len_bytes == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let allocation = GraphAllocation::new(device, params.len_bytes)?;
    params.device_pointer = allocation.base;
    Ok(NodeOp::MemAlloc(allocation))
}

/// Parameters of a copy node, as `hipMemcpy3DParms`.
fn copy_params(copy: &Copy) -> HipResult<Memcpy3DParms> {
    let Source::Memory(src) = copy.src else { return Err(HipError::INVALID_VALUE) };
    let shape = &copy.shape;
    let rows = |slice: usize, pitch: usize| slice.checked_div(pitch).unwrap_or(shape.height);
    Ok(Memcpy3DParms {
        src_ptr: PitchedPtr {
            ptr: src,
            pitch: shape.src_pitch,
            xsize: shape.width,
            ysize: rows(shape.src_slice, shape.src_pitch),
        },
        dst_ptr: PitchedPtr {
            ptr: copy.dst,
            pitch: shape.dst_pitch,
            xsize: shape.width,
            ysize: rows(shape.dst_slice, shape.dst_pitch),
        },
        extent: Extent { width: shape.width, height: shape.height, depth: shape.depth },
        kind: copy.kind,
        ..Memcpy3DParms::default()
    })
}

fn kernel_params(launch: &Launch) -> KernelNodeParams {
    KernelNodeParams {
        block: launch.block,
        extra: In::from_address(0),
        func: launch.function,
        grid: launch.grid,
        kernel_params: In::from_address(launch.parameter_pointers()),
        shared_bytes: launch.dynamic_shared_bytes,
    }
}

fn memset_params(fill: &Fill) -> MemsetParams {
    MemsetParams {
        dst: fill.dst,
        element_size: fill.element_bytes as u32,
        height: fill.height,
        pitch: fill.pitch,
        value: fill.value,
        width: fill.width,
    }
}

/// Gives a node new parameters; they must be of the kind it is.
pub(crate) fn set(node: usize, op: NodeOp) -> HipResult {
    graph::update(node, |old| if old.node_type() == op.node_type() { Ok(op) } else { Err(HipError::INVALID_VALUE) })
}

/// The same for a node of an executable graph.
pub(crate) fn set_exec(exec: usize, node: usize, op: NodeOp) -> HipResult {
    graph_exec::resolve(exec)?.change(node, |old| {
        if old.op.node_type() != op.node_type() {
            return Err(HipError::INVALID_VALUE);
        }
        old.op = op;
        Ok(())
    })
}

/// Returns a list by HIP's rule: with a null array the count, else as many as fit, the rest of the array zeroed.
fn list(values: &[usize], array: Out<usize>, count: Out<usize>) -> HipResult {
    count.check()?;
    if array.is_given() {
        let room = count.read()?;
        let mut out: Vec<usize> = values.iter().copied().take(room).collect();
        let filled = out.len();
        out.resize(room.min(values.len().max(room)), 0);
        array.set_array(&out)?;
        return count.set(filled);
    }
    count.set(values.len())
}

fn edges(from: In<usize>, to: In<usize>, count: usize) -> HipResult<Vec<(usize, usize)>> {
    Ok(from.array(count)?.into_iter().zip(to.array(count)?).collect())
}

fn event_of(node: &Node, want_record: i32) -> HipResult<usize> {
    match &node.op {
        NodeOp::EventRecord(event) | NodeOp::EventWait(event) if node.op.node_type() == want_record => Ok(event.handle),
        _ => Err(HipError::INVALID_VALUE),
    }
}

fn batch_ops(params: &BatchMemOpNodeParams) -> HipResult<NodeOp> {
    let described = params.operations.array(params.count as usize)?;
    let ops = described.iter().map(batch_op).collect::<HipResult<Vec<_>>>()?.into_iter().flatten().collect();
    Ok(NodeOp::Batch(Arc::new(Batch { ops, params: described, flags: params.flags })))
}

/// Bytes of a kernel node's attribute: those of the union's member that it names.
pub(crate) fn attribute_bytes(attribute: i32) -> HipResult<usize> {
    match attribute {
        // Access policy window, cooperative, synchronisation policy, cluster dimension, cluster scheduling, priority, memory
        // synchronisation domain map and domain.
        1 => Ok(32),
        2 | 3 | 5 | 8 | 10 => Ok(4),
        4 => Ok(12),
        9 => Ok(2),
        _ => Err(HipError::INVALID_VALUE),
    }
}

/// Parameters of a copy node, as `HIP_MEMCPY3D` between places in memory.
fn driver_copy_params(copy: &Copy) -> HipResult<DrvMemcpy3D> {
    /// `hipMemoryTypeUnified`: the address says where it is.
    const UNIFIED: i32 = 11;
    let Source::Memory(src) = copy.src else { return Err(HipError::INVALID_VALUE) };
    let shape = &copy.shape;
    let rows = |slice: usize, pitch: usize| slice.checked_div(pitch).unwrap_or(shape.height);
    Ok(DrvMemcpy3D {
        src_memory_type: UNIFIED,
        src_device: src,
        src_pitch: shape.src_pitch,
        src_height: rows(shape.src_slice, shape.src_pitch),
        dst_memory_type: UNIFIED,
        dst_device: copy.dst,
        dst_pitch: shape.dst_pitch,
        dst_height: rows(shape.dst_slice, shape.dst_pitch),
        width_bytes: shape.width,
        height: shape.height,
        depth: shape.depth,
        ..DrvMemcpy3D::default()
    })
}

/// `hipBatchMemOpNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchMemOpNodeParams {
    pub(crate) context: usize,
    pub(crate) count: u32,
    pub(crate) operations: In<BatchMemOpParams>,
    pub(crate) flags: u32,
}

/// `hipGraphNodeTypeWaitEvent` and `hipGraphNodeTypeEventRecord`.
const WAIT: i32 = 6;
const RECORD: i32 = 7;

hip_api! {
    fn hipGraphCreate(out: Out<usize>, flags: u32) {
        out.check()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        out.set(graph::create()?.0)
    }
    fn hipGraphDestroy(handle: usize) { graph::destroy(handle) }
    fn hipGraphClone(out: Out<usize>, original: usize) {
        out.check()?;
        out.set(graph::register(&graph::resolve(original)?.deep_clone()?)?)
    }
    fn hipGraphNodeFindInClone(out: Out<usize>, original: usize, clone: usize) {
        out.check()?;
        let nodes = graph::resolve(clone)?.nodes();
        out.set(nodes.iter().find(|node| node.origin == original).ok_or(HipError::INVALID_VALUE)?.handle)
    }
    fn hipGraphAddEmptyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize) { add(out, graph, deps, count, NodeOp::Empty) }
    fn hipGraphAddKernelNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<KernelNodeParams>) {
        add(out, graph, deps, count, kernel_op(&params.get()?)?)
    }
    fn hipGraphAddMemcpyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<Memcpy3DParms>) {
        add(out, graph, deps, count, copy_op(&Plan::volume(&params.get()?)?)?)
    }
    fn hipGraphAddMemcpyNode1D(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) {
        add(out, graph, deps, count, copy_op(&linear(dst, src, len_bytes, kind))?)
    }
    fn hipGraphAddMemcpyNodeToSymbol(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        add(out, graph, deps, count, copy_op(&to_symbol(symbol, src, len_bytes, offset, kind)?)?)
    }
    fn hipGraphAddMemcpyNodeFromSymbol(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        add(out, graph, deps, count, copy_op(&from_symbol(dst, symbol, len_bytes, offset, kind)?)?)
    }
    fn hipGraphAddMemsetNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<MemsetParams>) {
        add(out, graph, deps, count, memset_op(&params.get()?)?)
    }
    fn hipDrvGraphAddMemsetNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<MemsetParams>, _context: usize) {
        add(out, graph, deps, count, memset_op(&params.get()?)?)
    }
    fn hipDrvGraphAddMemcpyNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<DrvMemcpy3D>, _context: usize) {
        add(out, graph, deps, count, copy_op(&Plan::driver_volume(&params.get()?)?)?)
    }
    fn hipGraphAddHostNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<HostNodeParams>) {
        add(out, graph, deps, count, host_op(&params.get()?)?)
    }
    fn hipGraphAddChildGraphNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, child: usize) {
        if child == graph {
            return Err(HipError::INVALID_VALUE);
        }
        add(out, graph, deps, count, NodeOp::Child(graph::resolve(child)?.deep_clone()?))
    }
    fn hipGraphAddEventRecordNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, event: usize) {
        add(out, graph, deps, count, NodeOp::EventRecord(event::resolve(event)?))
    }
    fn hipGraphAddEventWaitNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, event: usize) {
        add(out, graph, deps, count, NodeOp::EventWait(event::resolve(event)?))
    }
    fn hipGraphAddMemAllocNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: Out<MemAllocNodeParams>) {
        let mut filled = params.read()?;
        add(out, graph, deps, count, mem_alloc_op(&mut filled)?)?;
        params.set(filled)
    }
    fn hipGraphAddMemFreeNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, address: usize) {
        if address == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        add(out, graph, deps, count, NodeOp::MemFree(address))
    }
    fn hipGraphAddBatchMemOpNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<BatchMemOpNodeParams>) {
        add(out, graph, deps, count, batch_ops(&params.get()?)?)
    }
    fn hipGraphMemAllocNodeGetParams(node: usize, out: Out<MemAllocNodeParams>) {
        let NodeOp::MemAlloc(allocation) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        let location = crate::abi::MemLocation { kind: crate::abi::LOCATION_DEVICE, id: allocation.device as i32 };
        let pool_props = crate::abi::MemPoolProps { alloc_type: 1, handle_types: 0, location, win32_security_attributes: 0, max_size: 0, reserved: [0; 56] };
        out.set(MemAllocNodeParams { pool_props, access_descs: 0, access_desc_count: 0, len_bytes: allocation.len_bytes, device_pointer: allocation.base })
    }
    fn hipGraphMemFreeNodeGetParams(node: usize, out: Out<usize>) {
        let NodeOp::MemFree(address) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(address)
    }
    fn hipGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) {
        graph::resolve(graph)?.add_edges(&edges(from, to, count)?)
    }
    fn hipGraphRemoveDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) {
        graph::resolve(graph)?.remove_edges(&edges(from, to, count)?)
    }
    fn hipGraphDestroyNode(node: usize) {
        graph::owner_of(node)?.remove(node);
        Ok(())
    }
    fn hipGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) {
        let handles: Vec<usize> = graph::resolve(graph)?.nodes().iter().map(|node| node.handle).collect();
        list(&handles, nodes, count)
    }
    fn hipGraphGetRootNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) {
        let nodes_now = graph::resolve(graph)?.nodes();
        let roots: Vec<usize> = nodes_now.iter().filter(|node| node.dependencies.is_empty()).map(|node| node.handle).collect();
        list(&roots, nodes, count)
    }
    fn hipGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) {
        let nodes = graph::resolve(graph)?.nodes();
        let pairs: Vec<(usize, usize)> = nodes.iter().flat_map(|node| node.dependencies.iter().map(|dependency| (*dependency, node.handle))).collect();
        if from.is_given() != to.is_given() {
            return Err(HipError::INVALID_VALUE);
        }
        if from.is_given() {
            let room = count.read()?.min(pairs.len());
            from.set_array(&pairs[..room].iter().map(|pair| pair.0).collect::<Vec<_>>())?;
            to.set_array(&pairs[..room].iter().map(|pair| pair.1).collect::<Vec<_>>())?;
            return count.set(room);
        }
        count.set(pairs.len())
    }
    fn hipGraphNodeGetDependencies(node: usize, nodes: Out<usize>, count: Out<usize>) { list(&graph::node(node)?.dependencies, nodes, count) }
    fn hipGraphNodeGetDependentNodes(node: usize, nodes: Out<usize>, count: Out<usize>) {
        let all = graph::owner_of(node)?.nodes();
        let dependents: Vec<usize> = all.iter().filter(|other| other.dependencies.contains(&node)).map(|other| other.handle).collect();
        list(&dependents, nodes, count)
    }
    fn hipGraphNodeGetType(node: usize, out: Out<i32>) { out.set(graph::node(node)?.op.node_type()) }
    fn hipGraphChildGraphNodeGetGraph(node: usize, out: Out<usize>) {
        out.check()?;
        let NodeOp::Child(child) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(graph::register(&child)?)
    }
    fn hipGraphKernelNodeGetParams(node: usize, out: Out<KernelNodeParams>) {
        let NodeOp::Run(Op::Kernel(launch)) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(kernel_params(&launch))
    }
    fn hipGraphKernelNodeSetParams(node: usize, params: In<KernelNodeParams>) { set(node, kernel_op(&params.get()?)?) }
    fn hipGraphMemcpyNodeGetParams(node: usize, out: Out<Memcpy3DParms>) {
        let NodeOp::Run(Op::Copy(copy)) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(copy_params(&copy)?)
    }
    fn hipGraphMemcpyNodeSetParams(node: usize, params: In<Memcpy3DParms>) { set(node, copy_op(&Plan::volume(&params.get()?)?)?) }
    fn hipGraphMemcpyNodeSetParams1D(node: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) { set(node, copy_op(&linear(dst, src, len_bytes, kind))?) }
    fn hipGraphMemcpyNodeSetParamsToSymbol(node: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        set(node, copy_op(&to_symbol(symbol, src, len_bytes, offset, kind)?)?)
    }
    fn hipGraphMemcpyNodeSetParamsFromSymbol(node: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        set(node, copy_op(&from_symbol(dst, symbol, len_bytes, offset, kind)?)?)
    }
    fn hipGraphMemsetNodeGetParams(node: usize, out: Out<MemsetParams>) {
        let NodeOp::Run(Op::Fill(fill)) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(memset_params(&fill))
    }
    fn hipGraphMemsetNodeSetParams(node: usize, params: In<MemsetParams>) { set(node, memset_op(&params.get()?)?) }
    fn hipGraphHostNodeGetParams(node: usize, out: Out<HostNodeParams>) {
        let NodeOp::Run(Op::HostFunction { function, user_data }) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(HostNodeParams { function: Some(function), user_data })
    }
    fn hipGraphHostNodeSetParams(node: usize, params: In<HostNodeParams>) { set(node, host_op(&params.get()?)?) }
    fn hipGraphEventRecordNodeGetEvent(node: usize, out: Out<usize>) { out.set(event_of(&graph::node(node)?, RECORD)?) }
    fn hipGraphEventRecordNodeSetEvent(node: usize, event: usize) { set(node, NodeOp::EventRecord(event::resolve(event)?)) }
    fn hipGraphEventWaitNodeGetEvent(node: usize, out: Out<usize>) { out.set(event_of(&graph::node(node)?, WAIT)?) }
    fn hipGraphEventWaitNodeSetEvent(node: usize, event: usize) { set(node, NodeOp::EventWait(event::resolve(event)?)) }
    fn hipGraphBatchMemOpNodeSetParams(node: usize, params: In<BatchMemOpNodeParams>) {
        set(node, batch_ops(&params.get()?)?)
    }
    fn hipGraphExecBatchMemOpNodeSetParams(exec: usize, node: usize, params: In<BatchMemOpNodeParams>) {
        set_exec(exec, node, batch_ops(&params.get()?)?)
    }
    fn hipGraphBatchMemOpNodeGetParams(node: usize, out: Out<BatchMemOpNodeParams>) {
        let NodeOp::Batch(batch) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        // The array lives as long as the node has these parameters.
        let operations = In::from_address(batch.params.as_ptr() as usize);
        out.set(BatchMemOpNodeParams { context: 0, count: batch.params.len() as u32, operations, flags: batch.flags })
    }
    fn hipGraphExecKernelNodeSetParams(exec: usize, node: usize, params: In<KernelNodeParams>) { set_exec(exec, node, kernel_op(&params.get()?)?) }
    fn hipGraphExecMemcpyNodeSetParams(exec: usize, node: usize, params: In<Memcpy3DParms>) { set_exec(exec, node, copy_op(&Plan::volume(&params.get()?)?)?) }
    fn hipGraphExecMemcpyNodeSetParams1D(exec: usize, node: usize, dst: usize, src: usize, len_bytes: usize, kind: i32) {
        set_exec(exec, node, copy_op(&linear(dst, src, len_bytes, kind))?)
    }
    fn hipGraphExecMemcpyNodeSetParamsToSymbol(exec: usize, node: usize, symbol: usize, src: usize, len_bytes: usize, offset: usize, kind: i32) {
        set_exec(exec, node, copy_op(&to_symbol(symbol, src, len_bytes, offset, kind)?)?)
    }
    fn hipGraphExecMemcpyNodeSetParamsFromSymbol(exec: usize, node: usize, dst: usize, symbol: usize, len_bytes: usize, offset: usize, kind: i32) {
        set_exec(exec, node, copy_op(&from_symbol(dst, symbol, len_bytes, offset, kind)?)?)
    }
    fn hipGraphExecMemsetNodeSetParams(exec: usize, node: usize, params: In<MemsetParams>) { set_exec(exec, node, memset_op(&params.get()?)?) }
    fn hipGraphExecHostNodeSetParams(exec: usize, node: usize, params: In<HostNodeParams>) { set_exec(exec, node, host_op(&params.get()?)?) }
    fn hipGraphExecEventRecordNodeSetEvent(exec: usize, node: usize, event: usize) { set_exec(exec, node, NodeOp::EventRecord(event::resolve(event)?)) }
    fn hipGraphExecEventWaitNodeSetEvent(exec: usize, node: usize, event: usize) { set_exec(exec, node, NodeOp::EventWait(event::resolve(event)?)) }
    fn hipGraphKernelNodeCopyAttributes(from: usize, to: usize) {
        let from = graph::node(from)?;
        if from.op.node_type() != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        graph::set_attributes(to, |attributes| *attributes = from.attributes)
    }
    fn hipGraphKernelNodeSetAttribute(node: usize, attribute: i32, value: In<u8>) {
        let value = value.array(attribute_bytes(attribute)?)?;
        graph::set_attributes(node, |attributes| drop(attributes.insert(attribute, value)))
    }
    fn hipGraphKernelNodeGetAttribute(node: usize, attribute: i32, value: Out<u8>) {
        let unset = vec![0; attribute_bytes(attribute)?];
        let node = graph::node(node)?;
        if node.op.node_type() != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        value.set_array(node.attributes.get(&attribute).unwrap_or(&unset))
    }
    fn hipDrvGraphMemcpyNodeGetParams(node: usize, out: Out<DrvMemcpy3D>) {
        let NodeOp::Run(Op::Copy(copy)) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        out.set(driver_copy_params(&copy)?)
    }
    fn hipDrvGraphMemcpyNodeSetParams(node: usize, params: In<DrvMemcpy3D>) { set(node, copy_op(&Plan::driver_volume(&params.get()?)?)?) }
    fn hipDrvGraphExecMemcpyNodeSetParams(exec: usize, node: usize, params: In<DrvMemcpy3D>, _context: usize) {
        set_exec(exec, node, copy_op(&Plan::driver_volume(&params.get()?)?)?)
    }
    fn hipDrvGraphExecMemsetNodeSetParams(exec: usize, node: usize, params: In<MemsetParams>, _context: usize) {
        set_exec(exec, node, memset_op(&params.get()?)?)
    }
}

hip_alias! {
    fn hipDrvGraphAddMemFreeNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, address: usize) = hipGraphAddMemFreeNode;
}

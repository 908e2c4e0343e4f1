//! Executable graphs, and graphs described by one parameter struct.

use crate::abi::{GraphInstantiateParams, GraphNodeParams};
use crate::api::{In, Out, hip_api};
use crate::capture;
use crate::error::{HipError, HipResult};
use crate::event;
use crate::exports::copy::Plan;
use crate::exports::graph::{add, copy_op, host_op, kernel_op, memset_op};
use crate::graph::{self, NodeOp};
use crate::graph_exec::{self, UpdateResult};
use crate::stream::{self, DefaultStream};
use crate::user_object;
use std::sync::atomic::Ordering;

/// Every `hipGraphInstantiateFlags`.
const ALL_FLAGS: u64 = 0xF;

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> HipResult {
    out.check()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let graph = graph::resolve(graph)?;
    out.set(graph_exec::instantiate(&graph, flags)?)
}

fn launch(exec: usize, handle: usize, null: DefaultStream) -> HipResult {
    let exec = graph_exec::resolve(exec)?;
    let stream = stream::resolve(handle, null)?;
    // Acquire: pairs with the Release of the call that began the capture.
    if stream.capturing.load(Ordering::Acquire) {
        return capture::add_node(&stream, NodeOp::Child(exec.source.deep_clone()?));
    }
    capture::check_implicit(&stream)?;
    exec.launch(&stream)
}

/// A node described by `hipGraphNodeParams`: the struct for its type lies where the union does.
fn node_op(params: &GraphNodeParams, address: usize) -> HipResult<NodeOp> {
    /// Offset of the union in bytes.
    const UNION_BYTES: usize = 16;
    let union = address + UNION_BYTES;
    match params.node_type {
        0 => kernel_op(&In::from_address(union).get()?),
        // hipMemcpyNodeParams: flags and reserved words come first.
        1 => copy_op(&Plan::volume(&In::from_address(union + 16).get()?)?),
        2 => memset_op(&In::from_address(union).get()?),
        3 => host_op(&In::from_address(union).get()?),
        4 => Ok(NodeOp::Child(graph::resolve(params.words[0] as usize)?.deep_clone()?)),
        5 => Ok(NodeOp::Empty),
        6 => Ok(NodeOp::EventWait(event::resolve(params.words[0] as usize)?)),
        7 => Ok(NodeOp::EventRecord(event::resolve(params.words[0] as usize)?)),
        11 => Ok(NodeOp::MemFree(params.words[0] as usize)),
        _ => Err(HipError::NOT_SUPPORTED),
    }
}

hip_api! {
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
    fn hipGraphExecDestroy(exec: usize) { graph_exec::destroy(exec) }
    fn hipGraphExecGetFlags(exec: usize, out: Out<u64>) { out.set(graph_exec::resolve(exec)?.flags) }
    fn hipGraphLaunch(exec: usize, stream: usize) { launch(exec, stream, DefaultStream::Legacy) }
    fn hipGraphLaunch_spt(exec: usize, stream: usize) { launch(exec, stream, DefaultStream::PerThread) }
    fn hipGraphUpload(exec: usize, stream: usize) {
        graph_exec::resolve(exec)?;
        stream::resolve(stream, DefaultStream::Legacy).map(drop)
    }
    fn hipGraphExecUpdate(exec: usize, graph: usize, error_node: Out<usize>, result: Out<i32>) {
        result.check()?;
        let (outcome, node) = graph_exec::resolve(exec)?.update_from(&*graph::resolve(graph)?)?;
        error_node.set_if_given(node);
        result.set(outcome as i32)?;
        if outcome == UpdateResult::Success { Ok(()) } else { Err(HipError::GRAPH_UPDATE_FAILURE) }
    }
    fn hipGraphExecChildGraphNodeSetParams(exec: usize, node: usize, child: usize) {
        let exec = graph_exec::resolve(exec)?;
        let NodeOp::Child(old) = graph::node(node)?.op else { return Err(HipError::INVALID_VALUE) };
        // Same nodes and edges: each of the child's nodes takes over its counterpart's work.
        let (old, new) = (old.nodes(), graph::resolve(child)?.nodes());
        if old.len() != new.len() || old.iter().zip(&new).any(|(old, new)| old.op.node_type() != new.op.node_type()) {
            return Err(HipError::GRAPH_UPDATE_FAILURE);
        }
        old.iter().zip(new).try_for_each(|(old, new)| exec.change(old.handle, |node| {
            node.op = new.op;
            Ok(())
        }))
    }
    fn hipGraphNodeSetEnabled(exec: usize, node: usize, is_enabled: u32) {
        graph_exec::resolve(exec)?.change(node, |node| {
            // Kernels, copies and memsets only.
            if node.op.node_type() > 2 || is_enabled > 1 {
                return Err(HipError::INVALID_VALUE);
            }
            node.is_enabled = is_enabled == 1;
            Ok(())
        })
    }
    fn hipGraphNodeGetEnabled(exec: usize, node: usize, out: Out<u32>) {
        let nodes = graph_exec::resolve(exec)?.nodes();
        let node = nodes.iter().find(|other| other.handle == node).filter(|node| node.op.node_type() <= 2).ok_or(HipError::INVALID_VALUE)?;
        out.set(node.is_enabled.into())
    }
    fn hipGraphAddNode(out: Out<usize>, graph: usize, deps: In<usize>, count: usize, params: In<GraphNodeParams>) {
        let op = node_op(&params.get()?, params.address())?;
        add(out, graph, deps, count, op)
    }
    fn hipGraphNodeSetParams(node: usize, params: In<GraphNodeParams>) {
        let op = node_op(&params.get()?, params.address())?;
        graph::update(node, |old| if old.node_type() == op.node_type() { Ok(op) } else { Err(HipError::INVALID_VALUE) })
    }
    fn hipGraphExecNodeSetParams(exec: usize, node: usize, params: In<GraphNodeParams>) {
        let op = node_op(&params.get()?, params.address())?;
        graph_exec::resolve(exec)?.change(node, |old| {
            if old.op.node_type() != op.node_type() {
                return Err(HipError::INVALID_VALUE);
            }
            old.op = op;
            Ok(())
        })
    }
    fn hipGraphDebugDotPrint(graph: usize, path: crate::api::InStr, _flags: u32) {
        use std::fmt::Write;
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.get()?.to_bytes()));
        let mut text = "digraph graph_1 {\n".to_owned();
        for node in graph::resolve(graph)?.nodes() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\"{:#x}\" [label=\"type {}\"];", node.handle, node.op.node_type());
            for dependency in node.dependencies {
                let _ = writeln!(text, "\"{dependency:#x}\" -> \"{:#x}\";", node.handle);
            }
        }
        text.push_str("}\n");
        std::fs::write(path, text).map_err(|_| HipError::OPERATING_SYSTEM)
    }
    fn hipDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) {
        crate::device::device_by_ordinal(device)?;
        if (0..4).contains(&attribute) { value.set(0) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: In<u64>) {
        crate::device::device_by_ordinal(device)?;
        // Only the high-water marks can be set, and only to zero.
        if matches!(attribute, 1 | 3) && value.get()? == 0 { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    }
    fn hipDeviceGraphMemTrim(device: i32) { crate::device::device_by_ordinal(device).map(drop) }
    fn hipUserObjectCreate(out: Out<usize>, object: usize, destroy: Option<crate::abi::HostFn>, count: u32, flags: u32) {
        out.check()?;
        let destroy = destroy.filter(|_| count > 0 && flags == 1).ok_or(HipError::INVALID_VALUE)?;
        out.set(user_object::create(object, destroy, count)?)
    }
    fn hipUserObjectRetain(object: usize, count: u32) { user_object::retain(object, count) }
    fn hipUserObjectRelease(object: usize, count: u32) { user_object::release(object, count) }
    fn hipGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) {
        let graph = graph::resolve(graph)?;
        match flags {
            0 => user_object::retain(object, count)?,
            // hipGraphUserObjectMove: the graph takes over the caller's references.
            1 => user_object::check(object)?,
            _ => return Err(HipError::INVALID_VALUE),
        }
        graph.own_user_object(object, count);
        Ok(())
    }
    fn hipGraphReleaseUserObject(graph: usize, object: usize, count: u32) {
        graph::resolve(graph)?.release_user_object(object, count)
    }
}

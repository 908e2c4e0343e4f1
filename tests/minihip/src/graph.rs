//! Graphs: nodes, what each does, and the edges between them.

use crate::abi::BatchMemOpParams;
use crate::error::{HipError, HipResult};
use crate::event::Event;
use crate::memory;
use crate::op::Op;
use crate::registry::{Registry, lock};
use crate::user_object;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum NodeOp {
    Empty,
    /// Kernels, copies, memsets, host functions and stream memory operations: what a queue runs, too.
    Run(Op),
    /// Several stream memory operations in a row.
    Batch(Arc<Batch>),
    EventRecord(Arc<Event>),
    EventWait(Arc<Event>),
    Child(Arc<Graph>),
    MemAlloc(Arc<GraphAllocation>),
    MemFree(usize),
    /// A signal of, or a wait for, an empty list of external semaphores.
    NoSemaphores {
        signals: bool,
    },
}

/// Stream memory operations of one node, and how the program described them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) ops: Vec<Op>,
    pub(crate) params: Vec<BatchMemOpParams>,
    pub(crate) flags: u32,
}

impl NodeOp {
    /// `hipGraphNodeType`.
    pub(crate) fn node_type(&self) -> i32 {
        match self {
            NodeOp::Run(Op::Kernel(_)) => 0,
            NodeOp::Run(Op::Copy(_)) => 1,
            NodeOp::Run(Op::Fill(_)) => 2,
            NodeOp::Run(Op::HostFunction { .. } | Op::Callback { .. }) => 3,
            NodeOp::Child(_) => 4,
            NodeOp::Empty | NodeOp::Run(Op::Nothing | Op::Mark(_) | Op::WaitMark(_) | Op::Graph(_)) => 5,
            NodeOp::EventWait(_) => 6,
            NodeOp::EventRecord(_) => 7,
            NodeOp::NoSemaphores { signals } => {
                if *signals {
                    8
                } else {
                    9
                }
            }
            NodeOp::MemAlloc(_) => 10,
            NodeOp::MemFree(_) => 11,
            NodeOp::Batch(_) | NodeOp::Run(Op::WaitValue(_) | Op::WriteValue(_)) => 14,
        }
    }
}

/// Memory a graph allocates: at one address from the moment the node is added, as the programs that build pointers
/// into later nodes need it, until the last graph and executable that hold the node are gone.
#[derive(Debug)]
pub(crate) struct GraphAllocation {
    pub(crate) device: usize,
    pub(crate) base: usize,
    pub(crate) len_bytes: usize,
    id: u64,
}

impl GraphAllocation {
    /// Allocates on `device`.
    pub(crate) fn new(device: usize, len_bytes: usize) -> HipResult<Arc<Self>> {
        let base = memory::allocate_device(crate::device::device(device)?, len_bytes, 0, 0)?;
        let id = memory::find(base).map_or(0, |allocation| allocation.id);
        Ok(Arc::new(Self { device, base, len_bytes, id }))
    }
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        // The program may have freed it itself, and the address may be another allocation's by now.
        if memory::forget_device(self.base, |allocation| allocation.id == self.id).is_some() {
            memory::release_device(self.device, self.base, self.len_bytes);
        }
    }
}

/// A node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) op: NodeOp,
    /// Handles of the nodes that come before.
    pub(crate) dependencies: Vec<usize>,
    /// The node this one is a clone of.
    pub(crate) origin: usize,
    /// A kernel node's `hipGraphKernelNodeSetAttribute` values by `hipLaunchAttributeID`; kept, with no effect.
    pub(crate) attributes: HashMap<i32, Vec<u8>>,
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Mutex<Vec<Node>>,
    /// User objects the graph holds references to, and how many.
    user_objects: Mutex<Vec<(usize, u32)>>,
}

/// Which graph a node handle belongs to.
#[derive(Debug)]
struct NodeOwner(Weak<Graph>);

static GRAPHS: Registry<Graph> = Registry::new();
static NODES: Registry<NodeOwner> = Registry::new();

impl Drop for Graph {
    fn drop(&mut self) {
        for node in lock(&self.nodes).drain(..) {
            NODES.remove(node.handle);
        }
        for (object, count) in lock(&self.user_objects).drain(..) {
            // The program may have released more than it owned; then there is nothing left to release.
            let _ = user_object::release(object, count);
        }
    }
}

/// Makes an empty graph.
pub(crate) fn create() -> HipResult<(usize, Arc<Graph>)> {
    let graph = Arc::new(Graph { nodes: Mutex::default(), user_objects: Mutex::default() });
    Ok((register(&graph)?, graph))
}

/// Gives an existing graph a handle.
pub(crate) fn register(graph: &Arc<Graph>) -> HipResult<usize> {
    GRAPHS.insert(|_| Arc::clone(graph))
}

/// The graph a handle stands for. Fails with `hipErrorInvalidValue`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Graph>> {
    GRAPHS.get(handle).ok_or(HipError::INVALID_VALUE)
}

/// Ends a graph's handle, and its nodes' unless something else still holds the graph.
pub(crate) fn destroy(handle: usize) -> HipResult {
    GRAPHS.remove(handle).map(drop).ok_or(HipError::INVALID_VALUE)
}

/// The graph a node belongs to. Fails with `hipErrorInvalidValue`.
pub(crate) fn owner_of(node: usize) -> HipResult<Arc<Graph>> {
    NODES.get(node).and_then(|owner| owner.0.upgrade()).ok_or(HipError::INVALID_VALUE)
}

/// A copy of a node as it is now. Fails with `hipErrorInvalidValue`.
pub(crate) fn node(handle: usize) -> HipResult<Node> {
    let graph = owner_of(handle)?;
    let nodes = lock(&graph.nodes);
    nodes.iter().find(|node| node.handle == handle).cloned().ok_or(HipError::INVALID_VALUE)
}

/// Replaces what a node does by what `change` makes of it. Fails as `change` does.
pub(crate) fn update(handle: usize, change: impl FnOnce(&NodeOp) -> HipResult<NodeOp>) -> HipResult {
    let graph = owner_of(handle)?;
    let mut nodes = lock(&graph.nodes);
    let node = nodes.iter_mut().find(|node| node.handle == handle).ok_or(HipError::INVALID_VALUE)?;
    node.op = change(&node.op)?;
    Ok(())
}

/// Changes the attributes of a kernel node. Fails with `hipErrorInvalidValue` on a node of another kind.
pub(crate) fn set_attributes(handle: usize, change: impl FnOnce(&mut HashMap<i32, Vec<u8>>)) -> HipResult {
    let graph = owner_of(handle)?;
    let mut nodes = lock(&graph.nodes);
    let found = nodes.iter_mut().find(|node| node.handle == handle && node.op.node_type() == 0);
    change(&mut found.ok_or(HipError::INVALID_VALUE)?.attributes);
    Ok(())
}

impl Graph {
    /// Takes over `count` references to a user object, until the graph is gone.
    pub(crate) fn own_user_object(&self, object: usize, count: u32) {
        lock(&self.user_objects).push((object, count));
    }

    /// Gives up `count` references to a user object. Fails with `hipErrorInvalidValue` if the graph holds fewer.
    pub(crate) fn release_user_object(&self, object: usize, count: u32) -> HipResult {
        let mut held = lock(&self.user_objects);
        let position = held.iter().position(|(other, owned)| *other == object && *owned >= count);
        let entry = &mut held[position.ok_or(HipError::INVALID_VALUE)?];
        entry.1 -= count;
        held.retain(|(_, owned)| *owned > 0);
        drop(held);
        user_object::release(object, count)
    }

    /// The nodes in the order they were added.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        lock(&self.nodes).clone()
    }

    /// Adds a node after `dependencies`. Fails with `hipErrorInvalidValue` on nodes of other graphs and repeated ones.
    pub(crate) fn add(self: &Arc<Self>, dependencies: &[usize], op: NodeOp) -> HipResult<usize> {
        let distinct: HashSet<usize> = dependencies.iter().copied().collect();
        let is_ours = |node: &usize| owner_of(*node).is_ok_and(|owner| Arc::ptr_eq(&owner, self));
        if distinct.len() < dependencies.len() || !dependencies.iter().all(is_ours) {
            return Err(HipError::INVALID_VALUE);
        }
        let mut nodes = lock(&self.nodes);
        let handle = NODES.insert(|_| Arc::new(NodeOwner(Arc::downgrade(self))))?;
        nodes.push(Node { handle, op, dependencies: dependencies.to_vec(), origin: 0, attributes: HashMap::new() });
        Ok(handle)
    }

    /// Adds edges. Fails with `hipErrorInvalidValue` on nodes of other graphs, edges that are there, and cycles.
    pub(crate) fn add_edges(&self, edges: &[(usize, usize)]) -> HipResult {
        let mut nodes = lock(&self.nodes);
        let mut changed = nodes.clone();
        for (from, to) in edges {
            if from == to || !changed.iter().any(|node| node.handle == *from) {
                return Err(HipError::INVALID_VALUE);
            }
            let node = changed.iter_mut().find(|node| node.handle == *to).ok_or(HipError::INVALID_VALUE)?;
            if node.dependencies.contains(from) {
                return Err(HipError::INVALID_VALUE);
            }
            node.dependencies.push(*from);
        }
        topological_order(&changed).ok_or(HipError::INVALID_VALUE)?;
        *nodes = changed;
        Ok(())
    }

    /// Removes edges. Fails with `hipErrorInvalidValue` on edges that are not there.
    pub(crate) fn remove_edges(&self, edges: &[(usize, usize)]) -> HipResult {
        let mut nodes = lock(&self.nodes);
        let mut changed = nodes.clone();
        for (from, to) in edges {
            let node = changed.iter_mut().find(|node| node.handle == *to).ok_or(HipError::INVALID_VALUE)?;
            let position =
                node.dependencies.iter().position(|dependency| dependency == from).ok_or(HipError::INVALID_VALUE)?;
            node.dependencies.remove(position);
        }
        *nodes = changed;
        Ok(())
    }

    /// Removes a node and its edges.
    pub(crate) fn remove(&self, handle: usize) {
        let mut nodes = lock(&self.nodes);
        nodes.retain(|node| node.handle != handle);
        nodes.iter_mut().for_each(|node| node.dependencies.retain(|dependency| *dependency != handle));
        NODES.remove(handle);
    }

    /// A deep copy; its nodes remember which ones they were cloned from.
    pub(crate) fn deep_clone(&self) -> HipResult<Arc<Graph>> {
        let originals = self.nodes();
        let clone = Arc::new(Graph { nodes: Mutex::default(), user_objects: Mutex::default() });
        let mut nodes = Vec::with_capacity(originals.len());
        for original in &originals {
            let handle = NODES.insert(|_| Arc::new(NodeOwner(Arc::downgrade(&clone))))?;
            let op = match &original.op {
                NodeOp::Child(child) => NodeOp::Child(child.deep_clone()?),
                other => other.clone(),
            };
            let attributes = original.attributes.clone();
            nodes.push(Node { handle, op, dependencies: Vec::new(), origin: original.handle, attributes });
        }
        let clone_of: HashMap<usize, usize> = nodes.iter().map(|node| (node.origin, node.handle)).collect();
        for (node, original) in nodes.iter_mut().zip(&originals) {
            node.dependencies =
                original.dependencies.iter().filter_map(|dependency| clone_of.get(dependency).copied()).collect();
        }
        *lock(&clone.nodes) = nodes;
        Ok(clone)
    }

    /// Whether every node of `earlier` is, or comes before, one of `later`.
    pub(crate) fn all_precede(&self, earlier: &[usize], later: &[usize]) -> bool {
        let nodes = lock(&self.nodes);
        let dependencies_of: HashMap<usize, &[usize]> =
            nodes.iter().map(|node| (node.handle, node.dependencies.as_slice())).collect();
        let mut seen: HashSet<usize> = later.iter().copied().collect();
        let mut stack: Vec<usize> = later.to_vec();
        while let Some(handle) = stack.pop() {
            for dependency in dependencies_of.get(&handle).copied().unwrap_or_default() {
                if seen.insert(*dependency) {
                    stack.push(*dependency);
                }
            }
        }
        earlier.iter().all(|handle| seen.contains(handle))
    }
}

/// Positions of `nodes` in an order that respects the edges, or `None` if there is a cycle.
pub(crate) fn topological_order(nodes: &[Node]) -> Option<Vec<usize>> {
    let position_of: HashMap<usize, usize> = nodes.iter().enumerate().map(|(i, node)| (node.handle, i)).collect();
    let mut open: Vec<usize> = nodes.iter().map(|node| node.dependencies.len()).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for dependency in &node.dependencies {
            dependents[*position_of.get(dependency)?].push(i);
        }
    }
    let mut order: Vec<usize> = (0..nodes.len()).filter(|i| open[*i] == 0).collect();
    let mut next = 0;
    while let Some(&i) = order.get(next) {
        next += 1;
        for &dependent in &dependents[i] {
            open[dependent] -= 1;
            if open[dependent] == 0 {
                order.push(dependent);
            }
        }
    }
    (order.len() == nodes.len()).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_checked_and_cycles_refused() {
        let (handle, graph) = create().expect("room");
        let a = graph.add(&[], NodeOp::Empty).expect("valid");
        let b = graph.add(&[a], NodeOp::Empty).expect("valid");
        let c = graph.add(&[a, b], NodeOp::Empty).expect("valid");
        assert_eq!(graph.add(&[a, a], NodeOp::Empty), Err(HipError::INVALID_VALUE));
        assert_eq!(graph.add_edges(&[(c, a)]), Err(HipError::INVALID_VALUE), "a cycle");
        assert_eq!(graph.add_edges(&[(a, b)]), Err(HipError::INVALID_VALUE), "there already");
        assert_eq!(graph.remove_edges(&[(a, b), (a, c)]), Ok(()));
        assert_eq!(graph.remove_edges(&[(a, c)]), Err(HipError::INVALID_VALUE), "not there");
        assert_eq!(graph.add_edges(&[(c, a)]), Ok(()), "no cycle any more");
        assert!(graph.all_precede(&[b, c], &[a]) && !graph.all_precede(&[a], &[b, c]));

        let (other, foreign) = create().expect("room");
        assert_eq!(foreign.add(&[a], NodeOp::Empty), Err(HipError::INVALID_VALUE), "a node of another graph");
        let clone = graph.deep_clone().expect("room");
        let edges = |graph: &Graph| graph.nodes().iter().map(|node| node.dependencies.len()).collect::<Vec<_>>();
        assert_eq!(edges(&clone), edges(&graph));
        assert_eq!(clone.nodes()[1].origin, b);
        destroy(handle).expect("alive");
        drop(graph);
        assert!(node(a).is_err(), "nodes die with their graph");
        assert_eq!(destroy(handle), Err(HipError::INVALID_VALUE));
        destroy(other).expect("alive");
    }
}

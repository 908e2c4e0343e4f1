//! Executable graphs: a flat copy of a graph's nodes, launched as one item of a stream.

use crate::error::{HipError, HipResult};
use crate::event::EventMark;
use crate::graph::{Graph, NodeOp, topological_order};
use crate::op::{self, Executor, Op};
use crate::queue::Chaos;
use crate::registry::{Registry, lock};
use crate::stream::{Dependency, Stream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A node of an executable graph; child graphs are dissolved into their nodes.
#[derive(Clone, Debug)]
pub(crate) struct ExecNode {
    /// The node of the graph it was made from.
    pub(crate) handle: usize,
    pub(crate) op: NodeOp,
    /// Positions of the nodes that come before.
    pub(crate) dependencies: Vec<usize>,
    pub(crate) is_enabled: bool,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct GraphExec {
    nodes: Mutex<Arc<Vec<ExecNode>>>,
    pub(crate) flags: u64,
    /// The graph as it was instantiated, for launches inside a capture.
    pub(crate) source: Arc<Graph>,
    /// The newest launch: an executable graph never runs twice at the same time.
    last_launch: Mutex<Option<Dependency>>,
}

static EXECS: Registry<GraphExec> = Registry::new();

/// The executable graph a handle stands for. Fails with `hipErrorInvalidValue`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<GraphExec>> {
    EXECS.get(handle).ok_or(HipError::INVALID_VALUE)
}

/// Ends the handle's life; launches under way are completed.
pub(crate) fn destroy(handle: usize) -> HipResult {
    EXECS.remove(handle).map(drop).ok_or(HipError::INVALID_VALUE)
}

/// Makes an executable copy of `graph`.
pub(crate) fn instantiate(graph: &Graph, flags: u64) -> HipResult<usize> {
    let nodes = flatten(graph)?;
    let source = graph.deep_clone()?;
    EXECS.insert(|_| {
        Arc::new(GraphExec { nodes: Mutex::new(Arc::new(nodes)), flags, source, last_launch: Mutex::default() })
    })
}

fn flatten(graph: &Graph) -> HipResult<Vec<ExecNode>> {
    let mut flat = Vec::new();
    flatten_into(graph, &[], &mut flat)?;
    Ok(flat)
}

/// Appends `graph`'s nodes, those without dependencies after `entry`; returns the positions of its last nodes.
fn flatten_into(graph: &Graph, entry: &[usize], flat: &mut Vec<ExecNode>) -> HipResult<Vec<usize>> {
    let nodes = graph.nodes();
    let order = topological_order(&nodes).ok_or(HipError::INVALID_VALUE)?;
    let mut position = vec![0; nodes.len()];
    let index_of: HashMap<usize, usize> = nodes.iter().enumerate().map(|(i, node)| (node.handle, i)).collect();
    let mut has_dependents = vec![false; nodes.len()];
    for i in order {
        let node = &nodes[i];
        let before: Vec<usize> =
            node.dependencies.iter().filter_map(|dependency| index_of.get(dependency).copied()).collect();
        before.iter().for_each(|index| has_dependents[*index] = true);
        let mut dependencies: Vec<usize> = before.iter().map(|index| position[*index]).collect();
        if dependencies.is_empty() {
            dependencies = entry.to_vec();
        }
        let op = match &node.op {
            NodeOp::Child(child) => {
                let ends = flatten_into(child, &dependencies, flat)?;
                if !ends.is_empty() {
                    dependencies = ends;
                }
                NodeOp::Empty
            }
            other => other.clone(),
        };
        position[i] = flat.len();
        flat.push(ExecNode { handle: node.handle, op, dependencies, is_enabled: true });
    }
    Ok((0..nodes.len()).filter(|i| !has_dependents[*i]).map(|i| position[i]).collect())
}

/// `hipGraphExecUpdateResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateResult {
    Success = 0,
    TopologyChanged = 2,
    NodeTypeChanged = 3,
}

impl GraphExec {
    /// The nodes as they are now.
    pub(crate) fn nodes(&self) -> Arc<Vec<ExecNode>> {
        Arc::clone(&lock(&self.nodes))
    }

    /// Changes the node made from `handle`; launches under way keep what they were launched with.
    pub(crate) fn change(&self, handle: usize, change: impl FnOnce(&mut ExecNode) -> HipResult) -> HipResult {
        let mut nodes = lock(&self.nodes);
        let position = nodes.iter().position(|node| node.handle == handle).ok_or(HipError::INVALID_VALUE)?;
        let mut node = nodes[position].clone();
        change(&mut node)?;
        Arc::make_mut(&mut nodes)[position] = node;
        Ok(())
    }

    /// Takes over the parameters of `graph`, which must have the same nodes and edges.
    pub(crate) fn update_from(&self, graph: &Graph) -> HipResult<(UpdateResult, usize)> {
        let new = flatten(graph)?;
        let mut nodes = lock(&self.nodes);
        if new.len() != nodes.len() {
            return Ok((UpdateResult::TopologyChanged, 0));
        }
        for (old, new) in nodes.iter().zip(&new) {
            if old.op.node_type() != new.op.node_type() {
                return Ok((UpdateResult::NodeTypeChanged, new.handle));
            }
            if old.dependencies != new.dependencies {
                return Ok((UpdateResult::TopologyChanged, new.handle));
            }
        }
        for (old, new) in Arc::make_mut(&mut nodes).iter_mut().zip(new) {
            old.op = new.op;
        }
        Ok((UpdateResult::Success, 0))
    }

    /// Enqueues one run on `stream`.
    pub(crate) fn launch(&self, stream: &Arc<Stream>) -> HipResult {
        let mut last = lock(&self.last_launch);
        let nodes = self.nodes();
        let marks = nodes
            .iter()
            .map(|node| match &node.op {
                NodeOp::EventRecord(_) if node.is_enabled => Ok(Some(Arc::default())),
                NodeOp::EventWait(event) if node.is_enabled => event.mark(),
                _ => Ok(None),
            })
            .collect::<HipResult<Vec<_>>>()?;
        let run = Arc::new(GraphRun { nodes, marks });
        let after = last
            .take()
            .filter(|previous| previous.stream.id != stream.id && !previous.stream.progress.reached(previous.target));
        let target = stream.enqueue_after(after, Op::Graph(Arc::clone(&run)))?;
        for (node, mark) in run.nodes.iter().zip(&run.marks) {
            if let (NodeOp::EventRecord(event), Some(mark)) = (&node.op, mark) {
                event.stand_for(Arc::clone(mark));
            }
        }
        *last = Some(Dependency { stream: Arc::clone(stream), target });
        Ok(())
    }
}

/// One launch of an executable graph.
#[derive(Debug)]
pub(crate) struct GraphRun {
    nodes: Arc<Vec<ExecNode>>,
    /// For event nodes: what to reach or to wait for.
    marks: Vec<Option<Arc<EventMark>>>,
}

impl GraphRun {
    /// Runs the nodes in an order that respects the edges: as added, or any other with chaos.
    pub(crate) fn execute(&self, executor: &mut Executor, mut chaos: Option<&mut Chaos>) {
        let mut open: Vec<usize> = self.nodes.iter().map(|node| node.dependencies.len()).collect();
        let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            node.dependencies.iter().for_each(|dependency| dependents[*dependency].push(i));
        }
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|i| open[*i] == 0).collect();
        while !ready.is_empty() {
            let pick = match chaos.as_deref_mut() {
                Some(chaos) => {
                    chaos.delay();
                    chaos.next() as usize % ready.len()
                }
                None => 0,
            };
            let i = ready.remove(pick);
            self.run_node(i, executor);
            for &dependent in &dependents[i] {
                open[dependent] -= 1;
                if open[dependent] == 0 {
                    ready.push(dependent);
                }
            }
        }
    }

    fn run_node(&self, i: usize, executor: &mut Executor) {
        let node = &self.nodes[i];
        if !node.is_enabled {
            return;
        }
        match (&node.op, &self.marks[i]) {
            (NodeOp::Run(operation), _) => op::run(operation, executor, None),
            (NodeOp::Batch(batch), _) => batch.ops.iter().for_each(|operation| op::run(operation, executor, None)),
            (NodeOp::EventRecord(_), Some(mark)) => mark.reach(),
            (NodeOp::EventWait(_), Some(mark)) => mark.wait(),
            // Children are dissolved, memory is there from the start, an event never recorded is nothing to wait for.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_dissolved_between_what_comes_before_and_after() {
        let (_, child) = crate::graph::create().expect("room");
        let inner = child.add(&[], NodeOp::Empty).expect("valid");
        child.add(&[inner], NodeOp::Empty).expect("valid");
        let (_, graph) = crate::graph::create().expect("room");
        let first = graph.add(&[], NodeOp::Empty).expect("valid");
        let middle = graph.add(&[first], NodeOp::Child(child)).expect("valid");
        graph.add(&[middle], NodeOp::Empty).expect("valid");
        let flat = flatten(&graph).expect("no cycle");
        let edges: Vec<_> = flat.iter().map(|node| node.dependencies.clone()).collect();
        assert_eq!(edges, [vec![], vec![0], vec![1], vec![2], vec![3]]);
    }
}

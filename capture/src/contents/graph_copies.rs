//! Host memory that graphs read and write when they are launched.
//!
//! A copy node names host memory when the graph is built, and touches it at every launch. The host sides of copy nodes
//! are followed from stream captures and explicit nodes through clones, child graphs and instantiation to the executable
//! graph.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hrr_format::catalogue::Access;

use super::region::Region;

/// Stream captures under way; calls ask a stream whether it is captured only where there is one.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Whether a stream capture is under way somewhere in the process.
#[inline(always)]
pub(crate) fn capturing() -> bool {
    // Relaxed: a thread that works on a captured stream began the capture itself or was told of it by the program.
    CAPTURES.load(Ordering::Relaxed) != 0
}

/// Forgets captures, in a forked child.
pub(crate) fn forget() {
    CAPTURES.store(0, Ordering::Relaxed);
}

/// Host memory that a node of a graph uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphCopy {
    /// The node, where the program has its handle.
    pub(crate) node: Option<u64>,
    /// The memory.
    pub(crate) region: Region,
    /// How the copy uses it.
    pub(crate) access: Access,
    /// By which way the graph gets at it.
    pub(crate) way: Way,
}

/// By which way a graph gets at host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A copy node copies it.
    Copied,
    /// A node was given the first address of the region, which is otherwise meaningless, and uses the memory directly.
    Direct,
}

impl GraphCopy {
    /// An address in host memory that a node uses directly.
    pub(crate) fn direct(address: u64) -> Self {
        GraphCopy { node: None, region: Region::range(address, 1), access: Access::ReadWrite, way: Way::Direct }
    }
}

/// The copies of every graph there is.
#[derive(Debug, Default)]
pub(crate) struct GraphCopies {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    captures: HashMap<u64, Vec<GraphCopy>>,
    graphs: HashMap<u64, Vec<GraphCopy>>,
    execs: HashMap<u64, Vec<GraphCopy>>,
    /// The graph of each node that the program added: one without host memory may be given some later.
    nodes: HashMap<u64, u64>,
}

impl GraphCopies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A capture began.
    pub(crate) fn begin_capture(&self) {
        CAPTURES.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies were captured.
    pub(crate) fn capture(&self, id: u64, copies: &[GraphCopy]) {
        self.state().captures.entry(id).or_default().extend_from_slice(copies);
    }

    /// A capture ended, with a graph if it succeeded.
    pub(crate) fn end_capture(&self, id: Option<u64>, graph: Option<u64>) {
        // Relaxed: as in `capturing`. A capture that began before recording did must not wrap the count.
        let _ = CAPTURES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        let mut state = self.state();
        let copies = id.and_then(|id| state.captures.remove(&id)).unwrap_or_default();
        if let Some(graph) = graph {
            // A capture into a graph that exists adds to it.
            state.graphs.entry(graph).or_default().extend(copies);
        }
    }

    /// A new graph: an address that was a destroyed graph's means the new one.
    pub(crate) fn create(&self, graph: u64) {
        self.state().graphs.insert(graph, Vec::new());
    }

    /// A node was added to a graph, with the host sides of its copy.
    pub(crate) fn add(&self, graph: u64, node: u64, copies: &[GraphCopy]) {
        let mut state = self.state();
        state.nodes.insert(node, graph);
        let copies = copies.iter().map(|copy| GraphCopy { node: Some(node), ..*copy });
        state.graphs.entry(graph).or_default().extend(copies);
    }

    /// A graph became part of another one, as a child node holding a copy of it.
    pub(crate) fn add_child(&self, graph: u64, child: u64) {
        let mut state = self.state();
        let copies = inner(state.graphs.get(&child));
        state.graphs.entry(graph).or_default().extend(copies);
    }

    /// A graph was cloned.
    pub(crate) fn clone_graph(&self, clone: u64, original: u64) {
        let mut state = self.state();
        let copies = inner(state.graphs.get(&original));
        state.graphs.insert(clone, copies);
    }

    /// An executable graph was made from a graph, or updated to it.
    pub(crate) fn instantiate(&self, exec: u64, graph: u64) {
        let mut state = self.state();
        let copies = state.graphs.get(&graph).cloned().unwrap_or_default();
        state.execs.insert(exec, copies);
    }

    /// A node was given new parameters.
    pub(crate) fn set_node(&self, node: u64, copies: &[GraphCopy]) {
        let mut state = self.state();
        // A node that the program did not add itself came out of a capture or a clone: its graph is not known.
        let Some(graph) = state.nodes.get(&node).copied() else { return };
        let list = state.graphs.entry(graph).or_default();
        list.retain(|copy| copy.node != Some(node));
        list.extend_from_slice(copies);
    }

    /// A node of an executable graph was given new parameters.
    pub(crate) fn set_exec_node(&self, exec: u64, node: u64, copies: &[GraphCopy]) {
        if let Some(list) = self.state().execs.get_mut(&exec) {
            list.retain(|copy| copy.node != Some(node));
            list.extend_from_slice(copies);
        }
    }

    /// A node was destroyed.
    pub(crate) fn remove_node(&self, node: u64) {
        let mut state = self.state();
        if let Some(graph) = state.nodes.remove(&node)
            && let Some(list) = state.graphs.get_mut(&graph)
        {
            list.retain(|copy| copy.node != Some(node));
        }
    }

    /// A graph was destroyed, with its nodes.
    pub(crate) fn remove_graph(&self, graph: u64) {
        let mut state = self.state();
        state.graphs.remove(&graph);
        state.nodes.retain(|_, of| *of != graph);
    }

    /// An executable graph was destroyed.
    pub(crate) fn remove_exec(&self, exec: u64) {
        self.state().execs.remove(&exec);
    }

    /// The copies that a launch of an executable graph makes.
    pub(crate) fn of_exec(&self, exec: u64) -> Vec<GraphCopy> {
        self.state().execs.get(&exec).cloned().unwrap_or_default()
    }
}

/// Copies of nodes in a cloned graph: their handles are new ones that the program does not have yet.
fn inner(copies: Option<&Vec<GraphCopy>>) -> Vec<GraphCopy> {
    copies.into_iter().flatten().map(|copy| GraphCopy { node: None, ..*copy }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(node: Option<u64>, address: u64) -> GraphCopy {
        GraphCopy { node, region: Region::range(address, 8), access: Access::Read, way: Way::Copied }
    }

    #[test]
    fn copies_follow_captures_children_clones_and_updates() {
        let graphs = GraphCopies::default();
        graphs.begin_capture();
        graphs.capture(5, &[copy(None, 100)]);
        graphs.end_capture(Some(5), Some(1));
        graphs.create(2);
        graphs.add(2, 9, &[copy(None, 200)]);
        graphs.add_child(2, 1);
        graphs.clone_graph(3, 2);
        graphs.instantiate(30, 3);
        graphs.instantiate(20, 2);
        assert_eq!(graphs.of_exec(30), [copy(None, 200), copy(None, 100)]);
        assert_eq!(graphs.of_exec(20), [copy(Some(9), 200), copy(None, 100)]);
        graphs.set_exec_node(20, 9, &[copy(Some(9), 300)]);
        assert_eq!(graphs.of_exec(20), [copy(None, 100), copy(Some(9), 300)]);
        graphs.set_node(9, &[copy(Some(9), 400)]);
        graphs.instantiate(20, 2);
        assert_eq!(graphs.of_exec(20), [copy(None, 100), copy(Some(9), 400)]);
        graphs.add(2, 8, &[]);
        graphs.set_node(8, &[copy(Some(8), 500)]);
        graphs.instantiate(20, 2);
        assert_eq!(graphs.of_exec(20).last(), Some(&copy(Some(8), 500)), "a node without host memory was given some");
        graphs.remove_node(8);
        graphs.remove_node(9);
        graphs.instantiate(20, 2);
        assert_eq!(graphs.of_exec(20), [copy(None, 100)]);
        graphs.create(2);
        graphs.instantiate(20, 2);
        assert!(graphs.of_exec(20).is_empty());
        graphs.remove_exec(20);
        assert!(graphs.of_exec(20).is_empty());
    }
}

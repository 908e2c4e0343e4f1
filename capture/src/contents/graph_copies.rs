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
    /// The same as a copy of another node.
    fn of(&self, node: Option<u64>) -> Self {
        GraphCopy { node, ..*self }
    }

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
    execs: HashMap<u64, Exec>,
    /// The graph of each node that the program has the handle of: one without host memory may be given some later.
    nodes: HashMap<u64, u64>,
    /// Graphs that are in a child node: the graph that the node is in, and the node.
    embedded: HashMap<u64, (u64, u64)>,
}

/// What is known of an executable graph. Its nodes go by the handles of the graph that it was made from, whatever graph it
/// was made like since.
#[derive(Debug, Default)]
struct Exec {
    copies: Vec<GraphCopy>,
    /// The nodes of the graph that it was made from, where it has copies.
    nodes: Vec<u64>,
    /// Nodes that are switched off.
    off: Vec<u64>,
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
            state.pass_on(graph);
        }
    }

    /// A new graph: an address that was a destroyed graph's means the new one.
    pub(crate) fn create(&self, graph: u64) {
        let mut state = self.state();
        state.embedded.remove(&graph);
        state.graphs.insert(graph, Vec::new());
    }

    /// A node was added to a graph, with the host sides of its copy.
    pub(crate) fn add(&self, graph: u64, node: u64, copies: &[GraphCopy]) {
        let mut state = self.state();
        state.nodes.insert(node, graph);
        state.graphs.entry(graph).or_default().extend(copies.iter().map(|copy| copy.of(Some(node))));
        state.pass_on(graph);
    }

    /// A graph became part of another one, as a child node holding a copy of it.
    pub(crate) fn add_child(&self, graph: u64, node: u64, child: u64) {
        let copies = self.of_graph(child);
        self.add(graph, node, &copies);
    }

    /// The program has the handle of the graph in a child node.
    pub(crate) fn found_child(&self, node: u64, child: u64) {
        let mut state = self.state();
        let Some(&graph) = state.nodes.get(&node) else { return };
        if state.embedded.get(&child) == Some(&(graph, node)) {
            return;
        }
        let list = state.graphs.get(&graph).into_iter().flatten();
        let copies = list.filter(|copy| copy.node == Some(node)).map(|copy| copy.of(None)).collect();
        state.graphs.insert(child, copies);
        state.embedded.insert(child, (graph, node));
    }

    /// The program has been told handles of nodes of a graph.
    pub(crate) fn found(&self, graph: u64, nodes: &[u64]) {
        let mut state = self.state();
        for &node in nodes.iter().filter(|&&node| node != 0) {
            state.nodes.entry(node).or_insert(graph);
        }
    }

    /// The graph of a node that the program has the handle of.
    pub(crate) fn graph_of(&self, node: u64) -> Option<u64> {
        self.state().nodes.get(&node).copied()
    }

    /// A graph was cloned.
    pub(crate) fn clone_graph(&self, clone: u64, original: u64) {
        let mut state = self.state();
        let copies = inner(state.graphs.get(&original));
        state.embedded.remove(&clone);
        state.graphs.insert(clone, copies);
    }

    /// Host memory that a graph uses.
    pub(crate) fn of_graph(&self, graph: u64) -> Vec<GraphCopy> {
        self.state().graphs.get(&graph).cloned().unwrap_or_default()
    }

    /// An executable graph was made from a graph, which has these nodes.
    pub(crate) fn instantiate(&self, exec: u64, graph: u64, nodes: Vec<u64>) {
        let copies = self.of_graph(graph);
        self.state().execs.insert(exec, Exec { copies, nodes, off: Vec::new() });
    }

    /// An executable graph was made like another graph of the same shape, which has these nodes.
    pub(crate) fn update(&self, exec: u64, graph: u64, nodes: &[u64]) {
        let mut copies = self.of_graph(graph);
        let mut state = self.state();
        let known = state.execs.entry(exec).or_default();
        if known.nodes.len() == nodes.len() {
            for copy in &mut copies {
                let place = nodes.iter().position(|&node| copy.node == Some(node));
                copy.node = place.map_or(copy.node, |place| Some(known.nodes[place]));
            }
        } else if known.nodes.is_empty() {
            known.nodes = nodes.to_vec();
        }
        known.copies = copies;
    }

    /// Whether a node's copies are there without its handle, because the node came out of a capture or a clone. Of an executable
    /// graph, or else of the node's graph.
    pub(crate) fn lacks_node(&self, exec: Option<u64>, node: u64) -> bool {
        self.state().list(exec, node).is_some_and(|list| {
            list.iter().all(|copy| copy.node != Some(node)) && list.iter().any(|copy| copy.node.is_none())
        })
    }

    /// A node that came out of a capture or a clone copies to and from these addresses: the copies are its own from now on.
    pub(crate) fn adopt(&self, exec: Option<u64>, node: u64, addresses: [u64; 2]) {
        let mut state = self.state();
        let Some(list) = state.list(exec, node) else { return };
        for address in addresses {
            let is_its = |copy: &&mut GraphCopy| {
                copy.node.is_none() && copy.way == Way::Copied && copy.region.address == address
            };
            if let Some(copy) = list.iter_mut().find(is_its) {
                copy.node = Some(node);
            }
        }
    }

    /// A node was given new parameters.
    pub(crate) fn set_node(&self, node: u64, copies: &[GraphCopy]) {
        let mut state = self.state();
        let Some(graph) = state.nodes.get(&node).copied() else { return };
        let list = state.graphs.entry(graph).or_default();
        list.retain(|copy| copy.node != Some(node));
        list.extend(copies.iter().map(|copy| copy.of(Some(node))));
        state.pass_on(graph);
    }

    /// A node of an executable graph was given new parameters.
    pub(crate) fn set_exec_node(&self, exec: u64, node: u64, copies: &[GraphCopy]) {
        if let Some(known) = self.state().execs.get_mut(&exec) {
            known.copies.retain(|copy| copy.node != Some(node));
            known.copies.extend(copies.iter().map(|copy| copy.of(Some(node))));
        }
    }

    /// A node of an executable graph was switched on or off.
    pub(crate) fn switch(&self, exec: u64, node: u64, is_on: bool) {
        if let Some(known) = self.state().execs.get_mut(&exec) {
            known.off.retain(|&off| off != node);
            if !is_on {
                known.off.push(node);
            }
        }
    }

    /// A node was destroyed.
    pub(crate) fn remove_node(&self, node: u64) {
        let mut state = self.state();
        if let Some(graph) = state.nodes.remove(&node)
            && let Some(list) = state.graphs.get_mut(&graph)
        {
            list.retain(|copy| copy.node != Some(node));
            state.pass_on(graph);
        }
    }

    /// A graph was destroyed, with its nodes.
    pub(crate) fn remove_graph(&self, graph: u64) {
        let mut state = self.state();
        state.graphs.remove(&graph);
        state.nodes.retain(|_, of| *of != graph);
        state.embedded.remove(&graph);
        let inside: Vec<u64> =
            state.embedded.iter().filter(|(_, (of, _))| *of == graph).map(|(&child, _)| child).collect();
        for child in inside {
            state.embedded.remove(&child);
            state.graphs.remove(&child);
        }
    }

    /// An executable graph was destroyed.
    pub(crate) fn remove_exec(&self, exec: u64) {
        self.state().execs.remove(&exec);
    }

    /// The copies that a launch of an executable graph makes.
    pub(crate) fn of_exec(&self, exec: u64) -> Vec<GraphCopy> {
        let state = self.state();
        let Some(known) = state.execs.get(&exec) else { return Vec::new() };
        let is_on = |copy: &&GraphCopy| copy.node.is_none_or(|node| !known.off.contains(&node));
        known.copies.iter().filter(is_on).copied().collect()
    }
}

impl State {
    /// The copies of an executable graph, or else of a node's graph.
    fn list(&mut self, exec: Option<u64>, node: u64) -> Option<&mut Vec<GraphCopy>> {
        match exec {
            Some(exec) => self.execs.get_mut(&exec).map(|known| &mut known.copies),
            None => self.graphs.get_mut(self.nodes.get(&node)?),
        }
    }

    /// The copies of a graph have changed: so have those of the graph that it is a child of.
    fn pass_on(&mut self, graph: u64) {
        /// Deeper than any program nests graphs; what is known of them is a circle only where handles were used again.
        const MOST: usize = 64;
        let mut changed = graph;
        for _ in 0..MOST {
            let Some(&(parent, node)) = self.embedded.get(&changed) else { return };
            let copies = self.graphs.get(&changed).cloned().unwrap_or_default();
            let list = self.graphs.entry(parent).or_default();
            list.retain(|copy| copy.node != Some(node));
            list.extend(copies.iter().map(|copy| copy.of(Some(node))));
            changed = parent;
        }
    }
}

/// Copies of nodes in a cloned graph: their handles are new ones that the program does not have yet.
fn inner(copies: Option<&Vec<GraphCopy>>) -> Vec<GraphCopy> {
    copies.into_iter().flatten().map(|copy| copy.of(None)).collect()
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
        graphs.add_child(2, 7, 1);
        graphs.clone_graph(3, 2);
        graphs.instantiate(30, 3, Vec::new());
        graphs.instantiate(20, 2, Vec::new());
        assert_eq!(graphs.of_exec(30), [copy(None, 200), copy(None, 100)]);
        assert_eq!(graphs.of_exec(20), [copy(Some(9), 200), copy(Some(7), 100)]);
        graphs.set_exec_node(20, 9, &[copy(Some(9), 300)]);
        assert_eq!(graphs.of_exec(20), [copy(Some(7), 100), copy(Some(9), 300)]);
        graphs.set_node(9, &[copy(Some(9), 400)]);
        graphs.instantiate(20, 2, Vec::new());
        assert_eq!(graphs.of_exec(20), [copy(Some(7), 100), copy(Some(9), 400)]);
        graphs.add(2, 8, &[]);
        graphs.set_node(8, &[copy(Some(8), 500)]);
        graphs.instantiate(20, 2, Vec::new());
        assert_eq!(graphs.of_exec(20).last(), Some(&copy(Some(8), 500)), "a node without host memory was given some");
        graphs.remove_node(8);
        graphs.remove_node(9);
        graphs.instantiate(20, 2, Vec::new());
        assert_eq!(graphs.of_exec(20), [copy(Some(7), 100)]);
        graphs.create(2);
        graphs.instantiate(20, 2, Vec::new());
        assert!(graphs.of_exec(20).is_empty());
        graphs.remove_exec(20);
        assert!(graphs.of_exec(20).is_empty());
    }

    #[test]
    fn children_are_exchanged_and_changed_by_handles_of_their_own() {
        let graphs = GraphCopies::default();
        for (graph, node) in [(1, 11), (2, 12)] {
            graphs.create(graph);
            graphs.add(graph, node, &[copy(None, graph * 100)]);
        }
        graphs.create(3);
        graphs.add_child(3, 13, 1);
        graphs.instantiate(30, 3, vec![13]);
        graphs.set_exec_node(30, 13, &graphs.of_graph(2));
        assert_eq!(graphs.of_exec(30), [copy(Some(13), 200)]);
        // The child in node 13, found by its handle 4, with a node 14 that the program has by listing.
        graphs.found_child(13, 4);
        graphs.found(4, &[14, 0]);
        assert!(graphs.lacks_node(None, 14) && !graphs.lacks_node(None, 12));
        graphs.adopt(None, 14, [100, 7]);
        graphs.set_node(14, &[copy(None, 500)]);
        assert_eq!(graphs.of_graph(3), [copy(Some(13), 500)]);
        assert_eq!(graphs.of_graph(1), [copy(Some(11), 100)], "the child is a copy");
        graphs.remove_graph(3);
        assert!(graphs.of_graph(4).is_empty());
    }

    #[test]
    fn an_updated_executable_graph_keeps_the_handles_of_its_nodes() {
        let graphs = GraphCopies::default();
        for (graph, node) in [(1, 11), (2, 12)] {
            graphs.create(graph);
            graphs.add(graph, node, &[copy(None, graph * 100)]);
        }
        graphs.instantiate(30, 1, vec![11]);
        graphs.update(30, 2, &[12]);
        assert_eq!(graphs.of_exec(30), [copy(Some(11), 200)]);
        graphs.switch(30, 11, false);
        assert!(graphs.of_exec(30).is_empty());
        graphs.switch(30, 11, true);
        graphs.set_exec_node(30, 11, &[copy(None, 300)]);
        assert_eq!(graphs.of_exec(30), [copy(Some(11), 300)]);
    }
}

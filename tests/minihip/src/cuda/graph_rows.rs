//! Executable graphs whose copies of several rows can be changed: the driver changes only copies of one row, HIP any.
//!
//! Beside the executable graph of a graph with such copies a clone of that graph is kept, and every change of a node is made
//! in both. Where the driver refuses a change of a copy, the clone is instantiated anew, and what the program does with its
//! handle is done with that. Graphs that cannot be cloned, those with memory nodes, keep to what the driver changes.

use super::driver::{self as cu, got};
use crate::error::{HipError, HipResult};
use crate::registry::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is kept of an executable graph.
#[derive(Debug)]
struct Kept {
    clone: usize,
    /// Whether the executable graph has become what the clone is not, so that nothing is made of it any more.
    is_stale: bool,
    flags: u64,
    /// The executable graph made of the clone; 0 as long as the first one serves.
    remade: usize,
    /// Nodes of the program's graph that were switched on or off.
    enabled: HashMap<usize, u32>,
}

/// By the program's handle.
static KEPT: Mutex<Option<HashMap<usize, Kept>>> = Mutex::new(None);
/// How many are kept: most programs have none, and their launches look no further.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with<R>(exec: usize, body: impl FnOnce(&mut Kept) -> R) -> Option<R> {
    // Relaxed: who was given the handle sees the count that was there before.
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock(&KEPT).as_mut()?.get_mut(&exec).map(body)
}

impl Kept {
    fn node(&self, node: usize) -> HipResult<usize> {
        got(|found| cu::graph_node_find_in_clone(found, node, self.clone))
    }

    /// The driver's executable graph and its name of a node.
    fn place(&self, exec: usize, node: usize) -> HipResult<(usize, usize)> {
        if self.remade == 0 { Ok((exec, node)) } else { Ok((self.remade, self.node(node)?)) }
    }

    fn remake(&mut self) -> HipResult {
        let exec = got(|exec| cu::graph_instantiate(exec, self.clone, self.flags))?;
        for (node, is_enabled) in &self.enabled {
            cu::graph_node_set_enabled(exec, self.node(*node)?, *is_enabled)?;
        }
        match std::mem::replace(&mut self.remade, exec) {
            0 => Ok(()),
            old => cu::graph_exec_destroy(old),
        }
    }
}

/// Whether a graph has a copy of more than one row.
fn has_rows(graph: usize) -> HipResult<bool> {
    /// `CU_GRAPH_NODE_TYPE_MEMCPY`.
    const COPY: i32 = 1;
    let mut count = 0;
    cu::graph_get_nodes(graph, 0, &raw mut count as usize)?;
    let mut nodes = vec![0_usize; count];
    cu::graph_get_nodes(graph, nodes.as_mut_ptr() as usize, &raw mut count as usize)?;
    for node in nodes {
        if got(|found| cu::graph_node_get_type(node, found))? == COPY {
            let copy = got(|params| cu::graph_memcpy_node_get_params(node, params))?;
            if copy.height > 1 || copy.depth > 1 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Keeps what changes of an executable graph that was just made will need.
pub(super) fn keep(exec: usize, graph: usize, flags: u64) {
    if !has_rows(graph).unwrap_or(false) {
        return;
    }
    if let Ok(clone) = got(|clone| cu::graph_clone(clone, graph)) {
        let kept = Kept { clone, is_stale: false, flags, remade: 0, enabled: HashMap::new() };
        lock(&KEPT).get_or_insert_default().insert(exec, kept);
        // Relaxed: see `with`.
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends what was kept of an executable graph.
pub(super) fn forget(exec: usize) -> HipResult {
    let Some(kept) = lock(&KEPT).as_mut().and_then(|known| known.remove(&exec)) else { return Ok(()) };
    // Relaxed: see `with`.
    COUNT.fetch_sub(1, Ordering::Relaxed);
    cu::graph_destroy(kept.clone)?;
    if kept.remade == 0 { Ok(()) } else { cu::graph_exec_destroy(kept.remade) }
}

/// The driver's executable graph behind the program's handle.
#[inline]
pub(super) fn live(exec: usize) -> usize {
    with(exec, |kept| kept.remade).filter(|remade| *remade != 0).unwrap_or(exec)
}

/// Notes a change of an executable graph that its clone cannot follow: another graph's parameters, another child.
pub(super) fn leave_clone(exec: usize) {
    with(exec, |kept| kept.is_stale = true);
}

/// Changes a node: `in_exec` of the executable graph, `in_graph` of the clone.
pub(super) fn change(
    exec: usize,
    node: usize,
    in_exec: impl FnOnce(usize, usize) -> HipResult,
    in_graph: impl FnOnce(usize) -> HipResult,
) -> HipResult {
    let mut in_exec = Some(in_exec);
    let changed = with(exec, |kept| {
        let (live, live_node) = kept.place(exec, node)?;
        in_exec.take().map_or(Ok(()), |in_exec| in_exec(live, live_node))?;
        in_graph(kept.node(node)?)
    });
    changed.unwrap_or_else(|| in_exec.take().map_or(Ok(()), |in_exec| in_exec(exec, node)))
}

/// Changes a copy, if need be by making the executable graph anew.
pub(super) fn change_copy(
    exec: usize,
    node: usize,
    in_exec: impl Fn(usize, usize) -> HipResult,
    in_graph: impl FnOnce(usize) -> HipResult,
) -> HipResult {
    let changed = with(exec, |kept| {
        let (live, live_node) = kept.place(exec, node)?;
        let result = in_exec(live, live_node);
        match result {
            Ok(()) => in_graph(kept.node(node)?),
            Err(HipError::INVALID_VALUE) if !kept.is_stale => {
                in_graph(kept.node(node)?)?;
                kept.remake()
            }
            other => other,
        }
    });
    changed.unwrap_or_else(|| in_exec(exec, node))
}

/// Switches a node on or off.
pub(super) fn set_enabled(exec: usize, node: usize, is_enabled: u32) -> HipResult {
    let set = with(exec, |kept| {
        let (live, live_node) = kept.place(exec, node)?;
        cu::graph_node_set_enabled(live, live_node, is_enabled)?;
        kept.enabled.insert(node, is_enabled);
        Ok(())
    });
    set.unwrap_or_else(|| cu::graph_node_set_enabled(exec, node, is_enabled))
}

/// Whether a node is switched on.
pub(super) fn get_enabled(exec: usize, node: usize) -> HipResult<u32> {
    let (live, live_node) = with(exec, |kept| kept.place(exec, node)).unwrap_or(Ok((exec, node)))?;
    got(|is_enabled| cu::graph_node_get_enabled(live, live_node, is_enabled))
}

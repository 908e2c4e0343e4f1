//! Staging memory on the NUMA node of the device, where the machine has several and lets us choose.
//!
//! A preference, never a demand: what the kernel refuses, or a node that is full, ends in memory that lies elsewhere, and
//! the replay works all the same.

use crate::machine::topology::{self, PinPolicy};

/// `MPOL_DEFAULT` and `MPOL_PREFERRED` of `linux/mempolicy.h`.
const POLICY_DEFAULT: libc::c_long = 0;
const POLICY_PREFERRED: libc::c_long = 1;
/// Highest node that a mask of one word names.
const NODES: u32 = 64;

/// Where staging memory goes, by device: several that are near one node share its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryNodes {
    nodes: Vec<MemoryNode>,
    /// Device and index of its node.
    of_device: Vec<(i32, usize)>,
}

impl MemoryNodes {
    /// The nodes near these devices, each with its place on the PCI bus if that is known.
    pub(crate) fn near(policy: &PinPolicy, devices: &[(i32, Option<&str>)]) -> Self {
        let mut found = MemoryNodes::default();
        for &(device, pci_bus_id) in devices {
            let node = MemoryNode::near(policy, pci_bus_id);
            let index = found.nodes.iter().position(|known| known.node == node.node).unwrap_or_else(|| {
                found.nodes.push(node);
                found.nodes.len() - 1
            });
            found.of_device.push((device, index));
        }
        found
    }

    /// Number of nodes told apart; one at least.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// Which of them a device is near; the first for one that is not known.
    pub(crate) fn index(&self, device: i32) -> usize {
        self.of_device.iter().find(|known| known.0 == device).map_or(0, |known| known.1)
    }

    /// One of them.
    pub(crate) fn node(&self, index: usize) -> &MemoryNode {
        static ANYWHERE: MemoryNode = MemoryNode { node: None, description: String::new() };
        self.nodes.get(index).unwrap_or(&ANYWHERE)
    }

    /// What was decided and why, for people.
    pub(crate) fn description(&self) -> String {
        match self.nodes.as_slice() {
            [] => String::new(),
            [only] => only.description.clone(),
            nodes => {
                let each = |(index, node): (usize, &MemoryNode)| {
                    let of: Vec<String> = self
                        .of_device
                        .iter()
                        .filter(|known| known.1 == index)
                        .map(|known| known.0.to_string())
                        .collect();
                    format!("for device {}: {}", of.join(", "), node.description)
                };
                nodes.iter().enumerate().map(each).collect::<Vec<_>>().join("; ")
            }
        }
    }
}

/// Where the staging memory of some devices goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryNode {
    node: Option<u32>,
    /// What was decided and why, for people.
    pub(crate) description: String,
}

impl MemoryNode {
    /// The node near the device at `pci_bus_id`, as far as placement was not turned off.
    pub(crate) fn near(policy: &PinPolicy, pci_bus_id: Option<&str>) -> Self {
        let elsewhere = |reason: &str| MemoryNode {
            node: None,
            description: format!("staging memory where the system puts it: {reason}"),
        };
        if *policy == PinPolicy::None {
            return elsewhere("not asked for otherwise");
        }
        let node = match pci_bus_id.map_or(Err("the device's place is not known"), topology::memory_node) {
            Ok(node) if node < NODES => node,
            Ok(_) => return elsewhere("the device's NUMA node has too high a number"),
            Err(reason) => return elsewhere(reason),
        };
        // Asked of the kernel once, so that what is said is what is done.
        if !set_policy(Some(node)) {
            return elsewhere("the kernel refuses a memory policy");
        }
        set_policy(None);
        MemoryNode { node: Some(node), description: format!("staging memory on NUMA node {node}") }
    }

    /// Runs `allocate` with memory that this thread touches first, in the kernel too, preferably on the node.
    pub(crate) fn preferred<T>(&self, allocate: impl FnOnce() -> T) -> T {
        let set = self.node.is_some() && set_policy(self.node);
        let result = allocate();
        if set {
            set_policy(None);
        }
        result
    }

    /// Has a fresh mapping of `len_bytes` lie on the node, whichever thread touches it first.
    pub(crate) fn bind(&self, address: *mut u8, len_bytes: usize) {
        let Some(node) = self.node else { return };
        let mask = 1u64 << node;
        // SAFETY: mbind changes where pages of the mapping come from, not what they hold; the mask is one word long and
        // outlives the call. A refusal leaves the mapping as it is.
        unsafe {
            libc::syscall(libc::SYS_mbind, address, len_bytes, POLICY_PREFERRED, &raw const mask, u64::BITS, 0);
        }
    }
}

/// Sets the calling thread's memory policy: a preferred node, or the default. False where the kernel refuses.
fn set_policy(node: Option<u32>) -> bool {
    let mask = node.map_or(0u64, |node| 1 << node);
    let (policy, mask_bits) = if node.is_some() { (POLICY_PREFERRED, u64::BITS) } else { (POLICY_DEFAULT, 0) };
    // SAFETY: the mask is one word long and outlives the call.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, &raw const mask, mask_bits) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_placed_where_nobody_asked_or_nothing_is_known() {
        let none = MemoryNode::near(&PinPolicy::None, Some("0000:c1:00.0"));
        assert_eq!((none.node, none.description.contains("not asked for")), (None, true));
        let unknown = MemoryNode::near(&PinPolicy::Auto, None);
        assert_eq!((unknown.node, unknown.description.contains("not known")), (None, true));
    }

    #[test]
    fn devices_near_one_node_share_it_and_each_is_told() {
        let node =
            |number| MemoryNode { node: Some(number), description: format!("staging memory on NUMA node {number}") };
        let nodes = MemoryNodes { nodes: vec![node(0), node(1)], of_device: vec![(0, 0), (1, 1), (2, 0)] };
        assert_eq!((nodes.count(), nodes.index(2), nodes.index(1), nodes.index(9)), (2, 0, 1, 0));
        assert_eq!(nodes.node(1).node, Some(1));
        let told = "for device 0, 2: staging memory on NUMA node 0; for device 1: staging memory on NUMA node 1";
        assert_eq!(nodes.description(), told);
        // None of this machine's devices: all memory lies where the system puts it, and there is one kind of it.
        let none = MemoryNodes::near(&PinPolicy::None, &[(0, None), (1, None)]);
        assert_eq!((none.count(), none.index(1), none.node(0).node), (1, 0, None));
        assert_eq!(MemoryNodes::default().count(), 1);
    }

    #[test]
    fn memory_that_is_bound_to_a_node_is_memory() {
        // Node 0 is there on every machine; a kernel that refuses leaves ordinary memory.
        let node = MemoryNode { node: Some(0), description: String::new() };
        let len_bytes = 1 << 20;
        let bytes = node.preferred(|| vec![7u8; len_bytes]);
        assert!(bytes.iter().all(|&byte| byte == 7));
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let address = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        node.bind(address.cast(), len_bytes);
        // SAFETY: the mapping is writable for its length and this test's own; it is unmapped once.
        unsafe {
            std::ptr::write_bytes(address.cast::<u8>(), 9, len_bytes);
            assert_eq!(address.cast::<u8>().add(len_bytes - 1).read(), 9);
            libc::munmap(address, len_bytes);
        }
    }
}

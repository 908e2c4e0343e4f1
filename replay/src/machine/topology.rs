//! Where workers run: on cores near the device, one worker a core, where the machine lets us choose.
//!
//! Pinning steadies timing; it never decides whether a replay works. Whatever stands in the way (a container without
//! `/sys`, a kernel that refuses, a mask with one core) ends in workers that run where the scheduler puts them, and
//! [`Placement::description`] says so.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::OnceLock;

use hwlocality::Topology;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::cpu::binding::CpuBindingFlags;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{TopologyBuilder, TypeFilter};

/// Highest CPU number that a list may name: Linux knows no more than 8192 CPUs (`CONFIG_NR_CPUS_RANGE_END`).
pub const MAX_CPU: usize = 8191;

/// Who decides where workers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinPolicy {
    /// Cores near the device, unless workers crowd the cores.
    #[default]
    Auto,
    /// The scheduler.
    None,
    /// The user: worker `i` runs on the CPU at `i` modulo the length. Never empty when parsed.
    List(Vec<usize>),
}

/// A pin policy that cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} does not say where to pin workers: {reason}; use auto, none, or CPU numbers such as 0,2-5")]
pub struct PinPolicyError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for PinPolicy {
    type Err = PinPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "auto" => Ok(PinPolicy::Auto),
            "none" => Ok(PinPolicy::None),
            list => match parse_cpu_list(list) {
                Ok(cpus) => Ok(PinPolicy::List(cpus)),
                Err(reason) => Err(PinPolicyError { text: text.to_owned(), reason }),
            },
        }
    }
}

/// Parses `0,2-5` in the order given.
fn parse_cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| match text.trim().parse::<usize>() {
        Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
        Ok(cpu) => Err(format!("CPU {cpu} is above {MAX_CPU}")),
        Err(_) => Err(format!("{:?} is not a CPU number", text.trim())),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("the range {first}-{last} runs backwards"));
                }
                cpus.extend(first..=last);
            }
        }
    }
    Ok(cpus)
}

impl fmt::Display for PinPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinPolicy::Auto => f.write_str("auto"),
            PinPolicy::None => f.write_str("none"),
            PinPolicy::List(cpus) => f.write_str(&cpu_ranges(cpus)),
        }
    }
}

/// Where each worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPU number (as the OS counts them) of each worker; None where the scheduler decides.
    pub cores: Vec<Option<usize>>,
    /// What was decided and why, for people: `pinned 4 workers to CPUs 0-3, near device 0000:c1:00.0`.
    pub description: String,
}

impl Placement {
    /// Leaves every worker to the scheduler, because of `reason`.
    fn none(worker_count: usize, reason: &str) -> Self {
        Placement { cores: vec![None; worker_count], description: format!("workers not pinned: {reason}") }
    }
}

/// A thread that could not be pinned. Harmless: it runs where the scheduler puts it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("thread not pinned to CPU {cpu}: {reason}")]
pub struct BindError {
    /// CPU number asked for.
    pub cpu: usize,
    /// What the system said.
    pub reason: String,
}

/// CPUs of a list on which this process cannot run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("this process cannot run on CPU {refused}; it can on {allowed}")]
pub struct OutOfReach {
    /// Those, as a list.
    pub refused: String,
    /// The others, as a list.
    pub allowed: String,
}

/// Refuses a list that names CPUs on which this process cannot run: who gives one counts on it. Where the machine does not show
/// its cores there is nothing to refuse.
///
/// # Errors
/// Which CPUs of the list those are, and which there are.
pub fn refuse_cpus_out_of_reach(policy: &PinPolicy) -> Result<(), OutOfReach> {
    let (PinPolicy::List(cpus), Some(topology)) = (policy, machine()) else { return Ok(()) };
    let allowed = allowed_cpus(topology);
    let (_, refused) = within_reach(&allowed, cpus);
    if refused.is_empty() {
        return Ok(());
    }
    let allowed: Vec<usize> = allowed.iter_set().map(usize::from).collect();
    Err(OutOfReach { refused: cpu_ranges(&refused), allowed: cpu_ranges(&allowed) })
}

/// Splits a list of CPUs into those that this process may use and the others.
fn within_reach(allowed: &CpuSet, cpus: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let may_use = |cpu: usize| BitmapIndex::try_from(cpu).is_ok_and(|index| allowed.is_set(index));
    cpus.iter().copied().partition(|&cpu| may_use(cpu))
}

/// Places workers by `policy`, each near its device. `near` has, for each worker, where the device is that it works on
/// (such as `0000:c1:00.0`), if that is known.
pub fn place(policy: &PinPolicy, near: &[Option<&str>]) -> Placement {
    if *policy == PinPolicy::None {
        return Placement::none(near.len(), "not asked for");
    }
    let Some(topology) = machine() else {
        return Placement::none(near.len(), "the machine does not show its cores");
    };
    place_on(topology, &allowed_cpus(topology), policy, near)
}

/// Pins the calling thread to CPU `core`, a number out of [`Placement::cores`].
///
/// # Errors
/// Says what the system said; the thread then runs where it ran before.
pub fn bind_current_thread(core: usize) -> Result<(), BindError> {
    let error = |reason: String| BindError { cpu: core, reason };
    let topology = machine().ok_or_else(|| error("the machine does not show its cores".to_owned()))?;
    let index = BitmapIndex::try_from(core).map_err(|_| error("no such CPU".to_owned()))?;
    guarded(|| topology.bind_cpu(&CpuSet::from(index), CpuBindingFlags::THREAD).map_err(|e| error(e.to_string())))
        .unwrap_or_else(|| Err(error("the topology library failed".to_owned())))
}

/// This machine's topology, looked at once. None where it cannot be had.
fn machine() -> Option<&'static Topology> {
    static MACHINE: OnceLock<Option<Topology>> = OnceLock::new();
    MACHINE.get_or_init(|| guarded(load).flatten()).as_ref()
}

fn load() -> Option<Topology> {
    // The x86 component moves this thread from core to core to ask each its id; the OS knows the same. Of I/O objects
    // only PCI devices: OS devices would make hwloc's plugins start GPU runtimes of their own.
    let builder = TopologyBuilder::new().without_component("x86").ok()?;
    let builder = builder.with_type_filter(ObjectType::PCIDevice, TypeFilter::KeepAll).ok()?;
    builder.build().ok()
}

/// Runs `look`; None if it panics. The topology library takes what it finds odd in a machine for a programming error;
/// to a replay it is one more machine that does not say where to pin.
fn guarded<T>(look: impl FnOnce() -> T) -> Option<T> {
    // Unwind safe: a topology is not modified after it is loaded, and nothing else is shared with `look`.
    catch_unwind(AssertUnwindSafe(look)).ok()
}

/// CPUs that this process may use: those of its control group, less what its affinity mask leaves out.
fn allowed_cpus(topology: &Topology) -> CpuSet {
    let all = topology.cpuset().clone_target();
    match guarded(|| topology.cpu_binding(CpuBindingFlags::THREAD)) {
        Some(Ok(mask)) => &all & &mask,
        _ => all,
    }
}

fn place_on(topology: &Topology, allowed: &CpuSet, policy: &PinPolicy, near: &[Option<&str>]) -> Placement {
    match policy {
        PinPolicy::None => Placement::none(near.len(), "not asked for"),
        PinPolicy::List(cpus) => place_by_list(allowed, cpus, near.len()),
        PinPolicy::Auto => guarded(|| place_near(topology, allowed, near))
            .unwrap_or_else(|| Placement::none(near.len(), "the machine does not show its cores")),
    }
}

fn place_by_list(allowed: &CpuSet, cpus: &[usize], worker_count: usize) -> Placement {
    let (usable, refused) = within_reach(allowed, cpus);
    if usable.is_empty() {
        return Placement::none(worker_count, &format!("this process may not use CPUs {}", cpu_ranges(cpus)));
    }
    let cores: Vec<Option<usize>> = usable.iter().copied().cycle().take(worker_count).map(Some).collect();
    let mut description = format!("pinned {} as told", pinned(&cores));
    if !refused.is_empty() {
        description.push_str(&format!("; this process may not use CPUs {}", cpu_ranges(&refused)));
    }
    Placement { cores, description }
}

/// One processing unit of the machine that this process may use.
#[derive(Clone, Debug)]
struct Candidate {
    cpu: usize,
    /// How many of its core's candidates come before it.
    rank_in_core: usize,
    /// By device: 0 nearest to it.
    distances: Vec<usize>,
}

fn place_near(topology: &Topology, allowed: &CpuSet, near: &[Option<&str>]) -> Placement {
    let worker_count = near.len();
    let mut devices: Vec<Option<&str>> = Vec::new();
    for device in near {
        if !devices.contains(device) {
            devices.push(*device);
        }
    }
    let around: Vec<Vec<CpuSet>> =
        devices.iter().map(|device| device.map_or_else(Vec::new, |id| surroundings(topology, id))).collect();
    let mut candidates = Vec::new();
    for core in cores(topology) {
        let units = (&core & allowed).iter_set().map(usize::from).collect::<Vec<_>>();
        for (rank_in_core, cpu) in units.into_iter().enumerate() {
            let index = BitmapIndex::try_from(cpu).expect("it came out of a bitmap");
            let outside = |sets: &Vec<CpuSet>| sets.iter().take_while(|set| !set.is_set(index)).count();
            candidates.push(Candidate { cpu, rank_in_core, distances: around.iter().map(outside).collect() });
        }
    }
    let core_count = candidates.iter().filter(|candidate| candidate.rank_in_core == 0).count();
    if core_count == 0 {
        return Placement::none(worker_count, "the machine does not show its cores");
    }
    if worker_count >= 2 * core_count {
        let reason = format!("{worker_count} workers on {core_count} available core{}", plural(core_count));
        return Placement::none(worker_count, &reason);
    }
    let (mut cores, mut far) = (vec![None; worker_count], 0);
    // Those first that find a core next to their device, so that nobody takes from them what is far for himself.
    for farthest in [0, usize::MAX] {
        for (device, chosen) in near.iter().zip(&mut cores).filter(|(_, chosen)| chosen.is_none()) {
            let device = devices.iter().position(|known| known == device).expect("it was put there above");
            // A far core to itself is worth more than half of a near one: a worker that waits spins. Of equals the first
            // is taken, so neighbours in the topology stay neighbours. Workers beyond the last processing unit are left
            // to the scheduler: pinned, they would have to share one while others have theirs to themselves.
            let best = (0..candidates.len())
                .min_by_key(|&at| (candidates[at].rank_in_core, candidates[at].distances[device]))
                .filter(|&at| {
                    farthest > 0 || (candidates[at].rank_in_core, candidates[at].distances[device]) == (0, 0)
                });
            if let Some(unit) = best.map(|at| candidates.remove(at)) {
                far += usize::from(unit.distances[device] > 0);
                *chosen = Some(unit.cpu);
            }
        }
    }
    let mut description = format!("pinned {}", pinned(&cores));
    let names: Vec<&str> = devices.iter().flatten().copied().collect();
    let missing: Vec<&str> =
        devices.iter().zip(&around).filter(|(_, sets)| sets.is_empty()).filter_map(|(device, _)| *device).collect();
    match (names.as_slice(), missing.as_slice()) {
        ([], _) => description.push_str(", the device's place is not known"),
        ([id], []) => description.push_str(&format!(", near device {id}")),
        (ids, []) => description.push_str(&format!(", each near its device ({})", ids.join(", "))),
        (_, [id]) => description.push_str(&format!(", device {id} is not in the topology")),
        (_, ids) => description.push_str(&format!(", devices {} are not in the topology", ids.join(", "))),
    }
    if far > 0 {
        description.push_str(&format!(" but for {far}"));
    }
    let unpinned = cores.iter().filter(|core| core.is_none()).count();
    if unpinned > 0 {
        description.push_str(&format!("; {unpinned} more left to the scheduler"));
    }
    Placement { cores, description }
}

/// CPU sets around the device, the nearest first, each within the next. Empty where the device is not found.
fn surroundings(topology: &Topology, pci_bus_id: &str) -> Vec<CpuSet> {
    let Ok(Some(device)) = topology.pci_device_by_bus_id_string(pci_bus_id) else {
        return Vec::new();
    };
    let Some(nearest) = device.first_non_io_ancestor() else {
        return Vec::new();
    };
    let mut sets: Vec<CpuSet> = Vec::new();
    for object in std::iter::once(nearest).chain(nearest.ancestors()) {
        if let Some(set) = object.cpuset()
            && sets.last().is_none_or(|last| *last != *set)
        {
            sets.push(set.clone_target());
        }
    }
    sets
}

/// The NUMA node that memory for the device at `pci_bus_id` should be on.
///
/// # Errors
/// Why there is no saying so.
pub(crate) fn memory_node(pci_bus_id: &str) -> Result<u32, &'static str> {
    let topology = machine().ok_or("the machine does not show its memory")?;
    guarded(|| memory_node_on(topology, pci_bus_id)).unwrap_or(Err("the machine does not show its memory"))
}

fn memory_node_on(topology: &Topology, pci_bus_id: &str) -> Result<u32, &'static str> {
    if topology.objects_with_type(ObjectType::NUMANode).count() < 2 {
        return Err("the machine has one NUMA node");
    }
    let Ok(Some(device)) = topology.pci_device_by_bus_id_string(pci_bus_id) else {
        return Err("the device is not in the topology");
    };
    let nearest = device.first_non_io_ancestor().ok_or("the device is not in the topology")?;
    let nodes = nearest.nodeset().ok_or("the device is near no NUMA node")?;
    match (nodes.first_set(), nodes.weight()) {
        (Some(node), Some(1)) => {
            u32::try_from(usize::from(node)).map_err(|_| "the device's NUMA node has too high a number")
        }
        (Some(_), _) => Err("the device is as near to several NUMA nodes"),
        _ => Err("the device is near no NUMA node"),
    }
}

/// CPU sets of the cores in topology order; processing units stand for cores where no cores are shown.
fn cores(topology: &Topology) -> Vec<CpuSet> {
    let of_type = |kind| {
        topology
            .objects_with_type(kind)
            .filter_map(|object| object.cpuset().map(|set| set.deref().clone()))
            .collect::<Vec<CpuSet>>()
    };
    let cores = of_type(ObjectType::Core);
    if cores.is_empty() { of_type(ObjectType::PU) } else { cores }
}

/// `4 workers to CPUs 0-3`.
fn pinned(cores: &[Option<usize>]) -> String {
    let mut cpus: Vec<usize> = cores.iter().flatten().copied().collect();
    let worker_count = cpus.len();
    cpus.sort_unstable();
    cpus.dedup();
    format!("{worker_count} worker{} to CPU{} {}", plural(worker_count), plural(cpus.len()), cpu_ranges(&cpus))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Writes CPU numbers as a list that [`PinPolicy`] parses to the same: `0,2-5`.
fn cpu_ranges(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let ranges = ranges.iter().map(|&(first, last)| match last {
        last if last == first => first.to_string(),
        last => format!("{first}-{last}"),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;

//! Placement on machines made up for the purpose, and on this one.

use super::*;

/// Two packages of four cores of two units each. CPU numbers as synthetic topologies count them: neighbours share a
/// core.
const TWO_PACKAGES: &str = "pack:2 numa:1 core:4 pu:2";

fn synthetic(description: &str) -> Topology {
    TopologyBuilder::new().from_synthetic(description).unwrap().build().unwrap()
}

/// Two packages with a NUMA node and two cores each (CPUs 0-1 and 2-3); PCI device 0000:41:00.0 is at the first, 0000:c1:00.0
/// at the second.
fn with_device() -> Topology {
    let pu = |cpu: usize, id: usize| {
        format!(
            r#"<object type="Core" os_index="{cpu}" cpuset="{mask:#010x}" complete_cpuset="{mask:#010x}" nodeset="{node:#x}" complete_nodeset="{node:#x}" gp_index="{id}">
                 <object type="PU" os_index="{cpu}" cpuset="{mask:#010x}" complete_cpuset="{mask:#010x}" nodeset="{node:#x}" complete_nodeset="{node:#x}" gp_index="{pu}"/>
               </object>"#,
            mask = 1 << cpu,
            node = 1 << (cpu / 2),
            pu = id + 1,
        )
    };
    let package = |index: usize, id: usize, extra: &str| {
        let (mask, node) = (3 << (2 * index), 1 << index);
        format!(
            r#"<object type="Package" os_index="{index}" cpuset="{mask:#010x}" complete_cpuset="{mask:#010x}" nodeset="{node:#x}" complete_nodeset="{node:#x}" gp_index="{id}">
                 <object type="NUMANode" os_index="{index}" cpuset="{mask:#010x}" complete_cpuset="{mask:#010x}" nodeset="{node:#x}" complete_nodeset="{node:#x}" gp_index="{numa}" local_memory="1073741824"/>
                 {}{}{extra}
               </object>"#,
            pu(2 * index, id + 2),
            pu(2 * index + 1, id + 4),
            numa = id + 1,
        )
    };
    let bridge = |bus: &str, id: usize| {
        format!(
            r#"<object type="Bridge" gp_index="{id}" bridge_type="0-1" depth="0" bridge_pci="0000:[{bus}0-{bus}2]">
          <object type="PCIDev" gp_index="{}" pci_busid="0000:{bus}1:00.0" pci_type="0300 [1002:74a1] [1002:74a1] 00" pci_link_speed="0.0"/>
        </object>"#,
            id + 1
        )
    };
    let xml = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
           <!DOCTYPE topology SYSTEM "hwloc2.dtd">
           <topology version="2.0">
             <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
             {}{}
             </object>
           </topology>"#,
        package(0, 10, &bridge("4", 60)),
        package(1, 30, &bridge("c", 50)),
    );
    // hwloc's own XML reader wants its lines unindented.
    let xml = xml.lines().map(|line| line.trim_start().to_owned() + "\n").collect::<String>();
    let builder = TopologyBuilder::new().from_xml(&xml).unwrap();
    let builder = builder.with_type_filter(ObjectType::PCIDevice, TypeFilter::KeepAll).unwrap();
    builder.build().unwrap()
}

fn all(topology: &Topology) -> CpuSet {
    topology.cpuset().clone_target()
}

fn cpu_set(cpus: &[usize]) -> CpuSet {
    cpus.iter().map(|&cpu| BitmapIndex::try_from(cpu).unwrap()).collect()
}

fn auto(topology: &Topology, allowed: &CpuSet, device: Option<&str>, worker_count: usize) -> Placement {
    place_on(topology, allowed, &PinPolicy::Auto, &vec![device; worker_count])
}

#[test]
fn policies_parse() {
    assert_eq!("auto".parse(), Ok(PinPolicy::Auto));
    assert_eq!(" none ".parse(), Ok(PinPolicy::None));
    assert_eq!("0,2-5".parse(), Ok(PinPolicy::List(vec![0, 2, 3, 4, 5])));
    assert_eq!("7, 1".parse(), Ok(PinPolicy::List(vec![7, 1])));
    for (bad, word) in [
        ("", "not a CPU number"),
        ("fast", "not a CPU number"),
        ("1,,2", "not a CPU number"),
        ("-1", "not a CPU number"),
        ("5-2", "backwards"),
        ("0-99999999999", "above 8191"),
        ("0-99999999999999999999999", "not a CPU number"),
    ] {
        let error = bad.parse::<PinPolicy>().unwrap_err();
        assert!(error.to_string().contains(word), "{bad}: {error}");
    }
    for text in ["auto", "none", "0,2-5,9,8"] {
        assert_eq!(text.parse::<PinPolicy>().unwrap().to_string(), text);
    }
}

#[test]
fn every_core_gets_one_worker_before_any_gets_two() {
    let topology = synthetic(TWO_PACKAGES);
    let placement = auto(&topology, &all(&topology), None, 10);
    let cores: Vec<usize> = placement.cores.iter().map(|core| core.unwrap()).collect();
    assert_eq!(cores, [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]);
    assert!(
        placement.description.starts_with("pinned 10 workers to CPUs 0-4,6,8,10,12,14,"),
        "{}",
        placement.description
    );
}

#[test]
fn two_workers_a_core_are_not_pinned() {
    let topology = synthetic(TWO_PACKAGES);
    assert!(auto(&topology, &all(&topology), None, 15).cores.iter().all(Option::is_some));
    let crowded = auto(&topology, &all(&topology), None, 16);
    assert_eq!(crowded.cores, vec![None; 16]);
    assert_eq!(crowded.description, "workers not pinned: 16 workers on 8 available cores");
}

#[test]
fn workers_beyond_the_units_are_left_alone() {
    let topology = synthetic("numa:1 core:4 pu:1");
    let placement = auto(&topology, &all(&topology), None, 6);
    assert_eq!(placement.cores, [Some(0), Some(1), Some(2), Some(3), None, None]);
    assert!(placement.description.ends_with("; 2 more left to the scheduler"), "{}", placement.description);
}

#[test]
fn the_affinity_mask_bounds_the_choice() {
    let topology = synthetic(TWO_PACKAGES);
    // Core 1 (CPUs 2, 3), half of core 2 (CPU 5).
    let allowed = cpu_set(&[2, 3, 5]);
    assert_eq!(auto(&topology, &allowed, None, 3).cores, [Some(2), Some(5), Some(3)]);
    // Two cores are available, whatever the machine has.
    assert_eq!(auto(&topology, &allowed, None, 4).cores, vec![None; 4]);
    assert_eq!(auto(&topology, &CpuSet::new(), None, 1).cores, [None]);
}

#[test]
fn cores_near_the_device_come_first() {
    let topology = with_device();
    let near = auto(&topology, &all(&topology), Some("0000:c1:00.0"), 2);
    assert_eq!(near.cores, [Some(2), Some(3)]);
    assert_eq!(near.description, "pinned 2 workers to CPUs 2-3, near device 0000:c1:00.0");
    let more = auto(&topology, &all(&topology), Some("0000:c1:00.0"), 3);
    assert_eq!(more.cores, [Some(2), Some(3), Some(0)]);
    assert_eq!(more.description, "pinned 3 workers to CPUs 0,2-3, near device 0000:c1:00.0 but for 1");
}

#[test]
fn a_device_that_is_not_found_is_said_to_be_so() {
    let topology = with_device();
    for id in ["0000:aa:00.0", "nonsense", ""] {
        let placement = auto(&topology, &all(&topology), Some(id), 2);
        assert_eq!(placement.cores, [Some(0), Some(1)]);
        assert!(placement.description.ends_with("is not in the topology"), "{}", placement.description);
    }
}

#[test]
fn a_list_is_followed_in_its_order() {
    let topology = synthetic(TWO_PACKAGES);
    let policy = PinPolicy::List(vec![7, 2, 99]);
    let placement = place_on(&topology, &all(&topology), &policy, &[None; 4]);
    assert_eq!(placement.cores, [Some(7), Some(2), Some(7), Some(2)]);
    assert_eq!(placement.description, "pinned 4 workers to CPUs 2,7 as told; this process may not use CPUs 99");
    let nowhere = place_on(&topology, &cpu_set(&[0]), &PinPolicy::List(vec![3]), &[None; 2]);
    assert_eq!(nowhere.cores, [None, None]);
}

#[test]
fn this_machine_lets_a_thread_be_pinned_where_it_was_placed() {
    let placement = place(&PinPolicy::Auto, &[None]);
    assert_eq!(placement.cores.len(), 1, "{}", placement.description);
    // A machine that shows nothing leaves nothing to check.
    let Some(core) = placement.cores[0] else { return };
    let running_on = std::thread::spawn(move || {
        bind_current_thread(core).unwrap();
        let topology = machine().unwrap();
        topology.cpu_binding(CpuBindingFlags::THREAD).unwrap()
    });
    assert_eq!(running_on.join().unwrap(), cpu_set(&[core]));
    assert!(bind_current_thread(MAX_CPU).is_err());
    assert_eq!(place(&PinPolicy::None, &[None; 3]).cores, vec![None; 3]);
}

#[test]
fn the_memory_node_is_the_devices_own_where_there_is_a_choice() {
    let topology = with_device();
    assert_eq!(memory_node_on(&topology, "0000:c1:00.0"), Ok(1));
    assert_eq!(memory_node_on(&topology, "0000:aa:00.0"), Err("the device is not in the topology"));
    assert_eq!(memory_node_on(&synthetic("pack:1 core:4 pu:1"), "0000:c1:00.0"), Err("the machine has one NUMA node"));
}

#[test]
fn each_worker_is_near_the_device_that_it_works_on() {
    let topology = with_device();
    let (first, second) = (Some("0000:41:00.0"), Some("0000:c1:00.0"));
    let place = |near: &[Option<&str>]| place_on(&topology, &all(&topology), &PinPolicy::Auto, near);
    let placement = place(&[first, second, first, second]);
    assert_eq!(placement.cores, [Some(0), Some(2), Some(1), Some(3)]);
    assert!(placement.description.ends_with("each near its device (0000:41:00.0, 0000:c1:00.0)"), "{placement:?}");
    // The third of the first device has to go far, but not to where the second's own worker wants to be.
    let placement = place(&[first, first, first, second]);
    assert_eq!(placement.cores, [Some(0), Some(1), Some(3), Some(2)]);
    assert!(placement.description.ends_with(" but for 1"), "{placement:?}");
    let placement = place(&[first, Some("0000:99:00.0")]);
    assert!(placement.description.contains("device 0000:99:00.0 is not in the topology"), "{placement:?}");
}

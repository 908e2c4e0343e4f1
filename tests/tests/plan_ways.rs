//! A plan is the same on however many threads it is made: to the last wait, word and slot.

use std::sync::Arc;

use hrr_format::archive::Archive;
use hrr_replay::OrderMode;
use hrr_replay::machine::runtime::Runtime;
use hrr_replay::measure::{Hands, plan_listing};
use hrr_tests::built;
use hrr_tests::random_program::{Step, program};
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::soak;
use hrr_tests::workload::Workload;

const ORDERS: [OrderMode; 3] = [OrderMode::Capture, OrderMode::Deps, OrderMode::Program];
/// Values of `--threads`.
const THREADS: [usize; 4] = [0, 1, 2, 3];

fn runtime() -> Arc<Runtime> {
    Arc::new(Runtime::load(Some(&built::runtime())).expect("minihip was built"))
}

/// Where two texts differ first, which says more than the texts.
fn same(one: &str, other: &str, what: &str) {
    let differs = one.lines().zip(other.lines()).enumerate().find(|(_, (one, other))| one != other);
    assert!(differs.is_none() && one.len() == other.len(), "{what}: {differs:?}");
}

fn every_way(workload: &Workload, runtime: &Arc<Runtime>) {
    let recording = record(workload, Contents::Recorded);
    let archive = Archive::open(&recording.archive).expect("a recording opens");
    for order in ORDERS {
        for threads in THREADS {
            let listing = |hands| {
                let listed = plan_listing(&archive, runtime, threads, order, hands);
                listed.unwrap_or_else(|error| panic!("{}: {error}", workload.name))
            };
            let what = format!("{} --threads {threads} --order {}", workload.name, order.as_str());
            same(&listing(Hands::One), &listing(Hands::Several), &what);
        }
    }
}

#[test]
fn plans_of_workloads_are_the_same_on_one_thread_and_on_several() {
    let runtime = runtime();
    for name in
        ["threads8", "producer_consumer", "graph_capture", "thread_churn", "two_devices", "contexts", "host_memory"]
    {
        every_way(&Workload::listed(name), &runtime);
    }
}

#[test]
fn plans_of_random_programs_are_the_same_on_one_thread_and_on_several() {
    let runtime = runtime();
    let scratch = Scratch::new("plan_ways");
    let mut state = soak::seed("plan ways", 0) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut text = String::new();
    for _ in 0..24 {
        let threads = 1 + usize::from(draw()) % 6;
        let steps: Vec<Step> = (0..40)
            .map(|_| Step { thread: draw(), kind: draw(), first: draw(), second: draw(), way: draw() })
            .collect();
        text += &program(threads, &steps);
    }
    let file = scratch.path().join("programs.txt");
    std::fs::write(&file, text).expect("a scratch folder can be written to");
    let file = file.to_str().expect("scratch paths are UTF-8");
    every_way(&Workload::new("random_program", &[file]), &runtime);
}

//! Stream capture and graphs of the built runtime.

mod common;

use common::{Handle, Hip, hip};
use std::ptr::null_mut;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn end(hip: &Hip, stream: Handle) -> (i32, Handle) {
    let mut graph = 0;
    let code = hip.hipStreamEndCapture(stream, &mut graph);
    (code, graph)
}

fn status(hip: &Hip, stream: Handle) -> i32 {
    let mut status = -1;
    assert_eq!(hip.hipStreamIsCapturing(stream, &mut status), 0);
    status
}

#[test]
fn a_captured_fork_runs_at_launch_with_its_edges() {
    let (hip, _alone) = hip();
    let (main, side, fork, join) = (hip.stream(1), hip.stream(1), hip.event(), hip.event());
    let module = hip.module();
    let (add, data) = (hip.function(module, "add"), hip.device(256));
    assert_eq!(hip.hipMemset(data, 0, 256), 0);
    assert_eq!(hip.hipDeviceSynchronize(), 0);
    let mut host = 0;
    assert_eq!(hip.hipHostMalloc(&mut host, 64, 0), 0);
    // SAFETY: pinned memory of this size.
    let host_words = unsafe { std::slice::from_raw_parts_mut(host as *mut u32, 16) };

    assert_eq!(hip.hipStreamBeginCapture(main, THREAD_LOCAL), 0);
    assert_eq!(hip.hipMemcpyAsync(data, host, 64, 1, main), 0);
    assert_eq!(hip.hipEventRecord(fork, main), 0);
    assert_eq!(hip.hipStreamWaitEvent(side, fork, 0), 0);
    assert_eq!(status(hip, side), 1, "the side stream joined");
    assert_eq!(hip.add(add, data, 100, 8, side), 0);
    assert_eq!(hip.add(add, data + 32, 200, 8, main), 0);
    assert_eq!(hip.hipEventRecord(join, side), 0);
    assert_eq!(hip.hipEventQuery(join), 907);
    assert_eq!(hip.hipStreamWaitEvent(main, join, 0), 0);
    assert_eq!(hip.hipMemcpyAsync(host, data, 64, 2, main), 0);
    let (code, graph) = end(hip, main);
    assert_eq!((code, status(hip, main), status(hip, side)), (0, 0, 0));

    let (mut nodes, mut edges) = (0, 0);
    assert_eq!(hip.hipGraphGetNodes(graph, null_mut(), &mut nodes), 0);
    assert_eq!(hip.hipGraphGetEdges(graph, null_mut(), null_mut(), &mut edges), 0);
    assert_eq!((nodes, edges), (4, 4));
    let mut exec = 0;
    assert_eq!(hip.hipGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0), 0);
    assert_eq!(hip.hipGraphDestroy(graph), 0);
    for round in 0..20 {
        host_words.fill(round);
        let stream = [main, side, 0][round as usize % 3];
        assert_eq!(hip.hipGraphLaunch(exec, stream), 0);
        assert_eq!(hip.hipStreamSynchronize(stream), 0);
        assert_eq!(host_words, [[round + 100; 8], [round + 200; 8]].concat());
    }
    assert_eq!(hip.hipGraphExecDestroy(exec), 0);
    assert_eq!(hip.hipGraphLaunch(exec, main), 1);
    for stream in [main, side] {
        assert_eq!(hip.hipStreamDestroy(stream), 0);
    }
    assert_eq!((hip.hipHostFree(host), hip.hipFree(data), hip.hipModuleUnload(module)), (0, 0, 0));
}

#[test]
fn launches_of_one_executable_never_overlap() {
    let (hip, _alone) = hip();
    let (first, second, gate) = (hip.stream(1), hip.stream(1), hip.gate());
    let (mut graph, mut node, mut exec) = (0, 0, 0);
    assert_eq!(hip.hipGraphCreate(&mut graph, 0), 0);
    assert_eq!(hip.hipGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0), 0);
    assert_eq!(hip.hipGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0), 0);
    gate.close(first);
    assert_eq!(hip.hipGraphLaunch(exec, first), 0);
    assert_eq!(hip.hipGraphLaunch(exec, second), 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(hip.hipStreamQuery(second), 600);
    gate.open();
    assert_eq!(hip.hipStreamSynchronize(second), 0);
    drop(gate);
    assert_eq!((hip.hipGraphExecDestroy(exec), hip.hipGraphDestroy(graph)), (0, 0));
    assert_eq!((hip.hipStreamDestroy(first), hip.hipStreamDestroy(second)), (0, 0));
}

#[test]
fn new_parameters_reach_later_launches_only() {
    let (hip, _alone) = hip();
    let (stream, gate) = (hip.stream(1), hip.gate());
    let (from, to) = (hip.device(8), hip.device(8));
    assert_eq!(hip.hipMemset(from, 1, 4), 0);
    assert_eq!(hip.hipMemset(from + 4, 2, 4), 0);
    assert_eq!(hip.hipMemset(to, 0, 8), 0);
    assert_eq!(hip.hipDeviceSynchronize(), 0);
    let (mut graph, mut node, mut exec) = (0, 0, 0);
    assert_eq!(hip.hipGraphCreate(&mut graph, 0), 0);
    assert_eq!(hip.hipGraphAddMemcpyNode1D(&mut node, graph, std::ptr::null(), 0, to, from, 4, 3), 0);
    assert_eq!(hip.hipGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0), 0);
    gate.close(stream);
    assert_eq!(hip.hipGraphLaunch(exec, stream), 0);
    assert_eq!(hip.hipGraphExecMemcpyNodeSetParams1D(exec, node, to + 4, from + 4, 4, 3), 0);
    assert_eq!(hip.hipGraphExecMemcpyNodeSetParams1D(exec, node, to + 4, from + 4, 5, 3), 1, "out of bounds");
    assert_eq!(hip.hipGraphLaunch(exec, stream), 0);
    gate.open();
    assert_eq!(hip.hipStreamSynchronize(stream), 0);
    assert_eq!(hip.words(to, 2), [0x0101_0101, 0x0202_0202]);
    drop(gate);
    assert_eq!((hip.hipGraphExecDestroy(exec), hip.hipGraphDestroy(graph), hip.hipStreamDestroy(stream)), (0, 0, 0));
}

#[test]
fn what_a_capture_does_not_allow() {
    let (hip, _alone) = hip();
    let (first, second, blocking, event) = (hip.stream(1), hip.stream(1), hip.stream(0), hip.event());
    let data = hip.device(64);
    let mut out = 0;

    assert_eq!(hip.hipStreamBeginCapture(0, GLOBAL), 900, "the legacy stream cannot be captured");
    assert_eq!(end(hip, first).0, 401, "not capturing");

    // A potentially unsafe call spoils a global capture, from any thread that has not asked for relaxed mode.
    assert_eq!(hip.hipStreamBeginCapture(first, GLOBAL), 0);
    assert_eq!(hip.hipStreamBeginCapture(first, GLOBAL), 401, "twice");
    std::thread::scope(|scope| {
        let codes = scope.spawn(|| {
            let (mut mode, mut memory) = (RELAXED, 0);
            assert_eq!(hip.hipThreadExchangeStreamCaptureMode(&mut mode), 0);
            assert_eq!(mode, GLOBAL);
            let relaxed = hip.hipMalloc(&mut memory, 16);
            assert_eq!(hip.hipFree(memory), 0);
            assert_eq!(hip.hipThreadExchangeStreamCaptureMode(&mut mode), 0);
            (relaxed, hip.hipMalloc(&mut memory, 16))
        });
        assert_eq!(codes.join().expect("no panic"), (0, 900));
    });
    assert_eq!(status(hip, first), 2);
    assert_eq!(hip.hipMemsetAsync(data, 0, 4, first), 901);
    assert_eq!(end(hip, first), (901, 0));
    assert_eq!(status(hip, first), 0);

    // A thread-local one only minds its own thread.
    assert_eq!(hip.hipStreamBeginCapture(first, THREAD_LOCAL), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut memory = 0;
            assert_eq!(hip.hipMalloc(&mut memory, 16), 0);
            assert_eq!(hip.hipFree(memory), 0);
            assert_eq!(end(hip, first).0, 908, "begun by another thread");
        });
    });
    assert_eq!(status(hip, first), 1);
    assert_eq!(hip.hipMalloc(&mut out, 16), 900);
    assert_eq!(end(hip, first).0, 901);

    // Waiting on the captured stream itself.
    assert_eq!(hip.hipStreamBeginCapture(first, RELAXED), 0);
    assert_eq!(hip.hipStreamSynchronize(first), 900);
    assert_eq!(end(hip, first).0, 901);

    // A branch that never came back.
    assert_eq!(hip.hipStreamBeginCapture(first, RELAXED), 0);
    assert_eq!(hip.hipEventRecord(event, first), 0);
    assert_eq!(hip.hipStreamWaitEvent(second, event, 0), 0);
    assert_eq!(hip.hipMemsetAsync(data, 0, 4, second), 0);
    assert_eq!(end(hip, second).0, 903, "not where it began");
    assert_eq!(end(hip, first).0, 901);
    assert_eq!(hip.hipStreamBeginCapture(first, RELAXED), 0);
    assert_eq!(hip.hipEventRecord(event, first), 0);
    assert_eq!(hip.hipStreamWaitEvent(second, event, 0), 0);
    assert_eq!(hip.hipMemsetAsync(data, 0, 4, second), 0);
    assert_eq!(end(hip, first), (904, 0));
    assert_eq!(status(hip, second), 0);

    // Work outside, and two captures that meet.
    assert_eq!(hip.hipEventRecord(event, second), 0);
    assert_eq!(hip.hipStreamBeginCapture(first, RELAXED), 0);
    assert_eq!(hip.hipStreamWaitEvent(first, event, 0), 905);
    assert_eq!(end(hip, first).0, 901);
    assert_eq!(hip.hipStreamBeginCapture(first, RELAXED), 0);
    assert_eq!(hip.hipStreamBeginCapture(second, RELAXED), 0);
    assert_eq!(hip.hipEventRecord(event, first), 0);
    assert_eq!(hip.hipStreamWaitEvent(second, event, 0), 902);
    assert_eq!((end(hip, first).0, end(hip, second).0), (901, 901));

    // The legacy stream would have to wait for a capturing blocking stream.
    assert_eq!(hip.hipStreamBeginCapture(blocking, RELAXED), 0);
    assert_eq!(hip.hipMemsetAsync(data, 0, 4, 0), 906);
    assert_eq!(end(hip, blocking).0, 901);
    assert_eq!(hip.hipMemsetAsync(data, 0, 4, 0), 0);

    for stream in [first, second, blocking] {
        assert_eq!(hip.hipStreamDestroy(stream), 0);
    }
    assert_eq!((hip.hipEventDestroy(event), hip.hipFree(data)), (0, 0));
    hip.hipGetLastError();
}

//! Stream capture: the driver's modes and states are numbered as HIP's.

use super::cuda_api;
use super::driver::{self as cu, got};
use super::handles::{on, spt};
use crate::api::{In, Out};
use crate::error::{HipError, HipResult};

fn begin(stream: usize, mode: i32) -> HipResult {
    if !(0..=2).contains(&mode) {
        return Err(HipError::INVALID_VALUE);
    }
    on(stream, |stream| cu::stream_begin_capture(stream, mode))
}

fn end(stream: usize, out: Out<usize>) -> HipResult {
    out.check()?;
    let mut graph = 0;
    let result = on(stream, |stream| cu::stream_end_capture(stream, &mut graph));
    out.set(graph)?;
    result
}

fn status(stream: usize, out: Out<i32>) -> HipResult {
    out.check()?;
    out.set(on(stream, |stream| got(|status| cu::stream_is_capturing(stream, status)))?)
}

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: i32 = 1;

fn info(
    stream: usize,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> HipResult {
    status.check()?;
    let (mut status_now, mut id_now, mut graph_now, mut dependencies_now, mut count_now) = (0, 0, 0, 0, 0);
    on(stream, |stream| {
        cu::stream_get_capture_info(
            stream,
            &mut status_now,
            &mut id_now,
            &mut graph_now,
            &mut dependencies_now,
            &mut count_now,
        )
    })?;
    if status_now == ACTIVE {
        id.set_if_given(id_now);
        graph.set_if_given(graph_now);
        dependencies.set_if_given(dependencies_now);
        count.set_if_given(count_now);
    }
    status.set(status_now)
}

/// No place for a result the spelling does not have.
fn none() -> Out<usize> {
    crate::api::out_at(0)
}

cuda_api! {
    fn hipStreamBeginCapture(stream: usize, mode: i32) { begin(stream, mode) }
    fn hipStreamBeginCapture_spt(stream: usize, mode: i32) { begin(spt(stream), mode) }
    fn hipStreamBeginCaptureToGraph(stream: usize, graph: usize, dependencies: In<usize>, edge_data: usize, count: usize, mode: i32) {
        on(stream, |stream| cu::stream_begin_capture_to_graph(stream, graph, dependencies.address(), edge_data, count, mode))
    }
    fn hipStreamEndCapture(stream: usize, graph: Out<usize>) { end(stream, graph) }
    fn hipStreamEndCapture_spt(stream: usize, graph: Out<usize>) { end(spt(stream), graph) }
    fn hipStreamIsCapturing(stream: usize, out: Out<i32>) { status(stream, out) }
    fn hipStreamIsCapturing_spt(stream: usize, out: Out<i32>) { status(spt(stream), out) }
    fn hipStreamGetCaptureInfo(stream: usize, status: Out<i32>, id: Out<u64>) { info(stream, status, id, none(), none(), none()) }
    fn hipStreamGetCaptureInfo_spt(stream: usize, status: Out<i32>, id: Out<u64>) { info(spt(stream), status, id, none(), none(), none()) }
    fn hipStreamGetCaptureInfo_v2(stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, count: Out<usize>) {
        info(stream, status, id, graph, dependencies, count)
    }
    fn hipStreamGetCaptureInfo_v2_spt(stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, count: Out<usize>) {
        info(spt(stream), status, id, graph, dependencies, count)
    }
    fn hipStreamUpdateCaptureDependencies(stream: usize, dependencies: In<usize>, count: usize, flags: u32) {
        on(stream, |stream| cu::stream_update_capture_dependencies(stream, dependencies.address(), count, flags))
    }
    fn hipThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        let mut exchanged = mode.read()?;
        cu::thread_exchange_stream_capture_mode(&mut exchanged)?;
        mode.set(exchanged)
    }
}

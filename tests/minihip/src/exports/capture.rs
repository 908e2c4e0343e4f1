//! Stream capture.

use crate::api::{In, Out, hip_api};
use crate::capture::{self, CaptureMode, Replace};
use crate::error::{HipError, HipResult};
use crate::stream::{self, DefaultStream};
use crate::thread_state;
use DefaultStream::{Legacy, PerThread};

fn begin(handle: usize, mode: i32, null: DefaultStream) -> HipResult {
    let mode = CaptureMode::from_raw(mode)?;
    capture::begin(&stream::resolve(handle, null)?, mode, None)
}

fn end(handle: usize, out: Out<usize>, null: DefaultStream) -> HipResult {
    out.check()?;
    match capture::end(&stream::resolve(handle, null)?) {
        Ok(graph) => out.set(graph),
        Err(error) => {
            out.set(0)?;
            Err(error)
        }
    }
}

fn status(handle: usize, out: Out<i32>, null: DefaultStream) -> HipResult {
    out.set(capture::info(&*stream::resolve(handle, null)?).status)
}

fn info(handle: usize, status: Out<i32>, id: Out<u64>, null: DefaultStream) -> HipResult {
    status.check()?;
    let info = capture::info(&*stream::resolve(handle, null)?);
    if info.status == 1 {
        id.set_if_given(info.id);
    }
    status.set(info.status)
}

fn info_v2(
    handle: usize,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    count: Out<usize>,
    null: DefaultStream,
) -> HipResult {
    status.check()?;
    let info = capture::info(&*stream::resolve(handle, null)?);
    if info.status == 1 {
        id.set_if_given(info.id);
        graph.set_if_given(info.graph);
        dependencies.set_if_given(info.dependencies);
        count.set_if_given(info.dependency_count);
    }
    status.set(info.status)
}

hip_api! {
    fn hipStreamBeginCapture(stream: usize, mode: i32) { begin(stream, mode, Legacy) }
    fn hipStreamBeginCapture_spt(stream: usize, mode: i32) { begin(stream, mode, PerThread) }
    fn hipStreamBeginCaptureToGraph(stream: usize, graph: usize, dependencies: In<usize>, _edge_data: usize, count: usize, mode: i32) {
        let mode = CaptureMode::from_raw(mode)?;
        let tips = dependencies.array(count)?;
        capture::begin(&stream::resolve(stream, Legacy)?, mode, Some((graph, tips)))
    }
    fn hipStreamEndCapture(stream: usize, graph: Out<usize>) { end(stream, graph, Legacy) }
    fn hipStreamEndCapture_spt(stream: usize, graph: Out<usize>) { end(stream, graph, PerThread) }
    fn hipStreamIsCapturing(stream: usize, out: Out<i32>) { status(stream, out, Legacy) }
    fn hipStreamIsCapturing_spt(stream: usize, out: Out<i32>) { status(stream, out, PerThread) }
    fn hipStreamGetCaptureInfo(stream: usize, status: Out<i32>, id: Out<u64>) { info(stream, status, id, Legacy) }
    fn hipStreamGetCaptureInfo_spt(stream: usize, status: Out<i32>, id: Out<u64>) { info(stream, status, id, PerThread) }
    fn hipStreamGetCaptureInfo_v2(stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, count: Out<usize>) {
        info_v2(stream, status, id, graph, dependencies, count, Legacy)
    }
    fn hipStreamGetCaptureInfo_v2_spt(stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, count: Out<usize>) {
        info_v2(stream, status, id, graph, dependencies, count, PerThread)
    }
    fn hipStreamUpdateCaptureDependencies(stream: usize, dependencies: In<usize>, count: usize, flags: u32) {
        let replace = match flags {
            0 => Replace::No,
            1 => Replace::Yes,
            _ => return Err(HipError::INVALID_VALUE),
        };
        capture::update_dependencies(&*stream::resolve(stream, Legacy)?, &dependencies.array(count)?, replace)
    }
    fn hipThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        let wanted = CaptureMode::from_raw(mode.read()?)?;
        mode.set(thread_state::exchange_capture_mode(wanted as i32))
    }
}

//! What a call has to do with others: results that it makes visible, and host memory that devices use directly.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hrr_format::catalogue::{Access, Effect, Role};
use hrr_format::record::{HEADER_BYTES, marker, offset};

use super::records::{reserve, write_head};
use super::{Call, Scratch};
use crate::contents::graph_copies::{self, GraphCopy};
use crate::contents::host_memory::{self, HostMemory, InCall, Look, Recording};
use crate::contents::memory::Trust;
use crate::contents::pending_results::{self, Observed, Waited, Writer};
use crate::contents::region::Region;
use crate::guest::unnoticed::Unnoticed;
use crate::hooks::{GraphHook, Hook, HookCall};
use crate::plan::{Inputs, OrderRole, Plan, Route};
use crate::sections::{Draft, Transfers};
use crate::writer::ThreadStream;
use crate::{clock, launch, process, runtime};

/// Whether what is done around a call may come to a cancellation point, or change `errno`: with files, contents and the runtime. What
/// is recorded of other calls is gathered from memory alone, and they are spared the guard (11 ns, twice).
#[inline]
pub(super) fn reaches_out(plan: &Plan) -> bool {
    plan.hook != Hook::None || process::current().blobs().is_some() || graph_copies::capturing()
}

/// What follows a call whose record is complete: handles and memory it gave out are remembered, results that it made
/// visible are snapshotted.
#[cold]
pub(super) unsafe fn after_call(stream: &ThreadStream, call: &Call, code: i32, raw: u64) {
    let _unnoticed = reaches_out(call.plan).then(Unnoticed::new);
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the contract of `leave`.
        unsafe { follow_up(stream, call, code, raw) }
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred after {} had returned", call.plan.api.name));
    }
}

unsafe fn follow_up(stream: &ThreadStream, call: &Call, code: i32, raw: u64) {
    let process = process::current();
    let plan = call.plan;
    // SAFETY: the record has as many words as the plan says.
    let words = unsafe {
        std::slice::from_raw_parts(call.record.add(HEADER_BYTES).cast::<u64>().cast_const(), usize::from(plan.words))
    };
    let hook_call = HookCall { process, plan, words };
    let mut waited = None;
    if plan.route == Route::General {
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let transfers = unsafe { &mut stream.scratch().transfers };
        // SAFETY: by the contract of `leave`.
        unsafe { hook_call.at_return(transfers, code, raw) };
        if code == 0 {
            if let Some(capture) = transfers.capture.filter(|_| !transfers.graph_copies.is_empty()) {
                process.graphs().capture(capture, &transfers.graph_copies);
            }
            let Some(writer) = process.blobs() else { return };
            if plan.api.effect == Effect::BlockCopy {
                for result in &transfers.results {
                    process.pending().drop_overlapping(&result.region);
                    // SAFETY: the copy has returned, so the runtime has written all of the memory.
                    let read = unsafe { writer.add(writer.blobs, result.number, &result.region, Trust::Readable) };
                    if read {
                        // SAFETY: the caller is the stream's owner.
                        unsafe { write_observed(stream, call.stream, result.number) };
                    }
                }
            } else if !transfers.results.is_empty() && super::runtime() == 0 {
                let writer = if plan.hook == Hook::Graph(GraphHook::Launch) { Writer::Graph } else { Writer::Copy };
                process.pending().add(&transfers.results, hook_call.stream(), writer);
                // A copy to pageable memory may have waited for its end, as CUDA's documentation says of the like. The program
                // may then read, and change, the memory at once.
                let pageable = transfers.results.iter().any(|result| result.trust == Trust::Doubtful);
                waited = if pageable { Some(Waited::Stream(hook_call.stream())) } else { None };
            }
        }
    }
    // Pending results are those of the first runtime, whose events stand behind them: a second one's are never observed.
    let Some(writer) = process.blobs().filter(|_| code == 0 && pending_results::any() && super::runtime() == 0) else {
        return;
    };
    let pending = process.pending();
    match plan.order {
        OrderRole::None => {}
        // It is a node of a graph, and orders nothing until that is launched.
        OrderRole::Record { .. } | OrderRole::Wait { .. } if hook_call.is_captured() => {}
        OrderRole::Record { event_word } => {
            pending.event_recorded(hook_call.word(event_word.into()), hook_call.stream())
        }
        OrderRole::Wait { event_word } => pending.stream_waits(hook_call.stream(), hook_call.word(event_word.into())),
        OrderRole::Observe => waited = Some(hook_call.waited()),
    }
    if let Some(waited) = waited {
        for Observed { number, contents } in pending.observe(waited, call.sequence, writer) {
            if let Some(contents) = contents {
                writer.submit(writer.blobs, number, contents);
            }
            // SAFETY: the caller is the stream's owner.
            unsafe { write_observed(stream, call.stream, number) };
        }
    }
}

/// Remembers what a call that waits covers of the work that uses host memory directly.
#[cold]
pub(super) unsafe fn before_wait(stream: &ThreadStream, plan: &'static Plan, words: &[u64]) {
    if plan.order != OrderRole::Observe || plan.api.effect == Effect::Query || !host_memory::in_flight() {
        return;
    }
    let _unnoticed = Unnoticed::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let process = process::current();
        let Some(memory) = process.host_memory() else { return };
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let in_call = unsafe { &mut stream.scratch().in_call };
        // With several threads, another one may write to the memory while this one waits.
        let look = if process.thread_count() == 1 { Look::Now } else { Look::Never };
        memory.before_wait(HookCall { process, plan, words }.waited(), look, in_call);
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred before {} waited", plan.api.name));
    }
}

/// Records what the host stored in memory that a launch, a fill, or a wait for a value is given addresses in, or that it becomes part
/// of a graph. `draft` has a launch's arguments.
#[cold]
pub(super) unsafe fn before_launch(stream: &ThreadStream, plan: &'static Plan, words: &[u64], draft: Option<&Draft>) {
    let is_device = |role: &Role| matches!(role, Role::Device(..));
    let enqueues = matches!(plan.api.effect, Effect::Enqueue | Effect::BlockCopy);
    let value = if enqueues { value_of(plan, words) } else { None };
    if draft.is_none() && value.is_none() && !(enqueues && plan.api.param_with(is_device).is_some()) {
        return;
    }
    let _unnoticed = Unnoticed::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller is the stream's owner and holds no reference to the scratch.
        let Scratch { transfers, in_call, .. } = unsafe { stream.scratch() };
        transfers.clear();
        match draft {
            // SAFETY: the launch's arguments are readable, by the contract of `enter`.
            Some(draft) => unsafe { launch::addresses(draft, &mut |address| transfers.addresses.push(address)) },
            None => {
                let device = plan.api.params.iter().filter(|param| is_device(&param.role));
                let addresses = device.map(|param| words[usize::from(param.word)]);
                transfers.addresses.extend(addresses.filter(|&address| host_memory::may_hold(address)));
            }
        }
        match value.filter(|&(address, _)| host_memory::may_hold(address)) {
            Some((address, Access::Read)) => in_call.looked_at.push(address),
            Some((address, _)) => transfers.addresses.push(address),
            None => {}
        }
        if transfers.addresses.is_empty() && in_call.looked_at.is_empty() && draft.is_none() {
            return;
        }
        let process = process::current();
        let hip_stream = HookCall { process, plan, words }.stream();
        let capture = if graph_copies::capturing() { runtime::capture_of(hip_stream) } else { None };
        if let Some(capture) = capture {
            in_call.looked_at.clear();
            let nodes: Vec<GraphCopy> = transfers.addresses.iter().map(|&address| GraphCopy::direct(address)).collect();
            process.graphs().capture(capture, &nodes);
        } else {
            // SAFETY: as for this function.
            unsafe { before_work(stream, plan, words, transfers, in_call) };
        }
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred before {}", plan.api.name));
    }
}

/// The address of the value that a stream is to wait for, or to write.
fn value_of(plan: &Plan, words: &[u64]) -> Option<(u64, Access)> {
    let is_value = ["hipStreamWaitValue", "hipStreamWriteValue"].iter().any(|name| plan.api.name.starts_with(name));
    let mut params = plan.api.params.iter().filter(|_| is_value);
    params.find_map(|param| match param.role {
        Role::Any(access, _) => Some((words[usize::from(param.word)], access)),
        _ => None,
    })
}

/// Records what the host stored in memory whose addresses the call's work is given.
pub(super) unsafe fn before_work(
    stream: &ThreadStream,
    plan: &'static Plan,
    words: &[u64],
    transfers: &mut Transfers,
    in_call: &mut InCall,
) {
    let process = process::current();
    let (Some(memory), Some(writer)) = (process.host_memory(), process.blobs()) else { return };
    let hip_stream = transfers.stream.unwrap_or_else(|| HookCall { process, plan, words }.stream());
    let recording = Recording { stream, writer };
    // As in `follow_up`.
    let results = Some(process.pending()).filter(|_| pending_results::any() && super::runtime() == 0);
    let write = |address: u64, hip_stream: u64| {
        if let Some(results) = results
            && let Some(region) = written(memory, plan, words, address)
        {
            results.before_work(&region, hip_stream, writer);
        }
    };
    if transfers.on_streams.len() > 1 {
        // A launch on several devices: each kernel is waited for by its own stream.
        let mut from = 0;
        for &(hip_stream, behind) in &transfers.on_streams {
            transfers.addresses[from..behind].iter().for_each(|&address| write(address, hip_stream));
            in_call.addresses.extend_from_slice(&transfers.addresses[from..behind]);
            from = behind;
            // SAFETY: the caller is the stream's owner, inside its call.
            unsafe { memory.before_work(&recording, hip_stream, in_call) };
        }
        transfers.addresses.clear();
        return;
    }
    transfers.addresses.iter().for_each(|&address| write(address, hip_stream));
    std::mem::swap(&mut in_call.addresses, &mut transfers.addresses);
    // SAFETY: the caller is the stream's owner, inside its call.
    unsafe { memory.before_work(&recording, hip_stream, in_call) };
    if plan.api.effect == Effect::Enqueue {
        for result in &transfers.results {
            memory.before_staged_copy(result.region.address, hip_stream, in_call);
        }
    }
}

/// The host memory that work may write which is given an address in it: a fill or a copy as much as the call says, anything else all
/// that lies behind the address.
fn written(memory: &HostMemory, plan: &Plan, words: &[u64], address: u64) -> Option<Region> {
    let rest = memory.rest_behind(address)?;
    let mut params = plan.api.params.iter().filter(|param| words[usize::from(param.word)] == address);
    let given = params.find_map(|param| match param.role {
        Role::Device(access, size) | Role::Host(access, size) | Role::Any(access, size) => Some((access, size)),
        _ => None,
    });
    match given {
        None => Some(rest),
        Some((Access::Write, size)) => {
            let inputs = Inputs { api: plan.api, words, structure: None };
            Some(Region::of_size(rest.address, &size, &inputs).unwrap_or(rest))
        }
        // What may do both only moves the memory.
        Some(_) => None,
    }
}

/// What follows a call that may have to do with host memory which devices use directly.
#[cold]
pub(super) unsafe fn after_use(stream: &ThreadStream, call: &Call, code: i32) {
    let _unnoticed = Unnoticed::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let (process, plan) = (process::current(), call.plan);
        let (Some(memory), Some(writer)) = (process.host_memory(), process.blobs()) else { return };
        // SAFETY: the record has as many words as the plan says, and the caller holds no reference to the scratch.
        let (words, in_call) = unsafe {
            let words = call.record.add(HEADER_BYTES).cast::<u64>().cast_const();
            (std::slice::from_raw_parts(words, usize::from(plan.words)), &mut stream.scratch().in_call)
        };
        memory.after_work(in_call, plan.api.effect, code == 0);
        let hook_call = HookCall { process, plan, words };
        match plan.order {
            _ if !host_memory::in_flight() || code != 0 => return in_call.give_up(),
            OrderRole::None => return,
            OrderRole::Record { .. } | OrderRole::Wait { .. } if hook_call.is_captured() => return,
            OrderRole::Record { event_word } => {
                return memory.event_recorded(hook_call.word(event_word.into()), hook_call.stream());
            }
            OrderRole::Wait { event_word } => {
                return memory.stream_waits(hook_call.stream(), hook_call.word(event_word.into()));
            }
            OrderRole::Observe if plan.api.effect == Effect::Query => {
                memory.before_wait(hook_call.waited(), Look::Never, in_call);
            }
            OrderRole::Observe => {}
        }
        // SAFETY: the caller is the stream's owner, whose record is complete.
        unsafe { memory.after_wait(&Recording { stream, writer }, in_call) };
    }));
    if done.is_err() {
        process::stop(format_args!("an internal error occurred after {} had returned", call.plan.api.name));
    }
}

/// Says in the stream that a result became visible with the call before.
unsafe fn write_observed(stream: &ThreadStream, this: *const ThreadStream, number: u64) {
    const WORDS: usize = 1;
    let need = HEADER_BYTES + WORDS * 8;
    // SAFETY: the caller is the stream's owner; the marker is written within `need` bytes.
    unsafe {
        let at = reserve(stream, this, need);
        if at.is_null() {
            return;
        }
        write_head(at, usize::from(marker::OBSERVED), &[number]);
        let tick = clock::tick();
        at.add(offset::FLAGS).write(0);
        at.add(offset::BEGIN).cast::<u64>().write(tick);
        at.add(offset::END).cast::<u64>().write(tick);
        stream.publish(at, need);
    }
}

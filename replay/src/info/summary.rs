//! One pass over an archive: what it holds, by thread, API and kernel.

use std::collections::{BTreeMap, HashMap, HashSet};

use hrr_format::archive::{Archive, ArchiveError};
use hrr_format::blob_store::BlobStore;
use hrr_format::catalogue::{Effect, HandleKind, Policy, Returns, Role};
use hrr_format::manifest::{Clock, Device, Imported, Runtime, Window};
use hrr_format::record::{BlobRef, Presence, Record, SectionTag, flag, marker};
use hrr_format::regions::{RegionKind, Regions};
use hrr_format::repair::being_recorded;
use hrr_format::stream_file::{ContentsMode, StreamFile};
use serde::Serialize;

use super::arguments::call_text;
use super::calls::microseconds;
use super::last_work::{self, StreamWork};
use super::memory::{self, Memory};

/// `hipErrorNotReady`: the answer of a query, not a failure.
const NOT_READY: i32 = 600;

/// What an archive holds. The names of the fields are the keys of the JSON that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) archive: String,
    pub(super) complete: bool,
    /// Whether the recording ended without closing its archive, and was repaired since.
    pub(super) repaired: bool,
    /// Why the recording ended before its process, where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
    /// Whether the process is still recording it.
    pub(super) being_recorded: bool,
    pub(super) contents: &'static str,
    pub(super) pid: u64,
    pub(super) parent_pid: u64,
    pub(super) command: Vec<String>,
    pub(super) capture_version: String,
    pub(super) events: u64,
    pub(super) failed_calls: u64,
    pub(super) calls_in_flight: u64,
    pub(super) duration_us: f64,
    pub(super) kernels: u64,
    pub(super) unsized_launches: u64,
    pub(super) blobs: StoreTotals,
    pub(super) code_objects: StoreTotals,
    pub(super) streams: StreamTotals,
    pub(super) memory: Memory,
    /// What another tool wrote down of the use of device memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) regions: Option<RegionTotals>,
    /// Calls that a replay refuses, by API and reason.
    pub(super) unreplayable: Vec<Unreplayable>,
    pub(super) unobserved_results: u64,
    pub(super) withheld: u64,
    pub(super) clock: Clock,
    pub(super) runtime: Runtime,
    pub(super) devices: Vec<Device>,
    pub(super) threads: Vec<ThreadTotals>,
    pub(super) apis: Vec<ApiTotals>,
    pub(super) kernel_launches: Vec<KernelTotals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) imported: Option<Imported>,
    /// What was recorded, where that is only a window of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<Window>,
    /// What a flight recorder kept, where the archive is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flight_recorder: Option<FlightRecorder>,
    /// The last work of the streams that calls in flight were about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) last_work: Vec<StreamWork>,
    pub(super) warnings: Vec<String>,
}

/// The last calls of each thread.
#[derive(Debug, Serialize)]
pub(super) struct FlightRecorder {
    /// Most bytes that they take.
    pub(super) size_bytes: u64,
    /// From when on every thread's calls are there, since the start of the capture.
    pub(super) complete_from_us: f64,
}

/// What a flight recorder kept.
fn flight_recorder(archive: &Archive) -> Option<FlightRecorder> {
    let size_bytes = archive.manifest().flight_recorder_bytes?;
    let wrapped = archive.streams().iter().filter(|stream| stream.has_come_round());
    let first = wrapped.filter_map(|stream| stream.records().next()).map(|record| record.begin()).max();
    let complete_from_us = first.map_or(0.0, |tick| microseconds(&archive.manifest().clock, tick));
    Some(FlightRecorder { size_bytes, complete_from_us })
}

/// What a store holds.
#[derive(Debug, Serialize)]
pub(super) struct StoreTotals {
    pub(super) numbers: u64,
    pub(super) distinct: u64,
    pub(super) distinct_bytes: u64,
    /// Bytes of all numbers, equal contents counted each time.
    pub(super) bytes: u64,
    /// `bytes` to `distinct_bytes`.
    pub(super) dedup_ratio: f64,
}

/// What region sidecars hold.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RegionTotals {
    pub(super) files: u64,
    pub(super) entries: u64,
    /// Entries that add a block.
    pub(super) blocks: u64,
    /// Entries that add a segment.
    pub(super) segments: u64,
}

/// The streams of the program.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct StreamTotals {
    /// Streams that calls created.
    pub(super) created: u64,
    /// Streams that calls worked on, default streams included.
    pub(super) used: u64,
}

/// Calls of one API that a replay refuses for one reason.
#[derive(Debug, Serialize)]
pub(super) struct Unreplayable {
    pub(super) api: String,
    pub(super) calls: u64,
    pub(super) reason: String,
}

/// The calls of a thread.
#[derive(Debug, Serialize)]
pub(super) struct ThreadTotals {
    pub(super) thread: u32,
    pub(super) tid: u64,
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    /// Entry of the first call, since the start of the capture.
    pub(super) first_us: Option<f64>,
    /// Return of the last call that returned, or entry of a later one that did not.
    pub(super) last_us: Option<f64>,
    pub(super) in_flight: Option<InFlight>,
}

/// A call that had not returned when the archive ended.
#[derive(Debug, Serialize)]
pub(super) struct InFlight {
    pub(super) api: String,
    pub(super) call: String,
    /// Entry, since the start of the capture.
    pub(super) since_us: f64,
    /// From its entry to the last sign of life of the process: the call took at least this long.
    pub(super) at_least_us: f64,
}

/// The calls of an API.
#[derive(Debug, Serialize)]
pub(super) struct ApiTotals {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    /// Time between entry and return, of the calls that returned.
    pub(super) total_us: f64,
    pub(super) mean_us: f64,
    pub(super) min_us: f64,
    pub(super) max_us: f64,
    /// Standard deviation.
    pub(super) deviation_us: f64,
}

/// The launches of a kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelTotals {
    pub(super) kernel: u32,
    pub(super) name: String,
    pub(super) code_object: Option<u64>,
    pub(super) launches: u64,
    /// Bytes of arguments over all launches.
    pub(super) argument_bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct ApiCounts {
    calls: u64,
    failed: u64,
    returned: u64,
    ticks: u64,
    squares: f64,
    min_ticks: u64,
    max_ticks: u64,
}

/// What is counted over all threads.
#[derive(Default)]
struct Counts {
    apis: HashMap<u16, ApiCounts>,
    /// Launches and bytes of arguments by kernel.
    launches: HashMap<u32, (u64, u64)>,
    streams_created: u64,
    /// By value: a value that was used again counts once.
    streams_used: HashSet<u64>,
    unreplayable: BTreeMap<(String, String), u64>,
    last_tick: u64,
    unobserved: u64,
    withheld: u64,
}

/// A call in flight, until the last tick of all threads is known.
struct Hanging {
    api: String,
    call: String,
    begin: u64,
}

impl Summary {
    /// Goes over an archive.
    pub(super) fn collect(archive: &Archive) -> Self {
        let manifest = archive.manifest();
        let clock = manifest.clock;
        let mut counts = Counts { last_tick: clock.tick_at_start, ..Counts::default() };
        let mut warnings: Vec<String> = archive.warnings().iter().map(ToString::to_string).collect();
        let mut threads = Vec::with_capacity(archive.streams().len());
        let mut hanging = Vec::with_capacity(archive.streams().len());
        for stream in archive.streams() {
            let (thread, in_flight) = thread(archive, stream, &mut counts, &mut warnings);
            threads.push(thread);
            hanging.push(in_flight);
        }
        // A process that hung made no more calls; its recorder saw it running all the same.
        let last_seen = counts.last_tick.max(archive.alive_tick().unwrap_or(0));
        for (thread, in_flight) in threads.iter_mut().zip(hanging) {
            thread.in_flight = in_flight.map(|Hanging { api, call, begin }| InFlight {
                api,
                call,
                since_us: microseconds(&clock, begin),
                at_least_us: clock.ticks_to_ns(last_seen.saturating_sub(begin)) as f64 / 1000.0,
            });
        }
        let hung = threads.iter().any(|thread| thread.in_flight.is_some());
        Summary {
            archive: archive.path().display().to_string(),
            complete: manifest.complete,
            repaired: archive.repaired().is_some(),
            stopped: manifest.stopped.clone(),
            being_recorded: !manifest.complete && !being_recorded(archive.path()).is_empty(),
            contents: archive.contents().as_str(),
            pid: manifest.pid,
            parent_pid: manifest.parent_pid,
            command: manifest.command.clone(),
            capture_version: manifest.capture_version.clone(),
            events: threads.iter().map(|thread| thread.calls).sum(),
            failed_calls: threads.iter().map(|thread| thread.failed_calls).sum(),
            calls_in_flight: threads.iter().filter(|thread| thread.in_flight.is_some()).count() as u64,
            duration_us: microseconds(&clock, counts.last_tick),
            kernels: archive.kernels().kernels().len() as u64,
            unsized_launches: manifest.unsized_launches,
            blobs: store_totals(archive.blobs()),
            code_objects: store_totals(archive.code_objects()),
            streams: StreamTotals { created: counts.streams_created, used: counts.streams_used.len() as u64 },
            memory: memory::collect(archive),
            regions: region_totals(archive.regions()),
            unreplayable: std::mem::take(&mut counts.unreplayable)
                .into_iter()
                .map(|((api, reason), calls)| Unreplayable { api, calls, reason })
                .collect(),
            unobserved_results: counts.unobserved,
            withheld: counts.withheld,
            clock,
            imported: manifest.imported.clone(),
            window: manifest.window.clone(),
            flight_recorder: flight_recorder(archive),
            runtime: manifest.runtime.clone(),
            devices: manifest.devices.clone(),
            apis: api_totals(archive, &counts),
            kernel_launches: kernel_totals(archive, &counts),
            last_work: if hung || manifest.flight_recorder_bytes.is_some() {
                last_work::collect(archive)
            } else {
                Vec::new()
            },
            threads,
            warnings,
        }
    }

    /// Whether contents were recorded.
    pub(super) fn has_contents(&self) -> bool {
        self.contents == ContentsMode::Contents.as_str()
    }
}

fn region_totals(regions: &Regions) -> Option<RegionTotals> {
    (regions.files() > 0).then(|| RegionTotals {
        files: regions.files(),
        entries: regions.entries().len() as u64,
        blocks: regions.added(RegionKind::Block),
        segments: regions.added(RegionKind::Segment),
    })
}

fn thread(
    archive: &Archive,
    stream: &StreamFile,
    counts: &mut Counts,
    warnings: &mut Vec<String>,
) -> (ThreadTotals, Option<Hanging>) {
    let clock = &archive.manifest().clock;
    let header = stream.header();
    let (mut calls, mut failed_calls) = (0, 0);
    let (mut first, mut last) = (None, None);
    let mut in_flight = None;
    let mut records = stream.records();
    for record in records.by_ref() {
        if record.api() >= marker::FIRST {
            continue;
        }
        let returned = !record.in_flight();
        let failed = returned && is_failure(archive, &record);
        calls += 1;
        failed_calls += u64::from(failed);
        first = first.or(Some(record.begin()));
        let tick = record.begin().max(record.end());
        last = last.max(Some(tick));
        counts.last_tick = counts.last_tick.max(tick);
        let api = counts.apis.entry(record.api()).or_default();
        api.calls += 1;
        api.failed += u64::from(failed);
        if returned {
            let ticks = record.end().saturating_sub(record.begin());
            api.returned += 1;
            api.ticks = api.ticks.saturating_add(ticks);
            api.squares += ticks as f64 * ticks as f64;
            api.min_ticks = if api.returned == 1 { ticks } else { api.min_ticks.min(ticks) };
            api.max_ticks = api.max_ticks.max(ticks);
        } else {
            in_flight = Some(Hanging {
                api: archive.api(record.api()).name.to_owned(),
                call: call_text(archive, &record),
                begin: record.begin(),
            });
        }
        if let Some(kernel) = record.kernel() {
            let (launches, bytes) = counts.launches.entry(kernel).or_default();
            *launches += 1;
            *bytes += record.section_tagged(SectionTag::KernelArgs).map_or(0, |args| args.payload.len() as u64);
        }
        count_streams(archive, &record, counts);
        if let Some(reason) = refusal(archive, &record) {
            let api = archive.api(record.api()).name.to_owned();
            *counts.unreplayable.entry((api, reason)).or_default() += 1;
        }
        count_contents(archive, &record, counts);
    }
    if let Some(damage) = records.damage() {
        let error = ArchiveError::Record { path: stream.path().to_owned(), damage: damage.clone() };
        warnings.push(error.to_string());
    }
    let totals = ThreadTotals {
        thread: header.thread,
        tid: header.tid,
        name: header.name.clone(),
        calls,
        failed_calls,
        first_us: first.map(|tick| microseconds(clock, tick)),
        last_us: last.map(|tick| microseconds(clock, tick)),
        in_flight: None,
    };
    (totals, in_flight)
}

fn count_streams(archive: &Archive, record: &Record<'_>, counts: &mut Counts) {
    let Some(api) = archive.row_of(record).filter(|_| record.ret() == 0) else { return };
    counts.streams_created += u64::from(api.param_with(|role| *role == Role::Create(HandleKind::Stream)).is_some());
    if !matches!(api.effect, Effect::Host) {
        let given = api.stream_param().map(|param| record.word(usize::from(api.params[param].word)));
        let works = api.effect == Effect::Enqueue || api.effect == Effect::BlockCopy;
        counts.streams_used.extend(given.or_else(|| works.then_some(0)));
    }
}

/// Why a replay refuses a call, as far as the call itself tells.
fn refusal(archive: &Archive, record: &Record<'_>) -> Option<String> {
    let Some(api) = archive.api(record.api()).known else {
        return Some("not known to this build".to_owned());
    };
    if usize::from(api.words) != record.word_count() {
        return Some(format!("recorded with {} argument words; this build has {}", record.word_count(), api.words));
    }
    if record.flags() & flag::REFUSED != 0 {
        return Some(record.note().unwrap_or("no reason is given").to_owned());
    }
    if record.in_flight() || record.ret() != 0 || record.flags() & flag::LEFT_OUT != 0 {
        return None;
    }
    match api.policy {
        Policy::Refuse(reason) => return Some(reason.to_owned()),
        Policy::Skip(_) => return None,
        Policy::Replay | Policy::ReplayAs(_) => {}
    }
    if record.sections().map_while(Result::ok).any(|section| section.presence == Presence::Withheld) {
        return Some("needs contents that were withheld".to_owned());
    }
    let launches = |role: &Role| matches!(role, Role::KernelParams);
    let unsized_launch = api.param_with(launches).is_some_and(|param| {
        let given = record.word(usize::from(api.params[param].word)) != 0;
        let kernel = archive.kernels().of_launch(record.aux());
        let takes_none = kernel.and_then(|kernel| kernel.args.as_deref()).is_some_and(<[_]>::is_empty);
        given && !takes_none && record.section_tagged(SectionTag::KernelArgs).is_none()
    });
    unsized_launch.then(|| "launches a kernel whose code object says nothing of its arguments".to_owned())
}

/// Whether a call that returned tells an error. The answer of a query that work is not done is none.
fn is_failure(archive: &Archive, record: &Record<'_>) -> bool {
    let returns = archive.api(record.api()).known.map_or(Returns::Error, |api| api.ret);
    returns == Returns::Error && record.ret() != 0 && record.ret() != NOT_READY
}

fn count_contents(archive: &Archive, record: &Record<'_>, counts: &mut Counts) {
    for section in record.sections().map_while(Result::ok) {
        let withheld = section.presence == Presence::Withheld;
        counts.withheld += u64::from(withheld);
        let is_result = matches!(section.tag, SectionTag::BlobOut | SectionTag::GraphHostOut);
        if is_result && section.presence == Presence::Present {
            let reference = section.blob();
            let is_there = |BlobRef { number, .. }: BlobRef| archive.blobs().index().get(number).is_some();
            counts.unobserved += u64::from(!reference.is_some_and(is_there));
        }
    }
}

fn store_totals(store: &BlobStore) -> StoreTotals {
    let stored = store.stored();
    let bytes = store.index().entries().iter().fold(0u64, |sum, entry| sum.saturating_add(entry.len_bytes));
    let dedup_ratio = if stored.bytes == 0 { 1.0 } else { bytes as f64 / stored.bytes as f64 };
    StoreTotals {
        numbers: store.len() as u64,
        distinct: stored.contents,
        distinct_bytes: stored.bytes,
        bytes,
        dedup_ratio,
    }
}

/// Standard deviation of the time between entry and return, in ticks.
fn deviation(api: &ApiCounts) -> f64 {
    if api.returned < 2 {
        return 0.0;
    }
    let count = api.returned as f64;
    let mean = api.ticks as f64 / count;
    ((api.squares / count - mean * mean).max(0.0) * count / (count - 1.0)).sqrt()
}

/// By falling number of calls, then by name.
fn api_totals(archive: &Archive, counts: &Counts) -> Vec<ApiTotals> {
    let clock = &archive.manifest().clock;
    let us = |ticks: u64| clock.ticks_to_ns(ticks) as f64 / 1000.0;
    let mut totals: Vec<ApiTotals> = counts
        .apis
        .iter()
        .map(|(&id, api)| ApiTotals {
            name: archive.api(id).name.to_owned(),
            calls: api.calls,
            failed_calls: api.failed,
            total_us: us(api.ticks),
            mean_us: if api.returned == 0 { 0.0 } else { us(api.ticks) / api.returned as f64 },
            min_us: us(api.min_ticks),
            max_us: us(api.max_ticks),
            deviation_us: us(deviation(api) as u64),
        })
        .collect();
    totals.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
    totals
}

/// By falling number of launches, then by number.
fn kernel_totals(archive: &Archive, counts: &Counts) -> Vec<KernelTotals> {
    let mut totals: Vec<KernelTotals> = counts
        .launches
        .iter()
        .map(|(&kernel, &(launches, argument_bytes))| {
            let known = archive.kernels().get(kernel);
            KernelTotals {
                kernel,
                name: known.map_or_else(|| format!("(kernel {kernel}, unnamed)"), |known| known.name.clone()),
                code_object: known.and_then(|known| known.code_object),
                launches,
                argument_bytes,
            }
        })
        .collect();
    totals.sort_by_key(|kernel| (std::cmp::Reverse(kernel.launches), kernel.kernel));
    totals
}

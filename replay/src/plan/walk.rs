//! The walk along the timeline: calls are planned as they were entered, and chunks handed over as they fill.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hrr_format::catalogue::Effect;
use hrr_format::record::Record;

use super::annotate::{self, Position};
use super::emit::copies_host_memory;
use super::error::PlanError;
use super::results::Pending;
use super::teardown::Teardown;
use super::timeline::{Point, Timeline};
use super::{Delivery, Planner};
use crate::instruction::{Account, Chunk};
use crate::triage::own_calls;

/// Instructions after which a chunk is handed to its worker.
const CHUNK_INSTRUCTIONS: usize = 4096;

impl<'a> Planner<'a> {
    /// Plans the whole archive, handing each finished chunk to `delivery`. The planner must outlive the run: instructions
    /// point into its slots and host memory.
    ///
    /// # Errors
    /// The first call that cannot be replayed.
    pub(crate) fn run(&mut self, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        let mut timeline = Timeline::new(self.archive.streams());
        let mut event = 0;
        let mut last_event = vec![0u64; self.lanes.len()];
        loop {
            if let Some(index) = &self.triage.index {
                index.reached(event, &timeline);
            }
            let Some(point) = timeline.next() else { break };
            match point {
                Point::Begin { lane, record } => {
                    let launches = self.archive.api(record.api()).known.is_some_and(annotate::launches_kernel);
                    match self.annotations.position(event, launches) {
                        Position::Over => {
                            self.planned.cut = true;
                            break;
                        }
                        Position::First => {
                            let totals: Vec<u64> = self.lanes.iter().map(|lane| lane.planned).collect();
                            delivery.range_begins(event, &totals);
                        }
                        Position::Before | Position::Inside => {}
                    }
                    self.advance_regions(record.begin());
                    let blocks_others = self.blocks_others(&timeline, lane, &record);
                    self.begin(event, lane, record, blocks_others)?;
                    last_event[lane as usize] = event;
                    event += 1;
                }
                Point::HostMemory { lane, record } => self.host_memory(event, lane, record)?,
                Point::End { lane } => self.end(lane),
                Point::Marker { lane, record } => self.marker(last_event[lane as usize], lane, record)?,
            }
            if let Some(worker) = self.full_chunk(&point) {
                own_calls::pulse();
                self.fill(event)?;
                self.deliver(worker, delivery);
                self.throttle(event, delivery)?;
                if delivery.stopped() {
                    break;
                }
            }
        }
        if self.planned.cut {
            // Calls that were entered in the range and returned behind it have returned by the end of the run.
            (0..self.lanes.len() as u32).for_each(|lane| self.end(lane));
        }
        self.deliver_all(event, delivery)?;
        // Results that nothing made visible to the program.
        for (_, pending) in self.pending.drain() {
            let (Pending::Copy(check) | Pending::InPlace { check, .. }) = pending;
            // The receiver outlives the planner.
            let _ = self.checks.send(check);
        }
        if let Some(index) = &self.triage.index {
            index.ended(&timeline);
        }
        let in_flight = timeline.in_flight().len() as u64;
        self.planned.events = event + in_flight;
        self.planned.in_flight = in_flight;
        self.planned.lane_totals = self.lanes.iter().map(|lane| lane.planned).collect();
        self.planned.waits = self.order.emitted;
        self.planned.untranslated = self.untranslated;
        self.planned.lost = self.account.lost();
        self.planned.devices.sort_unstable();
        self.planned.range_entered = self.annotations.is_inside();
        self.planned.teardown = Teardown::of(&self.objects, &self.lanes, self.multiplexed);
        Ok(())
    }

    /// Tells the validator that no result comes after those already sent.
    pub(crate) fn no_more_checks(&mut self) {
        let (closed, _) = crossbeam::channel::bounded(0);
        self.checks = closed;
    }

    pub(super) fn deliver(&mut self, worker: usize, delivery: &mut impl Delivery) {
        let Some(chunk) = &mut self.chunks[worker] else { return };
        if !chunk.instructions.is_empty() {
            // A worker that has filled one will likely fill another of the same size.
            let next = if chunk.instructions.len() >= CHUNK_INSTRUCTIONS { chunk.as_large() } else { Chunk::default() };
            let mut chunk = std::mem::replace(&mut **chunk, next);
            self.account.issued(&chunk);
            chunk.account = Some(Account::open(&self.plan_bytes, chunk.size_bytes() as u64));
            delivery.chunk(worker, Arc::new(chunk));
        }
    }

    pub(super) fn deliver_all(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        self.fill(event)?;
        for worker in 0..self.chunks.len() {
            self.deliver(worker, delivery);
        }
        Ok(())
    }

    /// Begins a new window of staged memory now and then, and waits for the run where the budget is used up.
    pub(super) fn throttle(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        /// Windows that share the budget: the run works on some while the next are staged.
        const WINDOWS: u64 = 8;
        /// A run that has not moved for this long may be waiting for calls that are not planned yet.
        const STALL: Duration = Duration::from_millis(20);
        if self.host.window_bytes() >= self.budget_bytes / WINDOWS {
            self.host.open_window();
        }
        // Relaxed: a bound, not an order.
        let in_use = |planner: &Self| planner.host.in_use_bytes() + planner.plan_bytes.load(Ordering::Relaxed);
        if in_use(self) < self.budget_bytes {
            return Ok(());
        }
        self.deliver_all(event, delivery)?;
        delivery.part_ready(&self.planned.devices);
        let (mut moved, mut since) = (delivery.moved(), Instant::now());
        loop {
            let coverage = &self.coverage;
            self.host.reclaim(|window| !coverage.has_open(window), |wait| delivery.done(wait));
            if in_use(self) < self.budget_bytes || delivery.stopped() {
                return Ok(());
            }
            let now = delivery.moved();
            if now != moved {
                (moved, since) = (now, Instant::now());
            } else if since.elapsed() > STALL {
                self.planned.over_budget += 1;
                return Ok(());
            }
            // The run is watched for itself.
            own_calls::pulse();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn fill(&mut self, event: u64) -> Result<(), PlanError> {
        self.host.fill(self.archive).map_err(|error| PlanError {
            event: event.saturating_sub(1),
            thread: 0,
            api: "staging".to_owned(),
            reason: error.into(),
        })
    }

    pub(super) fn full_chunk(&self, point: &Point<'_>) -> Option<usize> {
        let (Point::Begin { lane, .. }
        | Point::HostMemory { lane, .. }
        | Point::End { lane }
        | Point::Marker { lane, .. }) = *point;
        let worker = self.assignment.worker_of[lane as usize] as usize;
        let chunk = self.chunks[worker].as_deref()?;
        (chunk.instructions.len() >= CHUNK_INSTRUCTIONS).then_some(worker)
    }

    /// Whether the call may wait for the device, and another captured thread of the same worker makes a call before it
    /// returns.
    pub(super) fn blocks_others(&self, timeline: &Timeline<'_>, lane: u32, record: &Record<'_>) -> bool {
        let Some(api) = self.archive.api(record.api()).known.filter(|_| self.multiplexed) else { return false };
        if !api.blocks() && api.effect != Effect::Enqueue {
            return false;
        }
        let worker = self.assignment.worker_of[lane as usize];
        let overlapped = self.assignment.worker_of.iter().enumerate().any(|(other, &of)| {
            of == worker
                && other as u32 != lane
                && timeline.next_begin(other as u32).is_some_and(|begin| begin < record.end())
        });
        overlapped && (api.blocks() || copies_host_memory(record))
    }

    pub(super) fn end(&mut self, lane: u32) {
        let Some(open) = self.open[lane as usize].take() else { return };
        for definition in open.definitions {
            self.objects.define(definition, &mut self.lanes[lane as usize]);
        }
        if let Some(node) = open.node {
            self.order.end(node, open.facts);
        } else {
            self.order.recycle(open.facts);
        }
    }
}

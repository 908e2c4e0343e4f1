//! The walk along the timeline: calls are planned as they were entered, and chunks handed over as they fill.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, bounded};

use hrr_format::record::Record;

use super::annotate::Position;
use super::arrivals::{Arrival, Arrivals, Reader};
use super::error::PlanError;
use super::order::edges::{Hands, Whole};
use super::results::Pending;
use super::teardown::Teardown;
use super::timeline::Point;
use super::{Delivery, Planner};
use crate::instruction::Chunk;
use crate::memory::large_pages;
use crate::triage::own_calls;

/// Instructions after which a chunk is handed to its worker.
const CHUNK_INSTRUCTIONS: usize = 4096;
/// Windows that share the memory budget: the run works on some while the next are staged.
const WINDOWS: u64 = 8;
/// A window with less staged in it ends with a chunk: memory comes in blocks, and below a few of them a small budget would have
/// planning wait at every call.
const EARLY_BYTES: u64 = 32 << 20;

/// A thread that has memory made ready for the next chunks, where there is a core for it.
struct Ahead(Option<Sender<()>>);

impl Ahead {
    fn start<'scope>(hands: Hands, scope: &'scope Scope<'scope, '_>) -> Self {
        if hands == Hands::One {
            return Ahead(None);
        }
        let (ask, asked) = bounded(1);
        let work = move || asked.iter().for_each(|()| large_pages::prepare());
        // Where no thread can be had, memory comes when it is used.
        Ahead(Builder::new().name("hrr-memory".to_owned()).spawn_scoped(scope, work).ok().map(|_| ask))
    }

    fn ask(&self) {
        if let Some(ask) = &self.0 {
            // One that has not been heard yet stands for this one too.
            let _ = ask.try_send(());
        }
    }
}

impl<'a> Planner<'a> {
    /// Plans the whole archive, handing each finished chunk to `delivery`. The planner must outlive the run: instructions
    /// point into its slots and host memory.
    ///
    /// # Errors
    /// The first call that cannot be replayed.
    pub(crate) fn run(&mut self, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        let reader = Reader::new(self.archive, &self.delayed, &self.assignment, self.triage.index.clone());
        std::thread::scope(|scope| {
            let memory = Ahead::start(self.hands, scope);
            self.walk(Arrivals::new(reader, self.hands, scope), &memory, delivery)
        })
    }

    fn walk(
        &mut self,
        mut arrivals: Arrivals<'_, 'a>,
        memory: &Ahead,
        delivery: &mut impl Delivery,
    ) -> Result<(), PlanError> {
        // Calls met so far, and the number behind the last of them, by which ranges go.
        let (mut calls, mut next_event) = (0u64, 0u64);
        let mut last_event = vec![0u64; self.lanes.len()];
        for Arrival { point, blocks_others, tags, .. } in arrivals.by_ref() {
            match point {
                Point::Begin { event, lane, record } => {
                    let launches = self.annotations.counts_launches() && self.launches_kernel(&record);
                    match self.annotations.position(event.max(next_event.saturating_sub(1)), launches) {
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
                    self.begin(event, lane, record, blocks_others, tags)?;
                    last_event[lane as usize] = event;
                    next_event = next_event.max(event + 1);
                    calls += 1;
                }
                Point::HostMemory { lane, record } => self.host_memory(next_event, lane, record)?,
                Point::End { lane } => self.end(lane),
                Point::Marker { lane, record } => self.marker(last_event[lane as usize], lane, record)?,
            }
            let full = self.full_chunk(&point);
            if let Some(worker) = full {
                own_calls::pulse();
                memory.ask();
                self.fill(next_event)?;
                self.finish_chunk(worker);
                self.deliver(Whole::WhatIsReady, delivery);
            }
            // A few calls may need more host memory than thousands of others.
            if full.is_some() || self.nears_the_budget() {
                self.throttle(next_event, delivery)?;
                if delivery.stopped() {
                    break;
                }
            }
        }
        if self.planned.cut {
            // Calls that were entered in the range and returned behind it have returned by the end of the run.
            (0..self.lanes.len() as u32).for_each(|lane| self.end(lane));
        }
        self.deliver_all(next_event, delivery)?;
        // Results that nothing made visible to the program.
        for (_, pending) in self.pending.drain() {
            let (Pending::Copy(check) | Pending::InPlace { check, .. }) = pending;
            // The receiver outlives the planner.
            let _ = self.checks.send(check);
        }
        let (open, last_tick) = arrivals.end();
        let in_flight = open.len() as u64;
        if let Some(index) = &self.triage.index {
            index.ended((open, last_tick));
        }
        let edges = self.edges.end();
        self.planned.events = calls + in_flight;
        self.planned.in_flight = in_flight;
        self.planned.lane_totals = self.lanes.iter().map(|lane| lane.planned).collect();
        self.planned.waits = edges.waits;
        self.planned.unordered = edges.unordered;
        self.planned.untranslated = self.untranslated;
        self.planned.lost = self.account.lost(&edges.issued);
        self.planned.devices.sort_unstable();
        self.planned.range_entered = self.annotations.is_inside();
        self.planned.teardown = Teardown::of(&self.objects, &self.lanes, self.multiplexed, self.descriptors());
        Ok(())
    }

    /// Tells the validator that no result comes after those already sent.
    pub(crate) fn no_more_checks(&mut self) {
        let (closed, _) = crossbeam::channel::bounded(0);
        self.checks = closed;
    }

    /// Has what a worker was given so far end a chunk.
    fn finish_chunk(&mut self, worker: usize) {
        let Some(chunk) = &mut self.chunks[worker] else { return };
        if !chunk.instructions.is_empty() {
            // A worker that has filled one will likely fill another of the same size.
            let next = if chunk.instructions.len() >= CHUNK_INSTRUCTIONS { chunk.as_large() } else { Chunk::default() };
            let chunk = std::mem::replace(&mut **chunk, next);
            self.edges.full(worker, chunk);
        }
    }

    /// Hands over chunks whose edges are there.
    fn deliver(&mut self, whole: Whole, delivery: &mut impl Delivery) {
        self.edges.take_ready(whole, |worker, chunk| delivery.chunk(worker, Arc::new(chunk)));
    }

    pub(super) fn deliver_all(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
        self.fill(event)?;
        (0..self.chunks.len()).for_each(|worker| self.finish_chunk(worker));
        self.deliver(Whole::All, delivery);
        Ok(())
    }

    /// Whether a window should end before its chunk does. Contents are shared within a window, so while much of the budget is left
    /// it goes on: what a program uploads again and again is then staged once.
    fn nears_the_budget(&self) -> bool {
        self.host.window_bytes() >= (self.budget_bytes / WINDOWS).max(EARLY_BYTES)
            && self.host.in_use_bytes() >= self.budget_bytes / 4 * 3
    }

    /// Begins a new window of staged memory now and then, and waits for the run where the budget is used up.
    pub(super) fn throttle(&mut self, event: u64, delivery: &mut impl Delivery) -> Result<(), PlanError> {
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
        let planned: u64 = self.lanes.iter().map(|lane| lane.planned).sum();
        let (mut moved, mut since) = (delivery.moved(), Instant::now());
        loop {
            let now = delivery.moved();
            let coverage = &self.coverage;
            self.host.reclaim(|window| !coverage.has_open(window), |wait| delivery.done(wait));
            if in_use(self) < self.budget_bytes || delivery.stopped() {
                return Ok(());
            }
            if now == planned {
                // All that is planned is done and gave back what it could: more comes back only behind calls that are still to
                // be planned.
                self.planned.over_budget += 1;
                return Ok(());
            }
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

    fn launches_kernel(&self, record: &Record<'_>) -> bool {
        self.archive.api(record.api()).known.is_some_and(|api| self.traits[usize::from(api.id)].launches_kernel)
    }

    pub(super) fn end(&mut self, lane: u32) {
        let Some(open) = self.open[lane as usize].take() else { return };
        for definition in open.definitions {
            self.objects.define(definition, &mut self.lanes[lane as usize]);
        }
        if open.issued {
            self.edges.returned(lane);
        }
    }
}

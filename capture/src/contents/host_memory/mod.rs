//! Host memory that devices use directly: pinned, registered and managed memory whose address a kernel, a fill or a copy is
//! given without its contents being recorded with the call.
//!
//! * [`tracked`]: what is known of one allocation, and what differs from it
//! * [`shadow`]: the copy of it that is kept
//! * [`marker`]: how it is said in the archive
//!
//! Before a call enqueues work that is given an address in such memory, what the host stored there since is recorded, in
//! a marker with a time of its own before the call's. After a call that waited for such work, what it wrote is recorded.
//! Nothing waits for the device, and nothing is asked of it. In metadata-only mode there is no [`HostMemory`] at all.
//!
//! An allocation's lock is held from looking at its memory until the marker has its tick: a call of another thread that
//! finds nothing to record comes after the marker that recorded it. No lock is held across a call into the runtime.

mod marker;
mod shadow;
mod tracked;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hrr_format::catalogue::Effect;
use hrr_format::record::marker::host_wrote;

use super::blob_writer::BlobWriter;
use super::event_order::EventOrder;
use super::pending_results::Waited;
use super::region::Region;
use crate::runtime;
use crate::settings::{HostSnapshots, Scope};
use crate::writer::ThreadStream;
use marker::Marker;
use tracked::{Contents, Found, Place, Use, Work};

/// Lowest address and first one behind the highest of all memory that is followed; they only ever grow apart.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static BEHIND: AtomicU64 = AtomicU64::new(0);
/// Allocations with work in flight.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Whether any memory was ever followed.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Relaxed: a thread that has an address of such memory synchronised with the call that gave it out.
    BEHIND.load(Ordering::Relaxed) != 0
}

/// Whether a word may be an address in memory that is followed.
#[inline(always)]
pub(crate) fn may_hold(word: u64) -> bool {
    // Relaxed: as above.
    word >= LOWEST.load(Ordering::Relaxed) && word < BEHIND.load(Ordering::Relaxed)
}

/// Whether work that uses such memory may be in flight.
#[inline(always)]
pub(crate) fn in_flight() -> bool {
    // Relaxed: a thread that waits for work of another one synchronised with it.
    IN_FLIGHT.load(Ordering::Relaxed) != 0
}

/// Forgets everything, in a forked child.
pub(crate) fn forget() {
    LOWEST.store(u64::MAX, Ordering::Relaxed);
    BEHIND.store(0, Ordering::Relaxed);
    IN_FLIGHT.store(0, Ordering::Relaxed);
}

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pinned or registered: copies to and from it carry their contents.
    Pinned,
    /// Managed: copies do not.
    Managed,
}

/// An allocation that is followed.
#[derive(Debug)]
pub(crate) struct Tracked {
    base: u64,
    len_bytes: u64,
    kind: Kind,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// No call was given an address in it yet.
    Untouched,
    /// It is looked through.
    Followed(Box<Contents>),
    /// It is larger than may be looked through.
    TooLarge,
    /// It was given back.
    Gone,
}

impl Tracked {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocation that a call was given addresses in, from its entry to its return.
#[derive(Debug)]
pub(crate) struct Reached {
    tracked: Arc<Tracked>,
    call: u64,
}

/// Uses that a call waits for, from its entry to its return.
#[derive(Debug)]
pub(crate) struct Awaited {
    tracked: Arc<Tracked>,
    uses: Vec<Use>,
}

/// What a thread remembers of its call.
#[derive(Debug, Default)]
pub(crate) struct InCall {
    /// Addresses that the call's work is given, beyond those in its words.
    pub(crate) addresses: Vec<u64>,
    /// Addresses of values that the call's work waits for: what it reads there it changes nothing of.
    pub(crate) looked_at: Vec<u64>,
    reached: Vec<Reached>,
    awaited: Vec<Awaited>,
}

impl InCall {
    /// The call failed: it waited for nothing.
    pub(crate) fn give_up(&mut self) {
        self.awaited.clear();
    }
}

/// Counters for the manifest.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Ranges recorded.
    pub(crate) ranges: AtomicU64,
    /// Chunks that differed and were left alone, because work in flight may have written them.
    pub(crate) left_alone: AtomicU64,
    /// Allocations whose contents were not recorded, because of their size.
    pub(crate) not_recorded: AtomicU64,
}

/// A stretch of addresses: its length, where in the allocation it begins, and the allocation.
type Stretch = (u64, u64, Arc<Tracked>);

/// The memory of a process that devices use directly.
#[derive(Debug)]
pub(crate) struct HostMemory {
    settings: HostSnapshots,
    /// By first address, host addresses and device aliases: length, offset in the allocation, and the allocation.
    ranges: RwLock<BTreeMap<u64, Stretch>>,
    used: Mutex<Vec<Arc<Tracked>>>,
    order: Mutex<EventOrder>,
    sequence: AtomicU64,
    calls: AtomicU64,
    /// Bytes of copies kept.
    shadowed_bytes: AtomicU64,
    pub(crate) counters: Counters,
}

/// Where a call records what it finds.
pub(crate) struct Recording<'a> {
    /// The calling thread's stream.
    pub(crate) stream: &'a ThreadStream,
    /// The store.
    pub(crate) writer: &'a BlobWriter,
}

impl HostMemory {
    /// Nothing is followed yet.
    pub(crate) fn new(settings: HostSnapshots) -> Self {
        HostMemory {
            settings,
            ranges: RwLock::default(),
            used: Mutex::default(),
            order: Mutex::default(),
            sequence: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            shadowed_bytes: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    /// Follows an allocation from now on.
    pub(crate) fn insert(&self, base: u64, len_bytes: Option<u64>, kind: Kind) {
        let Some(len_bytes) = len_bytes.filter(|&len| base != 0 && len > 0 && base.checked_add(len).is_some()) else {
            return;
        };
        self.remove(base);
        let tracked = Arc::new(Tracked { base, len_bytes, kind, state: Mutex::new(State::Untouched) });
        self.insert_range(base, len_bytes, 0, tracked);
    }

    fn insert_range(&self, start: u64, len_bytes: u64, offset: u64, tracked: Arc<Tracked>) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(start, (len_bytes, offset, tracked));
        // Relaxed: see `any`.
        LOWEST.fetch_min(start, Ordering::Relaxed);
        BEHIND.fetch_max(start + len_bytes, Ordering::Relaxed);
    }

    /// A device address that stands for a host address.
    pub(crate) fn alias(&self, device_address: u64, host_address: u64) {
        let Some((tracked, offset)) = self.find(host_address) else { return };
        let len_bytes = tracked.len_bytes - offset;
        if device_address != host_address && device_address.checked_add(len_bytes).is_some() && device_address != 0 {
            self.insert_range(device_address, len_bytes, offset, tracked);
        }
    }

    /// Follows an allocation no longer: it is given back, or another begins at its address.
    pub(crate) fn remove(&self, base: u64) {
        let removed = self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&base);
        let Some((_, _, tracked)) = removed else { return };
        if tracked.base == base {
            let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
            ranges.retain(|_, (_, _, other)| !Arc::ptr_eq(other, &tracked));
        }
        self.end(&tracked);
    }

    /// Everything on a device is gone.
    pub(crate) fn reset(&self) {
        let ranges = std::mem::take(&mut *self.ranges.write().unwrap_or_else(PoisonError::into_inner));
        for (_, _, tracked) in ranges.into_values() {
            self.end(&tracked);
        }
    }

    /// A window is opened: nothing is at work any more, and what was done to the memory since the window before is not recorded. At
    /// its next use all of it is.
    pub(crate) fn begin_anew(&self) {
        let ranges: Vec<Arc<Tracked>> = {
            let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
            ranges.values().map(|(_, _, tracked)| Arc::clone(tracked)).collect()
        };
        for tracked in ranges {
            let mut state = tracked.state();
            if matches!(&*state, State::Followed(_)) {
                *state = State::Untouched;
                // Relaxed: a bound.
                self.shadowed_bytes.fetch_sub(tracked.len_bytes, Ordering::Relaxed);
            }
            drop(state);
            self.no_longer_used(&tracked);
        }
    }

    fn end(&self, tracked: &Arc<Tracked>) {
        // Whoever looks at the memory holds this lock, so that it is not given back meanwhile.
        let state = std::mem::replace(&mut *tracked.state(), State::Gone);
        if matches!(state, State::Followed(_)) {
            // Relaxed: a bound.
            self.shadowed_bytes.fetch_sub(tracked.len_bytes, Ordering::Relaxed);
        }
        self.no_longer_used(tracked);
    }

    fn used(&self) -> MutexGuard<'_, Vec<Arc<Tracked>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_longer_used(&self, tracked: &Arc<Tracked>) {
        let mut used = self.used();
        used.retain(|known| !Arc::ptr_eq(known, tracked));
        IN_FLIGHT.store(used.len(), Ordering::Relaxed);
    }

    /// The allocation that an address lies in, and where in it.
    fn find(&self, address: u64) -> Option<(Arc<Tracked>, u64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (start, (len_bytes, offset, tracked)) = ranges.range(..=address).next_back()?;
        let inside = address - start;
        (inside < *len_bytes).then(|| (Arc::clone(tracked), offset + inside))
    }

    /// The host memory from an address, or from what it is an alias of, to the end of its allocation.
    pub(crate) fn rest_behind(&self, address: u64) -> Option<Region> {
        let (tracked, offset) = self.find(address)?;
        Some(Region::range(tracked.base + offset, tracked.len_bytes - offset))
    }

    /// Whether work in flight may write what an address leads to.
    pub(crate) fn is_in_use(&self, address: u64) -> bool {
        let Some((tracked, _)) = self.find(address) else { return false };
        let state = tracked.state();
        matches!(&*state, State::Followed(contents) if contents.uses().iter().any(|used| used.kind == Work::Direct))
    }

    /// A call is about to enqueue work on `stream` that is given the addresses in `in_call`: records what the host stored.
    ///
    /// # Safety
    /// `recording` is of the calling thread, inside its call.
    pub(crate) unsafe fn before_work(&self, recording: &Recording<'_>, stream: u64, in_call: &mut InCall) {
        let mut reached: Vec<(Arc<Tracked>, Vec<u64>)> = Vec::new();
        let mut reach = |tracked: Arc<Tracked>, offset: u64| match reached
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &tracked))
        {
            Some((_, offsets)) if offsets.contains(&offset) => {}
            Some((_, offsets)) => offsets.push(offset),
            None => reached.push((tracked, vec![offset])),
        };
        for address in in_call.addresses.drain(..) {
            if let Some((tracked, offset)) = self.find(address) {
                reach(tracked, offset);
            }
        }
        for address in in_call.looked_at.drain(..) {
            if let Some((tracked, _)) = self.find(address)
                && !reached.iter().any(|(known, _)| Arc::ptr_eq(known, &tracked))
            {
                reached.push((tracked, Vec::new()));
            }
        }
        if self.settings.scope == Scope::All {
            let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
            for (_, _, tracked) in ranges.values() {
                // Looked through, and not taken to be written to: otherwise nothing could be told to be the host's any more.
                if !reached.iter().any(|(known, _)| Arc::ptr_eq(known, tracked)) {
                    reached.push((Arc::clone(tracked), Vec::new()));
                }
            }
        }
        if reached.is_empty() {
            return;
        }
        let place = place_of(stream);
        // Relaxed: numbers only have to differ.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        for (tracked, offsets) in reached {
            let mut state = tracked.state();
            self.follow(recording, &tracked, &mut state);
            let State::Followed(contents) = &mut *state else { continue };
            // Managed memory that is handed from launch to launch would be moved to the host and back for nothing.
            let handed_on = tracked.kind == Kind::Managed && contents.are_used(&offsets);
            if !handed_on {
                // SAFETY: the memory is readable until HIP is told otherwise, which waits for the lock.
                let left_alone = unsafe {
                    contents.before_work(tracked.base as *const u8, &offsets, &mut |found, changes| {
                        self.record(recording, &tracked, found, changes);
                    })
                };
                // Relaxed: a count.
                self.counters.left_alone.fetch_add(left_alone, Ordering::Relaxed);
            }
            if offsets.is_empty() {
                continue;
            }
            for &offset in &offsets {
                contents.add_use(offset, call, Work::Direct, place);
            }
            drop(state);
            self.now_used(&tracked);
            in_call.reached.push(Reached { tracked, call });
        }
    }

    /// An asynchronous copy is about to write to a host address; replay keeps its result elsewhere.
    pub(crate) fn before_staged_copy(&self, address: u64, stream: u64, in_call: &mut InCall) {
        let Some((tracked, offset)) = self.find(address) else { return };
        let place = place_of(stream);
        // Relaxed: as above.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match &mut *tracked.state() {
            State::Followed(contents) if contents.is_known() => contents.add_use(offset, call, Work::Staged, place),
            _ => return,
        }
        self.now_used(&tracked);
        in_call.reached.push(Reached { tracked, call });
    }

    fn now_used(&self, tracked: &Arc<Tracked>) {
        let mut used = self.used();
        if !used.iter().any(|known| Arc::ptr_eq(known, tracked)) {
            used.push(Arc::clone(tracked));
        }
        IN_FLIGHT.store(used.len(), Ordering::Relaxed);
    }

    /// Begins to look through an allocation, unless it is too large for that.
    fn follow(&self, recording: &Recording<'_>, tracked: &Tracked, state: &mut State) {
        if !matches!(state, State::Untouched) {
            return;
        }
        let fits = tracked.len_bytes <= self.settings.max_bytes
            && self
                .shadowed_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
                    bytes.checked_add(tracked.len_bytes).filter(|&bytes| bytes <= self.settings.total_bytes)
                })
                .is_ok();
        let contents = fits.then(|| Contents::new(tracked.len_bytes as usize)).flatten();
        *state = match contents {
            Some(contents) => State::Followed(Box::new(contents)),
            None => {
                // Relaxed: a count.
                self.counters.not_recorded.fetch_add(1, Ordering::Relaxed);
                // SAFETY: by the contract of `before_work`.
                unsafe { self.marker(recording, tracked).not_recorded() };
                State::TooLarge
            }
        };
    }

    fn marker<'a>(&self, recording: &'a Recording<'_>, tracked: &Tracked) -> Marker<'a> {
        Marker { stream: recording.stream, writer: recording.writer, base: tracked.base, len_bytes: tracked.len_bytes }
    }

    fn record(&self, recording: &Recording<'_>, tracked: &Tracked, found: Found, changes: &tracked::Changes) {
        // Relaxed: a count.
        self.counters.ranges.fetch_add(changes.ranges.len() as u64, Ordering::Relaxed);
        let marker = self.marker(recording, tracked);
        // SAFETY: by the contract of `before_work` and `after_wait`.
        unsafe {
            match found {
                Found::HostWrote { first: true } => marker.wrote(host_wrote::FIRST, changes),
                Found::HostWrote { first: false } | Found::HostWroteMeanwhile => marker.wrote(0, changes),
                Found::DeviceWrote | Found::SomebodyWrote => marker.saw(changes),
            }
        }
    }

    /// The call has returned. A blocking copy has completed what it enqueued.
    pub(crate) fn after_work(&self, in_call: &mut InCall, effect: Effect, succeeded: bool) {
        for Reached { tracked, call } in in_call.reached.drain(..) {
            let is_done = !succeeded || effect == Effect::BlockCopy;
            // Release: a call that sees this number at its entry came after the work was enqueued.
            let sequence = (!is_done).then(|| self.sequence.fetch_add(1, Ordering::Release) + 1);
            let mut state = tracked.state();
            let State::Followed(contents) = &mut *state else { continue };
            contents.enqueued(call, sequence);
            let is_used = contents.is_used();
            drop(state);
            if !is_used {
                self.no_longer_used(&tracked);
            }
        }
    }

    /// The program records an event on a stream.
    pub(crate) fn event_recorded(&self, event: u64, stream: u64) {
        // Acquire: pairs with the release in `after_work`.
        let sequence = self.sequence.load(Ordering::Acquire);
        self.order().record(event, stream, sequence);
    }

    /// The program makes a stream wait for an event.
    pub(crate) fn stream_waits(&self, stream: u64, event: u64) {
        self.order().wait(stream, event);
    }

    /// A stream is destroyed: its handle may come to mean another one.
    pub(crate) fn forget_stream(&self, stream: u64) {
        self.order().forget_stream(stream);
    }

    fn order(&self) -> MutexGuard<'_, EventOrder> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins to wait, or has learnt that there is nothing to wait for: remembers which work it covers. `Look` says
    /// whether what differs now is looked at, so that what differs afterwards is known to be the device's.
    pub(crate) fn before_wait(&self, waited: Waited, look: Look, in_call: &mut InCall) {
        // Acquire: pairs with the release in `after_work`.
        let until = self.sequence.load(Ordering::Acquire);
        let device = if waited == Waited::Device { Some(runtime::device()) } else { None };
        let used: Vec<Arc<Tracked>> = self.used().clone();
        in_call.awaited.clear();
        for tracked in used {
            let mut state = tracked.state();
            let State::Followed(contents) = &mut *state else { continue };
            let order = self.order();
            let covers = |known: &Use| {
                let Place { stream, device: of, blocking } = known.place;
                known.sequence <= until
                    && match waited {
                        Waited::Stream(waited) => {
                            waited == stream || order.stream_implies(waited, stream, known.sequence)
                        }
                        Waited::NullStream => blocking || stream == 0,
                        Waited::Device => device == Some(of),
                        Waited::Event(event) => order.event_implies(event, stream, known.sequence),
                        Waited::Something => false,
                    }
            };
            let uses: Vec<Use> = contents.uses().iter().filter(|known| covers(known)).copied().collect();
            drop(order);
            if uses.is_empty() {
                continue;
            }
            if look == Look::Now && uses.iter().any(|known| known.kind == Work::Direct) {
                // SAFETY: the memory is readable until HIP is told otherwise, which waits for the lock.
                unsafe { contents.before_wait(tracked.base as *const u8) };
            }
            drop(state);
            in_call.awaited.push(Awaited { tracked, uses });
        }
    }

    /// The call has waited: records what the work had written.
    ///
    /// # Safety
    /// As [`Self::before_work`].
    pub(crate) unsafe fn after_wait(&self, recording: &Recording<'_>, in_call: &mut InCall) {
        for Awaited { tracked, uses } in in_call.awaited.drain(..) {
            let mut state = tracked.state();
            let State::Followed(contents) = &mut *state else { continue };
            // SAFETY: as in `before_wait`.
            unsafe {
                let covered = |known: &Use| uses.contains(known);
                contents.after_wait(tracked.base as *const u8, covered, &mut |found, changes| {
                    self.record(recording, &tracked, found, changes);
                });
            }
            let is_used = contents.is_used();
            drop(state);
            if !is_used {
                self.no_longer_used(&tracked);
            }
        }
        if !in_flight() {
            // What is known of the order of events only matters for work before them.
            self.order().clear();
        }
    }
}

/// Whether memory is looked at when a wait begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is.
    Now,
    /// It is not: another thread may be writing to it, or the call does not wait.
    Never,
}

fn place_of(stream: u64) -> Place {
    let _last_error = runtime::LastError::keep();
    Place { stream, device: runtime::device_of(stream), blocking: runtime::waits_for_null_stream(stream) }
}

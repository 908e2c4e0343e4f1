//! Random programs for `tests/workloads/random_program.cpp`: threads that share streams, events, allocations, pools and graphs.
//!
//! A program is made from a list of [`Step`]s, plain numbers, so that any list is a program and any shorter list is a smaller
//! one. The steps are gone through in order, and each becomes one or more calls of one thread. What the threads need to wait
//! for is added on the way: a call waits for earlier calls of other threads that use the same things in another way, and no
//! others, so the threads run side by side wherever the program has no reason to forbid it. Before a buffer is used on another
//! stream, its last use is ordered before that on the device, in one of the ways that HIP has. So the programs do not race,
//! and what each buffer holds is known.

use std::collections::HashMap;
use std::fmt::Write as _;

/// The legacy default stream, and each thread's own default stream.
const LEGACY: u32 = 0;
const PER_THREAD: u32 = 1;
/// Streams that a program makes have numbers from here on.
const FIRST_STREAM: u32 = 2;
/// Streams at most.
const STREAMS: u32 = 6;
const EVENTS: u32 = 4;
const BUFFERS: u32 = 6;
const GRAPHS: u32 = 3;
const COPIES: u32 = 4;
const POOLS: u32 = 2;
/// Words for values that streams wait for; each is used once.
const CELLS: u32 = 1024;

/// One step of a program: which thread does what, with what. Each number is reduced to what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thread.
    pub thread: u8,
    /// The kind of step.
    pub kind: u8,
    /// The first thing it is about.
    pub first: u8,
    /// The second.
    pub second: u8,
    /// How it is done, where there are several ways.
    pub way: u8,
}

/// A thing that calls are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Stream(u32),
    Event(u32),
    Buffer(u32),
    Graph(u32),
    Copy(u32),
    Pool(u32),
    Cell(u32),
    /// All that the program does.
    Everything,
}

#[derive(Clone, Debug, Default)]
struct Uses {
    /// The last call that needed the thing for itself.
    alone: Option<(usize, usize)>,
    /// By thread, the last that shared it since.
    shared: HashMap<usize, usize>,
}

/// Where a buffer's last use may still be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// On a stream; per-thread streams with their thread.
    On(u32, usize),
}

#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// Whether it holds anything.
    is_filled: bool,
    place: Place,
    graphs: u32,
    /// Whether its allocation is in a stream's order, so that hipFree need not wait for its uses.
    in_order: bool,
}

#[derive(Clone, Copy, Debug)]
struct Graph {
    buffer: u32,
    has_host: bool,
}

/// A program being made.
#[derive(Debug, Default)]
struct Maker {
    threads: usize,
    text: String,
    /// By thread: its calls so far, and of each other thread's calls how many it has come after.
    calls: Vec<usize>,
    known: Vec<Vec<usize>>,
    /// By thread and call: what was known when it was made.
    then: Vec<Vec<Vec<usize>>>,
    uses: HashMap<Thing, Uses>,
    /// By number: whether the stream goes its own way.
    streams: HashMap<u32, bool>,
    events: Vec<u32>,
    buffers: HashMap<u32, Buffer>,
    graphs: HashMap<u32, Graph>,
    copies: HashMap<u32, (u32, usize)>,
    pools: Vec<u32>,
    cells: u32,
    number: u32,
}

/// The text of a program in which as many threads take these steps.
pub fn program(threads: usize, steps: &[Step]) -> String {
    let threads = threads.max(1);
    let mut maker = Maker {
        threads,
        calls: vec![0; threads],
        known: vec![vec![0; threads]; threads],
        then: vec![Vec::new(); threads],
        ..Maker::default()
    };
    writeln!(maker.text, "program {threads}").expect("a string takes everything");
    for step in steps {
        maker.take(*step);
    }
    maker.text.push_str("end\n");
    maker.text
}

impl Maker {
    /// Adds a call that shares some things with others and needs some for itself.
    fn call(&mut self, thread: usize, what: &str, operands: &[u32], shared: &[Thing], alone: &[Thing]) {
        let position = self.calls[thread];
        let mut after: Vec<(usize, usize)> = Vec::new();
        let shared = shared.iter().chain([&Thing::Everything]).filter(|thing| !alone.contains(thing));
        for thing in shared {
            let uses = self.uses.entry(*thing).or_default();
            after.extend(uses.alone);
            uses.shared.insert(thread, position);
        }
        for thing in alone {
            let uses = self.uses.entry(*thing).or_default();
            after.extend(uses.alone);
            after.extend(uses.shared.drain());
            uses.alone = Some((thread, position));
        }
        write!(self.text, "{thread} {what}").expect("a string takes everything");
        for operand in operands {
            write!(self.text, " {operand}").expect("a string takes everything");
        }
        // Later ones first: they may have come after the earlier.
        after.sort_unstable_by_key(|&(thread, position)| (std::cmp::Reverse(position), thread));
        for (other, position) in after {
            if other == thread || self.known[thread][other] > position {
                continue;
            }
            write!(self.text, " @{other}.{position}").expect("a string takes everything");
            let then = self.then[other][position].clone();
            for (mine, theirs) in self.known[thread].iter_mut().zip(then) {
                *mine = (*mine).max(theirs);
            }
        }
        self.text.push('\n');
        self.calls[thread] += 1;
        self.known[thread][thread] = self.calls[thread];
        let known = self.known[thread].clone();
        self.then[thread].push(known);
    }

    fn new_cell(&mut self) -> u32 {
        self.cells += 1;
        self.cells - 1
    }

    fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number * 3
    }

    /// A stream to enqueue on: any.
    fn any_stream(&self, choice: u8) -> u32 {
        let mut all: Vec<u32> = self.streams.keys().copied().collect();
        all.sort_unstable();
        // Mostly streams of the program's own.
        all.extend(all.clone());
        all.extend([LEGACY, PER_THREAD]);
        all[usize::from(choice) % all.len()]
    }

    fn own_way(&self, choice: u8) -> Option<u32> {
        let mut all: Vec<u32> =
            self.streams.iter().filter(|(_, own_way)| **own_way).map(|(&stream, _)| stream).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn is_own_way(&self, stream: u32) -> bool {
        self.streams.get(&stream).copied().unwrap_or(false)
    }

    fn filled(&self, choice: u8) -> Option<u32> {
        let mut all: Vec<u32> =
            self.buffers.iter().filter(|(_, buffer)| buffer.is_filled).map(|(&number, _)| number).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn some<T>(map: &HashMap<u32, T>, choice: u8) -> Option<u32> {
        let mut all: Vec<u32> = map.keys().copied().collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn free_number<T>(map: &HashMap<u32, T>, first: u32, count: u32, choice: u8) -> Option<u32> {
        let free: Vec<u32> = (first..first + count).filter(|number| !map.contains_key(number)).collect();
        (!free.is_empty()).then(|| free[usize::from(choice) % free.len()])
    }

    /// Has a buffer's last use come before what `thread` enqueues on `stream` next.
    fn bring(&mut self, thread: usize, buffer: u32, stream: u32, way: u8) {
        let Some(Place::On(last, owner)) = self.buffers.get(&buffer).map(|buffer| buffer.place) else { return };
        let foreign = last == PER_THREAD && owner != thread;
        if last == stream && !foreign {
            return;
        }
        let thing = Thing::Buffer(buffer);
        let blocking = |maker: &Self, stream: u32| stream == LEGACY || !maker.is_own_way(stream);
        if (last == LEGACY || stream == LEGACY)
            && blocking(self, last)
            && blocking(self, stream)
            && !way.is_multiple_of(3)
        {
            // The legacy default stream's own rules order it.
            return;
        }
        let event = self.events.get(usize::from(way) % self.events.len().max(1)).copied();
        match way / 3 % 6 {
            0 | 1 if !foreign && event.is_some() => {
                let event = event.unwrap_or(0);
                self.call(
                    thread,
                    "event_record",
                    &[event, last],
                    &[Thing::Stream(last)],
                    &[Thing::Event(event), thing],
                );
                if (way / 3).is_multiple_of(6) {
                    let shared = [Thing::Stream(stream), Thing::Event(event)];
                    self.call(thread, "event_wait", &[event, stream], &shared, &[thing]);
                } else {
                    let what = if way.is_multiple_of(2) { "event_sync" } else { "event_poll" };
                    self.call(thread, what, &[event], &[Thing::Event(event)], &[thing]);
                    self.settle(buffer);
                }
            }
            2 if self.is_own_way(last) && self.is_own_way(stream) && self.cells < CELLS => {
                let cell = self.new_cell();
                let alone = [thing, Thing::Cell(cell)];
                self.call(thread, "value_write", &[cell, last, 1], &[Thing::Stream(last)], &alone);
                self.call(thread, "value_wait", &[cell, stream, 1], &[Thing::Stream(stream)], &alone);
            }
            3 | 4 if !foreign => {
                let what = if way.is_multiple_of(2) { "stream_sync" } else { "stream_poll" };
                self.call(thread, what, &[last], &[Thing::Stream(last)], &[thing]);
                self.settle(buffer);
            }
            _ => {
                self.call(thread, "device_sync", &[], &[], &[thing]);
                self.settle(buffer);
            }
        }
    }

    fn settle(&mut self, buffer: u32) {
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.place = Place::Nowhere;
        }
    }

    /// The buffer was last used by `thread` on `stream`.
    fn used(&mut self, buffer: u32, stream: u32, thread: usize) {
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.place = Place::On(stream, thread);
            buffer.is_filled = true;
        }
    }

    fn take(&mut self, step: Step) {
        let thread = usize::from(step.thread) % self.threads;
        let (first, second, way) = (step.first, step.second, step.way);
        let stream = self.any_stream(second);
        let on = Thing::Stream(stream);
        match step.kind % 32 {
            0..=2 => self.make_stream(thread, first, way),
            3 => self.end_stream(thread, first, way),
            4 | 5 => self.event(thread, first, way),
            6..=9 => self.allocate(thread, first, stream, way),
            10 => self.free(thread, first, stream, way),
            11..=13 => {
                let Some(buffer) = Self::some(&self.buffers, first) else { return };
                let number = self.next_number();
                let what = ["iota", "memset", "upload", "upload_now"][usize::from(way) % 4];
                if what == "upload_now" {
                    self.bring(thread, buffer, LEGACY, way / 4);
                    self.call(thread, what, &[buffer, number], &[], &[Thing::Buffer(buffer)]);
                    self.used(buffer, LEGACY, thread);
                    self.settle(buffer);
                } else {
                    self.bring(thread, buffer, stream, way / 4);
                    self.call(thread, what, &[buffer, stream, number], &[on], &[Thing::Buffer(buffer)]);
                    self.used(buffer, stream, thread);
                }
            }
            14..=17 => {
                let Some(buffer) = self.filled(first) else { return };
                let number = self.next_number();
                self.bring(thread, buffer, stream, way);
                let what = if way.is_multiple_of(5) { "busy" } else { "mix" };
                self.call(thread, what, &[buffer, stream, number], &[on], &[Thing::Buffer(buffer)]);
                self.used(buffer, stream, thread);
            }
            18 | 19 => {
                let (Some(target), Some(source)) = (self.filled(first), self.filled(way)) else { return };
                if target == source {
                    return;
                }
                self.bring(thread, target, stream, way);
                self.bring(thread, source, stream, way / 2);
                let number = self.next_number();
                let alone = [Thing::Buffer(target), Thing::Buffer(source)];
                if way.is_multiple_of(2) {
                    self.call(thread, "mix_from", &[target, source, stream, number], &[on], &alone);
                } else {
                    self.call(thread, "copy", &[target, source, stream], &[on], &alone);
                }
                self.used(target, stream, thread);
                self.used(source, stream, thread);
            }
            20..=22 => self.download(thread, first, stream, way),
            23 => self.look(thread, first),
            24 => self.make_graph(thread, first, second, way),
            25 | 26 => self.launch_graph(thread, first, stream, way),
            27 => self.end_graph(thread, first),
            28 => {
                if stream != PER_THREAD && way.is_multiple_of(2) {
                    let what = if way.is_multiple_of(4) { "stream_sync" } else { "stream_poll" };
                    self.call(thread, what, &[stream], &[on], &[]);
                } else {
                    self.call(thread, "device_sync", &[], &[], &[]);
                }
            }
            29 => self.blocked(thread, first, second),
            30 => {
                let Some(&event) = self.events.get(usize::from(first) % self.events.len().max(1)) else { return };
                // Events that stand for nothing in particular, and waits for ones never recorded.
                match way % 3 {
                    0 => self.call(thread, "event_record", &[event, stream], &[on], &[Thing::Event(event)]),
                    1 => self.call(thread, "event_wait", &[event, stream], &[on, Thing::Event(event)], &[]),
                    _ => self.call(thread, "event_poll", &[event], &[Thing::Event(event)], &[]),
                }
            }
            _ => {
                if self.pools.len() < POOLS as usize {
                    let pool = self.pools.len() as u32;
                    self.pools.push(pool);
                    self.call(thread, "pool_create", &[pool], &[], &[Thing::Pool(pool)]);
                }
            }
        }
    }

    fn make_stream(&mut self, thread: usize, first: u8, way: u8) {
        if let Some(stream) = Self::free_number(&self.streams, FIRST_STREAM, STREAMS, first) {
            let own_way = !way.is_multiple_of(3);
            self.streams.insert(stream, own_way);
            self.call(thread, "stream_create", &[stream, u32::from(own_way)], &[], &[Thing::Stream(stream)]);
        }
    }

    fn end_stream(&mut self, thread: usize, first: u8, way: u8) {
        let Some(stream) = Self::some(&self.streams, first) else { return };
        let mut pending: Vec<u32> =
            self.copies.iter().filter(|(_, copy)| copy.0 == stream).map(|(&number, _)| number).collect();
        pending.sort_unstable();
        for copy in pending {
            self.copies.remove(&copy);
            self.call(thread, "look", &[copy, stream], &[Thing::Stream(stream)], &[Thing::Copy(copy)]);
        }
        let mut here: Vec<u32> = self
            .buffers
            .iter()
            .filter(|(_, buffer)| matches!(buffer.place, Place::On(on, _) if on == stream))
            .map(|(&number, _)| number)
            .collect();
        here.sort_unstable();
        if !here.is_empty() {
            let alone: Vec<Thing> = here.iter().map(|&buffer| Thing::Buffer(buffer)).collect();
            let what = if way.is_multiple_of(2) { "stream_sync" } else { "stream_poll" };
            self.call(thread, what, &[stream], &[Thing::Stream(stream)], &alone);
            here.iter().for_each(|&buffer| self.settle(buffer));
        }
        self.streams.remove(&stream);
        self.call(thread, "stream_destroy", &[stream], &[], &[Thing::Stream(stream)]);
    }

    fn event(&mut self, thread: usize, first: u8, way: u8) {
        if self.events.len() > 1 && way.is_multiple_of(4) {
            let event = self.events.swap_remove(usize::from(first) % self.events.len());
            self.call(thread, "event_destroy", &[event], &[], &[Thing::Event(event)]);
        } else if let Some(event) = (0..EVENTS).find(|event| !self.events.contains(event)) {
            self.events.push(event);
            self.call(thread, "event_create", &[event], &[], &[Thing::Event(event)]);
        }
    }

    fn allocate(&mut self, thread: usize, first: u8, stream: u32, way: u8) {
        let Some(buffer) = Self::free_number(&self.buffers, 0, BUFFERS, first) else { return };
        let thing = Thing::Buffer(buffer);
        let on = Thing::Stream(stream);
        let pool = self.pools.first().copied().filter(|_| way % 4 == 1);
        let place = match (pool, way % 4) {
            (Some(pool), _) => {
                self.call(thread, "pool_malloc", &[buffer, pool, stream], &[on, Thing::Pool(pool)], &[thing]);
                Place::On(stream, thread)
            }
            (None, 0 | 1) => {
                self.call(thread, "malloc_async", &[buffer, stream], &[on], &[thing]);
                Place::On(stream, thread)
            }
            _ => {
                self.call(thread, "malloc", &[buffer], &[], &[thing]);
                Place::Nowhere
            }
        };
        let in_order = place != Place::Nowhere;
        self.buffers.insert(buffer, Buffer { is_filled: false, place, graphs: 0, in_order });
        // Nearly always something is put into it.
        if way % 16 != 3 {
            let number = self.next_number();
            self.bring(thread, buffer, stream, way / 4);
            self.call(thread, "iota", &[buffer, stream, number], &[on], &[thing]);
            self.used(buffer, stream, thread);
        }
    }

    fn free(&mut self, thread: usize, first: u8, stream: u32, way: u8) {
        let Some(buffer) = Self::some(&self.buffers, first) else { return };
        if self.buffers[&buffer].graphs > 0 {
            return;
        }
        if way.is_multiple_of(2) {
            self.bring(thread, buffer, stream, way / 2);
            self.call(thread, "free_async", &[buffer, stream], &[Thing::Stream(stream)], &[Thing::Buffer(buffer)]);
        } else {
            if self.buffers[&buffer].in_order {
                self.call(thread, "device_sync", &[], &[], &[Thing::Buffer(buffer)]);
            }
            self.call(thread, "free", &[buffer], &[], &[Thing::Buffer(buffer)]);
        }
        self.buffers.remove(&buffer);
    }

    fn download(&mut self, thread: usize, first: u8, stream: u32, way: u8) {
        let Some(buffer) = self.filled(first) else { return };
        let thing = Thing::Buffer(buffer);
        let on = Thing::Stream(stream);
        match way % 3 {
            0 => {
                self.bring(thread, buffer, stream, way / 3);
                let pinned = u32::from(way / 3 % 2);
                self.call(thread, "download", &[buffer, stream, pinned], &[on], &[thing]);
                self.settle(buffer);
            }
            1 => {
                self.bring(thread, buffer, LEGACY, way / 3);
                self.call(thread, "download_now", &[buffer], &[], &[thing]);
                self.settle(buffer);
            }
            _ => {
                let Some(copy) = Self::free_number(&self.copies, 0, COPIES, way) else { return };
                self.bring(thread, buffer, stream, way / 3);
                self.call(thread, "download_later", &[buffer, stream, copy], &[on], &[thing, Thing::Copy(copy)]);
                self.copies.insert(copy, (stream, thread));
                self.used(buffer, stream, thread);
            }
        }
    }

    fn look(&mut self, thread: usize, first: u8) {
        let Some(copy) = Self::some(&self.copies, first) else { return };
        let Some((stream, owner)) = self.copies.remove(&copy) else { return };
        let thread = if stream == PER_THREAD { owner } else { thread };
        self.call(thread, "look", &[copy, stream], &[Thing::Stream(stream)], &[Thing::Copy(copy)]);
    }

    fn make_graph(&mut self, thread: usize, first: u8, second: u8, way: u8) {
        let (Some(buffer), Some(stream)) = (self.filled(first), self.own_way(second)) else { return };
        let Some(graph) = Self::free_number(&self.graphs, 0, GRAPHS, way) else { return };
        let (host, mode) = (u32::from(way % 2), u32::from(way / 2 % 2));
        let number = self.next_number();
        let alone = [Thing::Stream(stream), Thing::Graph(graph), Thing::Buffer(buffer)];
        self.call(thread, "graph_make", &[graph, stream, buffer, number, host, mode], &[], &alone);
        self.graphs.insert(graph, Graph { buffer, has_host: host == 1 });
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.graphs += 1;
        }
    }

    fn launch_graph(&mut self, thread: usize, first: u8, stream: u32, way: u8) {
        let Some(graph) = Self::some(&self.graphs, first) else { return };
        let Graph { buffer, has_host } = self.graphs[&graph];
        let alone = [Thing::Graph(graph), Thing::Buffer(buffer)];
        self.bring(thread, buffer, stream, way);
        self.call(thread, "graph_launch", &[graph, stream], &[Thing::Stream(stream)], &alone);
        self.used(buffer, stream, thread);
        if has_host || way.is_multiple_of(3) {
            self.call(thread, "graph_look", &[graph, stream], &[Thing::Stream(stream)], &alone);
            self.settle(buffer);
        }
    }

    fn end_graph(&mut self, thread: usize, first: u8) {
        let Some(graph) = Self::some(&self.graphs, first) else { return };
        let Some(Graph { buffer, .. }) = self.graphs.remove(&graph) else { return };
        self.call(thread, "device_sync", &[], &[], &[Thing::Graph(graph), Thing::Buffer(buffer)]);
        self.settle(buffer);
        self.call(thread, "graph_destroy", &[graph], &[], &[Thing::Graph(graph)]);
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.graphs -= 1;
        }
    }

    /// A thread waits for a stream that is held up until another thread's later call lets it go on.
    fn blocked(&mut self, thread: usize, first: u8, second: u8) {
        let (Some(held), Some(other)) = (self.own_way(first), self.own_way(second)) else { return };
        if held == other || self.threads < 2 || self.cells == CELLS {
            return;
        }
        let releaser = (thread + 1 + usize::from(first) % (self.threads - 1)) % self.threads;
        let cell = self.new_cell();
        // What others have begun must be over, or it might wait for the held stream and the releaser for it.
        let alone = [Thing::Cell(cell), Thing::Everything];
        self.call(thread, "value_wait", &[cell, held, 1], &[Thing::Stream(held)], &alone);
        // Nothing gets in front of the write on its stream, where it might wait for the held one.
        self.call(releaser, "value_write", &[cell, other, 1], &[], &[Thing::Stream(other), Thing::Cell(cell)]);
        self.call(thread, "stream_sync", &[held], &[Thing::Stream(held)], &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(count: u32) -> Vec<Step> {
        let byte =
            |i: u32, salt: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(salt.wrapping_mul(40_503)) >> 13) as u8;
        (0..count)
            .map(|i| Step {
                thread: byte(i, 1),
                kind: byte(i, 2),
                first: byte(i, 3),
                second: byte(i, 4),
                way: byte(i, 5),
            })
            .collect()
    }

    #[test]
    fn every_wait_is_for_a_call_that_stands_before() {
        let text = program(5, &steps(400));
        let mut made = [0usize; 5];
        let mut waits = 0;
        for line in text.lines().filter(|line| !line.starts_with("program") && *line != "end") {
            let mut words = line.split_whitespace();
            let thread: usize = words.next().unwrap().parse().unwrap();
            for word in words.filter_map(|word| word.strip_prefix('@')) {
                let (other, position) = word.split_once('.').unwrap();
                let (other, position): (usize, usize) = (other.parse().unwrap(), position.parse().unwrap());
                assert!(other != thread && position < made[other], "{line}");
                waits += 1;
            }
            made[thread] += 1;
        }
        assert!(waits > 50 && made.iter().all(|&calls| calls > 20), "{waits} waits, {made:?} calls");
    }

    #[test]
    fn a_part_of_the_steps_is_a_program_too() {
        let all = steps(60);
        for left_out in 0..all.len() {
            let mut fewer = all.clone();
            fewer.remove(left_out);
            assert!(program(3, &fewer).ends_with("end\n"));
        }
    }
}

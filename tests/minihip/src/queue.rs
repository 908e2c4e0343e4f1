//! The thread behind a stream: takes items in order, waits for what they depend on, runs them.

use crate::config::config;
use crate::device::device;
use crate::error::{HipError, HipResult};
use crate::op::{self, Executor};
use crate::progress::poll_until;
use crate::registry::lock;
use crate::stream::{Item, Stream};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// Starts the thread of `stream`. Threads are never joined: a process may end with work in its queues.
pub(crate) fn start(stream: &Arc<Stream>) -> HipResult {
    let stream = Arc::clone(stream);
    let name = format!("hip-queue-{}", stream.id);
    thread::Builder::new().name(name).spawn(move || run(&stream)).map(drop).map_err(|_| HipError::OUT_OF_MEMORY)
}

fn run(stream: &Arc<Stream>) {
    block_signals();
    let mut executor = Executor::default();
    let mut chaos = config().chaos_seed.map(|seed| Chaos::new(seed, stream.id));
    let mut batch = VecDeque::new();
    while next_batch(stream, &mut batch) {
        for Item { number, dependencies, op } in batch.drain(..) {
            for dependency in &dependencies {
                dependency.stream.progress.wait(dependency.target);
            }
            if let Some(chaos) = &mut chaos {
                chaos.delay();
            }
            // A panic here would be a bug of ours; the stream goes on, so that the program ends by its own report.
            if catch_unwind(AssertUnwindSafe(|| op::run(&op, &mut executor, chaos.as_mut()))).is_err() {
                eprintln!("minihip: internal error while running an item of stream {}", stream.id);
            }
            // Before the count goes up: what the item holds (a module, a pool's block) is free once it is done.
            drop(op);
            stream.progress.publish(number);
        }
    }
    if let Ok(device) = device(stream.device) {
        device.remove_stream(stream.id);
    }
}

/// Signals are for the program's own threads.
fn block_signals() {
    // SAFETY: `set` is a local that sigfillset initialises before it is read; the mask change is this thread's own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fatal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(&raw mut set, fatal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Fills `batch` with what is queued, waiting for something if need be; false when the stream is closed and drained.
fn next_batch(stream: &Stream, batch: &mut VecDeque<Item>) -> bool {
    let mut polled = false;
    let mut queue = lock(&stream.queue);
    loop {
        if !queue.items.is_empty() {
            std::mem::swap(&mut queue.items, batch);
            return true;
        }
        if queue.closing {
            return false;
        }
        if polled {
            queue.parked = true;
            queue = stream.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        } else {
            drop(queue);
            // A launch that follows at once needs no wake-up. Relaxed: only a hint to look, the lock orders what is found.
            poll_until(|| stream.submitted.load(Ordering::Relaxed) != stream.progress.done());
            polled = true;
            queue = lock(&stream.queue);
        }
    }
}

/// Random delays, a sequence per stream (`MINIHIP_CHAOS`).
#[derive(Debug)]
pub(crate) struct Chaos(u64);

impl Chaos {
    fn new(seed: u64, stream: u64) -> Self {
        Self(splitmix(seed ^ splitmix(stream)) | 1)
    }

    /// The next random number (xorshift64*).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Delays: half the items not at all, most of the others up to 30 us, one in sixteen up to 300 us.
    pub(crate) fn delay(&mut self) {
        let draw = self.next() >> 16;
        let limit_us = match draw % 16 {
            0..=7 => return,
            8..=14 => 30,
            _ => 300,
        };
        thread::sleep(Duration::from_micros((draw >> 8) % limit_us));
    }
}

pub(crate) fn splitmix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chaos_repeats_for_a_seed_and_differs_between_streams() {
        let draw = |seed, stream| {
            let mut chaos = Chaos::new(seed, stream);
            (0..8).map(|_| chaos.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }
}

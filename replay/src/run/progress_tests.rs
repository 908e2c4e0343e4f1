//! The counters under real threads; all interleavings of few steps are gone through in `tests/loom`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::spinning::Cores;

#[test]
fn two_lanes_hand_over_many_times_without_losing_a_wakeup() {
    let progress = Arc::new(Progress::new(2, Cores { threads: 2, available: 2 }));
    let rounds = 20_000;
    let other = Arc::clone(&progress);
    let thread = std::thread::spawn(move || {
        for round in 1..=rounds {
            assert!(other.wait(0, round));
            other.publish(1, round);
        }
    });
    for round in 1..=rounds {
        progress.publish(0, round);
        assert!(progress.wait(1, round));
    }
    thread.join().unwrap();
}

#[test]
fn waits_for_different_counts_each_end_at_theirs() {
    let progress = Arc::new(Progress::new(1, Cores { threads: 4, available: 1 }));
    let waiters: Vec<_> = [30_u64, 10, 20]
        .map(|count| {
            let progress = Arc::clone(&progress);
            std::thread::spawn(move || progress.wait(0, count).then(|| progress.done(0) >= count))
        })
        .into();
    // Whenever they come to it: the nearest count is announced.
    let begun = Instant::now();
    while progress.lanes[0].wanted.load(Ordering::Relaxed) != 10 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the nearest count is not announced");
        std::thread::sleep(Duration::from_millis(1));
    }
    for count in 1..=30 {
        progress.publish(0, count);
    }
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Some(true));
    }
}

#[test]
fn stopping_ends_a_parked_wait() {
    let progress = Arc::new(Progress::new(1, Cores { threads: 4, available: 1 }));
    let other = Arc::clone(&progress);
    let thread = std::thread::spawn(move || other.wait(0, 1));
    std::thread::sleep(Duration::from_millis(20));
    progress.stop();
    assert!(!thread.join().unwrap());
}

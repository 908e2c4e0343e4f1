//! The counters under real threads; all interleavings of few steps are gone through in `tests/loom`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::spinning::Cores;

#[test]
fn two_lanes_hand_over_many_times_without_losing_a_wakeup() {
    let progress = Arc::new(Progress::new(2, Cores { threads: 2, available: 2 }));
    // Where the machine has so much else to do that each hand-over takes a time slice, as many as there is time for.
    const ROUNDS: u64 = 20_000;
    const TIME: Duration = Duration::from_secs(5);
    let other = Arc::clone(&progress);
    let thread = std::thread::spawn(move || {
        (1..=ROUNDS).take_while(|&round| other.wait(0, round)).map(|round| other.publish(1, round)).count()
    });
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && begun.elapsed() < TIME {
        rounds += 1;
        progress.publish(0, rounds);
        assert!(progress.wait(1, rounds));
    }
    progress.stop();
    assert_eq!(thread.join().unwrap() as u64, rounds);
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

//! The thread that prepares segments before their owners need them and unmaps them afterwards.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::segment::Segment;
use super::thread_stream::ThreadStream;
use crate::guest::{alive, threads};

/// Something to do.
#[derive(Debug)]
enum Job {
    Prepare(Arc<ThreadStream>),
    Unmap(Segment),
    /// Run once, after some time has passed.
    Later(fn()),
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    more: Condvar,
}

/// Handle to the background thread. Without one (no thread could be started) every owner does its own work.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    queue: Option<Arc<Queue>>,
}

/// How long a [`Background::later`] job waits.
const LATER: Duration = Duration::from_millis(100);

impl Background {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let queue = Arc::new(Queue::default());
        let theirs = Arc::clone(&queue);
        let started = threads::spawn("hrr-segments", move || serve(&theirs));
        Background { queue: started.then_some(queue) }
    }

    /// Has the next segment of a stream made.
    pub(crate) fn prepare(&self, stream: Arc<ThreadStream>) {
        self.push(Job::Prepare(stream));
    }

    /// Unmaps a segment that its owner has left.
    pub(crate) fn unmap(&self, segment: Segment) {
        self.push(Job::Unmap(segment));
    }

    /// Runs a function a little later.
    pub(crate) fn later(&self, function: fn()) {
        self.push(Job::Later(function));
    }

    fn push(&self, job: Job) {
        match &self.queue {
            Some(queue) => {
                queue.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(job);
                queue.more.notify_one();
            }
            None => match job {
                // The owner makes its segment itself when it needs it.
                Job::Prepare(_) | Job::Later(_) => {}
                Job::Unmap(segment) => drop(segment),
            },
        }
    }
}

fn serve(queue: &Queue) {
    loop {
        let job = {
            let mut jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(job) = jobs.pop_front() {
                    break job;
                }
                let (woken, timeout) =
                    queue.more.wait_timeout(jobs, alive::INTERVAL).unwrap_or_else(PoisonError::into_inner);
                jobs = woken;
                if timeout.timed_out() {
                    drop(jobs);
                    alive::beat();
                    jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        match job {
            Job::Prepare(stream) => stream.prepare_ahead(),
            Job::Unmap(segment) => drop(segment),
            Job::Later(function) => {
                // Owners that need a segment meanwhile make it themselves.
                std::thread::sleep(LATER);
                function();
            }
        }
    }
}

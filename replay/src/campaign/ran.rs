//! What one run came to, gathered when it is over.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Campaign, Session};
use crate::plan::teardown::TornDown;
use crate::report::gpu_timer::{Keep, Resolved};
use crate::report::meter::Measured;
use crate::results::validate::Verdict;
use crate::run::section::Run;
use crate::run::{Failure, Shared};
use crate::trace::taken::RunTaken;
use crate::triage::diagnosis::Phase;
use crate::triage::own_calls;

/// What one run came to.
pub(crate) struct Ran {
    pub(crate) run: Run,
    pub(crate) verdict: Verdict,
    pub(crate) failures: Vec<Failure>,
    pub(crate) kernels: u64,
    pub(crate) graphs: u64,
    pub(crate) hand_offs: u64,
    pub(crate) measured: Option<Measured>,
    pub(crate) resolved: Option<Resolved>,
    /// What a timeline is drawn from, where one is wanted of this run.
    pub(crate) taken: Option<RunTaken>,
    /// Putting the plan back as it was.
    pub(crate) reset: Duration,
    /// Destroying what the archive leaves alive.
    pub(crate) teardown: Option<(Duration, TornDown)>,
}

impl<'a> Campaign<'a> {
    /// Collects what a run left, and destroys what the archive leaves alive.
    pub(super) fn finish(
        &self,
        session: &mut Session<'a>,
        shared: &Shared,
        run: Run,
        mut verdict: Verdict,
        reset: Duration,
    ) -> Ran {
        self.phase(Phase::TearDown);
        let complete = !run.abandoned;
        let mut measured = self.metering.as_ref().filter(|_| complete).map(|metering| metering.collect());
        let mut resolved = self.timer.as_ref().filter(|_| complete).map(|timer| timer.finish());
        let taken = self.take(measured.as_mut(), resolved.as_mut(), &mut verdict);
        let again = self.options.runs() > 1 || self.options.measure.any();
        let teardown = (complete && again && !shared.progress.stopped()).then(|| {
            let began = Instant::now();
            {
                // What the runtime keeps for a thread goes with it.
                let _watched = own_calls::enter("ending worker threads");
                shared.end_runners();
            }
            let torn_down = session.planned.teardown.run(self.runtime);
            (began.elapsed(), torn_down)
        });
        Ran {
            run,
            verdict,
            failures: std::mem::take(&mut *shared.failures.lock().unwrap_or_else(PoisonError::into_inner)),
            // Relaxed: the runners' ends were received through a channel.
            kernels: shared.kernels.load(Ordering::Relaxed).saturating_sub(session.planned.prefix_launches.0),
            graphs: shared.graphs.load(Ordering::Relaxed).saturating_sub(session.planned.prefix_launches.1),
            hand_offs: shared.hand_offs.load(Ordering::Relaxed),
            measured,
            resolved,
            taken,
            reset,
            teardown,
        }
    }

    /// What a timeline of the run is drawn from.
    fn take(
        &self,
        measured: Option<&mut Measured>,
        resolved: Option<&mut Resolved>,
        verdict: &mut Verdict,
    ) -> Option<RunTaken> {
        let metering = self.metering.as_ref().filter(|metering| metering.kept() == Keep::Spans)?;
        let mut taken = RunTaken {
            runners: std::mem::take(&mut measured?.taken),
            results: std::mem::take(&mut verdict.each),
            opened: metering.opened(),
            ..RunTaken::default()
        };
        if let Some(resolved) = resolved {
            taken.spans = std::mem::take(&mut resolved.spans);
            taken.origins = std::mem::take(&mut resolved.origins);
            taken.spans_left_out = resolved.spans_left_out;
            taken.untimed = resolved.untimed;
        }
        Some(taken)
    }
}

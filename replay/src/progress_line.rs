//! The line that tells a person at a terminal how far a replay has come, how fast it goes, and how long the rest will take.
//! It is on standard error, only where that is a terminal, and gone when the replay is over.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::Shared;

/// Between two looks at the workers' progress: seldom enough not to disturb what is timed.
const EVERY: Duration = Duration::from_millis(250);
/// No colours, whatever NO_COLOR says.
const PLANNING: &str = "[HRR] planning and staging, {elapsed}";
const REPLAYING: &str = "[HRR] {percent:>3} %  {human_pos} of {human_len} calls  {per_sec}  {eta} left";

/// Whether a progress line is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressLine {
    /// Never.
    #[default]
    Off,
    /// Where standard error is a terminal.
    OnTerminal,
}

/// A progress line that is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    state: Arc<State>,
    /// Dropped with the line; the thread that draws it ends then.
    _alive: Sender<()>,
}

#[derive(Debug)]
struct State {
    bar: ProgressBar,
    /// The run at hand, and how many there have been with it.
    run: Mutex<(Weak<Shared>, u64)>,
    /// Calls of one run.
    calls: AtomicU64,
}

impl Shown {
    /// A line, where one is wanted and there is somebody to see it.
    pub(crate) fn start(wanted: ProgressLine) -> Option<Self> {
        if wanted == ProgressLine::Off || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(PLANNING));
        bar.tick();
        let state = Arc::new(State { bar, run: Mutex::default(), calls: AtomicU64::new(0) });
        let (alive, over) = bounded::<()>(0);
        let drawn = Arc::clone(&state);
        let drawing = std::thread::Builder::new().name("hrr-progress".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(EVERY) {
                drawn.draw();
            }
        });
        // Without a thread there is no line.
        drawing.ok()?;
        Some(Shown { state, _alive: alive })
    }

    /// The plan stands: `runs` runs of `calls` calls each. `told` prints what is told at that time, above the line.
    pub(crate) fn planned(&self, calls: u64, runs: u64, told: impl FnOnce()) {
        let bar = &self.state.bar;
        bar.suspend(told);
        // Relaxed: a figure for people.
        self.state.calls.store(calls, Ordering::Relaxed);
        bar.set_length(calls.saturating_mul(runs).max(1));
        bar.set_style(style(REPLAYING));
        bar.reset();
        bar.force_draw();
    }

    /// A run begins.
    pub(crate) fn watch(&self, shared: &Arc<Shared>) {
        let mut run = self.state.run.lock().unwrap_or_else(PoisonError::into_inner);
        *run = (Arc::downgrade(shared), run.1 + 1);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.state.bar.finish_and_clear();
    }
}

impl State {
    fn draw(&self) {
        if self.bar.is_finished() {
            return;
        }
        // Relaxed: as above.
        let calls = self.calls.load(Ordering::Relaxed);
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = run.0.upgrade().filter(|_| calls > 0) {
            self.bar.set_position((run.1 - 1) * calls + shared.progress.total().min(calls));
        }
        self.bar.tick();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_understood() {
        for template in [PLANNING, REPLAYING] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}

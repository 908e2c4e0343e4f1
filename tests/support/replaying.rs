//! An archive replayed, and the summary read back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::built;
use crate::process::{Finished, run, with_clean_environment};
use crate::recording::Recording;

/// Longest time that a replay of these short recordings may take before it counts as stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// Counts of the summary's line `D2H checks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Results that are as recorded.
    pub pass: u64,
    /// Of these, equal to the byte.
    pub exact: u64,
    /// Of these, within the tolerance.
    pub within: u64,
    /// Results that are not.
    pub fail: u64,
    /// Checks that had nothing to compare.
    pub skipped: u64,
}

impl Checks {
    /// Reads `P pass (E exact, T within tol), F fail, S skipped` from a replay's output.
    fn parse(output: &str) -> Option<Checks> {
        let line = output.lines().find(|line| line.contains("D2H checks"))?;
        let (_, counts) = line.split_once("D2H checks")?;
        let number_before = |word: &str| {
            let (before, _) = counts.split_once(word)?;
            before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        Some(Checks {
            pass: number_before(" pass")?,
            exact: number_before(" exact")?,
            within: number_before(" within")?,
            fail: number_before(" fail")?,
            skipped: number_before(" skipped")?,
        })
    }
}

/// A replay that was run.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The run.
    pub run: Finished,
    /// The summary's counts; None where there was no summary.
    pub checks: Option<Checks>,
}

impl Replayed {
    /// The counts of a replay that passed, each result equal to the byte: the same runtime on the same machine has no
    /// excuse for anything else, and wrong integers may be close when taken for floats.
    ///
    /// # Errors
    /// In which respect it did not pass, and the whole run.
    pub fn passed(&self) -> Result<Checks, String> {
        let run = &self.run;
        let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}\n{run}")) };
        expect(run.succeeded(), "exit code 0 expected")?;
        let checks = self.checks.ok_or_else(|| format!("no summary\n{run}"))?;
        expect(checks.fail == 0, "exit code 0 and failed checks")?;
        expect(checks.pass == checks.exact + checks.within, "counts that do not add up")?;
        expect(checks.within == 0, "results that are not equal to the byte")?;
        expect(run.stdout.lines().any(|line| line.trim_end() == "[HRR] PASS"), "no [HRR] PASS")?;
        Ok(checks)
    }

    /// The counts of a replay that [`passed`](Self::passed).
    ///
    /// # Panics
    /// It did not pass.
    #[track_caller]
    pub fn expect_pass(&self) -> Checks {
        self.passed().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Whether the replay failed, in whichever way.
    pub fn failed(&self) -> bool {
        !self.run.succeeded()
    }
}

/// A replay to run.
#[derive(Debug)]
pub struct Replay {
    command: Command,
    limit: Duration,
}

impl Replay {
    /// A replay of the archive at `path` on minihip.
    pub fn of(path: &Path) -> Self {
        let mut command = Command::new(built::playback());
        command.arg(path).env("LD_LIBRARY_PATH", built::libraries());
        with_clean_environment(&mut command);
        Replay { command, limit: LIMIT }
    }

    /// A replay of a recording, with the variables that its program needs.
    pub fn of_recording(recording: &Recording) -> Self {
        let mut replay = Self::of(&recording.archive);
        replay.command.envs(recording.workload.environment.iter().map(|(name, value)| (name, value)));
        replay
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.command.env(name, value.to_string());
        self
    }

    /// Unsets a variable.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Delays minihip's queues and the replay's workers at random, as `seed` has it.
    #[must_use]
    pub fn chaos(self, seed: u64) -> Self {
        self.env("MINIHIP_CHAOS", seed).env("HRR_REPLAY_CHAOS", seed)
    }

    /// Shortens the time after which the replay counts as stuck.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The command, to be run otherwise.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs it.
    pub fn run(mut self) -> Replayed {
        let run = run(&mut self.command, self.limit);
        let checks = Checks::parse(&run.stdout);
        Replayed { run, checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let output =
            "[HRR] Wall time : 8.1 ms\n[HRR] D2H checks     : 14 pass (12 exact, 2 within tol), 3 fail, 7 skipped\n";
        let checks = Checks::parse(output).unwrap();
        assert_eq!(checks, Checks { pass: 14, exact: 12, within: 2, fail: 3, skipped: 7 });
        assert_eq!(Checks::parse("[HRR] FAIL\n"), None);
    }
}

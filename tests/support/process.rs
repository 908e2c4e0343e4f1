//! Running a program with a time limit, keeping what it printed.

use std::fmt;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not by itself within its limit.
    TimedOut,
}

/// A program that was run, and what it printed.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// The command line with the variables set for it, to run it again.
    pub command_line: String,
}

impl Finished {
    /// Standard output and standard error.
    pub fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Whether the program exited with 0.
    pub fn succeeded(&self) -> bool {
        self.end == End::Code(0)
    }

    /// Panics unless the program exited with `code`.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.end, End::Code(code), "{self}");
        self
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command_line)?;
        writeln!(f, "ended: {:?}", self.end)?;
        writeln!(f, "--- stdout\n{}--- stderr\n{}---", self.stdout, self.stderr)
    }
}

/// Takes away from `command` what the tests' caller exported and would decide what they test.
pub fn with_clean_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "LD_PRELOAD" || ["HIP_", "HRR_REPLAY_", "MINIHIP_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
}

/// Runs `command`, at most for `limit`; then it is killed.
///
/// # Panics
/// It cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let command_line = command_line(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command_line}: {error}"));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) => break end_of(status),
            Ok(None) if started.elapsed() < limit => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Ok(None) => {
                // Both fail only where it has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                break End::TimedOut;
            }
            Err(error) => panic!("cannot wait for {command_line}: {error}"),
        }
    };
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("the reader does not panic")).into_owned()
    };
    Finished { end, stdout: text(stdout), stderr: text(stderr), command_line }
}

/// How a status says that its program ended.
pub fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    }
}

/// Reads a pipe to its end beside the program, which would block on a full one.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is worth showing all the same.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The command as one would type it.
fn command_line(command: &Command) -> String {
    let quoted = |text: &std::ffi::OsStr| {
        let text = text.to_string_lossy().into_owned();
        let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+%".contains(c));
        if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
    };
    let variables =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

//! Running the built programs, and what they cost.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where `scripts/build` put what is measured, and the runtime whose calls do nothing.
#[derive(Debug)]
pub struct Built {
    out: PathBuf,
    /// Folder of the runtime whose calls do nothing, under the name programs load.
    null: PathBuf,
    /// Folder for archives; goes with this.
    scratch: tempfile::TempDir,
}

/// Which HIP runtime a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hip {
    /// minihip.
    Mini,
    /// The runtime whose calls do nothing.
    Null,
}

/// How a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Call sequence, handles and sizes.
    Metadata,
    /// Contents too.
    Contents,
}

/// What a program that ended well cost, and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// Time from its start to its end, in milliseconds.
    pub wall_ms: f64,
    /// Processor time of all its threads, in milliseconds.
    pub cpu_ms: f64,
    /// The most memory it had resident, in MiB.
    pub peak_mib: f64,
    /// Standard output.
    pub stdout: String,
}

impl Ran {
    /// The number behind `key=` in the output.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&self, key: &str) -> Result<f64, String> {
        let found = self.stdout.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let digits = found.map(|text| text.trim_end_matches(|last: char| !last.is_ascii_digit()));
        digits.and_then(|text| text.parse().ok()).ok_or_else(|| format!("no {key}= in: {}", self.stdout))
    }

    /// The number in milliseconds behind `label` in a replay's summary.
    ///
    /// # Errors
    /// There is none.
    pub fn summary_ms(&self, label: &str) -> Result<f64, String> {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(&format!("[HRR] {label}")));
        let number = line.and_then(|rest| rest.trim_start_matches([' ', ':']).split(' ').next()?.parse().ok());
        number.ok_or_else(|| format!("no {label} in: {}", self.stdout))
    }
}

impl Built {
    /// What is built in `out`; the null runtime lies in `programs`.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(out: &Path, programs: &Path) -> Result<Self, String> {
        for needed in ["lib/libamdhip64.so.7", "lib/libhrr_capture.so", "bin/hrr-playback", "workloads/call_cost"] {
            if !out.join(needed).exists() {
                return Err(format!("{} is missing; run scripts/bench, which builds it", out.join(needed).display()));
            }
        }
        let library = programs.join("libhrr_null_hip.so");
        if !library.exists() {
            return Err(format!("{} is missing; run scripts/bench, which builds it", library.display()));
        }
        let io = |error: std::io::Error| format!("cannot make a folder for archives: {error}");
        let scratch = tempfile::tempdir().map_err(io)?;
        let null = scratch.path().join("null");
        std::fs::create_dir(&null).map_err(io)?;
        std::os::unix::fs::symlink(&library, null.join("libamdhip64.so.7")).map_err(io)?;
        Ok(Built { out: out.to_owned(), null, scratch })
    }

    /// A fresh path for an archive.
    pub fn archive(&self, name: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        // Of the repetition before; where there was none, this fails.
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    /// Path of the null runtime.
    pub fn null_runtime(&self) -> PathBuf {
        self.null.join("libamdhip64.so.7")
    }

    fn command(&self, program: &Path, hip: Hip) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text == "LD_PRELOAD" || ["HIP_", "HRR_", "MINIHIP_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("LD_LIBRARY_PATH", if hip == Hip::Mini { self.out.join("lib") } else { self.null.clone() });
        command.env("HRR_KERNEL_DIR", self.out.join("kernels"));
        command
    }

    /// Runs a workload as it is.
    ///
    /// # Errors
    /// It could not be started or did not end with 0.
    pub fn plain(&self, hip: Hip, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Ran, String> {
        let mut command = self.command(&self.out.join("workloads").join(name), hip);
        command.args(arguments).envs(variables.iter().copied());
        run(&mut command)
    }

    /// Runs a workload recorded into `archive`.
    ///
    /// # Errors
    /// As [`Self::plain`].
    pub fn recorded(
        &self,
        hip: Hip,
        recorded: Recorded,
        archive: &Path,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Ran, String> {
        let mut command = self.command(&self.out.join("workloads").join(name), hip);
        command.args(arguments).envs(variables.iter().copied());
        command.env("LD_PRELOAD", self.out.join("lib/libhrr_capture.so")).env("HIP_HRR_CAPTURE_OUTPUT", archive);
        if recorded == Recorded::Contents {
            command.env("HIP_HRR_CAPTURE_CONTENT", "1");
        }
        run(&mut command)
    }

    /// Replays an archive.
    ///
    /// # Errors
    /// As [`Self::plain`].
    pub fn replay(
        &self,
        hip: Hip,
        archive: &Path,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Ran, String> {
        let mut command = self.command(&self.out.join("bin/hrr-playback"), hip);
        let runtime = if hip == Hip::Mini { self.out.join("lib/libamdhip64.so.7") } else { self.null_runtime() };
        command.arg(archive).arg("--hip-lib").arg(runtime).args(options).envs(variables.iter().copied());
        run(&mut command)
    }
}

fn run(command: &mut Command) -> Result<Ran, String> {
    let said = format!("{command:?}");
    let errors = tempfile::tempfile().map_err(|error| error.to_string())?;
    let errors_too = errors.try_clone().map_err(|error| error.to_string())?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors_too)
        .spawn()
        .map_err(|error| format!("cannot start {said}: {error}"))?;
    let begin = Instant::now();
    let mut stdout = String::new();
    if let Some(mut output) = child.stdout.take() {
        std::io::Read::read_to_string(&mut output, &mut stdout).map_err(|error| format!("{said}: {error}"))?;
    }
    let mut status = 0;
    // SAFETY: all zeros is a value of this plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the process is this one's child and was not waited for; both addresses are of what they must be.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    let wall_ms = begin.elapsed().as_secs_f64() * 1e3;
    if waited < 0 || !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        use std::io::{Read, Seek};
        let (mut errors, mut text) = (errors, String::new());
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut text));
        return Err(format!("{said} ended with status {status:#x}\n{stdout}{text}"));
    }
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    Ok(Ran {
        wall_ms,
        cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
        peak_mib: usage.ru_maxrss as f64 / 1024.0,
        stdout,
    })
}

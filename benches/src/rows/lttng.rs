//! Recording a call, against LTTng-UST tracepoints with the same payload.
//!
//! Skipped, by name, where LTTng is not installed: on Debian `apt-get install lttng-tools liblttng-ust-dev`. The session daemon is
//! started here, without its kernel side, and ends with the measurement; nobody else's is used.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Bench;
use crate::program::{Hip, Recorded};
use crate::table::{Judged, Pairs, Row, Target};

const CALLS: u64 = 400_000;
const SESSION: &str = "hrr_bench";
/// How long the session daemon may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rows of the calls, ours against theirs.
pub fn lttng(bench: &Bench) -> Result<Vec<Row>, String> {
    let home = bench.built.archive("lttng");
    std::fs::create_dir(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let program = match build(&home) {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("bench: lttng: skipped, LTTng-UST is not installed ({reason})");
            return Ok(Vec::new());
        }
    };
    let daemon = match Daemon::start(&home) {
        Ok(daemon) => daemon,
        Err(reason) => {
            eprintln!("bench: lttng: skipped, no LTTng session can be had ({reason})");
            return Ok(Vec::new());
        }
    };
    let mut rows = Vec::new();
    let count = (CALLS / bench.shrink).to_string();
    for kind in ["get_device", "event_record", "launch"] {
        for threads in ["1", "2"] {
            let arguments = [kind, count.as_str(), threads];
            let archive = bench.built.archive("lttng-ours");
            let pairs = Pairs::measure(
                bench.repetitions,
                || {
                    let _ = std::fs::remove_dir_all(&archive);
                    let plain = bench.built.plain(Hip::Null, "call_cost", &arguments, &[])?.number("ns_per_call")?;
                    let metadata = Recorded::Metadata;
                    let ran = bench.built.recorded(Hip::Null, metadata, &archive, "call_cost", &arguments, &[])?;
                    Ok(ran.number("ns_per_call")? - plain)
                },
                || {
                    let run = || ns_per_call(daemon.command(&program.to_string_lossy(), &arguments));
                    let plain = run()?;
                    let traced = daemon.traced(run)?;
                    Ok(traced - plain)
                },
            )?;
            let id = format!("record {kind}, T={threads}, against LTTng-UST: added");
            let note = "baseline: what two tracepoints with the same payload add to a call";
            rows.push(pairs.row(&id, "ns", Judged::Ratio, Target::AtMost(1.0), note));
        }
    }
    Ok(rows)
}

/// Builds the program with the tracepoints.
fn build(to: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("lttng");
    let program = to.join("ust_cost");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-I"]).arg(&source).arg(source.join("ust_cost.c"));
    compiler.arg("-o").arg(&program).args(["-llttng-ust", "-ldl", "-lpthread"]);
    output(compiler)?;
    Ok(program)
}

/// The last line of what a command that failed said; its output where it did not.
fn output(mut command: Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("rror")).or(said.lines().last());
    Err(format!("{name}: {}", line.unwrap_or("it failed")))
}

fn ns_per_call(command: Command) -> Result<f64, String> {
    let said = output(command)?;
    let number = said.split_whitespace().find_map(|word| word.strip_prefix("ns_per_call=")?.parse().ok());
    number.ok_or_else(|| format!("no ns_per_call= in: {said}"))
}

/// A session daemon of our own.
struct Daemon {
    home: PathBuf,
    process: Child,
}

impl Daemon {
    fn start(home: &Path) -> Result<Self, String> {
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").env("LTTNG_HOME", home).env("HOME", home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("lttng-sessiond: {error}"))?;
        let mut daemon = Daemon { home: home.to_owned(), process };
        let begin = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(100));
            // It ends at once where the system's own runs under the same user.
            if let Ok(Some(status)) = daemon.process.try_wait() {
                return Err(format!("lttng-sessiond ended with {status}; is another one running?"));
            }
            match output(daemon.command("lttng", &["--no-sessiond", "list"])) {
                Ok(_) => return Ok(daemon),
                Err(reason) if begin.elapsed() > PATIENCE => return Err(reason),
                Err(_) => {}
            }
        }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("LTTNG_HOME", &self.home).env("HOME", &self.home);
        // Programs wait until the daemon has answered them, so that nothing is measured before tracing is on.
        command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        command
    }

    /// Runs something with the tracepoints enabled, and throws the trace away.
    fn traced(&self, run: impl Fn() -> Result<f64, String>) -> Result<f64, String> {
        let to = self.home.join("trace");
        let lttng = |arguments: &[&str]| output(self.command("lttng", arguments));
        lttng(&["create", SESSION, "--output", &to.to_string_lossy()])?;
        // Room for much of a run, so that what is measured is storing, and not throwing away.
        lttng(&["enable-channel", "-u", "-s", SESSION, "--subbuf-size=4M", "--num-subbuf=8", "calls"])?;
        lttng(&["enable-event", "-u", "-s", SESSION, "-c", "calls", "hrr_bench:*"])?;
        lttng(&["start", SESSION])?;
        let ran = run();
        lttng(&["stop", SESSION])?;
        lttng(&["destroy", SESSION])?;
        let _ = std::fs::remove_dir_all(&to);
        ran
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Asked to end, it lets its consumers end too.
        // SAFETY: the process is this value's own child, which was not waited for.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        let _ = self.process.wait();
    }
}

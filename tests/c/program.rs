//! Compiles the C programs here, runs them under the recorder, and reads back what was recorded.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::{Archive, ArchiveRoot, Damaged};
use hrr_tests::built;
use hrr_tests::process::{Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, recorded};

/// Longest time that a program here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Options to compile with beside the usual ones.
pub(crate) const LINKED: &[&str] = &["-DLINKED", "-lamdhip64"];
/// A shared library.
pub(crate) const SHARED: &[&str] = &["-shared", "-fPIC"];

fn sources() -> PathBuf {
    built::repository().join("tests/c")
}

/// Compiles `source` (a file here, without its extension) into `scratch` under the name `name`.
pub(crate) fn compile(scratch: &Scratch, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let output = scratch.path().join(name);
    let mut command = Command::new("gcc");
    command.args(["-O1", "-g", "-Wall", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-pthread"]);
    command.arg("-I").arg(sources()).arg("-o").arg(&output).arg(sources().join(format!("{source}.c")));
    command.arg("-L").arg(built::libraries()).args(options).arg("-ldl");
    run(&mut command, LIMIT).expect_code(0);
    output
}

/// A command for a program on minihip, not recorded.
pub(crate) fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    with_clean_environment(&mut command);
    command.args(arguments).env("LD_LIBRARY_PATH", built::libraries());
    for name in ["ROCPROFILER_REGISTER_LIBRARY", "ROCPROFILER_REGISTER_FORCE_LOAD", "ROCP_TOOL_LIBRARIES"] {
        command.env_remove(name);
    }
    command
}

/// A program that was recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) run: Finished,
    pub(crate) root: PathBuf,
}

/// Runs a command under the recorder, with contents, into `scratch`.
pub(crate) fn record(scratch: &Scratch, mut command: Command) -> Recorded {
    let root = scratch.path().join("recorded.hrr");
    let preloaded =
        command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, list)| list).map(OsString::from);
    recorded(&mut command, &root, Contents::Recorded);
    if let Some(users) = preloaded {
        let mut list = built::capture_library().into_os_string();
        list.push(":");
        list.push(users);
        command.env("LD_PRELOAD", list);
    }
    let run = run(&mut command, LIMIT);
    Recorded { run, root }
}

impl Recorded {
    /// The processes of the archive.
    pub(crate) fn processes(&self) -> Vec<Archive> {
        let root = ArchiveRoot::open(&self.root).unwrap_or_else(|error| panic!("{error}\n{}", self.run));
        let open = |path: &Path| Archive::open_with(path, Damaged::Tolerate).unwrap_or_else(|error| panic!("{error}"));
        root.processes.iter().map(|process| open(&process.path)).collect()
    }

    /// How often `hipMalloc` was called, by size.
    pub(crate) fn allocations(&self) -> BTreeMap<u64, usize> {
        let mut found = BTreeMap::new();
        for archive in self.processes() {
            for stream in archive.streams() {
                for record in stream.records().filter(|record| archive.api(record.api()).name == "hipMalloc") {
                    assert_eq!(record.ret(), 0, "{}", self.run);
                    *found.entry(record.word(1)).or_default() += 1;
                }
            }
        }
        found
    }

    /// Total of the calls to an entry point.
    pub(crate) fn calls(&self, name: &str) -> usize {
        let of = |archive: &Archive| -> usize {
            let named = |stream: &hrr_format::stream_file::StreamFile| {
                stream.records().filter(|record| archive.api(record.api()).name == name).count()
            };
            archive.streams().iter().map(named).sum()
        };
        self.processes().iter().map(of).sum()
    }
}

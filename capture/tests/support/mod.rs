//! Compiles the scripted runtime and a C program against it, and runs the program under the recorder.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hrr_format::archive::{Archive, Damaged};
use hrr_format::record::{Record, SectionTag, marker};

/// A directory with the scripted runtime and programs linked to it.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not recorded: preloaded, and the output variable unset.
    Off,
    /// Metadata only.
    Metadata,
    /// With contents.
    Contents,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// The library under test, beside this test binary's own directory.
pub(crate) fn capture_library() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let dir = test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let library = dir.join("libhrr_capture.so");
    assert!(library.exists(), "{} is missing: build the package first", library.display());
    library
}

fn gcc(arguments: &[&std::ffi::OsStr]) {
    let output = Command::new("gcc").args(arguments).output().expect("gcc runs");
    assert!(output.status.success(), "gcc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = dir.path().join("libamdhip64.so.7");
        let source = sources().join("fake_hip.c");
        gcc(&[
            "-shared".as_ref(),
            "-fPIC".as_ref(),
            "-O1".as_ref(),
            "-pthread".as_ref(),
            "-Wl,-soname,libamdhip64.so.7".as_ref(),
            "-D_GNU_SOURCE".as_ref(),
            "-w".as_ref(),
            "-o".as_ref(),
            runtime.as_os_str(),
            source.as_os_str(),
        ]);
        Bench { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Compiles a program; `linked` says whether it is linked to the runtime or only has its headers.
    pub(crate) fn program(&self, name: &str, source: &str, linked: Linked) -> PathBuf {
        let file = self.dir.path().join(format!("{name}.c"));
        let text = format!(
            "#define _GNU_SOURCE\n#include \"fake_hip.h\"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             #include <unistd.h>\n#include <pthread.h>\n#include <dlfcn.h>\n#include <errno.h>\n{source}"
        );
        std::fs::write(&file, text).expect("the source can be written");
        let program = self.dir.path().join(name);
        let include = format!("-I{}", sources().display());
        let library = self.dir.path().join("libamdhip64.so.7");
        let mut arguments: Vec<&std::ffi::OsStr> = vec![
            "-O1".as_ref(),
            "-w".as_ref(),
            "-pthread".as_ref(),
            include.as_ref(),
            "-o".as_ref(),
            program.as_os_str(),
            file.as_os_str(),
        ];
        if linked == Linked::ToTheRuntime {
            arguments.push(library.as_os_str());
        }
        arguments.push("-ldl".as_ref());
        gcc(&arguments);
        program
    }

    /// A command that runs a program under the recorder.
    pub(crate) fn command(&self, program: &Path, mode: Mode, output: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.dir.path()).env("LD_PRELOAD", capture_library());
        command.env_remove("HIP_HRR_CAPTURE_OUTPUT").env_remove("HIP_HRR_CAPTURE_CONTENT");
        if mode != Mode::Off {
            command.env("HIP_HRR_CAPTURE_OUTPUT", output);
        }
        if mode == Mode::Contents {
            command.env("HIP_HRR_CAPTURE_CONTENT", "1");
        }
        command
    }

    /// Compiles, runs and reads back.
    pub(crate) fn record(&self, name: &str, source: &str, mode: Mode) -> Recorded {
        let program = self.program(name, source, Linked::ToTheRuntime);
        let root = self.dir.path().join(format!("{name}.hrr"));
        let output = self.command(&program, mode, &root).output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
        Recorded { root, output }
    }
}

/// Whether a program names the runtime when it is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    ToTheRuntime,
    ToNothing,
}

/// What a run left behind.
pub(crate) struct Recorded {
    pub(crate) root: PathBuf,
    pub(crate) output: Output,
}

impl Recorded {
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive::open(&self.root).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Opens whatever a killed program left.
pub(crate) fn open_damaged(root: &Path) -> Archive {
    Archive::open_with(root, Damaged::Tolerate).unwrap_or_else(|error| panic!("{error}"))
}

/// The name of a record's entry point, or of its marker.
pub(crate) fn name(archive: &Archive, record: &Record<'_>) -> String {
    match record.api() {
        marker::OBSERVED => "OBSERVED".to_owned(),
        api => archive.api(api).name.to_string(),
    }
}

/// The names of all records of a thread, in order.
pub(crate) fn names(archive: &Archive, thread: usize) -> Vec<String> {
    archive.streams()[thread].records().map(|record| name(archive, &record)).collect()
}

/// The contents that a blob section refers to.
pub(crate) fn blob(archive: &Archive, record: &Record<'_>, tag: SectionTag) -> Option<Vec<u8>> {
    let reference = record.section_tagged(tag)?.blob()?;
    let found = archive.blobs().get(reference.number).unwrap_or_else(|error| panic!("{error}"));
    found.map(|bytes| bytes.to_vec())
}

//! Planted secrets, a piece of every kind of data that a call can carry: an archive with contents holds each, one without
//! none; and what the recorder wrote without contents, as the system saw it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::record::{Presence, SectionTag};
use hrr_tests::process::run;
use hrr_tests::recording::{Contents, Scratch, record, recorded};
use hrr_tests::workload::Workload;

/// Where a secret may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// In an archive with contents.
    WithContents,
    /// In any: a scalar of the call itself.
    Always,
    /// In none.
    Never,
}

/// The secrets of `tests/workloads/secrets.cpp`.
fn secrets() -> Vec<(&'static str, Vec<u8>, Found)> {
    let number = |number: u32| (0x5ec2_e700u32 + number).wrapping_mul(2_654_435_761).to_le_bytes().to_vec();
    let text = |text: &str| text.as_bytes().to_vec();
    let device_made = |index: u32| (u32::from_le_bytes(number(3).try_into().unwrap()) + index).to_le_bytes().to_vec();
    vec![
        ("a token of four bytes", number(1), Found::WithContents),
        ("a prompt", text("PROMPT OF USER 17"), Found::WithContents),
        ("pinned memory", text("PINNED WORDS OF USER 18"), Found::WithContents),
        ("a row of a pitched copy", text("ROW OF USER 72"), Found::WithContents),
        ("what lies between the rows", text("PADDING OF USER 82"), Found::Never),
        ("a device variable's value", number(2), Found::WithContents),
        ("an argument by value", number(3), Found::WithContents),
        ("a result", device_made(5), Found::WithContents),
        ("the value of a memset", number(4), Found::Always),
        ("a struct by value", number(5), Found::WithContents),
        ("an argument set up by itself", number(6), Found::WithContents),
        ("an argument of a cooperative launch", number(7), Found::WithContents),
        ("an argument of an extended launch", number(8), Found::WithContents),
        ("an argument of a graph's node", number(9), Found::WithContents),
        ("an argument given to an executable graph's node", number(10), Found::WithContents),
        ("memory that a graph reads", text("GRAPH INPUT OF USER 19"), Found::WithContents),
    ]
}

/// Files of an archive by path relative to it.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

fn holders<'f>(files: &'f BTreeMap<String, Vec<u8>>, wanted: &[u8]) -> Vec<&'f str> {
    let holds = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    files.iter().filter(|(_, bytes)| holds(bytes)).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn an_archive_holds_the_programs_data_only_where_that_was_asked_for() {
    let workload = Workload::listed("secrets");
    let with = files(&record(&workload, Contents::Recorded).archive);
    let without = files(&record(&workload, Contents::Withheld).archive);
    for (what, bytes, found) in secrets() {
        assert_eq!(holders(&with, &bytes).is_empty(), found == Found::Never, "{what}, with contents");
        let holders = holders(&without, &bytes);
        assert_eq!(holders.is_empty(), found != Found::Always, "{what} is in {holders:?}");
    }
    // The search finds what is there.
    assert!(!holders(&without, b"apply_view").is_empty(), "names of kernels are recorded");
}

#[test]
fn a_zero_that_was_recorded_is_told_from_one_that_stands_for_something() {
    let workload = Workload::listed("secrets");
    // The last argument of hipSetupArgument is a count, the one before it a genuine zero.
    let arguments = |contents| {
        let recording = record(&workload, contents);
        let archive = Archive::open(&recording.archive).unwrap();
        let mut found = Vec::new();
        for record in archive.streams().iter().flat_map(|stream| stream.records()) {
            let name = archive.api(record.api()).name;
            for section in record.sections().map(Result::unwrap) {
                let is_argument = (name == "hipSetupArgument" && section.tag == SectionTag::In)
                    || section.tag == SectionTag::KernelArgs;
                if is_argument {
                    found.push((name.to_owned(), section.presence, section.payload.to_vec()));
                }
            }
        }
        found
    };
    let (with, without) = (arguments(Contents::Recorded), arguments(Contents::Withheld));
    assert_eq!(with.len(), without.len());
    assert!(with.len() >= 4 + 5, "{with:?}");
    assert!(with.iter().any(|(_, presence, payload)| *presence == Presence::Present && payload[..] == [0; 4]));
    for (one, other) in with.iter().zip(&without) {
        assert_eq!((&one.0, one.2.len()), (&other.0, other.2.len()));
        assert_eq!((one.1, other.1), (Presence::Present, Presence::Withheld), "{}", one.0);
    }
    assert!(without.iter().any(|(name, _, payload)| name == "hipSetupArgument" && payload[..] == [0; 4]));
}

/// Whether the system lets a process be traced here.
fn can_trace() -> Result<(), String> {
    let tried = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    match tried {
        Err(error) => Err(format!("strace: {error}")),
        Ok(output) if !output.status.success() => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(_) => Ok(()),
    }
}

/// The kind of a file in an archive that holds no contents; `None` for any other.
fn kind(name: &str) -> Option<&'static str> {
    let (process, file) = name.split_once('/').unwrap_or(("", name));
    // A manifest is written beside its place and renamed.
    let stem = file.strip_suffix(".tmp").and_then(|stem| stem.rsplit_once('.')).map_or(file, |(stem, _)| stem);
    match (process.starts_with("pid-"), stem) {
        (_, "manifest.json") => Some("manifest"),
        (true, "kernels.jsonl") => Some("names and layouts of kernels"),
        (true, "alive") => Some("sign of life"),
        (true, stream) if stream.starts_with("events/") && stream.ends_with(".evs") => Some("event stream"),
        _ => None,
    }
}

#[test]
fn without_contents_nothing_is_written_but_event_streams_and_manifests() {
    if let Err(reason) = can_trace() {
        eprintln!("skipped: processes cannot be traced here: {reason}");
        return;
    }
    let scratch = Scratch::new("traced");
    let (archive, log) = (scratch.path().join("traced.hrr"), scratch.path().join("calls"));
    let workload = Workload::listed("secrets");
    let mut command = workload.command();
    recorded(&mut command, &archive, Contents::Withheld);
    // The preloaded library is for the program, not for strace.
    let mut traced = Command::new("strace");
    traced.args([
        "-f",
        "-qq",
        // With the paths of descriptors: the archive's files are opened from its root.
        "-y",
        "-s",
        "4096",
        "-e",
        "trace=open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,symlink",
    ]);
    traced.arg("-o").arg(&log);
    for (name, value) in command.get_envs() {
        let value = value.map(|value| value.to_str().unwrap());
        match value {
            Some(value) => traced.arg("-E").arg(format!("{}={value}", name.to_str().unwrap())),
            None => traced.arg("-E").arg(name),
        };
    }
    traced.arg(command.get_program()).args(command.get_args());
    run(&mut traced, Duration::from_secs(120)).expect_code(0);

    let calls = fs::read_to_string(&log).unwrap();
    let root = format!("{}/", archive.display());
    let from_root = format!("<{}>, \"", archive.display());
    let mut written: BTreeMap<&str, u64> = BTreeMap::new();
    let mut others = Vec::new();
    for call in calls.lines().filter(|call| !call.contains(" = -1 ")) {
        let opens = call.contains("open") || call.contains("creat(");
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "creat("].iter().any(|how| call.contains(how));
        if opens && !writes {
            continue;
        }
        let below = call.split_once(&from_root).and_then(|(_, rest)| rest.split('"').next());
        let Some(name) = below.or_else(|| call.split('"').find_map(|part| part.strip_prefix(&root))) else {
            // Shared memory and devices of the runtime, and the terminal; files elsewhere are named below.
            let is_file = opens && !call.contains("\"/dev/");
            if is_file {
                others.push(call);
            }
            continue;
        };
        if opens {
            match kind(name) {
                Some(kind) => *written.entry(kind).or_default() += 1,
                None => others.push(call),
            }
        } else if call.contains("mkdir") {
            assert!(name.ends_with("/events") || name.starts_with("pid-") && !name.contains('/'), "{call}");
        }
    }
    assert!(others.is_empty(), "written without contents: {others:#?}");
    println!("files opened for writing without contents, by kind: {written:?}");
    assert!(written["event stream"] >= 1 && written["manifest"] >= 2, "{written:?}");

    // The same search finds the stores of an archive with contents.
    let with = files(&record(&workload, Contents::Recorded).archive);
    let stores: Vec<&String> = with.keys().filter(|name| kind(name).is_none()).collect();
    assert!(stores.iter().any(|name| name.contains("blobs/")), "{stores:?}");
}

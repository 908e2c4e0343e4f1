//! Random archives of AMD's in-tree HRR, made by `tests/upstream/random_programs.py`: what the reader finds is compared field by
//! field with what the generator says that it wrote, and what it replays, before and after a conversion to the native format and
//! back, with the results that the generator worked out.
//!
//! `HRR_UPSTREAM_SEEDS=FIRST..LAST` has other seeds tried than the few of an ordinary run, `HRR_UPSTREAM_REPLAYED=N` only each N-th
//! of them replayed: reading and converting is much faster.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Api, Role};
use hrr_format::record::{flag, marker};
use hrr_format::upstream::events::Event;
use hrr_format::upstream::launch::{Argument, ArgumentKind, Kernel, Launch};
use hrr_format::upstream::layout::{Extra, HEADER_BYTES, Kind, Layout, Meaning, Subject};
use hrr_format::upstream::write::{Lossy, write};
use hrr_format::upstream::{UpstreamArchive, translate};
use hrr_tests::built;
use hrr_tests::process::run;
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use serde_json::{Value, json};

/// Seeds of an ordinary run.
const SEEDS: std::ops::Range<u64> = 0..16;
/// Archives that are made and looked at together.
const AT_ONCE: u64 = 16;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("HRR_UPSTREAM_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?));
    range.unwrap_or_else(|| panic!("HRR_UPSTREAM_SEEDS: {text:?} is no FIRST..LAST"))
}

/// Of how many seeds one is replayed.
fn replayed_one_in() -> u64 {
    let Ok(text) = std::env::var("HRR_UPSTREAM_REPLAYED") else { return 1 };
    text.parse()
        .ok()
        .filter(|&number| number > 0)
        .unwrap_or_else(|| panic!("HRR_UPSTREAM_REPLAYED: {text:?} is no number"))
}

#[test]
fn random_archives_are_read_as_written_and_survive_the_way_to_the_native_format_and_back() {
    let mut failures = Vec::new();
    let (all, one_in) = (seeds(), replayed_one_in());
    for first in all.clone().step_by(AT_ONCE as usize) {
        let number = AT_ONCE.min(all.end - first);
        let scratch = Scratch::new("upstream-random");
        let mut command = Command::new("python3");
        command.arg("-B").arg(built::repository().join("tests/upstream/generate.py"));
        command.arg("--kernels").arg(built::output("kernels"));
        command.arg("--random").arg(first.to_string()).arg(number.to_string()).arg(scratch.path());
        run(&mut command, Duration::from_secs(300)).expect_code(0);
        for seed in first..first + number {
            if let Err(failure) = check(&scratch.path().join(format!("random-{seed}")), seed % one_in == 0) {
                // At once: a long run may not be waited for to its end.
                eprintln!("seed {seed}: {failure}");
                failures.push(format!("seed {seed}: {failure}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Does all of it with one archive.
fn check(case: &Path, is_replayed: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(case.with_extension("json")).map_err(|error| error.to_string())?;
    let told: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let process = case.join(format!("pid-{}", told["pid"]));
    let archive = UpstreamArchive::open(&process).map_err(|error| error.to_string())?;
    read_as_written(&archive, &told)?;
    if told["exit"] != 0 {
        // Records of anything have no meaning: they are translated, for whatever looks at them, and refused at replay.
        translate(&archive, &case.join("native/pid-1")).map_err(|error| error.to_string())?;
        let native = Archive::open(&case.join("native")).map_err(|error| error.to_string())?;
        let calls = calls(&native).len();
        let records = told["records"].as_array().map_or(0, Vec::len);
        return if calls == records { Ok(()) } else { Err(format!("{records} records became {calls} calls")) };
    }
    let [native, back, again] = ["native", "back", "again"].map(|name| case.join(name));
    translate(&archive, &native.join("pid-1")).map_err(|error| error.to_string())?;
    let first = Archive::open(&native).map_err(|error| error.to_string())?;
    write(&first, &back.join("pid-1"), Lossy::Refuse).map_err(|error| error.to_string())?;
    let returned = UpstreamArchive::open(&back.join("pid-1")).map_err(|error| error.to_string())?;
    if returned.complete() != (told["complete"] == true) {
        return Err("whether it was seen to its end is lost on the way back".to_owned());
    }
    translate(&returned, &again.join("pid-1")).map_err(|error| error.to_string())?;
    let second = Archive::open(&again).map_err(|error| error.to_string())?;
    let (before, after) = (calls(&first), calls(&second));
    if let Some((one, other)) = before.iter().zip(&after).find(|(one, other)| one != other) {
        return Err(format!("{one:?} came back as {other:?}"));
    }
    if before.len() != after.len() {
        return Err(format!("{} calls came back as {}", before.len(), after.len()));
    }
    // The two ways of issuing calls that differ most, and device memory at other addresses than it was recorded at.
    let replays = [(case, &["--no-placement"][..]), (&again, &["--threads", "1", "--order", "deps"])];
    for (archive, arguments) in replays.into_iter().filter(|_| is_replayed) {
        let replay = Replay::of(archive).env("HIP_HRR_D2H_EXACT", "1").args(arguments.iter().copied()).run();
        let checks = replay.passed().map_err(|error| format!("{arguments:?}: {error}"))?;
        if json!(checks.exact) != told["checks"] || checks.skipped != 0 {
            return Err(format!("{arguments:?}: {checks:?}, where {} are to be exact", told["checks"]));
        }
    }
    Ok(())
}

/// A call of the program: its thread, its entry point, and the words that mean the same in every archive of it.
type Call = (u64, &'static str, Vec<u64>);

/// The calls that a native archive's program made, in their order.
fn calls(archive: &Archive) -> Vec<Call> {
    let mut found = Vec::new();
    for ordered in hrr_format::ordered::merged(archive.streams()) {
        let record = ordered.record;
        if record.api() >= marker::FIRST || record.flags() & flag::ADDED != 0 {
            continue;
        }
        let tid = archive.streams()[ordered.stream].header().tid;
        let Some(api) = archive.row_of(&record) else {
            found.push((tid, "", Vec::new()));
            continue;
        };
        // Handles that no recorder gave out, and host addresses of what only its contents are recorded of, are made up anew.
        let keeps =
            |role: &Role| !matches!(role, Role::Use(hrr_format::catalogue::HandleKind::Function) | Role::KernelSymbol);
        let params = api.params.iter().filter(|param| keeps(&param.role));
        let words = params.flat_map(|param| (0..param.words).map(move |word| usize::from(param.word + word)));
        found.push((tid, api.name, words.map(|word| record.word(word)).collect()));
    }
    found
}

/// Compares the header and every field of every record.
fn read_as_written(archive: &UpstreamArchive, told: &Value) -> Result<(), String> {
    let header = archive.header();
    if json!([header.version, header.packed(), archive.complete()])
        != json!([told["version"], told["packed"], told["complete"]])
    {
        return Err(format!("the header is read as {header:?}, complete: {}", archive.complete()));
    }
    let records = told["records"].as_array().ok_or("records are told")?;
    if archive.len() != records.len() {
        return Err(format!("{} records are read, {} were written", archive.len(), records.len()));
    }
    for (event, told) in archive.events().zip(records) {
        let layout = archive.layout(&event).ok_or_else(|| format!("event {} is taken for none", event.id))?;
        let found = json!({
            "api": layout.api.name, "sequence": event.sequence, "thread": event.tid, "time": event.time_ns,
        });
        let mut found = found.as_object().cloned().unwrap_or_default();
        if layout.kind == Kind::Launch {
            let launch = Launch::parse(&event.bytes[HEADER_BYTES..])?;
            found.insert("launch".to_owned(), launch_json(&launch));
        } else {
            found.insert("fields".to_owned(), fields_json(&event, layout));
        }
        if layout.kind == Kind::Node {
            let kernel = Kernel::parse_node(&event.bytes[layout.size_bytes as usize..])?;
            found.insert("node".to_owned(), kernel_json(&kernel));
        }
        if Value::Object(found.clone()) != *told {
            return Err(format!(
                "record {} is read as {}\nand was written as {told}",
                event.sequence,
                Value::Object(found)
            ));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fields_json(event: &Event<'_>, layout: &Layout) -> Value {
    let fields = layout.fields.iter().map(|field| {
        let (at, len) = (field.offset_bytes as usize, field.size_bytes as usize);
        let value = match field.ty {
            hrr_format::upstream::layout::Type::Bytes => json!(event.slice(at, len).map(hex)),
            _ => json!(event.unsigned(at, len)),
        };
        (name(layout.api, field.subject), value)
    });
    Value::Object(fields.collect())
}

/// A field as the table of records calls it.
fn name(api: &Api, subject: Subject) -> String {
    let (param, meaning) = match subject {
        Subject::Param(param, meaning) => (param, meaning),
        Subject::Extra(extra) => {
            let name = match extra {
                Extra::Ret => "ret",
                Extra::BlobLo => "blob_hash_lo",
                Extra::BlobHi => "blob_hash_hi",
                Extra::ResultLo => "d2h_hash_lo",
                Extra::ResultHi => "d2h_hash_hi",
                Extra::CodeLo => "co_hash_lo",
                Extra::CodeHi => "co_hash_hi",
                Extra::ModuleId => "module_id",
                Extra::BlobSize => "blob_size",
                Extra::DeviceAddress => "dev_addr",
            };
            return format!("${name}");
        }
    };
    let ending = match meaning {
        Meaning::Value => "",
        Meaning::Pointee => "*",
        Meaning::Member(0) => ".x",
        Meaning::Member(1) => ".y",
        Meaning::Member(_) => ".z",
        Meaning::Inline => ".inline",
        Meaning::Bytes => ".bytes",
        Meaning::Present => ".present",
        Meaning::Count => ".count",
    };
    format!("{}{ending}", api.params[usize::from(param)].name)
}

fn kernel_json(kernel: &Kernel<'_>) -> Value {
    let argument = |argument: &Argument<'_>| {
        let kind = match argument.kind {
            ArgumentKind::Value => 0,
            ArgumentKind::Pointer => 1,
            ArgumentKind::Hidden => 2,
            ArgumentKind::Struct => 3,
        };
        json!([kind, hex(argument.bytes), argument.pointers])
    };
    json!({
        "kernel": String::from_utf8_lossy(kernel.name), "code": [kernel.code.lo, kernel.code.hi],
        "arguments": kernel.arguments.iter().map(argument).collect::<Vec<_>>(),
    })
}

fn launch_json(launch: &Launch<'_>) -> Value {
    let mut value = kernel_json(&launch.kernel);
    value["stream"] = json!(launch.stream);
    value["grid"] = json!(launch.grid);
    value["block"] = json!(launch.block);
    value["shared"] = json!(launch.shared_bytes);
    let snapshots = launch.snapshots.iter().map(|snapshot| {
        let direction = u64::from(!snapshot.restore);
        json!([
            snapshot.address,
            snapshot.offset_bytes,
            snapshot.len_bytes,
            snapshot.hash.lo,
            snapshot.hash.hi,
            direction
        ])
    });
    value["snapshots"] = snapshots.collect();
    value
}

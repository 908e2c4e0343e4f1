//! Archives of AMD's in-tree HRR: made by `tests/upstream/generate.py` from the table of records alone, replayed on minihip.
//!
//! The generator works out what the device must produce, so a field that is misread shows as another result, a refused call
//! or a crash. Comparison is to the byte: wrong integers may be close when taken for floats.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hrr_tests::built;
use hrr_tests::process::{End, Finished, run, with_clean_environment};
use hrr_tests::recording::{Contents, Scratch, record};
use hrr_tests::replaying::Replay;
use hrr_tests::workload::Workload;
use serde_json::Value;

/// Longest time that any of the small programs here may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Generated archives, which go with it.
struct Cases(Scratch);

impl Cases {
    /// All there are.
    fn all() -> Self {
        Self::of(&[])
    }

    /// Those of these names.
    fn of(names: &[&str]) -> Self {
        let scratch = Scratch::new("upstream");
        let generator = built::repository().join("tests/upstream/generate.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(generator).arg("--kernels").arg(built::output("kernels")).arg(scratch.path()).args(names);
        run(&mut command, LIMIT).expect_code(0);
        Cases(scratch)
    }

    /// The archive of a name.
    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the cases were made");
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".json").map(str::to_owned))
            .collect();
        names.sort();
        names
    }
}

fn expected(case: &Path) -> Value {
    let path = case.with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the generator writes JSON")
}

fn texts<'v>(expected: &'v Value, key: &str) -> Vec<&'v str> {
    expected[key].as_array().map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect())
}

fn playback(arguments: &[&str]) -> Finished {
    let mut command = Command::new(built::playback());
    with_clean_environment(&mut command);
    command.args(arguments).env("LD_LIBRARY_PATH", built::libraries());
    run(&mut command, LIMIT)
}

/// Replays with further arguments and says in which respect it is not what was expected.
fn check(case: &Path, arguments: &[&str]) -> Result<(), String> {
    let expected = expected(case);
    let replayed = Replay::of(case).env("HIP_HRR_D2H_EXACT", "1").args(arguments.iter().copied()).run();
    let output = replayed.run.output();
    let fail = |what: &str| Err(format!("{what} expected: {expected}\n{}", replayed.run));
    if let Some(code) = expected["exit"].as_i64()
        && replayed.run.end != End::Code(code as i32)
    {
        return fail("another exit code");
    }
    if let Some(missing) = texts(&expected, "texts").into_iter().find(|text| !output.contains(text)) {
        return fail(&format!("the text {missing:?}"));
    }
    if let Some(wanted) = expected["checks"].as_u64() {
        let Some(checks) = replayed.checks else { return fail("a summary") };
        if (checks.exact, checks.skipped) != (wanted, expected["skipped"].as_u64().unwrap_or(0)) {
            return fail("other counts of checks");
        }
    }
    Ok(())
}

#[test]
fn every_case_replays_as_its_generator_says() {
    let cases = Cases::all();
    let failures: Vec<String> = cases
        .names()
        .iter()
        .filter_map(|name| check(&cases.join(name), &[]).err().map(|failure| format!("== {name}: {failure}")))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_case_replays_on_any_number_of_workers_and_in_order_of_dependencies() {
    let cases = Cases::all();
    let mut failures = Vec::new();
    for name in cases.names() {
        // Elsewhere than recorded, an address that is not known for one leads to nowhere.
        let elsewhere = &["--no-placement", "--threads", "2"][..];
        for arguments in [&["--threads", "1"][..], elsewhere, &["--order", "deps"]] {
            failures.extend(check(&cases.join(&name), arguments).err().map(|failure| format!("== {name}: {failure}")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn info_tells_what_was_found() {
    let cases = Cases::all();
    for name in cases.names() {
        let case = cases.join(&name);
        // The calls of one process are listed at a time.
        let several = std::fs::read_dir(&case).is_ok_and(|found| {
            found.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("pid-")).count() > 1
        });
        let options = if several { &["--info"][..] } else { &["--info", "--events"] };
        let info = playback(&[&[case.to_str().expect("a plain path")], options].concat());
        assert_eq!(info.end, End::Code(0), "{name}\n{info}");
        for text in texts(&expected(&case), "info") {
            assert!(info.output().contains(text), "{name}: {text:?} expected\n{info}");
        }
    }
}

#[test]
fn times_are_the_recorded_ones() {
    let cases = Cases::of(&["linear_v7"]);
    let case = cases.join("linear_v7");
    let info = playback(&[case.to_str().expect("a plain path"), "--info", "--events"]);
    // The generator's clock goes forward by a microsecond a record.
    let malloc = info.stdout.lines().find(|line| line.contains("hipMalloc(")).expect("the case allocates");
    assert!(malloc.split_whitespace().any(|word| word == "1.000"), "{malloc}");
}

/// A converted archive replays to the same results as the original does.
fn same_after(case: &Path, converted: &Path) -> Result<(), String> {
    let original = Replay::of(case).env("HIP_HRR_D2H_EXACT", "1").run().passed()?;
    let again = Replay::of(converted).env("HIP_HRR_D2H_EXACT", "1").run().passed()?;
    if original == again { Ok(()) } else { Err(format!("{original:?} before, {again:?} after")) }
}

fn convert(from: &Path, to: &Path, more: &[&str]) -> Finished {
    let paths = [from, to].map(|path| path.to_str().expect("a plain path"));
    let mut arguments = vec!["--convert", paths[0], paths[1]];
    arguments.extend(more);
    playback(&arguments)
}

/// Calls of an archive by thread, with their arguments: those that the program made.
fn calls(archive: &Path) -> Vec<(u64, String, Vec<Value>)> {
    let info = playback(&[archive.to_str().expect("a plain path"), "--info", "--events", "--json"]);
    let json: Value = serde_json::from_str(&info.stdout).unwrap_or_else(|error| panic!("{error}\n{info}"));
    let calls = json["calls"].as_array().expect("calls are listed");
    calls
        .iter()
        .filter(|call| call["api"].is_string() && call["mark"] != "added")
        .map(|call| {
            let words = call["arguments"].as_array().into_iter().flatten();
            let words = words.filter(|argument| argument["name"] != "reads").map(|argument| argument["words"].clone());
            (call["thread"].as_u64().unwrap_or(0), call["api"].as_str().unwrap_or("").to_owned(), words.collect())
        })
        .collect()
}

#[test]
fn a_native_form_replays_and_the_way_back_keeps_every_call() {
    let scratch = Scratch::new("upstream-convert");
    let mut failures = Vec::new();
    let names = [
        "linear_v8",
        "threads",
        "graph_v7",
        "graph_nodes",
        "pitched_v7",
        "arguments",
        "fat_binary_544",
        "pools",
        "snapshots",
    ];
    let cases = Cases::of(&names);
    for name in names {
        let case = cases.join(name);
        let [native, back, again] =
            ["native", "back", "again"].map(|what| scratch.path().join(format!("{name}-{what}")));
        convert(&case, &native, &[]).expect_code(0);
        assert!(native.join("pid-4242/events/0.evs").is_file());
        convert(&native, &back, &[]).expect_code(0);
        assert!(back.join("pid-4242/events.bin").is_file());
        convert(&back, &again, &[]).expect_code(0);
        for converted in [&native, &back, &again] {
            let same = same_after(&case, converted);
            failures.extend(same.err().map(|failure| format!("== {}: {failure}", converted.display())));
        }
        let (first, second) = (calls(&native), calls(&again));
        assert_eq!(first.len(), second.len(), "{name}");
        for (one, other) in first.iter().zip(&second) {
            assert_eq!((one.0, &one.1), (other.0, &other.1), "{name}");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A torn archive is repaired in its own format; what was cut off is kept.
#[test]
fn repair_makes_a_torn_archive_whole() {
    let scratch = Scratch::new("upstream-repair");
    let target = scratch.path().join("pid-4242");
    copy(&Cases::of(&["torn"]).join("torn/pid-4242"), &target);
    let path = target.to_str().expect("a plain path");
    let repaired = playback(&[path, "--repair"]);
    repaired.expect_code(0);
    assert!(repaired.stdout.contains("repaired"), "{repaired}");
    assert_eq!(std::fs::read(target.join("events.bin.torn")).expect("the tail was kept").len(), 42);
    assert!(!target.join("writer_state.json").exists());
    let info = playback(&[path, "--info"]);
    assert!(info.stdout.contains("Complete     : yes") && !info.stdout.contains("cut off"), "{info}");
    assert!(playback(&[path, "--repair"]).stdout.contains("clean"));
    assert_eq!(Replay::of(&target).run().expect_pass().exact, 1);
}

/// Packing takes the native form, and checking finds nothing amiss in what was translated.
#[test]
fn verify_and_pack_work_as_on_native_archives() {
    let scratch = Scratch::new("upstream-pack");
    let names = ["linear_v7", "threads", "pitched_v6", "snapshots"];
    let cases = Cases::of(&names);
    for name in names {
        let case = cases.join(name);
        let path = case.to_str().expect("a plain path");
        let verified = playback(&[path, "--verify"]);
        assert!(verified.succeeded() && verified.stdout.contains("VERIFIED"), "{verified}");
        let packed = scratch.path().join(format!("{name}.hrrz"));
        playback(&["--pack", path, packed.to_str().expect("a plain path")]).expect_code(0);
        same_after(&case, &packed).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

/// Reports, tables, and two runtimes compared: what works on native archives works on these.
#[test]
fn reports_tables_and_comparisons_work_as_on_native_archives() {
    let scratch = Scratch::new("upstream-reports");
    let cases = Cases::of(&["linear_v8"]);
    let case = cases.join("linear_v8");
    let path = case.to_str().expect("a plain path");
    let at = |name: &str| scratch.path().join(name).to_str().expect("a plain path").to_owned();
    playback(&[path, "--repeat", "3", "--report", &at("run.json")]).expect_code(0);
    playback(&[path, "--info", "--csv", &at("tables"), "--report", &at("recorded.json")]).expect_code(0);
    for name in ["run.json", "recorded.json"] {
        let text = std::fs::read_to_string(at(name)).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("reports are JSON");
        assert!(text.contains("hipMemcpy") && report["schema_version"].is_number(), "{name}: {text}");
    }
    let table = std::fs::read_to_string(scratch.path().join("tables/4242_hip_api_trace.csv")).expect("a table");
    assert!(table.contains("HIP_API,hipMalloc,4242,"), "{table}");
    // Two copies of one runtime.
    let libs = ["first", "second"].map(|name| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).expect("the scratch folder is writable");
        let lib = folder.join("libamdhip64.so.7");
        std::fs::copy(built::output("lib/libamdhip64.so.7"), &lib).expect("the runtime is built");
        lib
    });
    let mut command = Command::new(built::output("bin/hrr-perf"));
    with_clean_environment(&mut command);
    command.arg("run").arg("--hip-lib").arg(&libs[0]).arg("--hip-lib").arg(&libs[1]);
    command.args(["--repeat", "5", "--inner", "2"]).arg(&case);
    let compared = run(&mut command, LIMIT);
    assert!(compared.expect_code(0).stdout.contains("verdict"), "{compared}");
}

/// Converted archives are for their owner alone, both ways, and region sidecars go with them.
#[test]
fn converted_archives_are_private_and_keep_what_lies_beside_the_calls() {
    use std::os::unix::fs::PermissionsExt;
    fn modes(dir: &Path, found: &mut Vec<(PathBuf, u32)>) {
        for entry in std::fs::read_dir(dir).expect("the folder is there").flatten() {
            let mode = entry.metadata().expect("it is there").permissions().mode() & 0o777;
            found.push((entry.path(), mode));
            if entry.path().is_dir() {
                modes(&entry.path(), found);
            }
        }
    }
    let scratch = Scratch::new("upstream-private");
    let cases = Cases::of(&["regions"]);
    let case = cases.join("regions");
    let [native, back] = ["native", "back"].map(|name| scratch.path().join(name));
    convert(&case, &native, &[]).expect_code(0);
    convert(&native, &back, &[]).expect_code(0);
    for root in [&native, &back] {
        let mut found = Vec::new();
        modes(root, &mut found);
        for (path, mode) in &found {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(*mode, expected, "{}", path.display());
        }
        let sidecar = std::fs::read(root.join("pid-4242/regions/torch.hrrr")).expect("the sidecar was copied");
        assert_eq!(sidecar, std::fs::read(case.join("pid-4242/regions/torch.hrrr")).expect("it was made"));
        let info = playback(&[root.to_str().expect("a plain path"), "--info"]);
        assert!(info.stdout.contains("2 entries (1 blocks, 1 segments)"), "{info}");
    }
}

/// What stands between a program recorded here and the in-tree format is named, and nothing is written.
#[test]
fn recorded_programs_convert_or_say_what_would_be_lost() {
    let scratch = Scratch::new("upstream-programs");
    for (name, loss) in [
        ("module_launch", Some("name of hipModuleGetGlobal")),
        ("threads8", None),
        ("saxpy_reduce", None),
        ("async_copies", None),
        ("memory_pool", None),
        ("per_thread_stream", None),
        ("producer_consumer", None),
        ("suballoc", None),
        ("virtual_memory", None),
        ("graph_capture", Some("results that graphs leave in host memory")),
        ("poll_query", Some("of hipEventQuery that did not succeed")),
        ("errors", Some("that did not succeed")),
        ("host_memory", Some("what the host stored in memory that devices use")),
        ("graph_rows", Some("gaps between the rows of host memory that graphs copy")),
    ] {
        let recording = record(&Workload::listed(name), Contents::Recorded);
        let target = scratch.path().join(name);
        let converted = convert(&recording.archive, &target, &[]);
        match loss {
            None => {
                converted.expect_code(0);
                same_after(&recording.archive, &target).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            }
            Some(loss) => {
                converted.expect_code(1);
                assert!(converted.output().contains(loss), "{converted}");
                assert!(!target.exists());
                let lossy = convert(&recording.archive, &target, &["--lossy"]);
                lossy.expect_code(0);
                assert!(lossy.stdout.contains(loss), "{lossy}");
            }
        }
    }
}

/// Fields whose misreading the cases must notice: entry point, field, and by how much its offset is moved.
const MUTATIONS: [(&str, &str, &str); 14] = [
    ("linear_v7", "hipMalloc", "size"),
    ("linear_v7", "hipMemcpy", "dst"),
    ("linear_v7", "hipMemcpy", "src"),
    ("linear_v7", "hipMemcpy", "sizeBytes"),
    ("linear_v7", "hipMemcpy", "$blob_hash_lo"),
    ("linear_v7", "hipMemcpy", "$blob_hash_hi"),
    ("linear_v7", "hipMemsetAsync", "sizeBytes"),
    ("linear_v7", "hipModuleLoad", "$co_hash_lo"),
    ("pitched_v7", "hipMemcpy2D", "dpitch"),
    ("pitched_v7", "hipMemcpy2D", "width"),
    ("pitched_v7", "hipMemcpy2D", "$d2h_hash_lo"),
    ("pitched_v7", "hipMemcpy3D", "p.inline"),
    ("widths", "hipMemsetD16", "count"),
    ("pools", "hipMallocFromPoolAsync", "dev_ptr*"),
];

/// The table of records with one field exchanged with its neighbour is a misread field.
#[test]
fn a_misread_field_is_noticed() {
    let scratch = Scratch::new("upstream-mutations");
    let table =
        std::fs::read_to_string(built::repository().join("format/upstream/records.tsv")).expect("the table is there");
    let path = scratch.path().join("records.tsv");
    let cases = Cases::of(&MUTATIONS.map(|(case, ..)| case));
    let mut missed: Vec<String> = Vec::new();
    for (case, api, field) in MUTATIONS {
        std::fs::write(&path, exchanged(&table, api, field)).expect("the scratch folder is writable");
        let replayed = Replay::of(&cases.join(case))
            .env("HIP_HRR_D2H_EXACT", "1")
            .env("HIP_HRR_UPSTREAM_RECORDS", path.display())
            .run();
        if replayed.passed().is_ok_and(|checks| Some(checks.exact) == expected(&cases.join(case))["checks"].as_u64()) {
            missed.push(format!("{case}: {api}.{field}"));
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// The table with a field of an entry point exchanged with the one after it, or the one before where it is the last.
fn exchanged(table: &str, api: &str, field: &str) -> String {
    let rows = table.lines().map(|line| {
        let mut columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if columns.get(1).map(String::as_str) != Some(api) {
            return line.to_owned();
        }
        let mut fields: Vec<&str> = columns[4].split(' ').collect();
        let at = fields.iter().position(|known| known.split(':').next() == Some(field));
        let at = at.unwrap_or_else(|| panic!("{api} has no field {field}"));
        let other = if at + 1 < fields.len() { at + 1 } else { at - 1 };
        fields.swap(at, other);
        columns[4] = fields.join(" ");
        columns.join("\t")
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_table_of_layouts_that_cannot_be_used_is_named() {
    let cases = Cases::of(&["linear_v7"]);
    let replay = |table: &str| Replay::of(&cases.join("linear_v7")).env("HIP_HRR_UPSTREAM_RECORDS", table).run();
    for (table, wanted) in
        [("/nonexistent", "No such file or directory"), ("/dev/null", "it has no row; give a table like")]
    {
        let run = replay(table).run;
        run.expect_code(1);
        assert!(
            run.stderr.contains(&format!("HIP_HRR_UPSTREAM_RECORDS={table}: ")) && run.stderr.contains(wanted),
            "{run}"
        );
    }
    replay("").expect_pass();
}

/// Formerly such a file passed with the calls that were left.
#[test]
fn a_file_that_ends_before_its_manifest_says_is_refused() {
    let cases = Cases::of(&["linear_v7"]);
    let case = cases.join("linear_v7");
    let events = case.join("pid-4242/events.bin");
    let whole = std::fs::read(&events).expect("the case has events");
    let scratch = Scratch::new("upstream-cut");
    let target = scratch.path().join("target");
    for (kept, found) in [
        (whole.len() - 44, "it ends behind "),
        (whole.len() - 20, "24 bytes are no record header"),
        (whole.len() / 2, "at byte "),
        (8, "it ends behind 0 records, without a trailer"),
    ] {
        std::fs::write(&events, &whole[..kept]).expect("the case is writable");
        let replayed = Replay::of(&case).run().run;
        replayed.expect_code(1);
        let (text, path) = (path_text(&target), path_text(&case));
        for run in [replayed, playback(&["--convert", path, text]), playback(&["--pack", path, text])] {
            run.expect_code(1);
            let line = run.stderr.lines().next().unwrap_or_default();
            assert!(
                line.contains("events.bin is cut short: its manifest says") && line.contains(found),
                "{found}\n{run}"
            );
            assert!(!target.exists(), "{run}");
        }
        let info = playback(&["--info", path]);
        assert!(info.expect_code(0).stdout.contains("incomplete"), "{info}");
        playback(&["--verify", path]).expect_code(1);
    }
    std::fs::write(&events, &whole).expect("the case is writable");
    check(&case, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    // What there is of it is had by repair.
    std::fs::write(&events, &whole[..whole.len() - 44]).expect("the case is writable");
    playback(&["--repair", path_text(&case)]).expect_code(0);
    check(&case, &[]).unwrap_or_else(|failure| panic!("{failure}"));
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

/// A file cut anywhere, or with any byte changed, is read, refused or replayed: nothing hangs or crashes.
#[test]
fn damaged_files_never_crash() {
    let scratch = Scratch::new("upstream-damage");
    let cases = Cases::of(&["graph_nodes"]);
    let source = cases.join("graph_nodes/pid-4242");
    let target = scratch.path().join("pid-4242");
    copy(&source, &target);
    let whole = std::fs::read(source.join("events.bin")).expect("the case has events");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..60 {
        let mut bytes = whole.clone();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % bytes.len();
        match seed & 3 {
            0 => bytes.truncate(at),
            1 => bytes[at] = 0xff,
            _ => bytes[at] ^= 1 << (seed >> 60 & 7),
        }
        std::fs::write(target.join("events.bin"), &bytes).expect("the scratch folder is writable");
        let replay = playback(&[target.to_str().expect("a plain path"), "--info"]);
        assert!(matches!(replay.end, End::Code(0 | 1)), "byte {at}, seed {seed:#x}\n{replay}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the scratch folder is writable");
    for entry in std::fs::read_dir(from).expect("the folder is there").flatten() {
        let target: PathBuf = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("the scratch folder is writable");
        }
    }
}

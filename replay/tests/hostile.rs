//! Archives that are not what a recorder wrote: cut, changed at random, or made to reach where they must not. Whatever they
//! say, opening, describing and replaying them ends, and without a panic, a crash, or a result that was not compared with what
//! was recorded.

#[expect(unreachable_pub, reason = "elsewhere it is a module of a library")]
#[path = "../../tests/support/files.rs"]
mod files;
#[expect(unreachable_pub, reason = "elsewhere it is a module of a library")]
#[path = "../../tests/support/random.rs"]
mod random;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hrr_format::archive::{Archive, process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::blob_store::BlobIndex;
use hrr_format::catalogue::{APIS, Api};
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::Kernel;
use hrr_format::record::{BlobRef, Presence, SectionTag, marker};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
use hrr_replay::info::{Calls, InfoOptions, Output, print_path};
use hrr_replay::machine::runtime::Runtime;
use hrr_replay::machine::topology::PinPolicy;
use hrr_replay::{OrderMode, Outcome, ReplayOptions, replay};

use random::Random;

/// Random changes of each kind.
const FLIPS: u64 = 10_000;
const CUTS: u64 = 200;

fn options() -> ReplayOptions {
    ReplayOptions {
        order: OrderMode::Capture,
        pin: PinPolicy::None,
        watchdog: Some(Duration::from_secs(20)),
        // As far as it goes: more is called, with more that is wrong.
        continue_on_error: true,
        budget_bytes: 256 << 20,
        ..ReplayOptions::default()
    }
}

/// The runtime of `fake_runtime.c`, with stubs for all entry points that it lacks. Each test has its own copy, since each copy
/// has allocations of its own.
struct Fake {
    runtime: Arc<Runtime>,
    library: libloading::Library,
    _copy: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
        let dir = tempfile::tempdir().unwrap();
        let (source, path) = (dir.path().join("fake.c"), dir.path().join("libamdhip64.so"));
        let build = || {
            let own = include_str!("fake_runtime.c");
            let is_own = |name: &str| own.contains(&format!(" {name}("));
            let missing = APIS.iter().filter(|api| !is_own(api.name));
            let stubs: String = missing.map(|api| format!("long {}(void) {{ return 0; }}\n", api.name)).collect();
            fs::write(&source, format!("{own}\n{stubs}")).unwrap();
            let built = Command::new("gcc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&path).arg(&source).output();
            let built = built.expect("gcc is installed");
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            fs::read(&path).unwrap()
        };
        let bytes = BUILT.get_or_init(build);
        fs::write(&path, bytes).unwrap();
        let runtime = Arc::new(Runtime::load(Some(&path)).unwrap());
        // SAFETY: the library is loaded already and has no constructors.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Fake { runtime, library, _copy: dir }
    }

    fn run(&self, path: &Path) -> Result<Outcome, String> {
        let archive = Archive::open(path).map_err(|error| error.to_string())?;
        let outcome = replay(&archive, &self.runtime, &options(), |_| {}).map_err(|error| error.to_string());
        // SAFETY: the symbol is a function of this type; no replay is going on that could use what it frees.
        unsafe { self.library.get::<unsafe extern "C" fn()>(b"fake_reset").unwrap()() };
        outcome
    }
}

fn row(name: &str) -> &'static Api {
    Api::by_name(name).unwrap()
}

fn param(api: &Api, name: &str) -> u8 {
    api.params.iter().position(|param| param.name == name).unwrap() as u8
}

fn call(name: &str, words: &[u64]) -> RecordBuilder {
    assert_eq!(words.len(), usize::from(row(name).words), "{name}");
    RecordBuilder::new(row(name).id, words)
}

fn out(builder: RecordBuilder, number: u8, value: u64) -> RecordBuilder {
    builder.section(SectionTag::Out, number, Presence::Present, &value.to_le_bytes())
}

fn blob(builder: RecordBuilder, tag: SectionTag, number: u8, blob: u64, size_bytes: u64) -> RecordBuilder {
    builder.blob(tag, number, BlobRef { number: blob, size_bytes })
}

/// Gives each record ticks that follow the one before.
fn timed(records: Vec<RecordBuilder>, first_tick: u64) -> Vec<Vec<u8>> {
    let ticks = (first_tick..).step_by(10);
    records.into_iter().zip(ticks).map(|(record, tick)| record.ticks(tick, tick + 5).build()).collect()
}

const D0: u64 = 0x7f00_0000_0000;
const D1: u64 = 0x7f00_0001_0000;
const PINNED: u64 = 0x7e00_0000_0000;
const HOST: u64 = 0x5500_0000_0000;
const STREAM: u64 = 0xaa00;

fn contents(seed: u8) -> Vec<u8> {
    (0..256u32).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

/// Copies through the device and back, in every way that the fake runtime knows, on two threads.
fn records() -> [Vec<RecordBuilder>; 2] {
    let copy3d = |from: u64, to: u64| {
        let mut params = [0u64; 20];
        // Source and destination: address, pitch, row and slice size.
        params[4..8].copy_from_slice(&[from, 64, 64, 4]);
        params[12..16].copy_from_slice(&[to, 64, 64, 4]);
        params[16..19].copy_from_slice(&[64, 4, 1]);
        let bytes: Vec<u8> = params.iter().flat_map(|word| word.to_le_bytes()).collect();
        call("hipMemcpy3D", &[HOST]).section(SectionTag::In, 0, Presence::Present, &bytes)
    };
    let get_nodes = row("hipGraphGetNodes");
    let launch = row("hipModuleLaunchKernel");
    let kernel_args = [D0.to_le_bytes(), 5u64.to_le_bytes()].concat();
    let main = vec![
        out(call("hipMalloc", &[HOST, 256]), 0, D0),
        out(call("hipMalloc", &[HOST, 1024]), 0, D1),
        out(call("hipHostMalloc", &[HOST, 256, 0]), 0, PINNED),
        out(call("hipStreamCreate", &[HOST]), 0, STREAM),
        blob(call("hipMemcpy", &[D0, HOST, 256, 1]), SectionTag::BlobIn, 1, 0, 256),
        call("hipMemcpy", &[D1 + 256, D0, 256, 3]),
        blob(call("hipMemcpy", &[HOST, D1 + 256, 256, 2]), SectionTag::BlobOut, 0, 1, 256),
        RecordBuilder::new(marker::OBSERVED, &[1]),
        blob(call("hipMemcpyAsync", &[PINNED, D0, 256, 2, STREAM]), SectionTag::BlobOut, 0, 2, 256),
        call("hipStreamSynchronize", &[STREAM]),
        RecordBuilder::new(marker::OBSERVED, &[2]),
        call("hipMemset", &[D1, 3, 256]),
        blob(call("hipMemcpy2D", &[D1, 64, HOST, 100, 50, 4, 1]), SectionTag::BlobIn, 2, 3, 200),
        blob(call("hipMemcpy2D", &[HOST, 80, D1, 64, 50, 4, 2]), SectionTag::BlobOut, 0, 4, 200),
        RecordBuilder::new(marker::OBSERVED, &[4]),
        copy3d(D0, D1 + 512),
        blob(call("hipMemcpy", &[HOST, D1 + 512, 256, 2]), SectionTag::BlobOut, 0, 5, 256),
        RecordBuilder::new(marker::OBSERVED, &[5]),
        out(call("hipModuleLoadData", &[HOST, HOST]), 0, 0xb000).blob(
            SectionTag::Code,
            1,
            BlobRef { number: 0, size_bytes: 16 },
        ),
        out(call("hipModuleGetFunction", &[HOST, 0xb000, HOST]), 0, 0xf000).section(
            SectionTag::Text,
            2,
            Presence::Present,
            b"k",
        ),
        call("hipModuleLaunchKernel", &[0xf000, 1, 1, 1, 1, 1, 1, 0, STREAM, HOST, 0]).aux(1).section(
            SectionTag::KernelArgs,
            param(launch, "kernelParams"),
            Presence::Present,
            &kernel_args,
        ),
        out(call("hipGraphCreate", &[HOST, 0]), 0, 0xc000),
        call("hipGraphGetNodes", &[0xc000, HOST, HOST])
            .section(SectionTag::In, param(get_nodes, "numNodes"), Presence::Present, &4u64.to_le_bytes())
            .section(SectionTag::Out, param(get_nodes, "nodes"), Presence::Present, &[0xd0; 32])
            .section(SectionTag::Out, param(get_nodes, "numNodes"), Presence::Present, &4u64.to_le_bytes()),
        call("hipDeviceGetName", &[HOST, 64, 0]).section(SectionTag::Out, 0, Presence::Present, &[b'x'; 64]),
        call("hipDeviceSynchronize", &[]),
        call("hipFree", &[D1]),
    ];
    let worker = vec![
        out(call("hipMalloc", &[HOST, 512]), 0, D0 + 0x10_0000),
        blob(call("hipMemcpy", &[D0 + 0x10_0000, HOST, 256, 1]), SectionTag::BlobIn, 1, 0, 256),
        call("hipFree", &[D0 + 0x10_0000]),
    ];
    [main, worker]
}

fn write(root: &Path, [main, worker]: [Vec<RecordBuilder>; 2]) -> PathBuf {
    let process = process_dir(root, 7);
    let mut writer = ArchiveWriter::create(&process, 7, ContentsMode::Contents).unwrap();
    let packed: Vec<u8> = contents(9)[..200].to_vec();
    for (number, bytes) in
        [contents(0), contents(0), contents(0), packed.clone(), packed, contents(0)].iter().enumerate()
    {
        writer.blob(number as u64, bytes).unwrap();
    }
    writer.code_object(0, b"not a code object").unwrap();
    let arg = |offset, kind| KernelArg { offset, size: 8, kind };
    writer.kernel(&Kernel {
        kernel: 0,
        name: "k".into(),
        code_object: Some(0),
        kernarg_bytes: 16,
        args: Some(vec![arg(0, ArgKind::GlobalBuffer), arg(8, ArgKind::ByValue)]),
        withheld: false,
    });
    writer.stream(0, 7, "main", &timed(main, 100)).unwrap();
    writer.stream(1, 8, "worker", &timed(worker, 103)).unwrap();
    writer.finish().unwrap();
    process
}

fn run(path: &Path) -> Result<Outcome, String> {
    Fake::new().run(path)
}

/// The refusal of an archive with one call more at the end of its first thread, before memory is freed.
fn refusal(extra: Vec<RecordBuilder>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let [mut main, worker] = records();
    main.pop();
    main.extend(extra);
    let process = write(dir.path(), [main, worker]);
    match run(&process) {
        Err(message) => message,
        Ok(outcome) => panic!("it was replayed: {outcome:?}"),
    }
}

#[test]
fn the_archive_passes_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run(&write(dir.path(), records())).unwrap();
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!((outcome.exit_code(), outcome.verdict.exact, outcome.verdict.skipped_total()), (0, 4, 0), "{outcome:?}");
    assert_eq!(outcome.kernels, 1);
}

#[test]
fn ranges_that_leave_their_allocation_are_refused() {
    for (extra, expected) in [
        (call("hipMemset", &[D0, 1, 257]), "touches 257 bytes at offset 0 of an allocation of 256 bytes"),
        (call("hipMemset", &[D0 + 255, 1, 2]), "touches 2 bytes at offset 255"),
        (call("hipMemset", &[D0 + 256, 1, 1]), "touches 1 bytes at offset 256"),
        (call("hipMemset", &[D0, 1, u64::MAX]), "of an allocation of 256 bytes"),
        (call("hipMemcpy", &[D1, D0, 300, 3]), "touches 300 bytes at offset 0 of an allocation of 256"),
        (call("hipMemcpy", &[PINNED + 8, D1, 256, 2]), "touches 256 bytes at offset 8"),
        (call("hipMemset2D", &[D0, 64, 0, 64, 5]), "touches 320 bytes"),
        (call("hipMemset2D", &[D0, u64::MAX, 0, 64, u64::MAX]), "touches"),
        (call("hipMemset", &[D0 - 1, 1, 1]), "lies in no recorded allocation"),
    ] {
        let message = refusal(vec![extra]);
        assert!(message.contains(expected), "{expected:?} is not in {message:?}");
    }
}

#[test]
fn copies_described_by_structs_stay_in_their_allocations() {
    for change in [(4, D0 + 1), (5, 65), (1, 1), (2, 1), (3, 1), (16, 65), (17, 5), (18, 2), (13, 1 << 40)] {
        let mut params = [0u64; 20];
        params[4..8].copy_from_slice(&[D0, 64, 64, 4]);
        params[12..16].copy_from_slice(&[D1, 64, 64, 4]);
        params[16..19].copy_from_slice(&[64, 4, 1]);
        params[change.0] = change.1;
        let bytes: Vec<u8> = params.iter().flat_map(|word| word.to_le_bytes()).collect();
        let copy = call("hipMemcpy3D", &[HOST]).section(SectionTag::In, 0, Presence::Present, &bytes);
        let message = refusal(vec![copy]);
        assert!(message.contains("touches"), "{change:?}: {message}");
    }
}

#[test]
fn contents_of_another_length_than_the_call_copies_are_refused() {
    let copy = |len: u64| blob(call("hipMemcpy", &[D1, HOST, len, 1]), SectionTag::BlobIn, 1, 0, 256);
    assert!(refusal(vec![copy(512)]).contains("has 256 bytes recorded for parameter"));
    assert!(refusal(vec![copy(8)]).contains("has 256 bytes recorded"));
    let lies = blob(call("hipMemcpy", &[D1, HOST, 512, 1]), SectionTag::BlobIn, 1, 0, 512);
    assert!(refusal(vec![lies]).contains("blob 0 is 256 bytes long where 512 were recorded"));
    let rows = blob(call("hipMemcpy2D", &[D1, 64, HOST, 0, 0, 1 << 60, 1]), SectionTag::BlobIn, 2, 0, 0);
    // Rows of nothing are nothing, however many.
    let dir = tempfile::tempdir().unwrap();
    let [mut main, worker] = records();
    main.insert(20, rows);
    assert!(run(&write(dir.path(), [main, worker])).is_err_and(|message| message.contains("blob 0")));
}

#[test]
fn arrays_and_structs_shorter_than_their_count_are_refused() {
    let add = |count: u64, bytes: &[u8]| {
        let api = row("hipGraphAddEmptyNode");
        let dependencies = param(api, "pDependencies");
        out(call("hipGraphAddEmptyNode", &[HOST, 0xc000, HOST, count]), 0, 0xe000).section(
            SectionTag::In,
            dependencies,
            Presence::Present,
            bytes,
        )
    };
    assert!(
        refusal(vec![add(2, &[0; 8])]).contains("has 8 bytes recorded for parameter pDependencies where 16 are needed")
    );
    assert!(refusal(vec![add(1 << 40, &[0; 8])]).contains("more than any call does"));
    assert!(refusal(vec![add(u64::MAX, &[])]).contains("more than any call does"));
    let short = call("hipMemcpy3D", &[HOST]).section(SectionTag::In, 0, Presence::Present, &[0; 80]);
    assert!(refusal(vec![short]).contains("has 80 bytes recorded for parameter"));
    assert!(refusal(vec![call("hipMemcpy3D", &[HOST])]).contains("has 0 bytes recorded"));
    let name = call("hipDeviceGetName", &[HOST, 1 << 40, 0]);
    assert!(refusal(vec![name]).contains("more than any call does"));
}

#[test]
fn failed_calls_over_what_they_could_harm_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let [mut main, worker] = records();
    main.pop();
    // At capture they failed; now nothing would keep them from succeeding.
    main.push(call("hipMemcpy", &[PINNED + 200, D1, 100, 2]).ret(1));
    main.push(call("hipFree", &[D1]).ret(1));
    main.push(call("hipDeviceGetName", &[HOST, 1 << 40, 0]).ret(1));
    main.push(call("hipMemset", &[D1, 1, 16]));
    main.push(call("hipFree", &[D1]));
    let outcome = run(&write(dir.path(), [main, worker])).unwrap();
    assert_eq!((outcome.failures_not_reissued, outcome.exit_code()), (3, 0), "{outcome:?}");
}

#[test]
fn a_call_over_memory_that_could_not_be_allocated_reaches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [mut main, worker] = records();
    main.pop();
    // The fake runtime has no room for this, so the next call is made with an address that is none.
    main.push(out(call("hipHostMalloc", &[HOST, 1 << 40, 0]), 0, 0x1000_0000_0000));
    let outcome = run(&write(dir.path(), [main, worker])).unwrap();
    assert_eq!(outcome.failed_calls, 1, "{outcome:?}");
}

#[test]
fn a_damaged_stream_is_refused_before_the_first_call() {
    let dir = tempfile::tempdir().unwrap();
    let process = write(dir.path(), records());
    let path = stream_path(&process, 1);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 40;
    bytes[last] = 33;
    fs::write(&path, &bytes).unwrap();
    let message = run(&process).unwrap_err();
    assert!(message.contains("1.evs is damaged at byte") && message.contains("--repair"), "{message}");
    hrr_format::repair::repair(&process).unwrap();
    // What was cut off is the free at the end.
    assert_eq!(run(&process).unwrap().exit_code(), 0);
}

/// Opens, describes and replays. Returns whether the replay passed, with the number of results that did.
fn all_of(fake: &Fake, path: &Path, output: Output) -> Option<u64> {
    let options = InfoOptions { calls: Calls::List, output, ..InfoOptions::default() };
    let _ = print_path(path, &options, &mut std::io::sink());
    let _ = hrr_format::verify::verify(path);
    let outcome = fake.run(path).ok()?;
    (outcome.exit_code() == 0).then(|| outcome.verdict.passed())
}

#[test]
fn wrong_bytes_anywhere_are_survived_and_wrong_contents_never_pass() {
    let dir = tempfile::tempdir().unwrap();
    let process = write(dir.path(), records());
    let files = files::below(&process);
    let good: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    let pack = files.iter().position(|path| path.ends_with("blobs/pack-0.bin")).unwrap();
    let index = BlobIndex::open(&process.join("blobs/index")).unwrap();
    let is_contents = |at: u64| {
        index.entries().iter().any(|entry| (entry.offset_bytes..entry.offset_bytes + entry.len_bytes).contains(&at))
    };
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut passed = 0;
    let fake = Fake::new();
    for flip in 0..FLIPS {
        // Records are what matters most; the manifest is mostly a list of names.
        let which = match random.below(8) {
            0 => random.below(files.len() as u64) as usize,
            1 => pack,
            stream => files.iter().position(|path| path.ends_with(format!("{}.evs", stream & 1))).unwrap(),
        };
        let mut bytes = good[which].clone();
        if bytes.is_empty() {
            continue;
        }
        let is_stream = files[which].extension().is_some_and(|extension| extension == "evs");
        let start = if is_stream && random.below(8) > 0 { 4096 } else { 0 };
        let at = start + random.below(bytes.len() as u64 - start);
        bytes[at as usize] ^= 1 << random.below(8);
        fs::write(&files[which], &bytes).unwrap();
        let output = if flip % 2 == 0 { Output::Text } else { Output::Json };
        if let Some(results) = all_of(&fake, &process, output) {
            passed += 1;
            assert!(results <= 4);
            assert!(which != pack || !is_contents(at), "byte {at} of the contents is wrong, and the replay passed");
        }
        fs::write(&files[which], &good[which]).unwrap();
    }
    // Some changes mean nothing: a time, an unused bit, an address that is only looked up.
    assert!(passed < FLIPS, "nothing was noticed");
    assert_eq!(all_of(&fake, &process, Output::Text), Some(4));
}

#[test]
fn cuts_anywhere_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    let process = write(dir.path(), records());
    let files = files::below(&process);
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let fake = Fake::new();
    for _ in 0..CUTS {
        let path = &files[random.below(files.len() as u64) as usize];
        let good = fs::read(path).unwrap();
        if good.is_empty() {
            continue;
        }
        fs::write(path, &good[..random.below(good.len() as u64) as usize]).unwrap();
        if let Some(results) = all_of(&fake, &process, Output::Text) {
            // What was cut away was nothing that a result needs.
            assert_eq!(results, 4, "{}", path.display());
        }
        fs::write(path, &good).unwrap();
    }
}

/// Random changes where each costs files: `HRR_FLIPS` of them, or a tenth of what others take.
fn flips() -> u64 {
    std::env::var("HRR_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(FLIPS / 10)
}

#[test]
fn what_repair_makes_of_damage_never_passes_for_more_than_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let process = write(dir.path(), records());
    let files = files::below(&process);
    let good: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    let mut random = Random::new(0x1357_9bdf_0246_8ace);
    let fake = Fake::new();
    let (mut repaired, mut passed) = (0, 0);
    for flip in 0..flips() {
        let which = random.below(files.len() as u64) as usize;
        let mut bytes = good[which].clone();
        if bytes.is_empty() {
            continue;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let is_cut = flip % 20 == 0;
        if is_cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(&files[which], &bytes).unwrap();
        let what = || format!("{} byte {at}, {}", files[which].display(), if is_cut { "cut" } else { "changed" });
        if hrr_format::repair::repair(&process).is_ok() {
            repaired += 1;
            // What was repaired is clean, and stays as it is.
            let before = snapshot(&process);
            hrr_format::repair::repair(&process).unwrap_or_else(|error| panic!("{}: {error}", what()));
            assert_eq!(snapshot(&process), before, "{}", what());
        }
        if let Ok(outcome) = fake.run(&process)
            && outcome.exit_code() == 0
        {
            passed += 1;
            let verdict = &outcome.verdict;
            assert!(verdict.passed() <= 4 && verdict.within == 0, "{}: {outcome:?}", what());
            let contents_hit = files[which].ends_with("blobs/pack-0.bin") && !is_cut && verdict.passed() == 4;
            let is_used = |at: u64| {
                let index =
                    BlobIndex::parse(&good[files.iter().position(|path| path.ends_with("blobs/index")).unwrap()]);
                let index = index.unwrap();
                index
                    .entries()
                    .iter()
                    .any(|entry| (entry.offset_bytes..entry.offset_bytes + entry.len_bytes).contains(&at))
            };
            assert!(!(contents_hit && is_used(at as u64)), "{}: wrong contents passed", what());
        }
        fs::remove_dir_all(&process).unwrap();
        for (path, bytes) in files.iter().zip(&good) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    println!("{} changes: {repaired} repaired, {passed} replays passed", flips());
    assert!(repaired > 0 && passed < flips());
}

/// Every file with its bytes.
fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files::below(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_packed_archive_with_wrong_bytes_passes_only_where_they_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("root"), records());
    let path = dir.path().join("a.hrrz");
    hrr_format::packed::pack(&dir.path().join("root"), &path).unwrap();
    let good = fs::read(&path).unwrap();
    let mut random = Random::new(0xfeed_beef_0bad_cafe);
    let fake = Fake::new();
    assert_eq!(all_of(&fake, &path, Output::Text), Some(4));
    let mut passed = 0;
    for flip in 0..flips() {
        let mut bytes = good.clone();
        let at = random.below(bytes.len() as u64) as usize;
        if flip % 50 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        // A table of contents that is wrong is told by its hash; one that lies has the right hash.
        if flip % 2 == 0 {
            hrr_format::packed::make_hash_right(&mut bytes);
        }
        fs::write(&path, &bytes).unwrap();
        if let Some(results) = all_of(&fake, &path, Output::Json) {
            passed += 1;
            assert_eq!(results, 4, "byte {at}");
        }
    }
    println!("{} changes: {passed} replays passed", flips());
    assert!(passed < flips() / 2, "{passed}");
}

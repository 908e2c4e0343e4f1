//! What is printed of a small archive that has some of everything.

use std::path::{Path, PathBuf};

use hrr_format::archive::{Archive, process_dir, stream_path};
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::{Api, Role};
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::Kernel;
use hrr_format::manifest::{Clock, ClockKind, Device, Runtime};
use hrr_format::record::{BlobRef, NO_PARAM, Presence, SectionTag, marker};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::{ContentsMode, HEADER_BYTES};
use serde_json::Value;

use super::{Calls, Condition, Filter, InfoError, InfoOptions, Output, print_path};

/// Position of a parameter.
fn param(api: &Api, name: &str) -> u8 {
    api.params.iter().position(|param| param.name == name).unwrap() as u8
}

fn api(name: &str) -> &'static Api {
    Api::by_name(name).unwrap()
}

fn saxpy() -> Kernel {
    let arg = |offset, size, kind| KernelArg { offset, size, kind };
    Kernel {
        kernel: 0,
        name: "saxpy".into(),
        code_object: Some(0),
        kernarg_bytes: 280,
        args: Some(vec![arg(0, 4, ArgKind::ByValue), arg(8, 8, ArgKind::GlobalBuffer), arg(16, 24, ArgKind::ByValue)]),
        withheld: false,
    }
}

fn launch(kernel_args: &[u8], presence: Presence) -> RecordBuilder {
    let launch = api("hipLaunchKernel");
    let words = [0x40_0000, 4 | 1 << 32, 1, 256 | 1 << 32, 1, 0x7ffe_0000, 64, 2];
    let params = launch.param_with(|role| *role == Role::KernelParams).unwrap() as u8;
    RecordBuilder::new(launch.id, &words).aux(1).section(SectionTag::KernelArgs, params, presence, kernel_args)
}

/// A process with two threads: one ended well, one was killed inside a call.
fn write_process(root: &Path, pid: u64) -> PathBuf {
    let path = process_dir(root, pid);
    let mut writer = ArchiveWriter::create(&path, pid, ContentsMode::Contents).unwrap();
    let manifest = writer.manifest_mut();
    manifest.parent_pid = 6;
    manifest.command = vec!["./app".into(), "two words".into()];
    manifest.clock = Clock {
        kind: ClockKind::Tsc,
        ticks_per_second: 2_000_000_000,
        tick_at_start: 1_000_000,
        unix_ns_at_start: 951_782_400_000_000_000,
        monotonic_ns_at_start: None,
    };
    manifest.runtime = Runtime { path: "/lib/libamdhip64.so.7".into(), version: 70_000_000 };
    manifest.devices = vec![Device {
        ordinal: 0,
        name: "Some GPU".into(),
        arch: "gfx942:sramecc+".into(),
        total_global_mem_bytes: 64 << 30,
        pci_bus_id: "0000:03:00.0".into(),
    }];
    writer.blob(3, &[1; 4096]).unwrap();
    writer.code_object(0, b"code").unwrap();
    writer.kernel(&saxpy());

    let malloc = api("hipMalloc");
    let copy = api("hipMemcpyAsync");
    let free = api("hipFree");
    let load = api("hipModuleLoadData");
    let kernel_args: Vec<u8> =
        [7u32.to_le_bytes().to_vec(), vec![0; 4], 0x1_0000u64.to_le_bytes().to_vec(), vec![9; 24]].concat();
    let first = [
        RecordBuilder::new(load.id, &[0x7ffd_0008, 0x5000])
            .ticks(1_000_200, 1_000_400)
            .section(SectionTag::Out, 0, Presence::Present, &0xaa00u64.to_le_bytes())
            .blob(SectionTag::Code, param(load, "image"), BlobRef { number: 0, size_bytes: 4 }),
        RecordBuilder::new(malloc.id, &[0x7ffd_0000, 4096]).ticks(1_002_000, 1_003_000).section(
            SectionTag::Out,
            0,
            Presence::Present,
            &0x1_0000u64.to_le_bytes(),
        ),
        RecordBuilder::new(copy.id, &[0x1_0000, 0x9000, 4096, 1, 0]).ticks(1_004_000, 1_005_000).blob(
            SectionTag::BlobIn,
            param(copy, "src"),
            BlobRef { number: 3, size_bytes: 4096 },
        ),
        launch(&kernel_args, Presence::Present).ticks(1_006_000, 1_006_500),
        RecordBuilder::new(copy.id, &[0x9000, 0x1_0000, 4096, 2, 0xbb00]).ticks(1_007_000, 1_007_100).blob(
            SectionTag::BlobOut,
            param(copy, "dst"),
            BlobRef { number: 4, size_bytes: 4096 },
        ),
        RecordBuilder::new(marker::OBSERVED, &[3]),
        RecordBuilder::new(free.id, &[0xdead]).ticks(1_010_000, 1_010_002).ret(1),
    ];
    let first: Vec<Vec<u8>> = first.into_iter().map(RecordBuilder::build).collect();
    let synchronize = api("hipStreamSynchronize");
    let query = api("hipStreamQuery");
    let second = [
        RecordBuilder::new(query.id, &[0xbb00]).ticks(1_006_100, 1_006_200).ret(600).build(),
        RecordBuilder::new(synchronize.id, &[0xbb00]).ticks(1_008_000, 0).in_flight().build(),
    ];
    writer.stream(0, 70, "main", &first).unwrap();
    writer.stream(1, 71, "worker", &second).unwrap();
    writer.abandon().unwrap();
    path
}

fn print(path: &Path, calls: Calls, output: Output) -> (String, Condition) {
    let mut out = Vec::new();
    let condition = print_path(path, &InfoOptions { calls, output, ..InfoOptions::default() }, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), condition)
}

fn json(path: &Path, calls: Calls) -> Value {
    serde_json::from_str(&print(path, calls, Output::Json).0).unwrap()
}

#[test]
fn the_summary_tells_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_process(dir.path(), 7);
    let (text, condition) = print(dir.path(), Calls::Total, Output::Text);
    assert_eq!(condition, Condition::Whole);
    let expected = format!(
        "\
[HRR] Archive      : {path}
[HRR] Complete     : no: the process ended without closing its archive, or still runs, inside 1 call
[HRR] Contents     : host buffers, kernel arguments and code objects are recorded
[HRR] Events       : 8 (1 failed)
[HRR] Kernels      : 1
[HRR] Blobs        : 1 (1 distinct, 4.0 KiB); 1 result that the program never waited for
[HRR] Code Objects : 1 (1 distinct, 4 bytes)
[HRR] Threads      : 2
[HRR] Streams      : 0 created, 3 used
[HRR] Memory       : at most 4.0 KiB (device 4.0 KiB in 1 allocation)
[HRR] Replayable   : yes
[HRR] Process      : 7 (parent 6)
[HRR] Command      : ./app 'two words'
[HRR] Recorded     : 0.005 ms from 2000-02-29 00:00:00 UTC
[HRR] Clock        : time stamp counter, 2000.000 ticks a us
[HRR] Runtime      : /lib/libamdhip64.so.7 (version 70000000)
[HRR] Device 0     : Some GPU (gfx942:sramecc+), 64.0 GiB, 0000:03:00.0

[HRR] Threads (times in ms since the start):
  Thread  TID  Calls  Failed  First   Last  Name
       0   70      6       1  0.000  0.005  main
       1   71      2       0  0.003  0.004  worker
  thread 1 in flight: hipStreamSynchronize(stream=0xbb00), entered at 0.004 ms, not returned 0.001 ms later
  last on stream 0xbb00:
    0.004 ms, thread 0: hipMemcpyAsync(dst=0x9000<blob 4, 4096 bytes, never observed>, src=0x10000, sizeBytes=4096, kind=DeviceToHost, stream=0xbb00)

[HRR] Event types (times between entry and return):
  Calls  Failed  Total ms  Mean us  Max us  API
      2       0     0.001    0.275   0.500  hipMemcpyAsync
      1       1     0.000    0.001   0.001  hipFree
      1       0     0.000    0.250   0.250  hipLaunchKernel
      1       0     0.001    0.500   0.500  hipMalloc
      1       0     0.000    0.100   0.100  hipModuleLoadData
      1       0     0.000    0.050   0.050  hipStreamQuery
      1       0     0.000    0.000   0.000  hipStreamSynchronize

[HRR] Kernels by launches:
  Launches  Argument bytes  Code object  Kernel
         1              40            0  saxpy
",
        path = path.display()
    );
    assert_eq!(text, expected);
}

#[test]
fn the_calls_are_listed_by_entry_with_what_they_were_given() {
    let dir = tempfile::tempdir().unwrap();
    write_process(dir.path(), 7);
    let (text, _) = print(dir.path(), Calls::List, Output::Text);
    let list = text.split_once("[HRR] Events (").unwrap().1.split_once('\n').unwrap().1;
    let expected = "       0    0          0.100          0.200  hipModuleLoadData(module=0x7ffd0008->0xaa00, image=0x5000<code object 0, 4 bytes>) = hipSuccess
       1    0          1.000          1.500  hipMalloc(ptr=0x7ffd0000->0x10000, size=4096) = hipSuccess
       2    0          2.000          2.500  hipMemcpyAsync(dst=0x10000, src=0x9000<blob 3, 4096 bytes>, sizeBytes=4096, kind=HostToDevice, stream=default) = hipSuccess
       3    0          3.000          3.250  hipLaunchKernel[saxpy](function_address=0x400000, numBlocks=(4,1,1), dimBlocks=(256,1,1), args=0x7ffe0000[0x7, 0x10000, <24 bytes>], sharedMemBytes=64, stream=per-thread) = hipSuccess
       4    1          3.050          3.100  hipStreamQuery(stream=0xbb00) = hipErrorNotReady
       5    0          3.500          3.550  hipMemcpyAsync(dst=0x9000<blob 4, 4096 bytes, never observed>, src=0x10000, sizeBytes=4096, kind=DeviceToHost, stream=0xbb00) = hipSuccess
            0                                observed blob 3
       6    1          4.000              -  hipStreamSynchronize(stream=0xbb00) ... in flight
       7    0          5.000          5.001  hipFree(ptr=0xdead) = hipErrorInvalidValue
";
    assert_eq!(list, expected);
}

#[test]
fn json_has_the_same_facts() {
    let dir = tempfile::tempdir().unwrap();
    write_process(dir.path(), 7);
    let report = json(dir.path(), Calls::List);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(
        (&report["events"], &report["failed_calls"], &report["complete"]),
        (&8.into(), &1.into(), &false.into())
    );
    assert_eq!(report["threads"][1]["in_flight"]["api"], "hipStreamSynchronize");
    assert_eq!(report["threads"][1]["in_flight"]["since_us"], 4.0);
    assert_eq!(report["threads"][1]["in_flight"]["at_least_us"], 1.001);
    assert_eq!(report["kernel_launches"][0]["name"], "saxpy");
    assert_eq!(report["clock"]["kind"], "tsc");
    let calls = report["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 9);
    assert_eq!((&calls[3]["kernel"], &calls[3]["arguments"][1]["text"]), (&"saxpy".into(), &"(4,1,1)".into()));
    assert_eq!(calls[3]["arguments"][1]["words"], serde_json::json!(["0x100000004", "0x1"]));
    assert_eq!(calls[4]["ret_name"], "hipErrorNotReady");
    assert_eq!(calls[6]["observed_blob"], 3);
    assert_eq!((&calls[7]["in_flight"], &calls[7]["end_us"]), (&true.into(), &Value::Null));
    assert!(calls[7].get("ret").is_none());
    assert!(json(dir.path(), Calls::Total).get("calls").is_none());
}

#[test]
fn a_root_with_several_processes_is_listed_as_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let second = write_process(dir.path(), 12);
    let first = write_process(dir.path(), 7);
    std::fs::create_dir(dir.path().join("pid-30")).unwrap();
    let (text, condition) = print(dir.path(), Calls::Total, Output::Text);
    assert_eq!(condition, Condition::Damaged);
    let table = text.split_once("\n\n").unwrap().1;
    let expected = format!(
        "  PID  Parent PID  Complete  Events  Blobs  Path
    7           6  no             8      1  {}
   12           6  no             8      1  {}
   30           -  no             0      0  {}
",
        first.display(),
        second.display(),
        dir.path().join("pid-30").display()
    );
    assert!(table.starts_with(&expected), "{table}");
    assert!(table.contains("[HRR] Warning: "), "{table}");
    let listing = json(dir.path(), Calls::Total);
    assert_eq!((&listing["processes"][1]["pid"], &listing["schema_version"]), (&12.into(), &1.into()));
}

#[test]
fn an_archive_without_contents_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::create(&process_dir(dir.path(), 7), 7, ContentsMode::MetadataOnly).unwrap();
    writer.kernel(&Kernel { code_object: None, withheld: true, ..saxpy() });
    let mut kernel_args = vec![0; 40];
    kernel_args[8..16].copy_from_slice(&0x1_0000u64.to_le_bytes());
    let copy = api("hipMemcpyAsync");
    let reference = BlobRef { number: BlobRef::WITHHELD, size_bytes: 4096 };
    let records = [
        launch(&kernel_args, Presence::Withheld).ticks(1, 2).build(),
        RecordBuilder::new(copy.id, &[0x1_0000, 0x9000, 4096, 1, 1])
            .ticks(3, 4)
            .section(SectionTag::BlobIn, param(copy, "src"), Presence::Withheld, &reference.to_bytes())
            .build(),
    ];
    writer.stream(0, 7, "", &records).unwrap();
    writer.finish().unwrap();
    let (text, condition) = print(dir.path(), Calls::List, Output::Text);
    assert_eq!(condition, Condition::Whole);
    assert!(text.contains("Complete     : yes\n"), "{text}");
    assert!(text.contains("Contents     : withheld (2 places)"), "{text}");
    assert!(text.contains("args=0x7ffe0000[withheld, 0x10000, withheld]"), "{text}");
    assert!(text.contains("src=0x9000<withheld, 4096 bytes>"), "{text}");
    assert!(text.contains("stream=legacy"), "{text}");
}

#[test]
fn damage_is_told_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = stream_path(&write_process(dir.path(), 7), 0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 8);
    std::fs::write(&path, bytes).unwrap();
    let (text, condition) = print(dir.path(), Calls::Total, Output::Text);
    assert_eq!(condition, Condition::Damaged);
    assert!(text.contains("[HRR] Events       : 7 (0 failed)"), "{text}");
    assert!(text.contains("0.evs is cut short") && text.contains("0.evs is damaged at byte"), "{text}");
    let mut out = Vec::new();
    let error = print_path(&dir.path().join("nowhere"), &InfoOptions::default(), &mut out).unwrap_err();
    assert!(matches!(error, InfoError::Archive(_)) && out.is_empty());
}

#[test]
fn what_an_archive_says_cannot_steer_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = process_dir(dir.path(), 7);
    let mut writer = ArchiveWriter::create(&path, 7, ContentsMode::Contents).unwrap();
    let evil = "\x1b[2J\nfake";
    writer.manifest_mut().apis[5] = evil.to_owned();
    writer.manifest_mut().command = vec![evil.to_owned()];
    writer.manifest_mut().runtime.path = evil.to_owned();
    writer.manifest_mut().devices = vec![Device { name: evil.into(), ..Device::default() }];
    writer.kernel(&Kernel { name: evil.into(), ..saxpy() });
    let load = api("hipModuleLoad");
    let records = [
        RecordBuilder::new(5, &[1, 2]).aux(1).ticks(1, 0).in_flight().build(),
        RecordBuilder::new(load.id, &[1, 2])
            .section(SectionTag::Text, param(load, "fname"), Presence::Present, evil.as_bytes())
            .build(),
    ];
    writer.stream(0, 7, "\x1b[2J", &records).unwrap();
    writer.finish().unwrap();
    let (text, _) = print(dir.path(), Calls::List, Output::Text);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("fake")), "{text}");
    assert!(text.contains("(0x1, 0x2) ... in flight"), "{text}");
}

#[test]
fn graph_launches_show_the_host_memory_they_touch() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::create(&process_dir(dir.path(), 7), 7, ContentsMode::Contents).unwrap();
    writer.blob(0, b"abcd").unwrap();
    let graph = api("hipGraphLaunch");
    let at = |address: u64, number: u64| {
        [address.to_le_bytes().to_vec(), BlobRef { number, size_bytes: 4 }.to_bytes().to_vec()].concat()
    };
    let record = RecordBuilder::new(graph.id, &[0xe0, 0])
        .section(SectionTag::GraphHostIn, NO_PARAM, Presence::Present, &at(0x9000, 0))
        .section(SectionTag::GraphHostOut, NO_PARAM, Presence::Present, &at(0xa000, 1));
    writer.stream(0, 7, "", &[record.build()]).unwrap();
    writer.finish().unwrap();
    let (text, _) = print(dir.path(), Calls::List, Output::Text);
    let expected = "stream=default, reads=0x9000<blob 0, 4 bytes>, writes=0xa000<blob 1, 4 bytes, never observed>)";
    assert!(text.contains(expected), "{text}");
}

/// Every API's row can be shown, with nothing recorded but words of any value.
#[test]
fn every_row_of_the_catalogue_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::create(&process_dir(dir.path(), 7), 7, ContentsMode::Contents).unwrap();
    let records: Vec<Vec<u8>> = hrr_format::catalogue::APIS
        .iter()
        .map(|api| {
            let words = vec![u64::MAX; usize::from(api.words)];
            let mut builder = RecordBuilder::new(api.id, &words).ticks(1, 2);
            for (position, _) in api.params.iter().enumerate() {
                for tag in [SectionTag::In, SectionTag::Out] {
                    builder = builder.section(tag, position as u8, Presence::Present, &[0xff; 44]);
                }
            }
            builder.build()
        })
        .collect();
    writer.stream(0, 7, "", &records).unwrap();
    writer.finish().unwrap();
    let archive = Archive::open(dir.path()).unwrap();
    let shown = archive.streams()[0].records().map(|record| super::arguments::call_text(&archive, &record));
    for (api, text) in hrr_format::catalogue::APIS.iter().zip(shown) {
        assert!(text.starts_with(&format!("{}(", api.name)) && text.ends_with(')'), "{text}");
        for param in api.params {
            assert!(text.contains(&format!("{}=", param.name)), "{text}");
        }
    }
}

/// Whatever byte of a stream file or of the kernel table is wrong, what is printed ends and steers no terminal.
#[test]
fn any_wrong_byte_is_printed_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_process(dir.path(), 7);
    for file in [stream_path(&path, 0), path.join(hrr_format::kernel_table::FILE)] {
        let good = std::fs::read(&file).unwrap();
        let start = if good.len() > HEADER_BYTES { HEADER_BYTES } else { 0 };
        for at in start..good.len() {
            let value = [0, good[at] ^ 0x11, 0xff][at % 3];
            let mut bytes = good.clone();
            bytes[at] = value;
            std::fs::write(&file, bytes).unwrap();
            for output in [Output::Text, Output::Json] {
                let (printed, _) = print(dir.path(), Calls::List, output);
                assert!(printed.chars().all(|c| c == '\n' || !c.is_control()), "{at} {value}: {printed:?}");
            }
        }
        std::fs::write(&file, good).unwrap();
    }
}

/// Two threads that allocate and free, copy the same contents twice, and make calls that no replay makes.
fn write_busy_process(root: &Path) -> PathBuf {
    let path = process_dir(root, 9);
    let mut writer = ArchiveWriter::create(&path, 9, ContentsMode::Contents).unwrap();
    writer.manifest_mut().clock = Clock { ticks_per_second: 1_000_000_000, ..Clock::default() };
    writer.blob(0, &[1; 100]).unwrap();
    writer.blob(1, &[1; 100]).unwrap();
    writer.kernel(&saxpy());
    let row = |name: &str, words: &[u64]| RecordBuilder::new(api(name).id, words);
    let address = |builder: RecordBuilder, address: u64| {
        builder.section(SectionTag::Out, 0, Presence::Present, &address.to_le_bytes())
    };
    let copy = |number| {
        let reference = BlobRef { number, size_bytes: 100 };
        row("hipMemcpy", &[0x1000, 0x9000, 100, 1]).blob(SectionTag::BlobIn, 1, reference)
    };
    let refused = hrr_format::catalogue::APIS
        .iter()
        .find(|api| matches!(api.policy, hrr_format::catalogue::Policy::Refuse(_)))
        .unwrap();
    writer
        .stream(
            0,
            90,
            "main",
            &[
                address(row("hipStreamCreate", &[0xff00]), 0xaa00).ticks(1, 2).build(),
                address(row("hipMalloc", &[0xff00, 1000]), 0x1000).ticks(3, 4).build(),
                copy(0).ticks(5, 15).build(),
                copy(1).ticks(16, 46).build(),
                launch(&[0; 40], Presence::Present).ticks(50, 60).build(),
                row("hipFree", &[0x1000]).ticks(70, 71).build(),
                RecordBuilder::new(refused.id, &vec![0; usize::from(refused.words)]).ticks(80, 81).build(),
            ],
        )
        .unwrap();
    writer
        .stream(
            1,
            91,
            "worker",
            &[
                address(row("hipHostMalloc", &[0xff00, 500, 0]), 0x8000).ticks(10, 11).build(),
                // Memory of the same address as what the first thread frees, while that call returns.
                address(row("hipMalloc", &[0xff00, 3000]), 0x1000).ticks(69, 72).build(),
            ],
        )
        .unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn memory_streams_and_refused_calls_are_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_busy_process(dir.path());
    let (text, condition) = print(&path, Calls::Total, Output::Text);
    assert_eq!(condition, Condition::Whole, "{text}");
    for expected in [
        "Blobs        : 2 (1 distinct, 100 bytes instead of 200 bytes: 2.00 to 1)",
        "Streams      : 1 created, 2 used",
        "Memory       : at most 3.4 KiB (device 2.9 KiB in 2 allocations, pinned 500 bytes in 1 allocation)",
        "Replayable   : no: 1 call below",
        "Calls that a replay refuses:",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let (json, _) = print(&path, Calls::Total, Output::Json);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["memory"]["device"]["peak_bytes"], 3000);
    assert_eq!(json["memory"]["device"]["left_bytes"], 3000);
    assert_eq!(json["memory"]["pinned"]["left_bytes"], 500);
    assert_eq!(json["kernel_launches"][0]["argument_bytes"], 40);
    assert_eq!(json["unreplayable"][0]["calls"], 1);
}

#[test]
fn filters_pick_calls_and_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_busy_process(dir.path());
    let events = |filter: Filter| {
        let options = InfoOptions { calls: Calls::List, output: Output::Json, filter, csv: None };
        let mut out = Vec::new();
        print_path(&path, &options, &mut out).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        let calls = json["calls"].as_array().unwrap().clone();
        let text_options = InfoOptions { output: Output::Text, ..options };
        let mut text = Vec::new();
        print_path(&path, &text_options, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let listed = text.split("[HRR] Events (").nth(1).unwrap().lines().count() - 1;
        assert_eq!(listed, calls.len(), "{text}");
        calls.iter().map(|call| call["event"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(events(Filter::default()), (0..9).collect::<Vec<_>>());
    assert_eq!(events(Filter { thread: Some(1), ..Filter::default() }), [3, 6]);
    assert_eq!(events(Filter { api: Some("*Malloc,hipFree".parse().unwrap()), ..Filter::default() }), [1, 3, 6, 7]);
    assert_eq!(events(Filter { range: Some("2..=4".parse().unwrap()), ..Filter::default() }), [2, 3, 4]);
    let both = Filter { thread: Some(0), range: Some("3..".parse().unwrap()), ..Filter::default() };
    assert_eq!(events(both), [4, 5, 7, 8]);
}

#[test]
fn tables_have_the_columns_of_rocprofv3() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_busy_process(dir.path());
    let csv = dir.path().join("tables");
    let options = InfoOptions { csv: Some(csv.clone()), ..InfoOptions::default() };
    print_path(&path, &options, &mut Vec::new()).unwrap();
    let read = |name: &str| std::fs::read_to_string(csv.join(name)).unwrap();
    let calls = read("9_hip_api_trace.csv");
    assert!(calls.starts_with("Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp\n"));
    assert!(calls.contains("\nHIP_API,hipMemcpy,9,90,2,5,15\n"), "{calls}");
    assert_eq!(calls.lines().count(), 1 + 9);
    let copies = read("9_memory_copy_trace.csv");
    assert!(copies.contains("\nMEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,9,90,0x0,100,2,5,15\n"), "{copies}");
    let kernels = read("9_kernel_trace.csv");
    // No table says of a call's times that they are the device's.
    for table in [&copies, &kernels] {
        let columns: Vec<&str> = table.lines().next().unwrap().split(',').collect();
        assert!(columns.contains(&"Call_Start_Timestamp") && columns.contains(&"Call_End_Timestamp"), "{columns:?}");
        assert!(!columns.contains(&"Start_Timestamp") && !columns.contains(&"End_Timestamp"), "{columns:?}");
    }
    assert!(kernels.contains("\nKERNEL_LAUNCH,9,90,0x2,saxpy,5,50,60,64,256,1,1,1024,1,1\n"), "{kernels}");
    let stats = read("9_hip_stats.csv");
    assert!(stats.starts_with("Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev\n"));
    assert!(stats.contains("\nhipMemcpy,2,40,20.000,"), "{stats}");
    assert!(stats.lines().any(|line| line.starts_with("hipMemcpy,") && line.contains(",10,30,14.")), "{stats}");
}

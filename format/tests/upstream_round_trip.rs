//! Every entry point that has a record in the in-tree format: written there from a native archive and read back.

use std::collections::BTreeMap;

use hrr_format::archive::Archive;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::{APIS, Api, Effect, Role};
use hrr_format::record::{BlobRef, NO_PARAM, Presence, SectionTag, flag, marker};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
use hrr_format::upstream::UpstreamArchive;
use hrr_format::upstream::write::{Lossy, write};

/// Entry points whose records are made of more than their arguments: code objects, kernels, symbols.
fn is_apart(api: &Api) -> bool {
    let needs_code = |role: &Role| matches!(role, Role::KernelParams | Role::Extra | Role::Image);
    api.name.starts_with("__hip")
        || api.name.contains("Module")
        || api.name.contains("Library")
        || api.name.contains("Link")
        || api.name.contains("KernelNode")
        || api.name == "hipLaunchByPtr"
        || api.params.iter().any(|param| needs_code(&param.role))
        || (api.effect == Effect::Enqueue && api.name.contains("MultiDevice"))
}

/// Whether the word of a parameter is itself what is recorded, not a place of the program's own.
fn is_told(role: &Role) -> bool {
    matches!(
        role,
        Role::Scalar
            | Role::Ordinal
            | Role::Use(_)
            | Role::Destroy(_)
            | Role::Device(..)
            | Role::FreeDevice
            | Role::FreeHost
    )
}

/// Distinct words for a call: small numbers, which fit every width, and addresses.
fn words(api: &Api) -> Vec<u64> {
    let mut words = vec![0; usize::from(api.words)];
    for (number, param) in api.params.iter().enumerate() {
        let first = usize::from(param.word);
        let small = 3 + u64::from(api.id) % 40 + number as u64;
        words[first] = match param.role {
            Role::Scalar | Role::Ordinal => small,
            Role::Create(_) | Role::Get(_) => 1,
            role if is_told(&role) => 0x7f00_0000_0000 + (u64::from(api.id) << 16) + small,
            _ => 0,
        };
    }
    words
}

#[test]
fn every_call_that_the_format_has_room_for_comes_back_with_its_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::create(&dir.path().join("native/pid-7"), 7, ContentsMode::Contents).unwrap();
    let apis: Vec<&Api> = APIS.iter().filter(|api| !is_apart(api)).collect();
    let records: Vec<Vec<u8>> = apis
        .iter()
        .zip((1000u64..).step_by(10))
        .map(|(api, tick)| {
            let mut builder = RecordBuilder::new(api.id, &words(api)).ticks(tick, tick + 5);
            for (number, param) in api.params.iter().enumerate() {
                if matches!(param.role, Role::Create(_) | Role::Get(_)) {
                    let handle = 0x6600_0000_0000u64 + u64::from(api.id);
                    builder = builder.section(SectionTag::Out, number as u8, Presence::Present, &handle.to_le_bytes());
                }
            }
            builder.build()
        })
        .collect();
    writer.stream(0, 7, "main", &records).unwrap();
    writer.finish().unwrap();
    let native = Archive::open(&dir.path().join("native")).unwrap();
    let written = write(&native, &dir.path().join("back/pid-7"), Lossy::Accept).unwrap();
    let back = Archive::open(&dir.path().join("back")).unwrap();
    let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut order = Vec::new();
    for record in back.streams().iter().flat_map(|stream| stream.records()) {
        if record.api() >= marker::FIRST || record.flags() & flag::ADDED != 0 {
            continue;
        }
        let api = back.row_of(&record).expect("every record is of a known entry point");
        order.push(api.id);
        found.insert(api.name, record.words().collect());
    }
    let expected: Vec<u16> = apis.iter().map(|api| api.id).filter(|&id| order.contains(&id)).collect();
    assert_eq!(order, expected, "calls come back in their order, each once");
    assert!(found.len() as u64 == written.events, "{} of {} records", found.len(), written.events);
    assert!(found.len() > 380, "only {} entry points were tried", found.len());
    let (mut wrong, mut unnamed) = (Vec::new(), Vec::new());
    for api in apis {
        let Some(after) = found.get(api.name) else {
            if !written.losses.keys().any(|loss| loss.contains(api.name)) {
                unnamed.push(api.name);
            }
            continue;
        };
        for (param, word) in api.params.iter().map(|param| (param, usize::from(param.word))) {
            if is_told(&param.role) && after[word] != words(api)[word] {
                wrong.push(format!("{}.{}: {:#x} became {:#x}", api.name, param.name, words(api)[word], after[word]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unnamed.is_empty(), "not written and not named as lost: {unnamed:?}");
}

/// A native archive of one thread's records.
fn archive_of(dir: &std::path::Path, records: &[Vec<u8>], seen_to_its_end: bool) -> Archive {
    let mut writer = ArchiveWriter::create(&dir.join("native/pid-7"), 7, ContentsMode::Contents).unwrap();
    writer.blob(0, &[1; 8]).unwrap();
    writer.stream(0, 7, "main", records).unwrap();
    if seen_to_its_end {
        writer.finish().unwrap()
    } else {
        writer.abandon().unwrap()
    }
    Archive::open(&dir.join("native")).unwrap()
}

fn call(name: &str, tick: u64, words: &[u64]) -> RecordBuilder {
    RecordBuilder::new(Api::by_name(name).unwrap().id, words).ticks(tick, tick + 5)
}

/// The ranges of a marker: the first eight bytes of its memory.
fn eight_bytes() -> Vec<u8> {
    [0u64, 8].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn what_only_the_native_format_has_is_named_and_nothing_is_written() {
    let address = 0x7e00_0000_0000u64;
    let marked = |kind: u16, bits: u64| {
        RecordBuilder::new(kind, &[address, 64, bits])
            .ticks(500, 500)
            .section(SectionTag::HostRanges, NO_PARAM, Presence::Present, &eight_bytes())
            .blob(SectionTag::BlobIn, NO_PARAM, BlobRef { number: 0, size_bytes: 8 })
            .build()
    };
    let pitched = |pitch: u64| {
        call("hipMallocPitch", 500, &[1, 1, 100, 4])
            .section(SectionTag::Out, 0, Presence::Present, &address.to_le_bytes())
            .section(SectionTag::Out, 1, Presence::Present, &pitch.to_le_bytes())
            .build()
    };
    let volume = [address, 256, 100, 4].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let cases: [(Vec<u8>, Option<&str>); 11] = [
        (marked(marker::HOST_WROTE, 0), Some("what the host stored in memory that devices use")),
        (marked(marker::HOST_WROTE, marker::host_wrote::NOT_RECORDED), Some("was not recorded")),
        (marked(marker::HOST_SAW, 0), Some("what devices left in host memory")),
        // Memory that was all zeros, and what was told about nothing.
        (RecordBuilder::new(marker::HOST_WROTE, &[address, 64, 1]).ticks(500, 500).build(), None),
        (call("hipDeviceSynchronize", 500, &[]).flags(flag::PREAMBLE).build(), Some("when a window was opened")),
        (call("hipDeviceSynchronize", 500, &[]).flags(flag::TRUNCATED).build(), Some("had no room for all")),
        (call("hipDeviceSynchronize", 500, &[]).in_flight().build(), Some("calls that had not returned")),
        (call("hipDeviceSynchronize", 500, &[]).ret(1).build(), Some("hipDeviceSynchronize that did not succeed")),
        (pitched(256), None),
        (pitched(512), Some("the pitch that hipMallocPitch returned")),
        (
            call("hipMalloc3D", 500, &[1, 100, 4, 1]).section(SectionTag::Out, 0, Presence::Present, &volume).build(),
            Some("what hipMalloc3D returned in pitchedDevPtr"),
        ),
    ];
    for (number, (record, loss)) in cases.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let before = call("hipGetDeviceCount", 100, &[0]).build();
        let native = archive_of(dir.path(), &[before, record], true);
        let target = dir.path().join("back/pid-7");
        let refused = write(&native, &target, Lossy::Refuse);
        let Some(loss) = loss else {
            assert_eq!(refused.unwrap().losses.len(), 0, "case {number}");
            continue;
        };
        assert!(!target.exists(), "case {number}");
        let told = refused.unwrap_err().to_string();
        assert!(told.contains(loss), "case {number}: {told}");
        // What is written all the same says so, too.
        let written = write(&native, &target, Lossy::Accept).unwrap();
        assert!(written.losses.keys().any(|what| what.contains(loss)), "case {number}: {:?}", written.losses);
    }
}

#[test]
fn a_flight_recorder_s_archive_says_that_calls_before_it_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ArchiveWriter::create(&dir.path().join("native/pid-7"), 7, ContentsMode::Contents).unwrap();
    writer.manifest_mut().flight_recorder_bytes = Some(1 << 20);
    writer.stream(0, 7, "main", &[call("hipDeviceSynchronize", 100, &[]).build()]).unwrap();
    writer.finish().unwrap();
    let native = Archive::open(&dir.path().join("native")).unwrap();
    let refused = write(&native, &dir.path().join("back/pid-7"), Lossy::Refuse).unwrap_err().to_string();
    assert!(refused.contains("only the last calls of each thread"), "{refused}");
}

#[test]
fn a_recording_that_was_not_seen_to_its_end_stays_one() {
    for seen_to_its_end in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let records = [call("hipDeviceSynchronize", 100, &[]).build()];
        let native = archive_of(dir.path(), &records, seen_to_its_end);
        let target = dir.path().join("back/pid-7");
        assert_eq!(write(&native, &target, Lossy::Refuse).unwrap().events, 1);
        let back = UpstreamArchive::open(&target).unwrap();
        assert_eq!((back.len(), back.complete()), (1, seen_to_its_end));
        assert_eq!(back.manifest().complete, seen_to_its_end);
    }
}

//! Every entry point that has a record in the in-tree format: written there from a native archive and read back.

use std::collections::BTreeMap;

use hrr_format::archive::Archive;
use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::{APIS, Api, Effect, Role};
use hrr_format::record::{Presence, SectionTag, flag, marker};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;
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

//! How much memory the program held at most, by kind.

use std::collections::HashMap;
use std::sync::Arc;

use hrr_format::archive::Archive;
use hrr_format::catalogue::{Role, Size};
use hrr_format::record::Record;
use serde::Serialize;

use crate::plan::lower::{RecordInputs, out_bytes, word_at};
use crate::plan::timeline::{Point, Timeline};

/// Memory of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Held {
    /// Most bytes held at once.
    pub(super) peak_bytes: u64,
    /// Allocations.
    pub(super) allocations: u64,
    /// Bytes held at the end of the recording.
    pub(super) left_bytes: u64,
}

/// What calls that allocate and free make of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    /// Device memory, pools and virtual memory included.
    pub(super) device: Held,
    /// Pinned host memory, allocated or registered.
    pub(super) pinned: Held,
    /// Managed memory.
    pub(super) managed: Held,
    /// Most bytes of all kinds held at once.
    pub(super) peak_bytes: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Device,
    Pinned,
    Managed,
}

#[derive(Default)]
struct Ledger {
    memory: Memory,
    live: HashMap<u64, (Kind, u64)>,
    /// Bytes held now, by kind.
    now: [u64; 3],
}

impl Ledger {
    fn held(&mut self, kind: Kind) -> &mut Held {
        match kind {
            Kind::Device => &mut self.memory.device,
            Kind::Pinned => &mut self.memory.pinned,
            Kind::Managed => &mut self.memory.managed,
        }
    }

    fn allocate(&mut self, base: u64, kind: Kind, bytes: u64) {
        // Whatever was at the address before is gone, though no call of the recording freed it.
        self.free(base);
        self.live.insert(base, (kind, bytes));
        let now = &mut self.now[kind as usize];
        *now = now.saturating_add(bytes);
        let now = *now;
        let held = self.held(kind);
        held.allocations += 1;
        held.peak_bytes = held.peak_bytes.max(now);
        let all = self.now.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
        self.memory.peak_bytes = self.memory.peak_bytes.max(all);
    }

    fn free(&mut self, base: u64) {
        if let Some((kind, bytes)) = self.live.remove(&base) {
            let now = &mut self.now[kind as usize];
            *now = now.saturating_sub(bytes);
        }
    }
}

/// Follows the calls that allocate and free: what is freed is gone when the call is entered, what is allocated is there when
/// it has returned.
pub(super) fn collect(archive: &Archive) -> Memory {
    let mut ledger = Ledger::default();
    let mut open: Vec<Option<Record<'_>>> = vec![None; archive.streams().len()];
    for point in Timeline::new(archive.streams(), Arc::default()) {
        match point {
            Point::Begin { lane, record, .. } => {
                frees(archive, &record, |base| ledger.free(base));
                open[lane as usize] = Some(record);
            }
            Point::End { lane } => {
                if let Some(record) = open[lane as usize].take() {
                    allocations(archive, &record, |base, kind, bytes| ledger.allocate(base, kind, bytes));
                }
            }
            Point::Marker { .. } | Point::HostMemory { .. } => {}
        }
    }
    let [device, pinned, managed] = ledger.now;
    ledger.memory.device.left_bytes = device;
    ledger.memory.pinned.left_bytes = pinned;
    ledger.memory.managed.left_bytes = managed;
    ledger.memory
}

fn frees(archive: &Archive, record: &Record<'_>, mut free: impl FnMut(u64)) {
    let Some(api) = archive.row_of(record).filter(|_| record.ret() == 0) else { return };
    for param in api.params {
        if matches!(param.role, Role::FreeDevice | Role::FreeHost | Role::Unpin) {
            free(record.word(usize::from(param.word)));
        }
    }
}

fn allocations(archive: &Archive, record: &Record<'_>, mut allocate: impl FnMut(u64, Kind, u64)) {
    let Some(api) = archive.row_of(record).filter(|_| record.ret() == 0) else { return };
    for (number, param) in api.params.iter().enumerate() {
        let (kind, size): (Kind, Size) = match param.role {
            Role::NewDevice(size) | Role::NewPitched(size) => (Kind::Device, size),
            Role::NewHost(size) | Role::Pin(size) => (Kind::Pinned, size),
            Role::NewManaged(size) => (Kind::Managed, size),
            _ => continue,
        };
        let bytes = out_bytes(record, number as u8).unwrap_or_default();
        let base = match param.role {
            Role::Pin(_) => record.word(usize::from(param.word)),
            _ => word_at(bytes, 0),
        };
        let size = hrr_format::catalogue::Size::value(&size, &RecordInputs { api, record, fields: bytes });
        if base != 0 {
            allocate(base, kind, size.unwrap_or(0));
        }
    }
}

//! Handles by which processes share memory and events: opened ones lead to what was exported.
//!
//! A handle is 64 bytes that the runtime makes up. At replay an export gives other bytes, which go into slots; opening what
//! was exported by the same process is given these. Handles that another process exported are refused, by that process's
//! name where the archive holds it: what one process did to the memory before the other looked is in neither's calls. Memory of
//! exported pools has handles of the same kind.

use hrr_format::archive::{Archive, ArchiveRoot, Process};
use hrr_format::catalogue::{Access, Api, HandleKind};
use hrr_format::record::Record;

use super::draft::Draft;
use super::{Call, Lowering, in_bytes, out_bytes, word_at};
use crate::memory::slots::Slot;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;
use crate::plan::order::dependency::Use;

/// Words of a handle.
pub(crate) const HANDLE_WORDS: usize = 8;

/// A handle as it was recorded.
pub(crate) type Recorded = [u64; HANDLE_WORDS];

/// What an exported handle stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported {
    /// Hold the live handle.
    pub(crate) slots: [Slot; HANDLE_WORDS],
    /// The memory or event.
    pub(crate) object: u32,
    /// Size of the memory.
    pub(crate) size_bytes: u64,
}

impl<'a> Planner<'a> {
    /// A call exports memory or an event.
    pub(in crate::plan) fn export_ipc(&mut self, call: &Call<'_>, draft: &mut Draft, lowering: &mut Lowering) {
        let value = call.record.word(1);
        let (object, size_bytes) = if call.api.name == "hipIpcGetEventHandle" {
            (self.objects.handle(HandleKind::Event, value).map_or(0, |event| event.object), 0)
        } else {
            let memory = self.objects.memory.find(value).map(|place| place.allocation);
            memory.map_or((0, 0), |memory| (memory.object, memory.size_bytes))
        };
        self.export_ipc_of(call, draft, lowering, object, size_bytes);
    }

    /// A call stores a handle of an object where its first argument points to.
    pub(in crate::plan) fn export_ipc_of(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
        object: u32,
        size_bytes: u64,
    ) {
        let Some(bytes) =
            out_bytes(&call.record, 0).filter(|bytes| call.succeeded() && bytes.len() == HANDLE_WORDS * 8)
        else {
            return;
        };
        let recorded = words_of(bytes);
        let buffer = draft.word(0) as *const u64;
        if buffer.is_null() {
            // A damaged record: nothing can have been stored there.
            return;
        }
        let slots = std::array::from_fn(|index| {
            let slot = self.objects.slots.allocate(0);
            draft.output(buffer.wrapping_add(index), slot);
            slot
        });
        // Whoever opens it comes after this call.
        lowering.facts.uses.push((object, Use::Occupies));
        lowering.definitions.push(Definition::Exported(recorded, Exported { slots, object, size_bytes }));
    }

    /// What a handle that a call opens was exported as.
    pub(in crate::plan) fn exported_as(&self, call: &Call<'_>, recorded: &Recorded) -> Result<Exported, Refusal> {
        match self.objects.exported.get(recorded) {
            Some(exported) => Ok(*exported),
            None if !call.succeeded() => Err(Refusal::NotReissued),
            None => Err(foreign(self.archive, |api, record| gives_out(api, record, recorded))),
        }
    }

    /// A call opens memory of an imported pool, as another name of what was exported.
    pub(in crate::plan) fn import_pointer(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
    ) -> Result<(), Refusal> {
        let bytes = in_bytes(call, 2, "export_data")?.filter(|bytes| bytes.len() == HANDLE_WORDS * 8);
        let Some(bytes) = bytes.filter(|_| draft.word(2) != 0) else { return Ok(()) };
        let exported = self.exported_as(call, &words_of(bytes))?;
        let data = draft.word(2) as *mut u64;
        for (index, slot) in exported.slots.into_iter().enumerate() {
            draft.patch_at(data.wrapping_add(index), slot, 0);
        }
        self.name_again(lowering, &exported, Some("hipFree"));
        Ok(())
    }

    /// The memory that a call made has the contents of what was exported.
    pub(in crate::plan) fn name_again(
        &mut self,
        lowering: &mut Lowering,
        exported: &Exported,
        release: Option<&'static str>,
    ) {
        lowering.facts.uses.push((exported.object, Use::Occupies));
        let Some(Definition::Memory(memory)) = lowering.definitions.last_mut() else { return };
        memory.size_bytes = exported.size_bytes;
        memory.bounded = true;
        memory.object = exported.object;
        memory.release = release;
        let memory = *memory;
        self.objects.second_names.insert(memory.base);
        lowering.note_memory(&memory, Access::Read);
    }

    /// A call opens memory or an event, as another name of what was exported.
    pub(in crate::plan) fn import_ipc(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
    ) -> Result<(), Refusal> {
        let recorded: Recorded = std::array::from_fn(|index| call.record.word(1 + index));
        let exported = self.exported_as(call, &recorded)?;
        for (index, slot) in exported.slots.into_iter().enumerate() {
            draft.patch(1 + index as u8, slot, 0);
        }
        // One object under two names: what uses either is ordered with what uses the other.
        self.name_again(lowering, &exported, Some("hipIpcCloseMemHandle"));
        if let Some(Definition::Handle { kind: HandleKind::Event, value, handle }) = lowering.definitions.last_mut() {
            handle.object = exported.object;
            // Destroying one of the names leaves the event alive.
            self.objects.shared_events.insert(*value);
        }
        Ok(())
    }
}

/// Whether a call of another process gave out this handle.
fn gives_out(api: &Api, record: &Record<'_>, recorded: &Recorded) -> bool {
    (api.name.starts_with("hipIpcGet") || api.name.contains("Export"))
        && out_bytes(record, 0).is_some_and(|bytes| bytes.len() == HANDLE_WORDS * 8 && *recorded == words_of(bytes))
}

/// A handle's words.
pub(crate) fn words_of(bytes: &[u8]) -> Recorded {
    std::array::from_fn(|index| word_at(bytes, index * 8))
}

/// Why what another process exported is not opened: by the name of the process of the archive's root that did it.
pub(crate) fn foreign(archive: &Archive, gave: impl Fn(&Api, &Record<'_>) -> bool) -> Refusal {
    let of_process = |process: &Process| {
        let other = Archive::open(&process.path).ok()?;
        let mut records = other.streams().iter().flat_map(|stream| stream.records());
        let gave = records.any(|record| other.row_of(&record).is_some_and(|api| gave(api, &record)));
        gave.then_some(other.manifest().pid)
    };
    let root = archive.path().parent().and_then(|root| ArchiveRoot::open(root).ok());
    let processes = root.iter().flat_map(|root| &root.processes);
    let pid = processes.filter(|process| process.path != archive.path()).find_map(of_process);
    Refusal::Foreign(match pid {
        Some(pid) => {
            format!(
                "process {pid} of this archive exported it; what processes do to each other's memory is not replayed"
            )
        }
        None => "no process of this archive exported it".to_owned(),
    })
}

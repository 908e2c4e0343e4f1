//! Handles by which processes share memory and events: opened ones lead to what was exported.
//!
//! A handle is 64 bytes that the runtime makes up. At replay an export gives other bytes, which go into slots; opening what
//! was exported by the same process is given these. Handles that another process exported are refused, by that process's
//! name where the archive holds it: what one process did to the memory before the other looked is in neither's calls.

use hrr_format::archive::{Archive, ArchiveRoot};
use hrr_format::catalogue::{Access, HandleKind};

use super::Planner;
use super::dependency::Use;
use super::draft::Draft;
use super::error::Refusal;
use super::lower::{Call, Lowering, out_bytes, word_at};
use super::objects::Definition;
use crate::slots::Slot;

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
    pub(super) fn export_ipc(&mut self, call: &Call<'_>, draft: &mut Draft, lowering: &mut Lowering) {
        let Some(bytes) =
            out_bytes(&call.record, 0).filter(|bytes| call.succeeded() && bytes.len() == HANDLE_WORDS * 8)
        else {
            return;
        };
        let mut recorded = [0; HANDLE_WORDS];
        for (index, word) in recorded.iter_mut().enumerate() {
            *word = word_at(bytes, index * 8);
        }
        let value = call.record.word(1);
        let (object, size_bytes) = if call.api.name == "hipIpcGetEventHandle" {
            (self.objects.handle(HandleKind::Event, value).map_or(0, |event| event.object), 0)
        } else {
            let memory = self.objects.memory.find(value).map(|place| place.allocation);
            memory.map_or((0, 0), |memory| (memory.object, memory.size_bytes))
        };
        // SAFETY: the first word was set to a buffer of the chunk's memory, as long as the recorded handle at least.
        let buffer = unsafe { draft.words.read() } as *const u64;
        let slots = std::array::from_fn(|index| {
            let slot = self.objects.slots.allocate(0);
            draft.output(buffer.wrapping_add(index), slot);
            slot
        });
        // Whoever opens it comes after this call.
        lowering.facts.uses.push((object, Use::Occupies));
        lowering.definitions.push(Definition::Exported(recorded, Exported { slots, object, size_bytes }));
    }

    /// A call opens memory or an event, as another name of what was exported.
    pub(super) fn import_ipc(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
    ) -> Result<(), Refusal> {
        let recorded: Recorded = std::array::from_fn(|index| call.record.word(1 + index));
        let Some(exported) = self.objects.exported.get(&recorded).copied() else {
            if !call.succeeded() {
                return Err(Refusal::NotReissued);
            }
            return Err(Refusal::Foreign(match exporting_process(self.archive, &recorded) {
                Some(pid) => format!(
                    "process {pid} of this archive exported it; what processes do to each other's memory is not replayed"
                ),
                None => "no process of this archive exported it".to_owned(),
            }));
        };
        for (index, slot) in exported.slots.into_iter().enumerate() {
            draft.patch(1 + index as u8, slot, 0);
        }
        lowering.facts.uses.push((exported.object, Use::Occupies));
        // One object under two names: what uses either is ordered with what uses the other.
        match lowering.definitions.last_mut() {
            Some(Definition::Memory(memory)) => {
                memory.size_bytes = exported.size_bytes;
                memory.bounded = true;
                memory.object = exported.object;
                memory.release = Some("hipIpcCloseMemHandle");
                let memory = *memory;
                lowering.note_memory(&memory, Access::Read);
            }
            Some(Definition::Handle { kind: HandleKind::Event, value, handle }) => {
                handle.object = exported.object;
                // Destroying one of the names leaves the event alive.
                self.objects.shared_events.insert(*value);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The process of the archive's root that exported a handle.
fn exporting_process(archive: &Archive, recorded: &Recorded) -> Option<u64> {
    let root = ArchiveRoot::open(archive.path().parent()?).ok()?;
    root.processes.iter().filter(|process| process.path != archive.path()).find_map(|process| {
        let other = Archive::open(&process.path).ok()?;
        let exports = other.streams().iter().flat_map(|stream| stream.records()).any(|record| {
            let exports = other.row_of(&record).is_some_and(|api| api.name.starts_with("hipIpcGet"));
            exports
                && out_bytes(&record, 0).is_some_and(|bytes| {
                    recorded.iter().enumerate().all(|(index, word)| word_at(bytes, index * 8) == *word)
                })
        });
        exports.then_some(other.manifest().pid)
    })
}

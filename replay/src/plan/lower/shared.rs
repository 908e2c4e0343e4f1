//! Operating-system handles of memory: file descriptors, which lead from what imports them to what exported them.
//!
//! The recorder tells of each descriptor which file it stood for, so that neither copies of a descriptor nor a number that is used
//! again are mistaken for another. At replay an export gives another descriptor, which goes into a slot; what imports the same
//! file is given it. Files that another process exported, or another interface, are refused.

use hrr_format::catalogue::{Api, HandleKind};
use hrr_format::record::{FileId, Presence, Record, SectionTag};

use super::bounds::{MAX_ALLOCATION_BYTES, NOWHERE};
use super::draft::Draft;
use super::ipc::{self, HANDLE_WORDS, words_of};
use super::{Call, Lowering, in_bytes, word_at};
use crate::instruction::Chunk;
use crate::memory::slots::Slot;
use crate::memory::stage::poison_address;
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;
use crate::plan::order::dependency::Use;

/// Descriptors are lower and addresses are not, which older runtimes take in their place.
const SMALLEST_ADDRESS: u64 = 65536;
/// Offset of the descriptor in `hipExternalMemoryHandleDesc`, in words.
const EXTERNAL_DESCRIPTOR_WORD: usize = 1;
/// Offset of the size in `hipExternalMemoryBufferDesc`, in bytes.
const BUFFER_SIZE_AT: usize = 8;

/// Memory or a pool that was exported as a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportedFile {
    /// Holds the live descriptor.
    pub(crate) slot: Slot,
    /// The descriptor's number at capture.
    descriptor: u64,
    /// The memory or pool.
    object: u32,
    /// It may be the runtime's by now, which then closes it.
    given_away: bool,
}

/// The file that an operating-system handle of a call stands for.
fn file_of(record: &Record<'_>) -> Option<FileId> {
    let section = record.section_tagged(SectionTag::File)?;
    if section.presence == Presence::Present { FileId::read(section.payload) } else { None }
}

/// Whether a call of another process gave out this file.
fn gives_out(api: &Api, record: &Record<'_>, file: &FileId) -> bool {
    let same = |other: FileId| (other.device, other.inode) == (file.device, file.inode);
    api.name.contains("Export") && file_of(record).is_some_and(same)
}

impl<'a> Planner<'a> {
    /// A call exports memory or a pool.
    pub(in crate::plan) fn export_shared(&mut self, call: &Call<'_>, draft: &mut Draft, lowering: &mut Lowering) {
        if !call.succeeded() || draft.word(0) == 0 {
            return;
        }
        let value = call.record.word(1);
        let kind =
            if call.api.name == "hipMemPoolExportToShareableHandle" { HandleKind::Pool } else { HandleKind::MemHandle };
        let object = self.objects.handle(kind, value).map_or(0, |handle| handle.object);
        let Some(file) = file_of(&call.record) else {
            // Not a file's: 64 bytes that the runtime makes up.
            return self.export_ipc_of(call, draft, lowering, object, 0);
        };
        raise_descriptor_limit();
        let slot = self.objects.slots.allocate(NOWHERE);
        draft.output(draft.word(0) as *const u64, slot);
        // Whoever imports it comes after this call.
        lowering.facts.uses.push((object, Use::Occupies));
        let exported = ExportedFile { slot, descriptor: file.descriptor, object, given_away: false };
        lowering.definitions.push(Definition::ExportedFile(file, exported));
    }

    /// What a file that a call imports was exported as. Where several exports gave out the same file, as those of drivers do
    /// whose descriptors all stand for their device, the number decides.
    fn exported_file(&mut self, file: &FileId) -> Option<&mut ExportedFile> {
        let exports = self.objects.exported_files.get_mut(&(file.device, file.inode))?;
        let first = exports.first()?.object;
        let is_one = exports.iter().all(|export| export.object == first);
        let by_number = exports.iter().rposition(|export| export.descriptor == file.descriptor);
        exports.get_mut(by_number.or(is_one.then_some(0))?)
    }

    /// A call imports memory or a pool: another handle of what was exported.
    pub(in crate::plan) fn import_shared(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        lowering: &mut Lowering,
    ) -> Result<(), Refusal> {
        let external = call.api.name == "hipImportExternalMemory";
        let word = call.record.word(1);
        let file = file_of(&call.record).filter(|_| !external || word != 0);
        let object = match file {
            Some(file) => {
                let Some(exported) = self.exported_file(&file) else {
                    return Err(if call.succeeded() {
                        ipc::foreign(self.archive, |api, record| gives_out(api, record, &file))
                    } else {
                        Refusal::NotReissued
                    });
                };
                let (slot, object) = (exported.slot, exported.object);
                exported.given_away |= external;
                if external {
                    let place = draft.word(1) as *mut u64;
                    draft.patch_at(place.wrapping_add(EXTERNAL_DESCRIPTOR_WORD), slot, 0);
                } else if word < SMALLEST_ADDRESS {
                    draft.patch(1, slot, 0);
                } else {
                    let place = chunk.memory.allocate(1);
                    draft.set(1, place as u64);
                    draft.patch_at(place, slot, 0);
                }
                object
            }
            None if external && !call.succeeded() => return Err(Refusal::NotReissued),
            None => match in_bytes(call, 1, "shareable_handle")?.filter(|bytes| bytes.len() == HANDLE_WORDS * 8) {
                Some(bytes) if !external => {
                    let exported = self.exported_as(call, &words_of(bytes))?;
                    let place = chunk.memory.allocate(HANDLE_WORDS);
                    draft.set(1, place as u64);
                    for (index, slot) in exported.slots.into_iter().enumerate() {
                        draft.patch_at(place.wrapping_add(index), slot, 0);
                    }
                    exported.object
                }
                _ if call.succeeded() => return Err(ipc::foreign(self.archive, |_, _| false)),
                _ => {
                    // What was no handle then must be none now.
                    draft.set(1, if word == 0 { 0 } else { poison_address() });
                    return Ok(());
                }
            },
        };
        lowering.facts.uses.push((object, Use::Occupies));
        if let Some(Definition::Handle { handle, .. }) = lowering.definitions.last_mut() {
            handle.parent = object;
            let own = handle.object;
            self.join_contents(own, object);
        }
        Ok(())
    }

    /// A call maps external memory: the size is in what it is given.
    pub(in crate::plan) fn map_external(&mut self, call: &Call<'_>, lowering: &mut Lowering) {
        let size_bytes =
            call.record.section(SectionTag::In, 2).map_or(0, |given| word_at(given.payload, BUFFER_SIZE_AT));
        let external = self.objects.handle(HandleKind::ExternalMemory, call.record.word(1));
        if let (Some(Definition::Memory(memory)), Some(external)) = (lowering.definitions.last_mut(), external) {
            memory.size_bytes = size_bytes.min(MAX_ALLOCATION_BYTES);
            memory.bounded = true;
            let own = memory.object;
            self.join_contents(own, external.object);
        }
    }

    /// Slots with descriptors that a replay's exports made and that nobody else closes.
    pub(in crate::plan) fn descriptors(&self) -> Vec<Slot> {
        let exports = self.objects.exported_files.values().flatten();
        exports.filter(|export| !export.given_away).map(|export| export.slot).collect()
    }
}

/// Programs close the descriptors that they exported, of which a recording does not tell; a replay keeps them until it is over.
fn raise_descriptor_limit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the struct is this function's own.
        let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
        limit.rlim_cur = limit.rlim_max;
        // Where it cannot be raised, an export that finds no descriptor left fails by its own name.
        // SAFETY: as above.
        let _ = told && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    });
}

//! One device that stands for several recorded ones.
//!
//! Access between two of them is not asked for: their memory is in reach anyway. The variables of kernels, of which every
//! device has its own, must not become one: so the fat binaries are registered once more for each further device, as its
//! *twins*, under host symbols of their own, and the calls of that device name those.

use hrr_format::archive::Archive;
use hrr_format::catalogue::{HandleKind, Role};
use hrr_format::record::SectionTag;

use super::Planner;
use super::error::Refusal;
use super::lower::draft::{Draft, Issue};
use super::lower::special::Special;
use super::lower::{Call, Lowering, word_at};
use super::objects::{Definition, Symbol};
use super::order::dependency::Use;
use crate::instruction::{Chunk, Wait, flag};
use crate::machine::device_map::DeviceMap;
use crate::thunk::THUNKS;

/// Where a twin's number stands in the recorded address that it goes by: above what addresses of programs use.
const TWIN_SHIFT: u32 = 48;

/// Which of the recorded devices that one device stands for each is.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    /// Recorded device and its number: 0 for the first of those that a device stands for.
    of_device: Vec<(i32, u32)>,
    /// The highest number.
    count: u32,
}

impl Twins {
    /// The twins that a device map makes of an archive's devices.
    pub(crate) fn of(archive: &Archive, devices: &DeviceMap) -> Self {
        let mut twins = Twins::default();
        if devices.is_identity() {
            return twins;
        }
        let mut recorded: Vec<i32> = archive.manifest().devices.iter().map(|device| device.ordinal).collect();
        recorded.sort_unstable();
        for (at, &device) in recorded.iter().enumerate() {
            let before = recorded[..at].iter().filter(|&&other| devices.live(other) == devices.live(device)).count();
            let number = u32::try_from(before).unwrap_or(u32::MAX).min(u32::from(u16::MAX));
            twins.of_device.push((device, number));
            twins.count = twins.count.max(number);
        }
        twins
    }

    /// The name under which a device knows what is registered at `address`.
    pub(super) fn name_on(&self, device: i32, address: u64) -> u64 {
        let number = self.of_device.iter().find(|known| known.0 == device).map_or(0, |known| known.1);
        twin(address, number)
    }
}

fn twin(address: u64, number: u32) -> u64 {
    address ^ u64::from(number) << TWIN_SHIFT
}

/// Calls that a runtime refuses for a device and itself. Those with one ordinal mean the current device and that one.
const BETWEEN_TWO: [&str; 4] = [
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGetP2PAttribute",
    "hipExtGetLinkTypeAndHopCount",
];

impl<'a> Planner<'a> {
    /// Whether a call is about the access of one device to another, and the device map has one stand for both: memory is
    /// within reach then without it.
    pub(super) fn is_between_merged_devices(&self, call: &Call<'_>) -> bool {
        if self.choices.devices.is_identity() || !BETWEEN_TWO.contains(&call.api.name) {
            return false;
        }
        let mut ordinals = call
            .api
            .params
            .iter()
            .filter(|param| matches!(param.role, Role::Ordinal))
            .map(|param| call.record.word(usize::from(param.word)) as u32 as i32);
        let Some(first) = ordinals.next() else { return false };
        let second = ordinals.next().unwrap_or(call.device);
        let live = |device| self.choices.devices.live(device);
        first != second && live(first) == live(second)
    }

    /// Emits what registers, or ends the registration of, the twins of what a call does so for. Takes over its waits if there
    /// is something. The call itself has been laid out.
    pub(super) fn emit_twins(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &Draft,
        lowering: &mut Lowering,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        if !call.succeeded() {
            return Ok(());
        }
        for number in 1..=self.twins.count {
            let laid_out = match (call.api.name, self.specials[usize::from(call.api.id)]) {
                ("__hipRegisterFatBinary", _) => self.twin_binary(call, chunk, lowering, number)?,
                ("__hipUnregisterFatBinary", _) => self.twin_end(call, chunk, lowering, number),
                (_, Special::RegisterFunction | Special::RegisterVar) => {
                    self.twin_symbol(call, chunk, draft, number)?
                }
                _ => return Ok(()),
            };
            let Some(mut laid_out) = laid_out else { continue };
            laid_out.flags |= flag::AUXILIARY | flag::ANY_OUTCOME;
            let issue = Issue {
                thunk: THUNKS[usize::from(call.api.id)],
                function: self.entry_point(call.api)?,
                api: call.api,
                progress: 0,
                event: call.event,
                lane: call.lane,
                expected: 0,
                device: self.choices.devices.live(call.device),
                flags: 0,
            };
            laid_out.finish(chunk, issue, waits);
            waits.clear();
        }
        Ok(())
    }

    fn twin_binary(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        lowering: &mut Lowering,
        number: u32,
    ) -> Result<Option<Draft>, Refusal> {
        let section = call.record.section_tagged(SectionTag::Return);
        let recorded = section.map_or(0, |section| word_at(section.payload, 0));
        if recorded == 0 {
            return Ok(None);
        }
        // In memory of its own: a runtime may take the same image for the same binary.
        let images = std::mem::take(&mut self.images);
        let image = self.image_address(call, 0);
        self.images = images;
        let mut laid_out = Draft::new(chunk, 1, [image?]);
        let handle = self.objects.new_handle(None);
        laid_out.output(std::ptr::null(), handle.slot);
        lowering.facts.creates.push(handle.object);
        let value = twin(recorded, number);
        lowering.definitions.push(Definition::Handle { kind: HandleKind::FatBinary, value, handle });
        Ok(Some(laid_out))
    }

    fn twin_end(&mut self, call: &Call<'a>, chunk: &mut Chunk, lowering: &mut Lowering, number: u32) -> Option<Draft> {
        let value = twin(call.record.word(0), number);
        let handle = self.objects.handle(HandleKind::FatBinary, value)?;
        let mut laid_out = Draft::new(chunk, 1, [0]);
        laid_out.patch(0, handle.slot, 0);
        lowering.facts.uses.push((handle.object, Use::Ends));
        self.objects.retire(HandleKind::FatBinary, value);
        Some(laid_out)
    }

    /// The same registration with the twin's binary, and a symbol of its own.
    fn twin_symbol(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &Draft,
        number: u32,
    ) -> Result<Option<Draft>, Refusal> {
        let is_symbol = |role: &Role| matches!(role, Role::KernelSymbol | Role::VarSymbol);
        let Some(param) = call.api.param_with(is_symbol) else { return Ok(None) };
        let word = call.api.params[param].word;
        let recorded = call.record.word(usize::from(word));
        let binary = self.objects.handle(HandleKind::FatBinary, twin(call.record.word(0), number));
        let (Some(binary), Some(&symbol)) = (binary, self.objects.symbols.get(&recorded)) else { return Ok(None) };
        let address = self.host.lasting_place(symbol.size_bytes.unwrap_or(1).max(8))? as u64;
        // SAFETY: the call's words were laid out for all of its parameters.
        let words = unsafe { std::slice::from_raw_parts(draft.words, call.record.word_count()) }.to_vec();
        let mut laid_out = Draft::new(chunk, words.len(), words);
        laid_out.set(word, address);
        laid_out.patch(0, binary.slot, 0);
        self.objects.symbols.insert(twin(recorded, number), Symbol { address, ..symbol });
        Ok(Some(laid_out))
    }
}

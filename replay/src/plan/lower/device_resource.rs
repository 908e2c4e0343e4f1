//! Device resources (`hipDevResource`): shares of a device that one call describes and another takes.
//!
//! A description is a struct that the program passes on, and most of it is the runtime's own: it may hold addresses that mean
//! something in one process only. So a description that a recorded call returned is, where a later call is given it, the one
//! that the replayed call returned. What no call returned as it stands is passed as recorded.

use hrr_format::catalogue::Api;
use hrr_format::record::SectionTag;

use super::draft::Draft;
use super::{Call, Lowering, out_bytes, word_at};
use crate::memory::slots::Slot;
use crate::plan::Planner;
use crate::plan::objects::Definition;
use crate::plan::order::dependency::Use;

/// Words of a `hipDevResource` (hip_runtime_api.h of ROCm 7: 144 bytes).
const WORDS: usize = 18;
const BYTES: usize = WORDS * 8;

/// A description as it was recorded.
pub(crate) type Described = [u64; WORDS];

/// What holds the live description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceResource {
    slots: [Slot; WORDS],
    /// For the order of its uses after the call that returns it.
    object: u32,
}

/// Parameters that are descriptions, or arrays of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parameters {
    given: Option<u8>,
    returned: [Option<u8>; 2],
}

impl Parameters {
    /// Those of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        let (given, returned) = match api.name {
            "hipDeviceGetDevResource" | "hipExecutionCtxGetDevResource" | "hipStreamGetDevResource" => {
                (None, [Some(1), None])
            }
            "hipDevSmResourceSplitByCount" | "hipDevSmResourceSplit" => (Some(2), [Some(0), Some(3)]),
            "hipDevResourceGenerateDesc" => (Some(1), [None; 2]),
            _ => (None, [None; 2]),
        };
        Parameters { given, returned }
    }

    /// Whether there are any.
    pub(crate) fn any(self) -> bool {
        self.given.is_some() || self.returned != [None; 2]
    }
}

impl Planner<'_> {
    /// Has the descriptions that a call is given be those of this run, and keeps those that it returns.
    pub(in crate::plan) fn resolve_device_resources(
        &mut self,
        call: &Call<'_>,
        draft: &mut Draft,
        lowering: &mut Lowering,
    ) {
        let parameters = Parameters::of(call.api);
        if let Some(number) = parameters.given {
            let section = call.record.section(SectionTag::In, number);
            let place = draft.word(call.api.params[usize::from(number)].word) as *mut u64;
            for (index, bytes) in section.map_or(&[][..], |section| section.payload).chunks_exact(BYTES).enumerate() {
                let Some(known) = self.objects.device_resources.get(&described(bytes)).copied() else { continue };
                lowering.facts.uses.push((known.object, Use::Reads));
                for (word, slot) in known.slots.into_iter().enumerate() {
                    // Within the copy of the section, which the parameter's word points to.
                    draft.patch_at(place.wrapping_add(index * WORDS + word), slot, 0);
                }
            }
        }
        for number in parameters.returned.into_iter().flatten().filter(|_| call.succeeded()) {
            let place = draft.word(call.api.params[usize::from(number)].word) as *const u64;
            let found = out_bytes(&call.record, number).unwrap_or_default();
            for (index, bytes) in found.chunks_exact(BYTES).enumerate() {
                let object = self.objects.new_object();
                let slots = std::array::from_fn(|word| {
                    let slot = self.objects.slots.allocate(0);
                    // Within the room that was made for what was recorded, at least.
                    draft.output(place.wrapping_add(index * WORDS + word), slot);
                    slot
                });
                lowering.facts.creates.push(object);
                let known = DeviceResource { slots, object };
                lowering.definitions.push(Definition::DeviceResource(Box::new((described(bytes), known))));
            }
        }
    }
}

fn described(bytes: &[u8]) -> Described {
    std::array::from_fn(|word| word_at(bytes, word * 8))
}

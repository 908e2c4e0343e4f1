//! Contexts: which device is current on a captured thread after calls that make a context current, other than by its number.
//!
//! A record says so itself. Where it does not, because another tool or an older recorder made it, what AMD's runtime does
//! is assumed: making a context current makes its device current, and creating or taking away one does not.

use hrr_format::catalogue::Api;

use super::special::Special;
use super::{Call, out_bytes, word_at};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;

impl<'a> Planner<'a> {
    /// What calls about contexts become. Where captured threads share OS threads, their stacks of contexts are not kept apart
    /// there, and older recorders left out of a window what was on them before: the top is asked for instead of taken away, and
    /// the device behind it is made current as by any other call.
    pub(crate) fn apply_context(&self, call: &Call<'_>, special: Special) -> Result<Option<&'static Api>, Refusal> {
        let as_recorded = !self.multiplexed && self.has_whole_stacks();
        if special != Special::PopContext || as_recorded {
            return Ok(None);
        }
        if !call.succeeded() {
            return Err(Refusal::NotReissued);
        }
        Ok(Api::by_name("hipCtxGetCurrent"))
    }

    /// Whether the archive has all that its threads pushed on their stacks of contexts.
    pub(crate) fn has_whole_stacks(&self) -> bool {
        self.archive.manifest().window.as_ref().is_none_or(|window| window.contexts)
    }

    /// What a call that succeeded changes of its thread's device, and of what is known of contexts.
    pub(crate) fn note_context(&mut self, call: &Call<'_>, special: Special, definitions: &mut Vec<Definition>) {
        if !call.succeeded() {
            return;
        }
        let record = &call.record;
        let ordinal = |word| record.word(word) as u32 as i32;
        match special {
            Special::SetDevice => definitions.push(Definition::Device(ordinal(0))),
            Special::MakeContext | Special::UseContext | Special::PopContext => {
                let named = match special {
                    Special::UseContext => self.objects.context_devices.get(&record.word(0)).copied(),
                    _ => None,
                };
                let device = record.device_after().or(named);
                definitions.extend(device.map(Definition::Device));
            }
            _ => {}
        }
        let given = match call.api.name {
            "hipCtxCreate" => Some(ordinal(2)),
            "hipDevicePrimaryCtxRetain" => Some(ordinal(1)),
            "hipCtxGetCurrent" => Some(call.device),
            _ => None,
        };
        if let (Some(device), Some(bytes)) = (given, out_bytes(record, 0)) {
            definitions.push(Definition::Context { value: word_at(bytes, 0), device });
        }
    }
}

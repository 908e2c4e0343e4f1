//! Functions of a module, and kernels of a library, that the program had by enumeration: found by their names.
//!
//! In which order a runtime lists them is its own affair, so what stood at a position at capture need not stand there now. The
//! enumeration is issued as it was; what it gives is not used where the archive has the names.

use hrr_format::catalogue::{Api, HandleKind, Role};
use hrr_format::record::SectionTag;

use super::draft::{Draft, Issue};
use super::{Call, Lowering, padded_copy};
use crate::instruction::{Chunk, Output, Wait, flag};
use crate::plan::Planner;
use crate::plan::error::Refusal;
use crate::plan::objects::Definition;
use crate::thunk::THUNKS;

/// The name of what an enumeration stored at a position; `None` where the archive lacks it.
fn name_at<'a>(call: &Call<'a>, param: u8, position: usize) -> Option<&'a [u8]> {
    let section = call.record.section(SectionTag::Names, param)?;
    let mut names = section.payload.split(|&byte| byte == 0);
    names.nth(position).filter(|name| !name.is_empty())
}

/// The parameter by which a call lists functions or kernels.
pub(in crate::plan) fn listed(api: &Api) -> Option<(u8, HandleKind)> {
    (0..).zip(api.params).find_map(|(number, param)| match param.role {
        Role::GetArray(kind @ (HandleKind::Function | HandleKind::Kernel), _) => Some((number, kind)),
        _ => None,
    })
}

impl<'a> Planner<'a> {
    /// What an enumeration stored at a position is the kernel of this name.
    pub(in crate::plan) fn name_enumerated(
        &mut self,
        call: &Call<'a>,
        lowering: &Lowering,
        param: u8,
        position: usize,
        kind: HandleKind,
        value: u64,
    ) {
        let defined = lowering.definitions.last().and_then(|definition| match definition {
            Definition::Handle { kind: of, value: recorded, handle } if *of == kind && *recorded == value => {
                Some(handle.object)
            }
            _ => None,
        });
        if let Some((object, name)) = defined.zip(name_at(call, param, position)) {
            self.kernel_rooms.name(object, name);
        }
    }

    /// Emits what asks for each function or kernel by its name in place of its position. Takes over the call's waits if there
    /// is something.
    pub(in crate::plan) fn emit_by_name(
        &mut self,
        call: &Call<'a>,
        chunk: &mut Chunk,
        draft: &mut Draft,
        waits: &mut Vec<Wait>,
    ) -> Result<(), Refusal> {
        let Some((param, kind)) = self.traits[usize::from(call.api.id)].lists else { return Ok(()) };
        let (whole, by_name) = match kind {
            HandleKind::Function => (HandleKind::Module, "hipModuleGetFunction"),
            _ => (HandleKind::Library, "hipLibraryGetKernel"),
        };
        let is_whole = |role: &Role| *role == Role::Use(whole);
        let Some(whole_param) = call.api.param_with(is_whole) else { return Ok(()) };
        let whole = self.objects.handle(whole, call.record.word(usize::from(call.api.params[whole_param].word)));
        let Some(whole) = whole else { return Ok(()) };
        let array = draft.word(call.api.params[usize::from(param)].word) as usize;
        let api = Api::by_name(by_name).ok_or(Refusal::UnknownApi)?;
        for Output { source, slot } in std::mem::take(&mut draft.outputs) {
            let position = (source as usize).wrapping_sub(array) / 8;
            let Some(name) = name_at(call, param, position) else {
                draft.outputs.push(Output { source, slot });
                continue;
            };
            let text = padded_copy(chunk, &[name, &[0]].concat());
            let cell = chunk.memory.allocate(1);
            let mut laid_out = Draft::new(chunk, 3, [cell as u64, 0, text as u64]);
            laid_out.patch(1, whole.slot, 0);
            laid_out.output(cell, slot);
            let issue = Issue {
                thunk: THUNKS[usize::from(api.id)],
                function: self.entry_point(api)?,
                api,
                progress: 0,
                event: call.event,
                lane: call.lane,
                expected: 0,
                device: self.choices.devices.live(call.device),
                flags: flag::AUXILIARY,
            };
            laid_out.finish(chunk, issue, waits);
            waits.clear();
        }
        Ok(())
    }
}

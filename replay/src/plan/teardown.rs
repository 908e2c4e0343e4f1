//! What is left to destroy when an archive ends, so that it can be replayed again in a fresh state, with no leak.

use hrr_format::catalogue::{Api, HandleKind};

use super::Planner;
use super::lower::Call;
use super::lower::bounds::NOWHERE;
use super::objects::{LaneState, Mapping, Objects};
use crate::machine::runtime::Runtime;
use crate::memory::slots::Slot;
use crate::thunk::THUNKS;
use crate::triage::own_calls;

/// What destroys a handle of each kind, in the order in which kinds are destroyed: users before what they use.
const DESTROYERS: [(HandleKind, &str); 16] = [
    (HandleKind::Exec, "hipGraphExecDestroy"),
    (HandleKind::Graph, "hipGraphDestroy"),
    (HandleKind::Event, "hipEventDestroy"),
    (HandleKind::Stream, "hipStreamDestroy"),
    (HandleKind::Texture, "hipDestroyTextureObject"),
    (HandleKind::Surface, "hipDestroySurfaceObject"),
    (HandleKind::Array, "hipFreeArray"),
    (HandleKind::Mipmap, "hipFreeMipmappedArray"),
    (HandleKind::MemHandle, "hipMemRelease"),
    (HandleKind::ExternalMemory, "hipDestroyExternalMemory"),
    (HandleKind::Pool, "hipMemPoolDestroy"),
    (HandleKind::Link, "hipLinkDestroy"),
    (HandleKind::Module, "hipModuleUnload"),
    (HandleKind::Library, "hipLibraryUnload"),
    (HandleKind::FatBinary, "__hipUnregisterFatBinary"),
    (HandleKind::Ctx, "hipCtxDestroy"),
];

/// Kinds destroyed after memory was given back.
const AFTER_MEMORY: HandleKind = HandleKind::MemHandle;

/// One argument of a destroying call.
#[derive(Clone, Copy, Debug)]
enum Argument {
    /// The live value, with this added.
    Slot(Slot, u64),
    /// This value.
    Value(u64),
}

/// One destroying call.
#[derive(Clone, Debug)]
struct Step {
    api: &'static str,
    arguments: Vec<Argument>,
}

/// The calls that destroy what an archive leaves alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Teardown {
    steps: Vec<Step>,
    /// Hold descriptors that exports made.
    descriptors: Vec<Slot>,
}

/// What a teardown came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TornDown {
    /// Objects destroyed.
    pub(crate) destroyed: u64,
    /// Calls that failed, by name and code.
    pub(crate) failed: Vec<(&'static str, i32)>,
}

impl Teardown {
    /// What has to be done to these objects.
    pub(crate) fn of(objects: &Objects, lanes: &[LaneState], stand_ins: bool, descriptors: Vec<Slot>) -> Self {
        let mut steps = Vec::new();
        let (mut handles, mut memory) = (Vec::new(), Vec::new());
        for &(device, peer) in &objects.peers {
            let device = Argument::Value(device as u32 as u64);
            steps.push(Step { api: "hipSetDevice", arguments: vec![device] });
            let peer = Argument::Value(peer as u32 as u64);
            steps.push(Step { api: "hipDeviceDisablePeerAccess", arguments: vec![peer] });
        }
        for (kind, handle) in objects.owned_handles() {
            if let Some(rank) = DESTROYERS.iter().position(|(of, _)| *of == kind) {
                handles.push((rank, std::cmp::Reverse(handle.object), handle.slot));
            }
        }
        if stand_ins {
            let rank = DESTROYERS.iter().position(|(of, _)| *of == HandleKind::Stream).unwrap_or(0);
            for handle in lanes.iter().flat_map(|lane| lane.per_thread.values()) {
                handles.push((rank, std::cmp::Reverse(handle.object), handle.slot));
            }
        }
        handles.sort_unstable_by_key(|&(rank, object, _)| (rank, object));
        for mapping in objects.mappings.values() {
            let arguments =
                vec![Argument::Slot(mapping.slot, mapping.offset_bytes), Argument::Value(mapping.size_bytes)];
            memory.push(Step { api: "hipMemUnmap", arguments });
        }
        for allocation in objects.memory.iter() {
            let Some(api) = allocation.release else { continue };
            let mut arguments = vec![Argument::Slot(allocation.slot, 0)];
            if api == "hipMemAddressFree" {
                arguments.push(Argument::Value(allocation.size_bytes));
            }
            memory.push(Step { api, arguments });
        }
        let after = DESTROYERS.iter().position(|(of, _)| *of == AFTER_MEMORY).unwrap_or(DESTROYERS.len());
        let (early, late): (Vec<_>, Vec<_>) = handles.into_iter().partition(|&(rank, ..)| rank < after);
        let step = |(rank, _, slot): (usize, _, Slot)| Step {
            api: DESTROYERS[rank].1,
            arguments: vec![Argument::Slot(slot, 0)],
        };
        steps.extend(early.into_iter().map(step));
        steps.append(&mut memory);
        steps.extend(late.into_iter().map(step));
        Teardown { steps, descriptors }
    }

    /// Destroys everything. The devices are idle and no runner is active.
    pub(crate) fn run(&self, runtime: &Runtime) -> TornDown {
        let mut outcome = TornDown::default();
        for step in &self.steps {
            let Some(api) = Api::by_name(step.api) else { continue };
            let Some(function) = runtime.entry_point(api) else {
                outcome.failed.push((step.api, -1));
                continue;
            };
            let mut words = [0u64; 4];
            let mut created = true;
            for (word, argument) in words.iter_mut().zip(&step.arguments) {
                *word = match *argument {
                    // SAFETY: the slot table belongs to the plan, which the caller keeps.
                    Argument::Slot(slot, addend) => match unsafe { slot.load() } {
                        0 | NOWHERE => {
                            created = false;
                            0
                        }
                        value => value.wrapping_add(addend),
                    },
                    Argument::Value(value) => value,
                };
            }
            // A replay that stopped early has not made everything.
            if !created {
                continue;
            }
            let _watched = own_calls::enter(step.api);
            // SAFETY: destroying calls take their object by value and at most a size beside it, nothing uses the objects any
            // more, and no such call takes more than four words.
            let code = unsafe { THUNKS[usize::from(api.id)](function, words.as_ptr()) }.code;
            match code {
                0 => outcome.destroyed += 1,
                code => outcome.failed.push((step.api, code)),
            }
        }
        for slot in &self.descriptors {
            // SAFETY: the slot table belongs to the plan, which the caller keeps.
            let value = unsafe { slot.load() };
            if let Some(descriptor) = i32::try_from(value).ok().filter(|&descriptor| descriptor > 0) {
                // SAFETY: an export of this replay made it, and nobody else closes it.
                unsafe { libc::close(descriptor) };
            }
        }
        outcome
    }
}

impl Planner<'_> {
    /// Keeps track of what lasts and is no object: mappings, peer access, and what a reset takes away.
    pub(crate) fn note_lasting_state(&mut self, call: &Call<'_>) {
        if !call.succeeded() {
            return;
        }
        let word = |index| call.record.word(index);
        match call.api.name {
            "hipMemMap" => {
                if let Some(place) = self.objects.memory.inside(word(0)) {
                    let (slot, offset_bytes) = (place.allocation.slot, place.offset_bytes);
                    self.objects.mappings.insert(word(0), Mapping { slot, offset_bytes, size_bytes: word(1) });
                }
            }
            "hipMemUnmap" => {
                let (from, to) = (word(0), word(0).saturating_add(word(1)));
                self.objects.mappings.retain(|&address, _| address < from || address >= to);
            }
            "hipDeviceEnablePeerAccess" => self.objects.peers.push((call.device, word(0) as u32 as i32)),
            "hipDeviceDisablePeerAccess" => {
                let pair = (call.device, word(0) as u32 as i32);
                self.objects.peers.retain(|known| *known != pair);
            }
            "hipDeviceReset" => self.objects.disown(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_destroying_call_is_in_the_catalogue_and_takes_few_words() {
        let memory =
            ["hipFree", "hipHostFree", "hipHostUnregister", "hipMemAddressFree", "hipMemUnmap", "hipSetDevice"];
        for name in DESTROYERS.iter().map(|(_, name)| *name).chain(memory).chain(["hipDeviceDisablePeerAccess"]) {
            let api = Api::by_name(name).unwrap_or_else(|| panic!("{name}"));
            assert!((1..=4).contains(&api.words), "{name}");
        }
    }
}

//! What a forked child inherits: the code that its parent registered.
//!
//! Compiled programs register their fat binaries, kernels and variables before `main`, and the addresses by which they name them
//! hold in a child made by `fork` too. The child makes no such calls; its archive begins with them all the same, as a stream of
//! their own, or nothing that it launches would be there at replay. Their strings and images lie in the program's own files, and
//! are read once more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use hrr_format::record::{HEADER_BYTES, Presence, SECTION_HEADER_BYTES, flag, offset, section_bytes};

use crate::clock;
use crate::hooks::HookCall;
use crate::plan::{self, Plan};
use crate::process::{self, Process};
use crate::recorder::{write_draft, write_head};
use crate::sections::{self, Source, Transfers};
use crate::writer::ThreadStream;

/// Most calls that are kept: programs register some thousands of kernels.
const MOST: usize = 1 << 20;

/// A call that registered something, and succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    api: u16,
    words: Box<[u64]>,
    /// What it returned: the fat binary's handle, where that is the call.
    raw: u64,
}

static REGISTERED: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

/// Whether an entry point registers code that is named by host addresses.
pub(crate) fn registers(name: &str) -> bool {
    name.starts_with("__hipRegister")
}

/// Keeps a call that registered something.
pub(crate) fn note(plan: &Plan, words: &[u64], raw: u64) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.len() < MOST {
        registered.push(Registration { api: plan.api.id, words: words.into(), raw });
    }
}

/// A fat binary is about to go, with all that was registered for it.
pub(crate) fn forget(fat_binary: u64) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|call| call.raw != fat_binary && call.words.first() != Some(&fat_binary));
}

/// Writes the parent's registrations to the recording of a forked child, which has just begun and has no other records.
pub(crate) fn write(process: &'static Process) {
    // A thread that the child does not have may have held the lock.
    let registered = match REGISTERED.try_lock() {
        Ok(mut registered) => std::mem::take(&mut *registered),
        Err(TryLockError::Poisoned(poisoned)) => std::mem::take(&mut *poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => return,
    };
    if registered.is_empty() {
        return;
    }
    let written = catch_unwind(AssertUnwindSafe(|| {
        let stream = process.open_side_stream("hrr-inherited")?;
        for call in &registered {
            put(process, &stream, call)?;
        }
        process.close_side_stream(&stream)
    }));
    match written {
        Ok(Ok(())) => {}
        Ok(Err(error)) => process::stop(format_args!("what a forked process inherits cannot be written: {error}")),
        Err(_) => {
            process::stop(format_args!("an internal error occurred while what a forked process inherits was written"))
        }
    }
}

/// Appends a call as if it had just been made.
fn put(process: &'static Process, stream: &Arc<ThreadStream>, call: &Registration) -> std::io::Result<()> {
    // SAFETY: plans are built when a recording begins, and the number is a catalogue's.
    let plan = unsafe { plan::of(usize::from(call.api)) };
    let (mut drafts, mut transfers) = (Vec::new(), Transfers::default());
    // SAFETY: the parent made the call with these words. What they point to lies in the program and its libraries, which are
    // mapped in the child as well, unless the fat binary was unregistered.
    let aux = unsafe { sections::draft(process, plan, &call.words, &mut drafts, &mut transfers) };
    let mut need = HEADER_BYTES + call.words.len() * 8;
    for draft in &mut drafts {
        draft.at_bytes = need as u32;
        need += section_bytes(draft.len_bytes as usize);
    }
    // SAFETY: this thread is the stream's only writer; each section was given its place within `need` bytes; results lie where
    // the call stored them.
    unsafe {
        let at = stream.reserve(need, process.background(), Arc::as_ptr(stream))?;
        write_head(at, usize::from(call.api), &call.words);
        at.add(offset::FLAGS).write(flag::PREAMBLE);
        at.add(offset::AUX).cast::<u32>().write(aux);
        for draft in &drafts {
            write_draft(at, draft);
            let section = at.add(draft.at_bytes as usize);
            let payload = section.add(SECTION_HEADER_BYTES);
            match draft.source {
                Source::Returned => payload.cast::<u64>().write(call.raw),
                Source::AfterCall(address) => payload.copy_from_nonoverlapping(address, draft.len_bytes as usize),
                _ => continue,
            }
            section.add(2).write(Presence::Present as u8);
        }
        at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
        at.add(offset::END).cast::<u64>().write(clock::tick());
        stream.publish(at, need);
    }
    stream.count_event();
    // SAFETY: as above; the call succeeded.
    unsafe { HookCall { process, plan, words: &call.words }.at_return(&mut transfers, 0, call.raw) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_fat_binary_goes_with_it() {
        let plan = |name| {
            plan::build();
            // SAFETY: built above, and the catalogue's number.
            unsafe { plan::of(usize::from(hrr_format::catalogue::Api::by_name(name).unwrap().id)) }
        };
        note(plan("__hipRegisterFatBinary"), &[0x10], 0xa0);
        note(plan("__hipRegisterFunction"), &[0xa0, 1, 2, 3], 0);
        note(plan("__hipRegisterFatBinary"), &[0x20], 0xb0);
        note(plan("__hipRegisterVar"), &[0xb0, 4], 0);
        forget(0xa0);
        let left: Vec<u64> = REGISTERED.lock().unwrap().iter().map(|call| call.words[0]).collect();
        assert_eq!(left, [0x20, 0xb0]);
    }
}

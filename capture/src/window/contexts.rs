//! The contexts that a thread has pushed: what its calls in a window find on its stack.
//!
//! The runtime keeps a stack for each thread, and tells of its top alone; so the calls are followed, as AMD's runtime does them. What is
//! made is in front of a window, in the name of another thread; each thread pushes its own at its first call in it.

use hrr_format::catalogue::Api;
use hrr_format::record::{DEVICE_AFTER, Presence, SectionTag, flag, offset};
use hrr_format::record_builder::RecordBuilder;

use crate::interception::shims::id;

/// Stands for a host address that no replay looks at, where a null pointer would mean something.
const SOME_ADDRESS: u64 = 16;

/// A context on a thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pushed {
    context: u64,
    /// The thread's device when it was pushed.
    device: i32,
}

/// A thread's contexts, the top last: those there are, and those that a replay of what is recorded so far leaves.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    now: Vec<Pushed>,
    recorded: Vec<Pushed>,
}

impl Contexts {
    /// A call about contexts has succeeded. `given` is the context that it gave, if any, `device` the thread's since then.
    pub(crate) fn returned(&mut self, api: &Api, words: &[u64], given: u64, device: i32) {
        let first = words.first().copied().unwrap_or(0);
        let mut push = |context| self.now.push(Pushed { context, device });
        match api.name {
            "hipCtxCreate" => push(given),
            "hipCtxPushCurrent" => push(first),
            "hipCtxPopCurrent" => drop(self.now.pop()),
            "hipCtxSetCurrent" => {
                self.now.pop();
                if first != 0 {
                    self.now.push(Pushed { context: first, device });
                }
            }
            "hipCtxDestroy" if self.now.last().is_some_and(|top| top.context == first) => drop(self.now.pop()),
            "hipCtxDestroy" => self.now.retain(|pushed| pushed.context != first),
            _ => {}
        }
    }

    /// The call just made is in the archive.
    pub(crate) fn is_recorded(&mut self) {
        self.recorded.clone_from(&self.now);
    }

    /// The calls that bring a replay's stack to what there is now, as records without ticks.
    pub(crate) fn catch_up(&mut self) -> Vec<Vec<u64>> {
        let same =
            self.now.iter().zip(&self.recorded).take_while(|(now, recorded)| now.context == recorded.context).count();
        let pops = self.recorded[same..].iter().rev().map(|popped| {
            RecordBuilder::new(id::hipCtxPopCurrent as u16, &[SOME_ADDRESS]).section(
                SectionTag::Out,
                0,
                Presence::Present,
                &popped.context.to_le_bytes(),
            )
        });
        let pushes =
            self.now[same..].iter().map(|pushed| RecordBuilder::new(id::hipCtxPushCurrent as u16, &[pushed.context]));
        let devices = self.recorded[same..].iter().rev().map(|_| None).chain(self.now[same..].iter().map(Some));
        let records = pops.chain(pushes).zip(devices).map(|(record, pushed)| words_of(record, pushed)).collect();
        self.is_recorded();
        records
    }
}

fn words_of(record: RecordBuilder, pushed: Option<&Pushed>) -> Vec<u64> {
    let mut bytes = record.build();
    bytes[offset::FLAGS] |= flag::PREAMBLE;
    if let Some(pushed) = pushed {
        bytes[offset::AUX..][..4].copy_from_slice(&(DEVICE_AFTER | pushed.device as u32).to_le_bytes());
    }
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use hrr_format::record::Record;

    use super::*;

    fn call(contexts: &mut Contexts, name: &str, word: u64) {
        contexts.returned(Api::by_name(name).unwrap(), &[word], 77, 1);
    }

    /// Names of the calls, with the context of each.
    fn caught_up(contexts: &mut Contexts) -> Vec<(&'static str, u64)> {
        let text = |words: Vec<u64>| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let record = Record::parse(&bytes).unwrap().unwrap();
            assert_ne!(record.flags() & flag::PREAMBLE, 0);
            match usize::from(record.api()) {
                id::hipCtxPushCurrent => {
                    assert_eq!(record.device_after(), Some(1));
                    ("push", record.word(0))
                }
                id::hipCtxPopCurrent => {
                    let popped = record.section(SectionTag::Out, 0).unwrap().payload;
                    ("pop", u64::from_le_bytes(popped.try_into().unwrap()))
                }
                _ => unreachable!("{record:?}"),
            }
        };
        contexts.catch_up().into_iter().map(text).collect()
    }

    #[test]
    fn what_lies_on_the_stack_is_pushed_and_what_has_left_it_is_popped() {
        let mut contexts = Contexts::default();
        assert_eq!(caught_up(&mut contexts), []);
        call(&mut contexts, "hipCtxPushCurrent", 5);
        call(&mut contexts, "hipCtxCreate", 0);
        call(&mut contexts, "hipCtxPushCurrent", 6);
        call(&mut contexts, "hipCtxPopCurrent", 0);
        assert_eq!(caught_up(&mut contexts), [("push", 5), ("push", 77)]);
        assert_eq!(caught_up(&mut contexts), []);
        // In the window, and recorded.
        call(&mut contexts, "hipCtxPushCurrent", 8);
        contexts.is_recorded();
        // Behind it.
        call(&mut contexts, "hipCtxSetCurrent", 9);
        call(&mut contexts, "hipCtxPushCurrent", 10);
        call(&mut contexts, "hipCtxDestroy", 77);
        assert_eq!(caught_up(&mut contexts), [("pop", 8), ("pop", 77), ("push", 9), ("push", 10)]);
        call(&mut contexts, "hipCtxSetCurrent", 0);
        call(&mut contexts, "hipCtxDestroy", 9);
        assert_eq!(caught_up(&mut contexts), [("pop", 10), ("pop", 9)]);
    }
}

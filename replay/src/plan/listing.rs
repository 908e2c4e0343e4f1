//! A plan as text, to compare plans by.
//!
//! Addresses differ from one planning to the next. Those of a chunk's own memory are written as offsets in it; slots and
//! whatever else could be an address are numbered as they come up, so that two plans have the same text where one is the
//! other at other addresses.

use std::fmt::Write;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::instruction::Chunk;
use crate::memory::slots::Slot;

/// Numbers of what has no other name in the text.
#[derive(Debug, Default)]
struct Names {
    slots: FxHashMap<Slot, usize>,
    addresses: FxHashMap<u64, usize>,
}

impl Names {
    fn slot(&mut self, slot: Slot) -> usize {
        let next = self.slots.len();
        *self.slots.entry(slot).or_insert(next)
    }

    /// A word of a chunk's memory.
    fn word(&mut self, chunk: &Chunk, word: u64) -> String {
        /// Words outside are no addresses of this process.
        const ADDRESSES: std::ops::Range<u64> = 1 << 32..1 << 47;
        if let Some(offset_bytes) = chunk.memory.offset_of(word) {
            return format!("m{offset_bytes:x}");
        }
        if !ADDRESSES.contains(&word) {
            return format!("{word:x}");
        }
        let next = self.addresses.len();
        format!("a{}", self.addresses.entry(word).or_insert(next))
    }
}

/// The text of a plan: each worker's chunks in order.
pub(crate) fn listing(chunks: &[Vec<Arc<Chunk>>]) -> String {
    let mut text = String::new();
    let mut names = Names::default();
    for (worker, chunks) in chunks.iter().enumerate() {
        for (number, chunk) in chunks.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "worker {worker} chunk {number}");
            write_chunk(chunk, &mut names, &mut text);
        }
    }
    text
}

fn write_chunk(chunk: &Chunk, names: &mut Names, text: &mut String) {
    for instruction in &chunk.instructions {
        // As in `listing`.
        let _ = write!(
            text,
            "{} api {} lane {} progress {} expected {} device {} flags {:x} words {} waits",
            instruction.event,
            instruction.api,
            instruction.lane,
            instruction.progress,
            instruction.expected,
            instruction.device,
            instruction.flags,
            names.word(chunk, instruction.words as u64),
        );
        for wait in instruction.waits.of(&chunk.waits) {
            let _ = write!(text, " {}:{}", wait.lane, wait.count);
        }
        text.push_str(" in");
        for fixup in instruction.fixups.of(&chunk.fixups) {
            let (target, slot) = (names.word(chunk, fixup.target as u64), names.slot(fixup.slot));
            let _ = write!(text, " {target}=s{slot}+{:x}", fixup.addend);
        }
        text.push_str(" out");
        for output in instruction.outputs.of(&chunk.outputs) {
            let (source, slot) = (names.word(chunk, output.source as u64), names.slot(output.slot));
            let _ = write!(text, " {source}=s{slot}");
        }
        text.push('\n');
    }
    text.push_str("memory");
    for word in chunk.memory.contents() {
        text.push(' ');
        text.push_str(&names.word(chunk, word));
    }
    let _ = writeln!(text, "\nnotes {:?} gaps {:?}", chunk.notes, chunk.gaps_ns);
}

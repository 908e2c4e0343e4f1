//! Memory that has several names: what is done by one of them is ordered with what is done by the others.
//!
//! Memory mapped at two places, device addresses of pinned memory, what was imported from an exported handle: each name is an
//! object with a life of its own, and the contents are one.

use rustc_hash::{FxHashMap, FxHashSet};

use hrr_format::catalogue::HandleKind;

use crate::plan::Planner;
use crate::plan::lower::Call;

/// Which objects' contents are the same memory.
#[derive(Debug, Default)]
pub(crate) struct SharedContents {
    /// By object: one that stands for it, or for one that does.
    stands_for: FxHashMap<u32, u32>,
    /// Objects that stand for contents and never end.
    lasting: FxHashSet<u32>,
}

impl SharedContents {
    fn root(&self, mut object: u32) -> u32 {
        while let Some(&next) = self.stands_for.get(&object) {
            object = next;
        }
        object
    }

    /// The contents of both objects are the same memory from now on; `fresh` makes an object that stands for it.
    fn join(&mut self, first: u32, second: u32, fresh: impl FnOnce() -> u32) {
        let (first, second) = (self.root(first), self.root(second));
        if first == second || first == 0 || second == 0 {
            return;
        }
        // Of two names neither may stand for the other, which may outlive it.
        let contents = match (self.lasting.contains(&first), self.lasting.contains(&second)) {
            (true, _) => first,
            (false, true) => second,
            (false, false) => fresh(),
        };
        self.lasting.insert(contents);
        for name in [first, second].into_iter().filter(|&name| name != contents) {
            self.stands_for.insert(name, contents);
        }
    }

    /// Puts what stands for each object's contents in its place.
    pub(crate) fn name_once(&self, memory: &mut [(u32, bool)]) {
        if !self.stands_for.is_empty() {
            memory.iter_mut().for_each(|(object, _)| *object = self.root(*object));
        }
    }
}

impl Planner<'_> {
    /// The contents of both objects are the same memory.
    pub(in crate::plan) fn join_contents(&mut self, first: u32, second: u32) {
        let fresh = self.objects.new_object();
        self.objects.contents.join(first, second, || fresh);
    }

    /// Memory is mapped into a reserved range, and maybe into another one too.
    pub(in crate::plan) fn map_memory(&mut self, call: &Call<'_>) {
        let range = self.objects.memory.inside(call.record.word(0)).map(|place| place.allocation.object);
        let memory = self.objects.handle(HandleKind::MemHandle, call.record.word(3));
        if let (true, Some(range), Some(memory)) = (call.succeeded(), range, memory) {
            self.join_contents(range, memory.object);
            self.join_contents(memory.object, memory.parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_memory_are_one_and_others_stay_apart() {
        let mut contents = SharedContents::default();
        contents.join(1, 2, || 10);
        contents.join(3, 4, || 11);
        contents.join(2, 1, || 12);
        let mut memory = [(1, true), (2, false), (3, false), (4, true), (5, true)];
        contents.name_once(&mut memory);
        assert_eq!(memory, [(10, true), (10, false), (11, false), (11, true), (5, true)]);
        contents.join(4, 1, || 13);
        let mut memory = [(2, true), (3, false), (5, false)];
        contents.name_once(&mut memory);
        assert_eq!(memory, [(11, true), (11, false), (5, false)]);
        // However many names there are, what stands for them is one step away.
        (20..1000).for_each(|name| contents.join(5, name, || 14));
        assert_eq!(contents.stands_for[&999], 14);
    }
}

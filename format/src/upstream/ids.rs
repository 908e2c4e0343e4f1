//! Which entry points a file's event ids name.
//!
//! The runtime's entries come first, in the order of its dispatch table, and the nine compiler entries right after them; so
//! these move when the runtime gains entries. Nothing in the file says how many it had: record sizes do.

use super::events::Event;
use super::layout::{Kind, Layouts, TABLE_RUNTIME_ENTRIES};

/// Runtime entries of the oldest table that is known; later ones only append.
pub const OLDEST_RUNTIME_ENTRIES: u16 = 544;
/// Compiler entries.
const COMPILER_ENTRIES: u16 = 9;
/// Largest number of runtime entries that is looked for.
const MOST_RUNTIME_ENTRIES: u16 = 640;
/// `__hipRegisterFatBinary` among the compiler entries.
const REGISTER_FAT_BINARY: u16 = 2;
/// `__hipRegisterVar` among the compiler entries, and its second size before format version 6.
const REGISTER_VAR: (u16, u32) = (7, 84);

/// How event ids read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// Runtime entries: the id of the first compiler entry.
    pub runtime_entries: u16,
    /// What that was concluded from, for people.
    pub evidence: String,
}

impl IdMap {
    /// Concludes from the records of a file where the compiler's entries are.
    pub fn resolve<'a>(version: u16, events: impl Iterator<Item = &'a Event<'a>>, layouts: &Layouts) -> Self {
        // Only ids and sizes count; there are few distinct ones.
        let mut seen = std::collections::BTreeMap::<(u16, u32), u64>::new();
        for event in events.filter(|event| event.id >= OLDEST_RUNTIME_ENTRIES) {
            *seen.entry((event.id, event.bytes.len() as u32)).or_default() += 1;
        }
        let default = match version {
            7 => TABLE_RUNTIME_ENTRIES,
            _ => OLDEST_RUNTIME_ENTRIES,
        };
        if seen.is_empty() {
            let evidence = format!("format version {version} (no id from {OLDEST_RUNTIME_ENTRIES} on was recorded)");
            return IdMap { runtime_entries: default, evidence };
        }
        let fits = |entries: u16, id: u16, len: u32| -> bool {
            if id < entries {
                // A runtime entry that this table lacks can be of any size.
                return layouts
                    .get(id)
                    .filter(|_| id < TABLE_RUNTIME_ENTRIES)
                    .is_none_or(|known| known.size_bytes == len);
            }
            let position = id - entries;
            let known = (position < COMPILER_ENTRIES).then(|| layouts.get(TABLE_RUNTIME_ENTRIES + position)).flatten();
            known.is_some_and(|known| known.kind == Kind::Fixed && known.size_bytes == len)
                || (version < super::layout::INLINE_VERSION && (position, len) == REGISTER_VAR)
        };
        let score = |entries: u16| {
            let misfits: u64 =
                seen.iter().filter(|&(&(id, len), _)| !fits(entries, id, len)).map(|(_, &count)| count).sum();
            let as_compiler: u64 = seen
                .iter()
                .filter(|&(&(id, len), _)| id >= entries && fits(entries, id, len))
                .map(|(_, &count)| count)
                .sum();
            let registers =
                seen.iter().any(|(&(id, len), _)| id == entries + REGISTER_FAT_BINARY && fits(entries, id, len));
            (misfits, !registers, std::cmp::Reverse(as_compiler), entries.abs_diff(default), entries)
        };
        let best =
            (OLDEST_RUNTIME_ENTRIES..=MOST_RUNTIME_ENTRIES).min_by_key(|&entries| score(entries)).unwrap_or(default);
        let (misfits, no_registration, as_compiler, ..) = score(best);
        let mut evidence = if no_registration {
            format!("record sizes ({} compiler calls fit)", as_compiler.0)
        } else {
            let id = best + REGISTER_FAT_BINARY;
            format!("__hipRegisterFatBinary is event {id} by its record size ({} compiler calls fit)", as_compiler.0)
        };
        if misfits > 0 {
            evidence.push_str(&format!("; {misfits} records fit no place of the compiler's entries"));
        }
        IdMap { runtime_entries: best, evidence }
    }

    /// The id in this build's table; `None` for an entry point that it lacks.
    pub fn table_id(&self, id: u16) -> Option<u16> {
        if id < self.runtime_entries {
            return (id < TABLE_RUNTIME_ENTRIES).then_some(id);
        }
        let position = id - self.runtime_entries;
        (position < COMPILER_ENTRIES).then(|| TABLE_RUNTIME_ENTRIES + position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::events::header_bytes;

    fn resolve(version: u16, records: &[(u16, usize)]) -> IdMap {
        let bytes: Vec<Vec<u8>> = records
            .iter()
            .map(|&(id, len)| {
                let mut bytes = header_bytes(id, 0, 0, 0, len as u32).to_vec();
                bytes.resize(len, 0);
                bytes
            })
            .collect();
        let events: Vec<Event<'_>> = bytes
            .iter()
            .zip(records)
            .map(|(bytes, &(id, _))| Event { id, sequence: 0, time_ns: 0, tid: 0, offset_bytes: 0, bytes })
            .collect();
        IdMap::resolve(version, events.iter(), Layouts::of_version(version))
    }

    #[test]
    fn the_first_fat_binary_fixes_the_base_of_each_table() {
        for base in [544, 545, 546, 547] {
            let map = resolve(7, &[(base + 2, 64), (base + 3, 108), (base + 1, 76), (base, 68), (base + 8, 40)]);
            assert_eq!(map.runtime_entries, base, "{}", map.evidence);
            assert_eq!(map.table_id(base + 3), Some(549));
            assert_eq!(map.table_id(base + 9), None);
        }
    }

    #[test]
    fn runtime_entries_behind_the_oldest_table_are_told_from_compiler_ones() {
        let map = resolve(7, &[(544, 56), (545, 52), (548, 64)]);
        assert_eq!(map.runtime_entries, 546);
        assert_eq!(map.table_id(544), Some(544));
        // hipLibraryGetModule, which this table lacks.
        let map = resolve(8, &[(546, 52), (549, 64), (550, 108)]);
        assert_eq!((map.runtime_entries, map.table_id(546)), (547, None));
    }

    #[test]
    fn pushes_alone_are_enough_and_nothing_is_reported_as_such() {
        assert_eq!(resolve(5, &[(545, 76), (544, 68)]).runtime_entries, 544);
        assert_eq!(resolve(7, &[(547, 76), (546, 68)]).runtime_entries, 546);
        let map = resolve(7, &[(215, 52)]);
        assert_eq!(map.runtime_entries, 546);
        assert!(map.evidence.contains("no id"), "{}", map.evidence);
    }

    #[test]
    fn ids_that_no_table_has_are_none() {
        // The largest once overflowed on its way to being refused.
        let map = resolve(7, &[(u16::MAX - 1, 52)]);
        for id in [map.runtime_entries + COMPILER_ENTRIES, u16::MAX - 1, u16::MAX] {
            assert_eq!(map.table_id(id), None);
        }
    }

    #[test]
    fn a_variable_before_version_6_has_two_sizes() {
        for len in [84, 92] {
            assert_eq!(resolve(5, &[(546, 64), (551, len)]).runtime_entries, 544);
        }
    }
}

//! The HIP API catalogue: one row per entry point of `libamdhip64.so`.
//!
//! Everything that must know HIP's calls is driven by this table: the capture shims, replay's call
//! thunks, the printing of events and the dependency builder. The rows come from two data files,
//! `catalogue/prototypes.tsv` (C prototypes, generated from headers) and `catalogue/roles.tsv` (what each
//! parameter means, written by hand), turned into [`generated`](self) by `scripts/gen-catalogue`.

mod generated;
mod role;
#[cfg(test)]
mod table_tests;

pub use generated::{APIS, STRUCTS};
pub use role::{
    Access, Effect, HandleKind, MIN_BUFFER_BYTES, Policy, Role, Size, SizeInputs, StructField, StructLayout, Term, When,
};

use std::collections::HashMap;
use std::sync::OnceLock;

/// One HIP entry point.
#[derive(Debug)]
pub struct Api {
    /// Position in this build's table; archives are matched by name, never by this number.
    pub id: u16,
    /// The exported symbol.
    pub name: &'static str,
    /// Which dispatch table holds it.
    pub table: Table,
    /// What the C function returns.
    pub ret: Returns,
    /// Parameters in declaration order.
    pub params: &'static [Param],
    /// Total number of argument words.
    pub words: u8,
    /// What the call does to streams and threads.
    pub effect: Effect,
    /// What replay does with it.
    pub policy: Policy,
}

/// A HIP dispatch table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `HipDispatchTable`: the public API.
    Runtime,
    /// `HipCompilerDispatchTable`: the entry points compiled code calls.
    Compiler,
}

/// What a C function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// `hipError_t`.
    Error,
    /// A plain `int`.
    Int,
    /// Nothing.
    Void,
    /// A pointer, recorded whole in a return section.
    Pointer,
    /// `hipChannelFormatDesc`.
    ChannelDesc,
}

/// One parameter of an entry point.
#[derive(Debug)]
pub struct Param {
    /// Name in the C prototype.
    pub name: &'static str,
    /// Type as the C prototype spells it.
    pub ctype: &'static str,
    /// Index of its first argument word.
    pub word: u8,
    /// How many argument words it takes.
    pub words: u8,
    /// What it means.
    pub role: Role,
}

impl Api {
    /// Finds an entry point by its exported name.
    pub fn by_name(name: &str) -> Option<&'static Api> {
        static INDEX: OnceLock<HashMap<&'static str, u16>> = OnceLock::new();
        let index = INDEX.get_or_init(|| APIS.iter().map(|api| (api.name, api.id)).collect());
        index.get(name).map(|&id| &APIS[usize::from(id)])
    }

    /// Index of the first parameter whose role satisfies `wanted`.
    pub fn param_with(&self, wanted: impl Fn(&Role) -> bool) -> Option<usize> {
        self.params.iter().position(|param| wanted(&param.role))
    }

    /// The stream parameter of a call that enqueues on or waits for a stream.
    pub fn stream_param(&self) -> Option<usize> {
        self.param_with(|role| matches!(role, Role::Use(HandleKind::Stream)))
    }

    /// Whether the call can block its thread until the device makes progress.
    pub fn blocks(&self) -> bool {
        matches!(self.effect, Effect::BlockStream | Effect::BlockEvent | Effect::BlockDevice | Effect::BlockCopy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_at_its_own_id_and_its_words_add_up() {
        let prototypes = include_str!("../../catalogue/prototypes.tsv");
        assert_eq!(APIS.len(), prototypes.lines().filter(|line| !line.starts_with('#')).count());
        for (position, api) in APIS.iter().enumerate() {
            assert_eq!(usize::from(api.id), position, "{}", api.name);
            let mut word = 0;
            for param in api.params {
                assert_eq!(param.word, word, "{}({})", api.name, param.name);
                word += param.words;
            }
            assert_eq!(word, api.words, "{}", api.name);
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for api in &APIS {
            assert_eq!(Api::by_name(api.name).map(|found| found.id), Some(api.id));
        }
        assert!(Api::by_name("hipNoSuchCall").is_none());
    }
}

//! Puts records together in memory, for whatever writes archives without recording a program: conversion, repair, tests.
//!
//! The recorder itself writes records in place into its mapped stream file.

use crate::record::{BlobRef, HEADER_BYTES, Presence, SECTION_HEADER_BYTES, SectionTag, flag, offset, section_bytes};

/// A record under construction. The layout is that of [`crate::record`].
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    bytes: Vec<u8>,
}

impl RecordBuilder {
    /// Begins the record of an API id or marker with its argument words.
    ///
    /// # Panics
    /// With more than 255 argument words, which the format has no room for.
    pub fn new(api: u16, words: &[u64]) -> Self {
        let word_count = u8::try_from(words.len()).expect("a record has at most 255 argument words");
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[offset::API..][..2].copy_from_slice(&api.to_le_bytes());
        bytes[offset::WORDS] = word_count;
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        RecordBuilder { bytes }
    }

    /// Sets the ticks of entry and return.
    pub fn ticks(mut self, begin: u64, end: u64) -> Self {
        self.bytes[offset::BEGIN..][..8].copy_from_slice(&begin.to_le_bytes());
        self.bytes[offset::END..][..8].copy_from_slice(&end.to_le_bytes());
        self
    }

    /// Sets the return code.
    pub fn ret(mut self, ret: i32) -> Self {
        self.bytes[offset::RET..][..4].copy_from_slice(&ret.to_le_bytes());
        self
    }

    /// Sets the auxiliary number.
    pub fn aux(mut self, aux: u32) -> Self {
        self.bytes[offset::AUX..][..4].copy_from_slice(&aux.to_le_bytes());
        self
    }

    /// Marks the call as not returned.
    pub fn in_flight(mut self) -> Self {
        self.bytes[offset::FLAGS] |= flag::IN_FLIGHT;
        self
    }

    /// Sets bits of the [flag] byte.
    pub fn flags(mut self, bits: u8) -> Self {
        self.bytes[offset::FLAGS] |= bits;
        self
    }

    /// Appends a section.
    pub fn section(mut self, tag: SectionTag, param: u8, presence: Presence, payload: &[u8]) -> Self {
        let start = self.bytes.len();
        let len_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.bytes.resize(start + section_bytes(payload.len()), 0);
        let section = &mut self.bytes[start..];
        section[..3].copy_from_slice(&[tag as u8, param, presence as u8]);
        section[4..8].copy_from_slice(&len_bytes.to_le_bytes());
        section[SECTION_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        self
    }

    /// Appends a section with a reference to a blob or code object.
    pub fn blob(self, tag: SectionTag, param: u8, reference: BlobRef) -> Self {
        self.section(tag, param, Presence::Present, &reference.to_bytes())
    }

    /// The finished record.
    pub fn build(mut self) -> Vec<u8> {
        let len_bytes = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[offset::LEN..][..4].copy_from_slice(&len_bytes.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_record_is_built_as_the_format_lays_it_out() {
        let bytes = RecordBuilder::new(215, &[0xfff0, 16])
            .ticks(5, 9)
            .ret(2)
            .aux(3)
            .in_flight()
            .section(SectionTag::Text, 1, Presence::Present, b"abc")
            .build();
        assert_eq!(bytes, [
            64, 0, 0, 0,  215, 0,  1,  2,
            5, 0, 0, 0, 0, 0, 0, 0,
            9, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0,  3, 0, 0, 0,
            0xf0, 0xff, 0, 0, 0, 0, 0, 0,
            16, 0, 0, 0, 0, 0, 0, 0,
            3, 1, 1, 0,  3, 0, 0, 0,
            b'a', b'b', b'c', 0, 0, 0, 0, 0,
        ]);
    }
}

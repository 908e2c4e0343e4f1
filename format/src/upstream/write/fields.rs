//! The fields of a record, from the words and sections of a call.

use super::{WriteError, Writer, has_extra};
use crate::catalogue::{Api, Effect};
use crate::record::{Presence, Record, SectionTag};
use crate::upstream::hash::ContentHash;
use crate::upstream::layout::{Extra, Meaning, Subject};
use crate::upstream::translate;

impl<'a> Writer<'a> {
    /// The bytes of a field.
    pub(super) fn field(
        &mut self,
        record: &Record<'a>,
        api: &Api,
        subject: Subject,
        size: usize,
    ) -> Result<Vec<u8>, WriteError> {
        let number = |value: u64| value.to_le_bytes().to_vec();
        let (param, meaning) = match subject {
            Subject::Extra(extra) => return self.extra(record, api, extra),
            Subject::Param(param, meaning) => (param, meaning),
        };
        let known = &api.params[usize::from(param)];
        let first = usize::from(known.word);
        let present = |tag| record.section(tag, param).filter(|section| section.presence == Presence::Present);
        Ok(match meaning {
            Meaning::Value if known.words > 1 => {
                (0..usize::from(known.words)).flat_map(|word| record.word(first + word).to_le_bytes()).collect()
            }
            Meaning::Value => number(record.word(first)),
            Meaning::Member(0) => number(record.word(first) & u64::from(u32::MAX)),
            Meaning::Member(1) => number(record.word(first) >> 32),
            Meaning::Member(_) => number(record.word(first + 1)),
            Meaning::Pointee => match present(SectionTag::Out) {
                Some(section) => section.payload.to_vec(),
                // What is read through a double pointer, or was not recorded: that there is something.
                None => number(record.word(first)),
            },
            Meaning::Inline | Meaning::Bytes => {
                let section =
                    present(SectionTag::In).or_else(|| present(SectionTag::Text)).or_else(|| present(SectionTag::Out));
                section.map_or_else(Vec::new, |section| section.payload[..section.payload.len().min(size)].to_vec())
            }
            Meaning::Present => {
                let is_there =
                    [SectionTag::In, SectionTag::Text, SectionTag::Out].into_iter().any(|tag| present(tag).is_some());
                vec![u8::from(is_there)]
            }
            Meaning::Count => {
                let len = present(SectionTag::In).map_or(0, |section| section.payload.len());
                number((len / translate::element_bytes(&known.role).max(1) as usize) as u64)
            }
        })
    }

    fn extra(&mut self, record: &Record<'a>, api: &Api, extra: Extra) -> Result<Vec<u8>, WriteError> {
        let number = |value: u64| value.to_le_bytes().to_vec();
        let has_result_field = self.layouts.of_api(api).is_some_and(|(_, layout)| has_extra(layout, Extra::ResultLo));
        let section = |tag| {
            record
                .section_tagged(tag)
                .filter(|section| section.presence == Presence::Present)
                .and_then(|section| section.blob())
        };
        let hash = match extra {
            Extra::Ret => {
                let returned = record.section_tagged(SectionTag::Return);
                return Ok(
                    returned.map_or_else(|| record.ret().to_le_bytes().to_vec(), |section| section.payload.to_vec())
                );
            }
            Extra::ModuleId => {
                self.modules += 1;
                return Ok(number(u64::from(self.modules)));
            }
            Extra::BlobSize => return Ok(number(section(SectionTag::Code).map_or(0, |blob| blob.size_bytes))),
            Extra::DeviceAddress => return Ok(number(0)),
            Extra::BlobLo | Extra::BlobHi => {
                if let Some(code) = section(SectionTag::Code) {
                    let archive = self.archive;
                    match archive.code_objects().get(code.number)? {
                        Some(image) => self.store_blob(&image)?,
                        None => ContentHash::NONE,
                    }
                } else if let Some(blob) = section(SectionTag::BlobIn) {
                    self.blob(blob)?
                } else if let Some(blob) = section(SectionTag::BlobOut).filter(|_| !has_result_field) {
                    self.blob(blob)?
                } else {
                    self.captured_source(record, api)?
                }
            }
            Extra::ResultLo | Extra::ResultHi => match section(SectionTag::BlobOut) {
                Some(blob) => self.blob(blob)?,
                None => ContentHash::NONE,
            },
            Extra::CodeLo | Extra::CodeHi => match section(SectionTag::Code) {
                Some(code) => self.code(code.number)?,
                None => ContentHash::NONE,
            },
        };
        let is_low = matches!(extra, Extra::BlobLo | Extra::ResultLo | Extra::CodeLo);
        Ok(number(if is_low { hash.lo } else { hash.hi }))
    }

    /// The contents of a captured copy's source: those that the first launch of its graph read.
    fn captured_source(&mut self, record: &Record<'a>, api: &Api) -> Result<ContentHash, WriteError> {
        if api.effect != Effect::Enqueue {
            return Ok(ContentHash::NONE);
        }
        let source =
            api.params.iter().find(|param| param.name == "src").map(|param| record.word(usize::from(param.word)));
        match source.and_then(|source| self.graph_reads.get(&source).copied()) {
            Some(blob) => self.blob(blob),
            None => Ok(ContentHash::NONE),
        }
    }
}

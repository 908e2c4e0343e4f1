//! What exports gave out: files and handles by which memory, pools and events are had again, in this process too.
//!
//! A descriptor's number says nothing of what it stands for, and programs copy and close descriptors without a call of HIP: an export
//! is told by its file, and is there for as long as the process has a descriptor of that file. A handle of 64 bytes goes with what it
//! was made of.

use std::collections::HashMap;
use std::os::fd::RawFd;

use hrr_format::catalogue::Api;
use hrr_format::record::{FileId, Presence, Record, SectionTag};

use super::objects::Id;
use crate::os_handle::file_of;

/// Words of a handle that the runtime makes up.
const HANDLE_WORDS: usize = 8;

/// What an export gives out, and an import is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Export {
    /// A file descriptor.
    File(FileId),
    /// A handle that the runtime made up.
    Handle([u64; HANDLE_WORDS]),
}

impl Export {
    /// What a call gave out.
    pub(super) fn given_out(api: &Api, record: &Record<'_>) -> Option<Self> {
        let exports = api.name.contains("Export") || api.name.starts_with("hipIpcGet");
        if !exports { None } else { Self::file(record).or_else(|| Self::handle(record, SectionTag::Out, 0)) }
    }

    /// What a call was given.
    pub(super) fn taken(api: &Api, record: &Record<'_>) -> Option<Self> {
        match api.name {
            "hipIpcOpenMemHandle" | "hipIpcOpenEventHandle" => {
                Some(Export::Handle(std::array::from_fn(|index| record.word(1 + index))))
            }
            "hipMemPoolImportPointer" => Self::handle(record, SectionTag::In, 2),
            "hipMemImportFromShareableHandle" | "hipMemPoolImportFromShareableHandle" | "hipImportExternalMemory" => {
                Self::file(record).or_else(|| Self::handle(record, SectionTag::In, 1))
            }
            _ => None,
        }
    }

    fn file(record: &Record<'_>) -> Option<Self> {
        let section = record.section_tagged(SectionTag::File)?;
        (section.presence == Presence::Present).then(|| FileId::read(section.payload))?.map(Export::File)
    }

    fn handle(record: &Record<'_>, tag: SectionTag, param: u8) -> Option<Self> {
        let section = record.section(tag, param).filter(|section| section.presence == Presence::Present)?;
        let words = section.payload.as_chunks::<8>().0;
        let words: [[u8; 8]; HANDLE_WORDS] = words.try_into().ok()?;
        Some(Export::Handle(words.map(u64::from_le_bytes)))
    }
}

/// A file that was given out.
#[derive(Debug)]
struct File {
    /// The descriptor's number then, by which exports are told apart where all their descriptors stand for one file, as those of
    /// drivers do that give out their device's.
    descriptor: u64,
    id: Id,
}

/// The exports of a process, as objects.
#[derive(Debug, Default)]
pub(super) struct Exports {
    handles: HashMap<[u64; HANDLE_WORDS], Id>,
    /// By device and inode.
    files: HashMap<(u64, u64), Vec<File>>,
}

impl Exports {
    /// Remembers an export. Returns the one that it takes the place of.
    pub(super) fn insert(&mut self, export: Export, id: Id) -> Option<Id> {
        match export {
            Export::Handle(words) => self.handles.insert(words, id),
            Export::File(FileId { device, inode, descriptor }) => {
                self.files.entry((device, inode)).or_default().push(File { descriptor, id });
                None
            }
        }
    }

    /// The handle that was given out before.
    pub(super) fn known(&self, export: &Export) -> Option<Id> {
        match export {
            Export::Handle(words) => self.handles.get(words).copied(),
            Export::File(_) => None,
        }
    }

    /// What was exported as this: of several exports of one file the last one by this number, or all where none has it.
    pub(super) fn find(&self, export: &Export) -> Vec<Id> {
        match export {
            Export::Handle(words) => self.handles.get(words).copied().into_iter().collect(),
            Export::File(file) => {
                let exports = self.files.get(&(file.device, file.inode)).map_or(&[][..], Vec::as_slice);
                match exports.iter().rfind(|export| export.descriptor == file.descriptor) {
                    Some(export) => vec![export.id],
                    None => exports.iter().map(|export| export.id).collect(),
                }
            }
        }
    }

    /// Exports of files that the process has no descriptor of any more.
    pub(super) fn closed(&self) -> Vec<Id> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let open: Vec<FileId> = descriptors().into_iter().filter_map(file_of).collect();
        let is_open = |&(device, inode): &(u64, u64), file: &File, alone: bool| {
            open.iter().any(|open| {
                (open.device, open.inode) == (device, inode) && (alone || open.descriptor == file.descriptor)
            })
        };
        let of = |(key, files): (&(u64, u64), &Vec<File>)| -> Vec<Id> {
            let closed = files.iter().filter(|file| !is_open(key, file, files.len() == 1));
            closed.map(|file| file.id).collect()
        };
        self.files.iter().flat_map(of).collect()
    }

    /// Forgets all but these.
    pub(super) fn retain(&mut self, keeps: impl Fn(Id) -> bool) {
        self.handles.retain(|_, id| keeps(*id));
        self.files.retain(|_, files| {
            files.retain(|file| keeps(file.id));
            !files.is_empty()
        });
    }
}

/// The descriptors of this process; none where they cannot be listed.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_there_as_long_as_any_descriptor_of_it() {
        let file = tempfile::tempfile().unwrap();
        let copy = file.try_clone().unwrap();
        let id = file_of(file.as_raw_fd()).unwrap();
        let mut exports = Exports::default();
        exports.insert(Export::File(id), 7);
        let by_copy = file_of(copy.as_raw_fd()).unwrap();
        assert_eq!(exports.find(&Export::File(by_copy)), [7]);
        drop(file);
        assert_eq!(exports.closed(), [] as [Id; 0]);
        drop(copy);
        assert_eq!(exports.closed(), [7]);
        exports.retain(|_| false);
        assert_eq!(exports.find(&Export::File(by_copy)), [] as [Id; 0]);
    }

    #[test]
    fn exports_that_are_all_one_file_are_told_apart_by_their_numbers() {
        let shared = std::fs::File::open("/dev/null").unwrap();
        let id = file_of(shared.as_raw_fd()).unwrap();
        let numbered = |descriptor| Export::File(FileId { descriptor, ..id });
        let mut exports = Exports::default();
        exports.insert(Export::File(id), 1);
        exports.insert(numbered(100_001), 2);
        exports.insert(numbered(100_002), 3);
        exports.insert(numbered(100_001), 4);
        assert_eq!(exports.find(&numbered(100_001)), [4]);
        assert_eq!(exports.find(&numbered(100_003)), [1, 2, 3, 4]);
        let mut closed = exports.closed();
        closed.sort_unstable();
        assert_eq!(closed, [2, 3, 4]);
    }

    #[test]
    fn a_handle_that_is_given_out_again_is_known() {
        let mut exports = Exports::default();
        let handle = Export::Handle([3; HANDLE_WORDS]);
        assert_eq!(exports.insert(handle, 5), None);
        assert_eq!((exports.known(&handle), exports.find(&handle)), (Some(5), vec![5]));
        assert_eq!(exports.insert(handle, 6), Some(5));
    }
}

//! Operating-system handles of memory that calls hand out and are given: which file each stands for.
//!
//! A descriptor's number says little: it is copied, sent to other processes, closed, and used again. The file behind it tells what
//! was exported from what is imported.

use hrr_format::record::{FileId, Presence, SectionTag};

use crate::hooks::SharedHook;
use crate::sections::{Drafting, Source};

impl Drafting<'_> {
    /// The operating-system handle of memory that the call hands out or is given.
    pub(crate) unsafe fn shared_handle(&mut self, place: SharedHook) {
        /// `hipMemHandleTypePosixFileDescriptor`, and `hipExternalMemoryHandleTypeOpaqueFd`.
        const DESCRIPTOR: u32 = 1;
        /// `hipMemHandleTypeFabric`, and its bytes.
        const FABRIC: u32 = 8;
        const FABRIC_BYTES: u64 = 64;
        /// No address is lower, and no descriptor this high: how older runtimes, which take the address of a descriptor, are
        /// told from newer ones, which take the descriptor itself.
        const SMALLEST_ADDRESS: u64 = 65536;
        let of_type = || self.word(2) as u32;
        match place {
            SharedHook::Export if of_type() == DESCRIPTOR && self.word(0) != 0 => {
                let source = Source::FileAfterCall(self.word(0) as *const i32);
                self.push(SectionTag::File, 0, Presence::Absent, FileId::BYTES, source);
            }
            SharedHook::Import if of_type() == FABRIC => self.bytes_in(1, self.word(1), Some(FABRIC_BYTES)),
            SharedHook::Import if of_type() == DESCRIPTOR => {
                let word = self.word(1);
                let descriptor = if word < SMALLEST_ADDRESS {
                    word as i32
                } else {
                    // SAFETY: the caller vouches for a descriptor's address, in what is not one itself.
                    unsafe { (word as *const i32).read_unaligned() }
                };
                self.file(descriptor);
            }
            SharedHook::ImportExternal if self.word(1) != 0 => {
                // SAFETY: the caller vouches for the struct: its type first, 8 bytes behind it the descriptor.
                let (kind, descriptor) = unsafe {
                    let words = self.word(1) as *const u32;
                    (words.read_unaligned(), words.add(2).cast::<i32>().read_unaligned())
                };
                if kind == DESCRIPTOR {
                    self.file(descriptor);
                }
            }
            _ => {}
        }
    }

    /// Which file a descriptor that the call is given stands for; nothing where it is none.
    fn file(&mut self, descriptor: i32) {
        if let Some(file) = file_of(descriptor) {
            self.push(SectionTag::File, 1, Presence::Present, FileId::BYTES, Source::Inline(file.to_bytes()));
        }
    }
}

/// Which file a descriptor stands for.
pub(crate) fn file_of(descriptor: i32) -> Option<FileId> {
    // SAFETY: the struct is plain numbers, for which zeros are values.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is this function's own; a number that is no descriptor is an error.
    let told = unsafe { libc::fstat(descriptor, &raw mut found) } == 0;
    told.then_some(FileId { device: found.st_dev, inode: found.st_ino, descriptor: descriptor as u32 as u64 })
}

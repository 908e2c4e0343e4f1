//! Code objects that a call loads: images by their address, modules by their file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hrr_format::catalogue::Role;
use hrr_format::code_object::{FAT_BINARY_MAGIC, image_len_bytes};
use hrr_format::record::{BlobRef, Presence, SectionTag};

use super::host_sides::inline;
use super::{Drafting, Source};
use crate::contents::memory::Trust;
use crate::contents::region::Region;
use crate::guest::small_stack::with_own_stack_or_stop;

/// Longest module file in bytes that is read.
const MAX_MODULE_BYTES: u64 = 4 << 30;

/// A code object that is being loaded.
#[derive(Debug)]
pub(crate) struct CodeImage {
    /// Number in the store; `None` where contents are withheld.
    pub(crate) number: Option<u64>,
    /// Where the program has it.
    pub(crate) address: u64,
    /// Its length.
    pub(crate) len_bytes: usize,
    /// Its bytes, where it was read from a file.
    file: Option<Vec<u8>>,
}

impl CodeImage {
    /// The image's bytes.
    ///
    /// # Safety
    /// The call that loads the image is still under way, or has just returned.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        match &self.file {
            Some(bytes) => bytes,
            // SAFETY: the image was measured at the call's entry; the program may not free it before the call returns.
            None => unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len_bytes) },
        }
    }
}

impl Drafting<'_> {
    /// A code object, given by its address.
    pub(super) unsafe fn image(&mut self, param: u8, address: u64) {
        if address == 0 {
            return self.push(SectionTag::Code, param, Presence::Absent, 0, Source::Zeros);
        }
        // SAFETY: the caller vouches for an image or for the wrapper that compiled code passes, both longer than a word.
        let image = unsafe {
            if (address as *const u32).read_unaligned() == FAT_BINARY_MAGIC {
                (address as *const u64).add(1).read_unaligned()
            } else {
                address
            }
        };
        let measured = with_own_stack_or_stop("a code object was read", || {
            // SAFETY: the caller vouches for a whole image.
            unsafe { image_len_bytes(image as *const u8) }
        });
        match measured {
            // SAFETY: as above.
            Some(len_bytes) => unsafe { self.code(param, image, len_bytes, None) },
            None => self.push(SectionTag::Code, param, Presence::Absent, 0, Source::Zeros),
        }
    }

    pub(super) unsafe fn code(&mut self, param: u8, address: u64, len_bytes: usize, file: Option<Vec<u8>>) {
        let number = self.call.process.blobs().map(|writer| {
            let number = writer.code_objects.next_number();
            let region = Region::range(address, len_bytes as u64);
            // SAFETY: the caller vouches for the image.
            unsafe { writer.add(writer.code_objects, number, &region, Trust::Readable) };
            number
        });
        let reference = BlobRef { number: number.unwrap_or(BlobRef::WITHHELD), size_bytes: len_bytes as u64 };
        let presence = if number.is_some() { Presence::Present } else { Presence::Withheld };
        self.push(SectionTag::Code, param, presence, BlobRef::BYTES, inline(None, reference));
        self.transfers.code = Some(CodeImage { number, address, len_bytes, file });
    }

    /// A module that the call loads from a file.
    pub(super) unsafe fn module_file(&mut self) {
        let api = self.call.plan.api;
        let Some(param) = api.param_with(|role| *role == Role::CString) else {
            return;
        };
        let address = self.word(api.params[param].word) as *const libc::c_char;
        if address.is_null() {
            return;
        }
        // SAFETY: the caller vouches for a C string.
        let path = unsafe { std::ffi::CStr::from_ptr(address) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let len_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        // A file that cannot be read is for the runtime to refuse.
        if len_bytes > 0
            && len_bytes <= MAX_MODULE_BYTES
            && let Ok(bytes) = std::fs::read(path)
        {
            // SAFETY: the bytes are at hand.
            unsafe { self.code(param as u8, bytes.as_ptr() as u64, bytes.len(), Some(bytes)) };
        }
    }
}

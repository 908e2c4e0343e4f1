//! The records that say what such memory held.

use hrr_format::record::{
    BlobRef, HEADER_BYTES, NO_PARAM, Presence, SECTION_HEADER_BYTES, SectionTag, marker, offset, section_bytes,
};

use super::tracked::Changes;
use crate::clock;
use crate::contents::blob_writer::BlobWriter;
use crate::contents::memory::Trust;
use crate::contents::region::Region;
use crate::recorder;
use crate::writer::ThreadStream;

/// A marker about one allocation, to be written to a thread's stream.
pub(super) struct Marker<'a> {
    pub(super) stream: &'a ThreadStream,
    pub(super) writer: &'a BlobWriter,
    pub(super) base: u64,
    pub(super) len_bytes: u64,
}

/// A section of a marker.
struct Part<'a> {
    tag: SectionTag,
    bytes: &'a [u8],
}

impl Marker<'_> {
    /// What the host stored. `bits` are those of [`marker::host_wrote`].
    ///
    /// # Safety
    /// The calling thread owns the stream, and is inside a recorded call whose record it has not begun or has completed.
    pub(super) unsafe fn wrote(&self, bits: u64, changes: &Changes) {
        // SAFETY: by the caller's contract.
        unsafe { self.changes(marker::HOST_WROTE, bits, changes) };
    }

    /// What a device wrote, before the call that waited for it returned.
    ///
    /// # Safety
    /// As [`Self::wrote`].
    pub(super) unsafe fn saw(&self, changes: &Changes) {
        // SAFETY: by the caller's contract.
        unsafe { self.changes(marker::HOST_SAW, 0, changes) };
    }

    /// What the host stores in the allocation is not recorded.
    ///
    /// # Safety
    /// As [`Self::wrote`].
    pub(super) unsafe fn not_recorded(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.write(marker::HOST_WROTE, marker::host_wrote::NOT_RECORDED, &[]) };
    }

    unsafe fn changes(&self, api: u16, bits: u64, changes: &Changes) {
        let mut ranges = Vec::with_capacity(changes.ranges.len() * 16);
        for (offset, len) in &changes.ranges {
            ranges.extend_from_slice(&offset.to_le_bytes());
            ranges.extend_from_slice(&len.to_le_bytes());
        }
        let after = self.store(&changes.after);
        let before = self.store(&changes.before);
        let parts = [
            Part { tag: SectionTag::HostRanges, bytes: &ranges },
            Part { tag: SectionTag::BlobIn, bytes: &after },
            Part { tag: SectionTag::HostBefore, bytes: &before },
        ];
        let count = if changes.before.is_empty() { 2 } else { 3 };
        // SAFETY: by the caller's contract.
        unsafe { self.write(api, bits, &parts[..count]) };
    }

    fn store(&self, bytes: &[u8]) -> [u8; BlobRef::BYTES] {
        let mut reference = BlobRef { number: 0, size_bytes: bytes.len() as u64 };
        if !bytes.is_empty() {
            reference.number = self.writer.blobs.next_number();
            let region = Region::range(bytes.as_ptr() as u64, bytes.len() as u64);
            // SAFETY: the region is the slice.
            unsafe { self.writer.add(self.writer.blobs, reference.number, &region, Trust::Readable) };
        }
        reference.to_bytes()
    }

    unsafe fn write(&self, api: u16, bits: u64, parts: &[Part<'_>]) {
        let words = [self.base, self.len_bytes, bits];
        let start = HEADER_BYTES + words.len() * 8;
        let need = start + parts.iter().map(|part| section_bytes(part.bytes.len())).sum::<usize>();
        // SAFETY: the caller is the stream's owner; the marker is written within `need` bytes, and published whole.
        unsafe {
            let at = recorder::reserve(self.stream, self.stream, need);
            if at.is_null() {
                return;
            }
            recorder::write_head(at, usize::from(api), &words);
            let mut section = start;
            for part in parts {
                let len_bytes = part.bytes.len() as u32;
                recorder::write_section_head(at.add(section), part.tag, NO_PARAM, Presence::Present, len_bytes);
                let payload = at.add(section + SECTION_HEADER_BYTES);
                payload.copy_from_nonoverlapping(part.bytes.as_ptr(), part.bytes.len());
                section += section_bytes(part.bytes.len());
            }
            let tick = clock::tick();
            at.add(offset::FLAGS).write(0);
            at.add(offset::BEGIN).cast::<u64>().write(tick);
            at.add(offset::END).cast::<u64>().write(tick);
            self.stream.publish(at, need);
        }
    }
}

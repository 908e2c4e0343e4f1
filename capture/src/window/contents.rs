//! What device memory, variables and arrays hold when a window is opened: read back, and written as copies in front of it.

use std::ffi::{CString, c_void};
use std::io;

use hrr_format::record::{BlobRef, Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;

use super::holders::{Holders, Kind};
use super::objects::Objects;
use super::preamble::Preamble;
use crate::contents::blob_writer::BlobWriter;
use crate::interception::shims::id;
use crate::runtime::{self, ArrayShape, LastError, Memcpy3DParms};

/// Longest memory in bytes that one copy restores.
const COPY_BYTES: u64 = 16 << 20;
/// `hipMemcpyHostToDevice`, `hipMemcpyDeviceToHost`.
const TO_DEVICE: u64 = 1;
const TO_HOST: i32 = 2;
/// More levels than any mipmap has.
const MOST_LEVELS: u32 = 32;
/// Stands for a host address that no replay looks at, where a null pointer would mean something.
const SOME_ADDRESS: u64 = 16;

impl Preamble {
    /// What memory, variables and arrays hold.
    pub(super) fn contents(
        &mut self,
        writer: &BlobWriter,
        objects: &Objects,
        holders: &Holders,
        devices: &[i32],
    ) -> io::Result<()> {
        for (address, len_bytes) in self.process.allocations().on_device() {
            if objects.holds(address) || self.process.allocations().is_of_window(address) {
                self.memory(writer, address, len_bytes)?;
            }
        }
        for (symbol, len_bytes) in holders.variables() {
            for &device in devices {
                self.registered_variable(writer, device, symbol, len_bytes)?;
            }
        }
        for (kind, get) in [(Kind::Module, id::hipModuleGetGlobal), (Kind::Library, id::hipLibraryGetGlobal)] {
            for (module, device) in holders.handles(kind) {
                self.module_variables(writer, holders, get, module, device)?;
            }
        }
        for (array, device) in holders.handles(Kind::Array) {
            self.on_device(device)?;
            self.array(writer, array)?;
        }
        for (mipmap, device) in holders.handles(Kind::Mipmap) {
            self.on_device(device)?;
            self.mipmap(writer, mipmap)?;
        }
        Ok(())
    }

    /// Makes a device current, here and in what is written.
    fn on_device(&mut self, device: i32) -> io::Result<()> {
        // SAFETY: the device is one that the program has used; `preamble::write` puts the thread's own back. Where it fails,
        // so does what follows.
        unsafe { runtime::set_device(device) };
        self.set_device(device)
    }

    fn memory(&mut self, writer: &BlobWriter, address: u64, len_bytes: u64) -> io::Result<()> {
        let mut at = 0;
        while at < len_bytes {
            let len = COPY_BYTES.min(len_bytes - at);
            let from = address + at;
            // SAFETY: the memory is the program's, who can free none of it now; the runtime refuses what it cannot read.
            let read = |to: *mut u8, skip: u64, len: usize| unsafe {
                runtime::memcpy(to.cast(), (from + skip) as *const c_void, len, TO_HOST)
            };
            let Some((blob, host)) = read_back(writer, len, read) else {
                self.written.unrestored += 1;
                break;
            };
            self.restore(id::hipMemcpy, &[from, host, len, TO_DEVICE], 1, blob)?;
            at += len;
        }
        Ok(())
    }

    fn registered_variable(&mut self, writer: &BlobWriter, device: i32, symbol: u64, len_bytes: u64) -> io::Result<()> {
        // SAFETY: the device is one that the program has used; `preamble::write` puts the thread's own back.
        if unsafe { runtime::set_device(device) } != 0 {
            return Ok(());
        }
        // SAFETY: the symbol is registered; the runtime refuses what it cannot read.
        let read = |to: *mut u8, skip: u64, len: usize| unsafe {
            runtime::memcpy_from_symbol(to.cast(), symbol as *const c_void, len, skip as usize, TO_HOST)
        };
        match read_back(writer, len_bytes, read) {
            Some((blob, host)) => {
                self.set_device(device)?;
                self.restore(id::hipMemcpyToSymbol, &[symbol, host, len_bytes, 0, TO_DEVICE], 1, blob)?;
            }
            None => self.written.unrestored += 1,
        }
        Ok(())
    }

    /// The variables of a module or library that the program has not asked for: it is asked here, and so it is at replay.
    fn module_variables(
        &mut self,
        writer: &BlobWriter,
        holders: &Holders,
        get: usize,
        module: u64,
        device: i32,
    ) -> io::Result<()> {
        let mut names = self.process.kernels().variables(module);
        names.retain(|name| !holders.is_texture_reference(module, name));
        if names.is_empty() {
            return Ok(());
        }
        self.on_device(device)?;
        for name in names {
            let Ok(text) = CString::new(name) else { continue };
            // What the runtime does not count as a variable was never the program's to ask for. Asking for it fails, which is
            // not done where that would lose an error that the program has not asked for yet.
            if !LastError::keep().may_fail() {
                self.written.unrestored += 1;
                continue;
            }
            let Some((address, len_bytes)) = runtime::global(get, module, &text) else { continue };
            if len_bytes == 0 || self.process.allocations().find(address).is_some() {
                continue;
            }
            let words = [SOME_ADDRESS, SOME_ADDRESS, module, SOME_ADDRESS];
            let record = RecordBuilder::new(get as u16, &words)
                .section(SectionTag::Out, 0, Presence::Present, &address.to_le_bytes())
                .section(SectionTag::Out, 1, Presence::Present, &len_bytes.to_le_bytes())
                .section(SectionTag::Text, 3, Presence::Present, text.as_bytes());
            self.put_built(record)?;
            self.memory(writer, address, len_bytes)?;
        }
        Ok(())
    }

    /// The levels of a mipmap, each an array that the runtime is asked for.
    fn mipmap(&mut self, writer: &BlobWriter, mipmap: u64) -> io::Result<()> {
        // How many levels there are cannot be asked; asking for one too many fails.
        let last_error = LastError::keep();
        if !last_error.may_fail() {
            self.written.unrestored += 1;
            return Ok(());
        }
        for level in 0..MOST_LEVELS {
            let mut array = std::ptr::null_mut();
            // SAFETY: the mipmap is alive; `array` is writable.
            let failed = unsafe { runtime::get_mipmapped_array_level(&mut array, mipmap as *mut c_void, level) } != 0;
            if failed || array.is_null() {
                self.written.unrestored += u64::from(level == 0);
                break;
            }
            let words = [SOME_ADDRESS, mipmap, u64::from(level)];
            let record = RecordBuilder::new(id::hipGetMipmappedArrayLevel as u16, &words).section(
                SectionTag::Out,
                0,
                Presence::Present,
                &(array as u64).to_le_bytes(),
            );
            self.put_built(record)?;
            self.array(writer, array as u64)?;
        }
        Ok(())
    }

    fn array(&mut self, writer: &BlobWriter, array: u64) -> io::Result<()> {
        let Some(shape) = runtime::array_shape(array) else {
            self.written.unrestored += 1;
            return Ok(());
        };
        let rows = shape.height.max(1);
        let slice_bytes = shape.width_bytes.saturating_mul(rows);
        if shape.depth == 0 {
            let read = |to, skip, len| read_flat(array, &shape, to, skip, len);
            match read_back(writer, slice_bytes, read) {
                Some((blob, host)) => {
                    let words = [array, 0, 0, host, shape.width_bytes, shape.width_bytes, rows, TO_DEVICE];
                    self.restore(id::hipMemcpy2DToArray, &words, 3, blob)?;
                }
                None => self.written.unrestored += 1,
            }
            return Ok(());
        }
        // As many slices in one copy as fit a buffer of moderate length.
        let most = (COPY_BYTES / slice_bytes.max(1)).clamp(1, shape.depth);
        let mut slice = 0;
        while slice < shape.depth {
            let slices = most.min(shape.depth - slice);
            let read = |to, skip, len| read_volume(array, &shape, to, slice * slice_bytes + skip, len);
            let Some((blob, host)) = read_back(writer, slice_bytes.saturating_mul(slices), read) else {
                self.written.unrestored += 1;
                break;
            };
            let copy = Memcpy3DParms {
                to_array: array,
                to: [0, 0, slice],
                from_memory: [host, shape.width_bytes, shape.width_bytes, rows],
                extent: [shape.width_bytes / shape.element_bytes, rows, slices],
                kind: TO_DEVICE as i32,
                ..Memcpy3DParms::default()
            };
            self.written.restored_bytes += blob.size_bytes;
            let record = RecordBuilder::new(id::hipMemcpy3D as u16, &[SOME_ADDRESS])
                .section(SectionTag::In, 0, Presence::Present, copy.as_bytes())
                .section(SectionTag::BlobIn, 0, Presence::Present, &blob.to_bytes());
            self.put_built(record)?;
            slice += slices;
        }
        Ok(())
    }
}

/// Reads from an array of up to two dimensions, `skip` bytes of packed rows behind its start.
///
/// Pieces of a buffer hold whole rows where a row's length divides theirs; others are read row by row.
fn read_flat(array: u64, shape: &ArrayShape, to: *mut u8, skip: u64, len: usize) -> i32 {
    let mut done = 0;
    while done < len as u64 {
        let (row, column) = ((skip + done) / shape.width_bytes, (skip + done) % shape.width_bytes);
        let width = (shape.width_bytes - column).min(len as u64 - done);
        // SAFETY: the array is alive; the target is writable for the rest of the piece.
        let code = unsafe {
            runtime::memcpy_2d_from_array(
                to.add(done as usize).cast(),
                width as usize,
                array as *mut c_void,
                column as usize,
                row as usize,
                width as usize,
                1,
                TO_HOST,
            )
        };
        if code != 0 {
            return code;
        }
        done += width;
    }
    0
}

/// Reads from an array with slices, `skip` bytes of packed slices behind its start: as many whole rows at a time as there are.
fn read_volume(array: u64, shape: &ArrayShape, to: *mut u8, skip: u64, len: usize) -> i32 {
    let height = shape.height.max(1);
    let mut done = 0;
    while done < len as u64 {
        let left = len as u64 - done;
        let (row, column) = ((skip + done) / shape.width_bytes, (skip + done) % shape.width_bytes);
        let (slice, row) = (row / height, row % height);
        let rows = if column == 0 { (left / shape.width_bytes).min(height - row) } else { 0 };
        let width_bytes = if rows > 0 { shape.width_bytes } else { (shape.width_bytes - column).min(left) };
        let mut copy = Memcpy3DParms {
            from_array: array,
            from: [column / shape.element_bytes, row, slice],
            to_memory: [to.wrapping_add(done as usize) as u64, width_bytes, width_bytes, rows.max(1)],
            extent: [width_bytes / shape.element_bytes, rows.max(1), 1],
            kind: TO_HOST,
            ..Memcpy3DParms::default()
        };
        // SAFETY: the array is alive; the target is writable for the rest of the piece.
        let code = unsafe { runtime::memcpy_3d(&mut copy) };
        if code != 0 {
            return code;
        }
        done += width_bytes * rows.max(1);
    }
    0
}

/// Reads contents piece by piece into the store; returns their number, and the address that stands for the host's.
fn read_back(writer: &BlobWriter, len_bytes: u64, read: impl Fn(*mut u8, u64, usize) -> i32) -> Option<(BlobRef, u64)> {
    let len = usize::try_from(len_bytes).ok().filter(|&len| len > 0)?;
    let mut buffer = writer.buffer(len)?;
    let mut skip = 0;
    let mut host = 0;
    for piece in buffer.pieces_mut() {
        if host == 0 {
            host = piece.as_ptr() as u64;
        }
        if read(piece.as_mut_ptr(), skip, piece.len()) != 0 {
            return None;
        }
        skip += piece.len() as u64;
    }
    let number = writer.blobs.next_number();
    writer.submit(writer.blobs, number, buffer);
    Some((BlobRef { number, size_bytes: len_bytes }, host))
}

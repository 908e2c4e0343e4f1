//! What stands in front of a window: the calls that made what is alive, in their order, then copies that give device memory,
//! arrays and variables what they held when the window was opened.
//!
//! All of it is one stream file of its own, as if one thread had made the calls. They are marked
//! [`PREAMBLE`](flag::PREAMBLE) and have the ticks at which they are written, after everything before the window and before
//! everything in it. Where the thread that made a call had another device, the device is set; stream captures are begun
//! relaxed, since calls of other threads may stand between those that are captured.

use std::io;
use std::sync::Arc;

use hrr_format::record::{BlobRef, HEADER_BYTES, Presence, SectionTag, flag, offset};
use hrr_format::record_builder::RecordBuilder;

use super::holders::Holders;
use super::objects::Objects;
use crate::clock;
use crate::interception::shims::id;
use crate::process::{self, Process};
use crate::runtime::{self, LastError};
use crate::window;
use crate::writer::ThreadStream;

/// `hipStreamCaptureModeRelaxed`.
const RELAXED: u64 = 2;

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Records.
    pub(super) calls: u64,
    /// Bytes of contents.
    pub(super) restored_bytes: u64,
    /// Allocations, arrays and variables whose contents could not be had.
    pub(super) unrestored: u64,
}

/// Writes what stands in front of a window. Called while no other thread is in a call, inside a call of this thread, when the devices
/// are idle.
pub(super) fn write(process: &'static Process, objects: &mut Objects, holders: &Holders) -> Written {
    objects.sweep();
    let _last_error = LastError::keep();
    let before = runtime::device();
    let mut preamble = match Preamble::begin(process) {
        Ok(preamble) => preamble,
        Err(error) => {
            process::stop(format_args!("what stands before a window cannot be written: {error}"));
            return Written::default();
        }
    };
    let devices = objects.devices().to_vec();
    let done = preamble.wait(&devices).and_then(|()| preamble.calls(objects)).and_then(|()| match process.blobs() {
        Some(writer) => preamble.contents(writer, objects, holders, &devices),
        None => Ok(()),
    });
    // SAFETY: the device that was current when this began.
    unsafe { runtime::set_device(before) };
    if let Err(error) = done.and_then(|()| process.close_side_stream(&preamble.stream)) {
        process::stop(format_args!("what stands before a window cannot be written: {error}"));
    }
    objects.recorded();
    preamble.written
}

/// The stream of what stands in front of a window, being written.
pub(super) struct Preamble {
    pub(super) process: &'static Process,
    stream: Arc<ThreadStream>,
    /// The device that the calls so far have left current.
    device: i32,
    pub(super) written: Written,
}

impl Preamble {
    fn begin(process: &'static Process) -> io::Result<Self> {
        let stream = process.open_side_stream("hrr-preamble")?;
        Ok(Preamble { process, stream, device: 0, written: Written::default() })
    }

    /// Appends a record, whatever ticks and flags it has.
    fn put(&mut self, record: &[u64]) -> io::Result<()> {
        let need = size_of_val(record);
        // SAFETY: this thread is the stream's only writer; the record is copied whole but for its length, which publishes it.
        unsafe {
            let at = self.stream.reserve(need, self.process.background(), Arc::as_ptr(&self.stream))?;
            let bytes = std::slice::from_raw_parts(record.as_ptr().cast::<u8>(), need);
            at.add(offset::API).copy_from_nonoverlapping(bytes[offset::API..].as_ptr(), need - offset::API);
            *at.add(offset::FLAGS) |= flag::PREAMBLE;
            at.add(offset::BEGIN).cast::<u64>().write(clock::tick());
            at.add(offset::END).cast::<u64>().write(clock::tick());
            self.stream.publish(at, need);
        }
        self.stream.count_event();
        self.written.calls += 1;
        Ok(())
    }

    pub(super) fn put_built(&mut self, record: RecordBuilder) -> io::Result<()> {
        let words: Vec<u64> =
            record.build().as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        self.put(&words)
    }

    pub(super) fn set_device(&mut self, device: i32) -> io::Result<()> {
        if device == self.device {
            return Ok(());
        }
        self.device = device;
        self.put_built(RecordBuilder::new(id::hipSetDevice as u16, &[device as u64]))
    }

    /// Waits for what an earlier window has enqueued. The program waited for it between the windows, or this recorder has just now;
    /// in neither case is there a record of it.
    fn wait(&mut self, devices: &[i32]) -> io::Result<()> {
        if window::number() == 0 {
            return Ok(());
        }
        for &device in devices {
            self.set_device(device)?;
            self.put_built(RecordBuilder::new(id::hipDeviceSynchronize as u16, &[]))?;
        }
        Ok(())
    }

    /// The calls that are kept.
    fn calls(&mut self, objects: &Objects) -> io::Result<()> {
        for entry in objects.entries() {
            self.set_device(entry.device)?;
            let mut record = entry.record.to_vec();
            if entry.api.name.starts_with("hipStreamBeginCapture")
                && let Some(mode) = entry.api.params.iter().find(|param| param.name == "mode")
            {
                record[HEADER_BYTES / 8 + usize::from(mode.word)] = RELAXED;
            }
            self.put(&record)?;
        }
        Ok(())
    }

    /// Appends a copy of contents to the device, whose source is parameter `source`.
    pub(super) fn restore(&mut self, api: usize, words: &[u64], source: u8, blob: BlobRef) -> io::Result<()> {
        self.written.restored_bytes += blob.size_bytes;
        let record = RecordBuilder::new(api as u16, words);
        self.put_built(record.section(SectionTag::BlobIn, source, Presence::Present, &blob.to_bytes()))
    }
}

//! Archives of any size, made without a program.

use std::error::Error;
use std::path::Path;

use hrr_format::archive_writer::ArchiveWriter;
use hrr_format::catalogue::Api;
use hrr_format::code_object::{ArgKind, KernelArg};
use hrr_format::kernel_table::Kernel;
use hrr_format::record::{Presence, SectionTag};
use hrr_format::record_builder::RecordBuilder;
use hrr_format::stream_file::ContentsMode;

/// Ticks between the entries of two calls, and how long a call takes.
const STEP: u64 = 100;
const CALL: u64 = 30;

/// How the calls of an archive lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every thread for itself, all at once, at a pace of its own.
    Parallel,
    /// A round of calls, one thread after the other.
    Alternating,
}

/// Writes an archive of threads that launch kernels on streams of their own, record events and synchronise now and then.
///
/// # Errors
/// What could not be written.
pub fn write_archive(path: &Path, lanes: u32, shape: Shape, calls: u64) -> Result<(), Box<dyn Error>> {
    let mut writer = ArchiveWriter::create(path, 1, ContentsMode::Contents)?;
    writer.code_object(0, b"no code object")?;
    let pointer = |offset| KernelArg { offset, size: 8, kind: ArgKind::GlobalBuffer };
    let args = vec![pointer(0), pointer(8), KernelArg { offset: 16, size: 4, kind: ArgKind::ByValue }];
    writer.kernel(&Kernel {
        kernel: 0,
        name: "saxpy".to_owned(),
        code_object: Some(0),
        kernarg_bytes: 24,
        args: Some(args),
        withheld: false,
    });
    let id = |name: &str| Api::by_name(name).map(|api| api.id).ok_or_else(|| format!("no {name} in the catalogue"));
    let (create, malloc) = (id("hipStreamCreateWithFlags")?, id("hipMalloc")?);
    let (event_create, launch) = (id("hipEventCreateWithFlags")?, id("hipModuleLaunchKernel")?);
    let (load, get) = (id("hipModuleLoadData")?, id("hipModuleGetFunction")?);
    let (record, sync, query) = (id("hipEventRecord")?, id("hipStreamSynchronize")?, id("hipGetDevice")?);
    let (module, function) = (0x10_0000_u64, 0x20_0000_u64);
    for lane in 0..lanes {
        let number = u64::from(lane);
        let (stream, event) = (0x30_0000 + number * 64, 0x40_0000 + number * 64);
        let (x, y) = (0x7f00_0000_0000 + number * 0x10_0000, 0x7f00_0008_0000 + number * 0x10_0000);
        let out = |value: u64| value.to_le_bytes();
        let mut records = Vec::with_capacity(calls as usize + 8);
        // Thread 0 loads the module before any other begins.
        let mut now = 1000;
        let mut push = |builder: RecordBuilder, begin: u64| records.push(builder.ticks(begin, begin + CALL).build());
        if lane == 0 {
            let image = hrr_format::record::BlobRef { number: 0, size_bytes: 14 };
            let loaded = RecordBuilder::new(load, &[0x7ff0, 0x7ff8])
                .section(SectionTag::Out, 0, Presence::Present, &out(module))
                .blob(SectionTag::Code, 1, image);
            push(loaded, now);
            let got = RecordBuilder::new(get, &[0x7ff0, module, 0x7ff8])
                .section(SectionTag::Out, 0, Presence::Present, &out(function))
                .section(SectionTag::Text, 2, Presence::Present, b"saxpy");
            push(got, now + STEP);
        }
        now += 10 * STEP;
        let created = [(create, vec![0x7ff0, 1], stream), (event_create, vec![0x7ff0, 2], event)];
        let allocated = [(malloc, vec![0x7ff0, 0x8_0000], x), (malloc, vec![0x7ff0, 0x8_0000], y)];
        for (api, words, value) in created.into_iter().chain(allocated) {
            let builder = RecordBuilder::new(api, &words).section(SectionTag::Out, 0, Presence::Present, &out(value));
            push(builder, now);
            now += STEP;
        }
        for call in 0..calls {
            let begin = match shape {
                Shape::Parallel => now + call * STEP + scattered(call, number) % (STEP - CALL),
                Shape::Alternating => now + (call * u64::from(lanes) + number) * STEP,
            };
            let builder = match call % 64 {
                63 => RecordBuilder::new(sync, &[stream]),
                15 | 31 => RecordBuilder::new(record, &[event, stream]),
                47 => RecordBuilder::new(query, &[0x7ff0]).section(SectionTag::Out, 0, Presence::Present, &[0; 4]),
                _ => {
                    let mut bytes = [0; 20];
                    bytes[..8].copy_from_slice(&x.to_le_bytes());
                    bytes[8..16].copy_from_slice(&y.to_le_bytes());
                    let words = [function, 1, 1, 1, 64, 1, 1, 0, stream, 0x7ff0, 0];
                    RecordBuilder::new(launch, &words).aux(1).section(
                        SectionTag::KernelArgs,
                        9,
                        Presence::Present,
                        &bytes,
                    )
                }
            };
            push(builder, begin);
        }
        writer.stream(lane, 100 + number, "bench", &records)?;
    }
    writer.finish()?;
    Ok(())
}

/// A number that looks random, the same for the same call of the same thread.
fn scattered(call: u64, thread: u64) -> u64 {
    let mixed = (call << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

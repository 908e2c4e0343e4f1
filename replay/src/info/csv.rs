//! `--csv DIR`: tables with the columns of rocprofv3's, one set for each process, all times in nanoseconds of the recording's
//! clock.
//!
//! A recording knows when calls were entered and returned, not when the device worked. The tables of kernels and copies
//! therefore lack rocprofv3's `Start_Timestamp` and `End_Timestamp`, which are the device's, and have the times of the calls
//! under names of their own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use hrr_format::abi::{Dim3, Words};
use hrr_format::archive::Archive;
use hrr_format::catalogue::{Api, Role};
use hrr_format::ordered::{Ordered, merged};
use hrr_format::record::{Record, marker};

use super::arguments::kernel;
use super::filter::Filter;
use super::summary::Summary;
use crate::plan::lower::RecordInputs;

const API_COLUMNS: &str = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp";
const KERNEL_COLUMNS: &str = "Kind,Process_Id,Thread_Id,Stream_Id,Kernel_Name,Correlation_Id,Call_Start_Timestamp,Call_End_Timestamp,\
                              Dynamic_LDS_Bytes,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z";
const COPY_COLUMNS: &str =
    "Kind,Direction,Process_Id,Thread_Id,Stream_Id,Bytes,Correlation_Id,Call_Start_Timestamp,Call_End_Timestamp";
const STATS_COLUMNS: &str = "Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev";
/// `hipMemcpyKind` as rocprofv3 names directions.
const DIRECTIONS: [&str; 5] = [
    "MEMORY_COPY_HOST_TO_HOST",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
    "MEMORY_COPY_DEVICE_TO_DEVICE",
    "MEMORY_COPY_DEFAULT",
];

/// Writes the tables of an archive into a directory, which is made where it is missing.
pub(super) fn write(archive: &Archive, summary: &Summary, filter: &Filter, dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let pid = archive.manifest().pid;
    let table = |name: &str, columns: &str| -> io::Result<BufWriter<File>> {
        let path = dir.join(format!("{pid}_{name}.csv"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut out = BufWriter::new(file);
        writeln!(out, "{columns}")?;
        Ok(out)
    };
    let mut calls = table("hip_api_trace", API_COLUMNS)?;
    let mut kernels = table("kernel_trace", KERNEL_COLUMNS)?;
    let mut copies = table("memory_copy_trace", COPY_COLUMNS)?;
    let clock = &archive.manifest().clock;
    let mut event = 0u64;
    for Ordered { stream, record, .. } in merged(archive.streams()) {
        if record.api() >= marker::FIRST {
            continue;
        }
        let number = event;
        event += 1;
        let header = archive.streams()[stream].header();
        let name = archive.api(record.api()).name;
        if !filter.takes(number, header.thread, name) {
            continue;
        }
        let begin = clock.ticks_to_ns(record.begin());
        // A call that never returned has no end.
        let end = if record.in_flight() { String::new() } else { clock.ticks_to_ns(record.end()).to_string() };
        let place = format!("{pid},{}", header.tid);
        writeln!(calls, "HIP_API,{},{place},{number},{begin},{end}", field(name))?;
        let Some(api) = archive.row_of(&record) else { continue };
        let stream_id = api.stream_param().map_or(0, |param| record.word(usize::from(api.params[param].word)));
        if let Some(kernel) = kernel(archive, &record) {
            let (blocks, threads) = launch_shape(api, &record);
            let [gx, gy, gz] = [0, 1, 2].map(|axis| u64::from(blocks[axis]) * u64::from(threads[axis]));
            let [wx, wy, wz] = threads;
            let name = field(&kernel.name);
            let lds_bytes = named_word(api, &record, &["sharedMemBytes", "sharedMem"]).unwrap_or(0);
            writeln!(
                kernels,
                "KERNEL_LAUNCH,{place},{stream_id:#x},{name},{number},{begin},{end},{lds_bytes},{wx},{wy},{wz},{gx},{gy},{gz}"
            )?;
        } else if let Some((direction, bytes)) = copy(api, &record) {
            // Copies described by structs have no size of their own.
            let bytes = bytes.map_or_else(String::new, |bytes| bytes.to_string());
            writeln!(copies, "MEMORY_COPY,{direction},{place},{stream_id:#x},{bytes},{number},{begin},{end}")?;
        }
    }
    let mut stats = table("hip_stats", STATS_COLUMNS)?;
    let total: f64 = summary.apis.iter().map(|api| api.total_us).sum();
    for api in &summary.apis {
        let share = if total > 0.0 { api.total_us / total * 100.0 } else { 0.0 };
        writeln!(
            stats,
            "{},{},{:.0},{:.3},{share:.6},{:.0},{:.0},{:.3}",
            field(&api.name),
            api.calls,
            api.total_us * 1000.0,
            api.mean_us * 1000.0,
            api.min_us * 1000.0,
            api.max_us * 1000.0,
            api.deviation_us * 1000.0
        )?;
    }
    [calls, kernels, copies, stats].iter_mut().try_for_each(Write::flush)
}

/// A field, quoted where it has to be; what a spreadsheet would run as a formula is not left at its start.
fn field(text: &str) -> String {
    let plain = !text.contains([',', '"', '\n', '\r']) && !text.starts_with(['=', '+', '-', '@']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")) }
}

fn named_word(api: &Api, record: &Record<'_>, names: &[&str]) -> Option<u64> {
    let param = api.params.iter().find(|param| names.contains(&param.name))?;
    Some(record.word(usize::from(param.word)))
}

/// Blocks of a grid and threads of a block.
fn launch_shape(api: &Api, record: &Record<'_>) -> ([u32; 3], [u32; 3]) {
    // Of two `dim3` the grid comes first.
    let shape = |position: usize, words: [[&str; 2]; 3]| {
        if let Some(param) = api.params.iter().filter(|param| param.ctype.contains("dim3")).nth(position) {
            let first = usize::from(param.word);
            let Dim3 { x, y, z } = Dim3::load(&[record.word(first), record.word(first + 1)]);
            return [x, y, z];
        }
        words.map(|names| named_word(api, record, &names).unwrap_or(0) as u32)
    };
    let mut blocks =
        shape(0, [["gridDimX", "globalWorkSizeX"], ["gridDimY", "globalWorkSizeY"], ["gridDimZ", "globalWorkSizeZ"]]);
    let threads =
        shape(1, [["blockDimX", "localWorkSizeX"], ["blockDimY", "localWorkSizeY"], ["blockDimZ", "localWorkSizeZ"]]);
    // These launches give the grid in threads.
    if api.params.iter().any(|param| param.name.starts_with("globalWorkSize")) {
        for axis in 0..3 {
            blocks[axis] = blocks[axis].checked_div(threads[axis]).unwrap_or(0);
        }
    }
    (blocks, threads)
}

/// Direction and size of a copy call; no size where its parameters do not give one.
fn copy(api: &'static Api, record: &Record<'_>) -> Option<(&'static str, Option<u64>)> {
    if !api.name.starts_with("hipMemcpy") {
        return None;
    }
    let direction = match named_word(api, record, &["kind"]) {
        Some(kind) => DIRECTIONS.get(usize::try_from(kind).ok()?).copied()?,
        None if api.name.contains("HtoD") => DIRECTIONS[1],
        None if api.name.contains("DtoH") => DIRECTIONS[2],
        None if api.name.contains("DtoD") || api.name.contains("Peer") => DIRECTIONS[3],
        None => DIRECTIONS[4],
    };
    Some((direction, bytes_of(api, record)))
}

/// Bytes that a copy or fill call is about.
pub(crate) fn bytes_of(api: &'static Api, record: &Record<'_>) -> Option<u64> {
    let inputs = RecordInputs { api, record, fields: &[] };
    api.params.iter().find_map(|param| match param.role {
        Role::Any(_, size) | Role::Host(_, size) | Role::Device(_, size) => match size {
            hrr_format::catalogue::Size::Rect { width, height, .. } => {
                let [width, height] =
                    [width, height].map(|param| record.word(usize::from(api.params[usize::from(param)].word)));
                width.checked_mul(height)
            }
            size => size.value(&inputs),
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hrr_format::record_builder::RecordBuilder;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("saxpy"), "saxpy");
        assert_eq!(field("f<int, 2>"), "\"f<int, 2>\"");
        assert_eq!(field("=x\"y"), "\"=x\"\"y\"");
    }

    #[test]
    fn launches_and_copies_are_read_by_their_parameters() {
        let row = |name: &str| Api::by_name(name).unwrap();
        let api = row("hipModuleLaunchKernel");
        let bytes = RecordBuilder::new(api.id, &[5, 4, 3, 2, 64, 2, 1, 128, 0, 0, 0]).build();
        let record = Record::parse(&bytes).unwrap().unwrap();
        assert_eq!(launch_shape(api, &record), ([4, 3, 2], [64, 2, 1]));
        let api = row("hipLaunchKernel");
        let bytes = RecordBuilder::new(api.id, &[1, 4 | 3 << 32, 2, 64 | 1 << 32, 1, 0, 0, 0]).build();
        assert_eq!(launch_shape(api, &Record::parse(&bytes).unwrap().unwrap()), ([4, 3, 2], [64, 1, 1]));
        let api = row("hipMemcpy2D");
        let bytes = RecordBuilder::new(api.id, &[1, 64, 2, 64, 10, 3, 2]).build();
        assert_eq!(copy(api, &Record::parse(&bytes).unwrap().unwrap()), Some(("MEMORY_COPY_DEVICE_TO_HOST", Some(30))));
        let api = row("hipMemcpyHtoD");
        let bytes = RecordBuilder::new(api.id, &[1, 2, 77]).build();
        assert_eq!(copy(api, &Record::parse(&bytes).unwrap().unwrap()), Some(("MEMORY_COPY_HOST_TO_DEVICE", Some(77))));
        let api = row("hipMemcpy3D");
        let bytes = RecordBuilder::new(api.id, &[1]).build();
        assert_eq!(copy(api, &Record::parse(&bytes).unwrap().unwrap()), Some(("MEMORY_COPY_DEFAULT", None)));
    }
}

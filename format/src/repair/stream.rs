//! Stream files: cut before the first damage, and closed.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Work;
use super::side_file::open_to_change;
use crate::archive::EVENTS_DIR;
use crate::files;
use crate::record::marker;
use crate::stream_file::{StreamError, StreamFile, offset};

/// What the stream files hold once they are repaired.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams {
    pub(super) files: u64,
    pub(super) calls: u64,
}

/// The stream files of a process, in order of name.
pub(super) fn paths(process: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    match std::fs::read_dir(process.join(EVENTS_DIR)) {
        Ok(entries) => {
            for entry in entries {
                let path = entry?.path();
                if super::is_stream_file(&path) {
                    paths.push(path);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    paths.sort();
    Ok(paths)
}

/// Repairs all stream files of a process.
pub(super) fn repair_all(work: &mut Work) -> io::Result<Streams> {
    let mut streams = Streams::default();
    for path in paths(&work.dir)? {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        match StreamFile::open(&path) {
            Ok(stream) => {
                let calls = repair_one(work, stream, &name)?;
                streams.files += 1;
                streams.calls += calls;
            }
            Err(StreamError::Version { found }) => {
                work.cannot(format!("{name} is of format version {found}, which this build does not know"));
            }
            Err(StreamError::Open { reason }) => work.cannot(format!("{name} cannot be opened: {reason}")),
            Err(_) if is_blank(&path)? => {
                std::fs::remove_file(&path)?;
                work.did(format!("{name} was blank: its thread ended before its first call; removed"));
            }
            Err(error) => {
                let kept = work.side.take(&name, &path)?;
                work.did(format!("{name} is no stream file ({error}); moved to {kept}"));
            }
        }
    }
    Ok(streams)
}

/// Whether a file is empty or all zeros.
fn is_blank(path: &Path) -> io::Result<bool> {
    Ok(files::map(path)?.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0)))
}

/// Cuts a stream before its first damage and closes it. Returns how many calls it holds.
fn repair_one(work: &mut Work, stream: StreamFile, name: &str) -> io::Result<u64> {
    let damage = stream.check().err();
    let limit = damage.as_ref().map_or(u64::MAX, |damage| damage.offset_bytes);
    let mut records = stream.records();
    if stream.header().ring_part_bytes != 0 {
        // A ring is read wherever its writer was; where something in it is damaged, what lies around it stays as it is.
        return Ok(records.filter(|record| record.api() < marker::FIRST).count() as u64);
    }
    let (mut calls, mut end) = (0, records.offset() as u64);
    while let Some(record) = records.next() {
        if records.offset() as u64 - record.len_bytes() as u64 >= limit {
            break;
        }
        calls += u64::from(record.api() < marker::FIRST);
        end = records.offset() as u64;
    }
    if damage.is_none() {
        // Pads behind the last record are the writer's.
        end = records.offset() as u64;
    }
    let has_tail = stream.used_after(end as usize);
    if damage.is_none() && !has_tail && stream.header().used_bytes == end {
        return Ok(calls);
    }
    let path = stream.path().to_owned();
    let tail = stream.tail(end as usize).to_vec();
    // The mapping must be gone before the file is cut under it.
    drop(stream);
    let mut kept = String::new();
    if !tail.is_empty() {
        let side = work.side.keep(&format!("{name}-{end}"), &tail)?;
        kept = format!("; the {} bytes from there on are kept in {side}", tail.len());
    }
    let file = open_to_change(&path)?;
    file.set_len(end)?;
    file.write_all_at(&end.to_le_bytes(), offset::USED as u64)?;
    file.sync_all()?;
    work.did(match damage {
        Some(damage) => format!("{name} is cut at byte {end}: {}{kept}", damage.error),
        None => format!("{name} is closed at byte {end}{kept}"),
    });
    Ok(calls)
}

//! Making whole what a killed writer left: the torn tail is cut and kept beside the file, a trailer is written, and a manifest
//! that counts what there is.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::archive::{EVENTS_FILE, UpstreamArchive, UpstreamError};
use super::events::{FILE_HEADER_BYTES, trailer_bytes};
use super::manifest::WRITER_STATE_FILE;
use crate::files;

/// What is appended to the name of the event file, for what was cut off it.
pub const TORN_SUFFIX: &str = "torn";

/// Repairs a process archive. Tells what was done, in words; empty where nothing was amiss.
///
/// # Errors
/// Why its event file cannot be read or written.
pub fn repair(process: &Path) -> Result<Vec<String>, UpstreamError> {
    let archive = UpstreamArchive::open_any_version(process)?;
    if archive.complete() && archive.ending().torn.is_none() && archive.writer_state().is_none() {
        return Ok(Vec::new());
    }
    let path = process.join(EVENTS_FILE);
    let failed = |reason| UpstreamError::Write { path: path.clone(), reason };
    let mut done = Vec::new();
    let bytes = fs::read(&path).map_err(failed)?;
    let keep = archive.events().map(|event| event.offset_bytes + event.bytes.len()).max().unwrap_or(FILE_HEADER_BYTES);
    let rewrite = !archive.complete();
    if rewrite && keep < bytes.len() {
        fs::write(path.with_extension(format!("bin.{TORN_SUFFIX}")), &bytes[keep..]).map_err(failed)?;
        done.push(format!("{} bytes behind the last whole record were put aside", bytes.len() - keep));
    }
    if rewrite {
        append_trailer(&path, keep as u64, &archive).map_err(failed)?;
        done.push(format!("a trailer was written behind {} records", archive.len()));
    }
    let told = archive.manifest();
    let contents = told.blob_count.max(archive.writer_state().map_or(0, |state| state.blob_count));
    let manifest = format!(
        "{{\n  \"pid\": {},\n  \"parent_pid\": {},\n  \"complete\": true,\n  \"event_count\": {},\n  \"blob_count\": {contents}\n}}\n",
        told.pid,
        told.parent_pid,
        archive.len()
    );
    files::replace(&process.join(crate::manifest::FILE), manifest.as_bytes()).map_err(failed)?;
    done.push("its manifest was written again".to_owned());
    if archive.writer_state().is_some() {
        fs::remove_file(process.join(WRITER_STATE_FILE)).map_err(failed)?;
        done.push("the state of its writer was removed".to_owned());
    }
    Ok(done)
}

fn append_trailer(path: &Path, keep_bytes: u64, archive: &UpstreamArchive) -> io::Result<()> {
    let next = archive.events().map(|event| event.sequence).max().map_or(0, |last| last.saturating_add(1));
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(keep_bytes)?;
    io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    file.write_all(&trailer_bytes(next, archive.len() as u64))?;
    file.sync_all()
}

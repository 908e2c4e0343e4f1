//! What `hrr-playback ARCHIVE --info` prints: what was recorded, without a HIP runtime and without replaying anything.
//!
//! Text is for people and may change; JSON carries a `schema_version` and is for tools.

mod arguments;
mod calls;
mod csv;
mod filter;
mod last_work;
mod memory;
mod root;
mod summary;
mod table;
mod text;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hrr_cli::Unwritable;
use hrr_format::archive::{Archive, ArchiveError, ArchiveRoot, Damaged};
use hrr_format::upstream::{UpstreamError, describe};
use serde::Serialize;

pub(crate) use arguments::{call_text, kernel, printable};
pub(crate) use csv::bytes_of;
pub use filter::{EventRange, Filter, Glob};
use summary::Summary;
pub(crate) use text::window_text;

/// Version of the JSON that is printed. It rises when a key changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Whether the calls are listed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Totals only.
    #[default]
    Total,
    /// Every call, by order of entry.
    List,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For tools.
    Json,
}

/// What to print, and how.
#[derive(Clone, Debug, Default)]
pub struct InfoOptions {
    /// Whether to list the calls.
    pub calls: Calls,
    /// Text or JSON.
    pub output: Output,
    /// Which calls are listed, here and in tables.
    pub filter: Filter,
    /// Directory for tables; none are written without.
    pub csv: Option<PathBuf>,
}

/// Whether everything that the archive should hold could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It could.
    Whole,
    /// Something is damaged or missing; warnings were printed.
    Damaged,
}

/// Why nothing, or not everything, was printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfoError {
    /// There is no archive to describe.
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    /// The output could not be written.
    #[error("the output cannot be written: {0}; send it elsewhere")]
    Output(#[from] io::Error),
    /// Nor the tables.
    #[error("{0}")]
    Tables(#[from] Unwritable),
}

/// Describes what lies at a path: an archive, or a root with several processes. Stream files that are damaged are
/// described as far as they can be read.
///
/// # Errors
/// [`InfoError`].
pub fn print_path(path: &Path, options: &InfoOptions, out: &mut dyn Write) -> Result<Condition, InfoError> {
    match Archive::open_with(path, Damaged::Tolerate) {
        Ok(archive) => print_info(&archive, options, out),
        Err(ArchiveError::Upstream(error @ (UpstreamError::TooOld { .. } | UpstreamError::TooNew { .. }))) => {
            let process = error.process().unwrap_or(path);
            let text = describe(process).map_err(ArchiveError::from)?;
            for line in text.lines() {
                writeln!(out, "{}", printable(line))?;
            }
            writeln!(out, "\n[HRR] Warning: {}", printable(&error.to_string()))?;
            Ok(Condition::Damaged)
        }
        // Calls and tables are those of one process.
        Err(error @ ArchiveError::Several { .. }) if options.calls == Calls::List || options.csv.is_some() => {
            Err(error.into())
        }
        Err(ArchiveError::Several { path, .. }) => Ok(print_root(&ArchiveRoot::open(&path)?, options, out)?),
        Err(error) => Err(error.into()),
    }
}

/// Describes an archive.
///
/// # Errors
/// Of the output and the tables.
pub fn print_info(archive: &Archive, options: &InfoOptions, out: &mut dyn Write) -> Result<Condition, InfoError> {
    let summary = Summary::collect(archive);
    if let Some(dir) = &options.csv {
        csv::write(archive, &summary, &options.filter, dir).map_err(Unwritable::at(dir))?;
    }
    match options.output {
        Output::Text => {
            text::write_summary(&summary, out)?;
            if options.calls == Calls::List {
                calls::write_list(archive, &options.filter, out)?;
            }
        }
        Output::Json => {
            let calls = (options.calls == Calls::List).then_some(calls::List { archive, filter: &options.filter });
            write_json(&Report { schema_version: SCHEMA_VERSION, summary: &summary, calls }, out)?;
        }
    }
    Ok(if summary.warnings.is_empty() { Condition::Whole } else { Condition::Damaged })
}

/// Lists the processes of a root.
///
/// # Errors
/// Of the output.
pub fn print_root(root: &ArchiveRoot, options: &InfoOptions, out: &mut dyn Write) -> io::Result<Condition> {
    let listing = root::Listing::collect(root);
    match options.output {
        Output::Text => listing.write_text(out)?,
        Output::Json => write_json(&listing, out)?,
    }
    Ok(if listing.is_whole() { Condition::Whole } else { Condition::Damaged })
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<calls::List<'a>>,
}

fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

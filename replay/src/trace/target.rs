//! The file that a timeline goes to: Chrome's JSON, or Perfetto's format where it is named so; compressed where its name ends in
//! `.gz`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use hrr_cli::{Unwritable, make_folder_of};

use super::timeline::Format;

/// Why a timeline was not written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The name asks for a format that is not written.
    #[error(
        "{}: timelines are written as Chrome's JSON (.json, .json.gz) or in Perfetto's format (.pftrace, .pftrace.gz); name \
         the file so",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The run ended before there was anything to draw.
    #[error("{}: not written: the replay ended before a repetition that could be drawn was over", path.display())]
    NotReached {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("{0}")]
    Io(#[from] Unwritable),
}

/// A timeline's file while it is written: one beside the path, renamed once it is whole.
#[derive(Debug)]
pub struct TraceTarget {
    path: PathBuf,
    beside: PathBuf,
    out: Option<Output>,
}

#[derive(Debug)]
enum Output {
    Plain(BufWriter<File>),
    Compressed(GzEncoder<BufWriter<File>>),
}

impl TraceTarget {
    /// Checks the name, without making anything.
    ///
    /// # Errors
    /// [`TraceError::Format`].
    pub fn check(path: &Path) -> Result<(), TraceError> {
        format_of(path).map(drop).ok_or_else(|| TraceError::Format { path: path.to_owned() })
    }

    /// The format that the name asks for.
    pub(crate) fn format(&self) -> Format {
        format_of(&self.path).unwrap_or(Format::Chrome)
    }

    /// Makes the file beside `path`, so that a place where nothing can be written is told before a long replay and not
    /// behind it.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        Self::check(path)?;
        make_folder_of(path)?;
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        // Kernels' names tell what a program does: for the owner alone, as archives are.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let file = BufWriter::new(file.map_err(Unwritable::at(path))?);
        let out = match path.extension().is_some_and(|extension| extension == "gz") {
            true => Output::Compressed(GzEncoder::new(file, Compression::fast())),
            false => Output::Plain(file),
        };
        Ok(TraceTarget { path: path.to_owned(), beside, out: Some(out) })
    }

    /// Says that there is nothing to draw.
    pub(crate) fn not_reached(self) -> TraceError {
        TraceError::NotReached { path: self.path.clone() }
    }

    /// Has `draw` write the timeline, and puts it in its place.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub(crate) fn write<T>(mut self, draw: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T, TraceError> {
        let written = || {
            let closed = || io::Error::other("written already");
            let drawn = match self.out.as_mut().ok_or_else(closed)? {
                Output::Plain(out) => draw(out)?,
                Output::Compressed(out) => draw(out)?,
            };
            match self.out.take().ok_or_else(closed)? {
                Output::Plain(mut out) => out.flush()?,
                Output::Compressed(out) => out.finish()?.flush()?,
            }
            fs::rename(&self.beside, &self.path)?;
            Ok(drawn)
        };
        written().map_err(|reason| Unwritable { path: self.path.clone(), reason }.into())
    }
}

/// The format that a file's name asks for. What is only said to be compressed is JSON.
fn format_of(path: &Path) -> Option<Format> {
    let extension = |path: &Path| path.extension().and_then(|extension| extension.to_str()).map(str::to_owned);
    let name = extension(path)?;
    let inner = if name == "gz" { extension(Path::new(path.file_stem()?)) } else { Some(name) };
    match inner.as_deref() {
        Some("pftrace") => Some(Format::Perfetto),
        Some("json") => Some(Format::Chrome),
        _ => path.extension().is_some_and(|last| last == "gz").then_some(Format::Chrome),
    }
}

impl Drop for TraceTarget {
    fn drop(&mut self) {
        // Renamed where all went well, so that there is nothing to remove.
        let _ = fs::remove_file(&self.beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_timeline_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let target = TraceTarget::create(&path).unwrap();
        let failed = target.write(|out| {
            out.write_all(b"half")?;
            Err::<(), _>(io::Error::other("no more"))
        });
        assert!(failed.unwrap_err().to_string().contains("t.json cannot be written: no more; "));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        TraceTarget::create(&path).unwrap().write(|out| out.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn the_name_decides_the_form() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json.gz");
        TraceTarget::create(&path).unwrap().write(|out| out.write_all(b"{}")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
        for (name, format) in [
            ("t.json", Format::Chrome),
            ("t.gz", Format::Chrome),
            ("t.pftrace", Format::Perfetto),
            ("t.pftrace.gz", Format::Perfetto),
        ] {
            assert_eq!(TraceTarget::create(&folder.path().join(name)).unwrap().format(), format, "{name}");
        }
        for other in ["pftrace", "t", "t.txt"] {
            assert!(matches!(TraceTarget::create(Path::new(other)), Err(TraceError::Format { .. })), "{other}");
        }
    }
}

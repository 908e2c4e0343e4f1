//! Where the files of an archive come from: a directory, or a packed archive.
//!
//! A file in a packed archive is named by a path below that of the packed file, as if it were a directory:
//! `capture.hrrz/pid-41/manifest.json`. So messages name it, and users may name a process of a packed root.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use crate::files;
use crate::packed::{PackedContent, PackedError, PackedFile, WholeFile};

/// Where files are looked for.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Under their paths.
    Directory,
    /// In a packed archive.
    Packed(Arc<PackedFile>),
}

/// A file in memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Mapped from its place.
    Mapped(Mmap),
    /// Unpacked from its place.
    Unpacked(WholeFile),
    /// Put together from parts of it.
    Put(Vec<u8>),
}

impl Bytes {
    /// The mapping of a file that these bytes are, whose pages can be had again from the file.
    pub(crate) fn file_mapping(&self) -> Option<&Mmap> {
        match self {
            Bytes::Mapped(map) | Bytes::Unpacked(WholeFile::File(map)) => Some(map),
            Bytes::Unpacked(WholeFile::Memory(_)) | Bytes::Put(_) => None,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(bytes) => bytes,
            Bytes::Unpacked(WholeFile::Memory(bytes)) => bytes,
            Bytes::Unpacked(WholeFile::File(bytes)) => bytes,
            Bytes::Put(bytes) => bytes,
        }
    }
}

/// A file of which parts are read.
#[derive(Debug)]
pub(crate) enum Content {
    /// Mapped from its place.
    Mapped(Mmap),
    /// In a packed archive.
    Packed(PackedContent),
}

impl Content {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Content::Mapped(bytes) => bytes.len() as u64,
            Content::Packed(content) => content.len_bytes(),
        }
    }

    /// A part of the file; `None` where the file is shorter.
    pub(crate) fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Result<Option<Cow<'_, [u8]>>, PackedError> {
        match self {
            Content::Mapped(bytes) => Ok(usize::try_from(offset_bytes)
                .ok()
                .zip(usize::try_from(len_bytes).ok())
                .and_then(|(start, len)| bytes.get(start..start.checked_add(len)?))
                .map(Cow::Borrowed)),
            Content::Packed(content) => content.slice(offset_bytes, len_bytes),
        }
    }
}

impl Source {
    /// The source that a path leads to: the packed archive that it names or lies in, or else the file system.
    ///
    /// # Errors
    /// A packed archive that cannot be read. Files of other kinds are left to whatever comes next.
    pub(crate) fn of(path: &Path) -> Result<Self, PackedError> {
        for ancestor in path.ancestors() {
            match fs::metadata(ancestor) {
                Ok(metadata) if metadata.is_file() => {
                    return match PackedFile::open(ancestor) {
                        Ok(packed) => Ok(Source::Packed(packed)),
                        Err(PackedError::NotPacked { .. }) => Ok(Source::Directory),
                        Err(error) => Err(error),
                    };
                }
                // Below a file, the system says of a path that it is not there or that a part of it is no directory.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                _ => break,
            }
        }
        Ok(Source::Directory)
    }

    /// Name in the packed archive of a path below it; empty for the archive itself.
    fn name<'a>(packed: &PackedFile, path: &'a Path) -> Option<&'a str> {
        path.strip_prefix(packed.path()).ok()?.to_str()
    }

    fn content_of(packed: &Arc<PackedFile>, path: &Path) -> io::Result<PackedContent> {
        Self::name(packed, path).and_then(|name| packed.content(name)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether a path is a directory.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        match self {
            Source::Directory => path.is_dir(),
            Source::Packed(packed) => Self::children(packed, path).is_some_and(|mut names| names.next().is_some()),
        }
    }

    /// Names below a directory of a packed archive, relative to it.
    fn children<'a>(packed: &'a PackedFile, path: &Path) -> Option<impl Iterator<Item = &'a str>> {
        let prefix = match Self::name(packed, path)? {
            "" => String::new(),
            name => format!("{name}/"),
        };
        Some(packed.names().filter_map(move |name| name.strip_prefix(prefix.as_str())))
    }

    /// Names and paths in a directory, in no order; names that are not UTF-8 are none of ours.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
        match self {
            Source::Directory => {
                let mut found = Vec::new();
                for entry in fs::read_dir(path)? {
                    let entry = entry?;
                    if let Ok(name) = entry.file_name().into_string() {
                        found.push((name, entry.path()));
                    }
                }
                Ok(found)
            }
            Source::Packed(packed) => {
                let names = Self::children(packed, path).ok_or(io::ErrorKind::NotFound)?;
                let mut found: Vec<(String, PathBuf)> = Vec::new();
                for name in names {
                    let name = name.split('/').next().unwrap_or(name);
                    // Names are in order, so those of one directory follow each other.
                    if found.last().is_none_or(|(last, _)| last != name) {
                        found.push((name.to_owned(), path.join(name)));
                    }
                }
                if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
            }
        }
    }

    /// A file of at most `limit_bytes`.
    pub(crate) fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        match self {
            Source::Directory => files::read(path, limit_bytes),
            Source::Packed(packed) => {
                let content = Self::content_of(packed, path)?;
                if content.len_bytes() > limit_bytes {
                    return Err(files::too_long(limit_bytes));
                }
                let whole = content.whole().map_err(io::Error::other)?;
                Ok(whole[..content.len_bytes() as usize].to_vec())
            }
        }
    }

    /// A whole file in memory; `None` where it is empty.
    pub(crate) fn map(&self, path: &Path) -> io::Result<Option<Bytes>> {
        match self {
            Source::Directory => Ok(files::map(path)?.map(Bytes::Mapped)),
            Source::Packed(packed) => {
                let content = Self::content_of(packed, path)?;
                if content.is_empty() {
                    return Ok(None);
                }
                content.mapped().map(|bytes| Some(Bytes::Unpacked(bytes))).map_err(io::Error::other)
            }
        }
    }

    /// A file of which parts are wanted; `None` where it is empty.
    pub(crate) fn content(&self, path: &Path) -> io::Result<Option<Content>> {
        match self {
            Source::Directory => Ok(files::map(path)?.map(Content::Mapped)),
            Source::Packed(packed) => {
                let content = Self::content_of(packed, path)?;
                Ok((!content.is_empty()).then_some(Content::Packed(content)))
            }
        }
    }
}

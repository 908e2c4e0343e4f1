//! Turning a packed archive into directories and files again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{PackedError, PackedFile};

/// What unpacking came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files.
    pub files: u64,
    /// Bytes they take together, as their directory lists them.
    pub file_bytes: u64,
}

/// Unpacks a packed archive into a directory that must not exist yet. Directories are made for their owner alone, and so
/// are files.
///
/// # Errors
/// What is wrong with the packed archive, and why a file cannot be written.
pub fn unpack(packed: &Path, target: &Path) -> Result<Unpacked, PackedError> {
    let packed = PackedFile::open(packed)?;
    make_folder_of(target)?;
    private_dir().create(target).map_err(|reason| match reason.kind() {
        ErrorKind::AlreadyExists => PackedError::Exists { path: target.to_owned() },
        _ => PackedError::io(target)(reason),
    })?;
    let unpacked = write(&packed, target);
    if unpacked.is_err() {
        // Half an archive would be taken for one; the error that matters is the first one.
        let _ = fs::remove_dir_all(target);
    }
    unpacked
}

/// Writes every file below the target, which is there.
fn write(packed: &Arc<PackedFile>, target: &Path) -> Result<Unpacked, PackedError> {
    let mut unpacked = Unpacked::default();
    for name in packed.names() {
        let Some(content) = packed.content(name) else { continue };
        // The table was only accepted with names that stay below the target.
        let path = target.join(name);
        if let Some(parent) = path.parent() {
            private_dir().recursive(true).create(parent).map_err(PackedError::io(parent))?;
        }
        let io = PackedError::io(&path);
        let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(&io)?;
        file.set_len(content.len_bytes()).map_err(&io)?;
        content.visit(|offset_bytes, bytes| file.write_all_at(bytes, offset_bytes).map_err(&io))?;
        unpacked.files += 1;
        unpacked.file_bytes += content.len_bytes();
    }
    Ok(unpacked)
}

/// Makes the folder that a target is to lie in, as far as it is missing.
pub(super) fn make_folder_of(target: &Path) -> Result<(), PackedError> {
    let Some(folder) = target.parent() else { return Ok(()) };
    private_dir().recursive(true).create(folder).map_err(|reason| match reason.kind() {
        // Of a file that stands in the way the system says that it exists.
        ErrorKind::AlreadyExists => PackedError::io(target)(ErrorKind::NotADirectory.into()),
        _ => PackedError::io(target)(reason),
    })
}

fn private_dir() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

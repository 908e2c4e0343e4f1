//! Files that are asked for by name: their folders are made, and where they cannot be, the line says what to do.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Why a file or folder that was asked for cannot be written: the file, the system's reason, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {reason}; {}", path.display(), remedy(reason))]
pub struct Unwritable {
    /// What was asked for.
    pub path: PathBuf,
    /// The system's reason.
    pub reason: io::Error,
}

impl Unwritable {
    /// For the errors of a path.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> Unwritable + '_ {
        |reason| Unwritable { path: path.to_owned(), reason }
    }
}

fn remedy(reason: &io::Error) -> &'static str {
    match reason.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "name one in a folder where you may write",
        ErrorKind::IsADirectory => "it is a folder: name a file in it",
        ErrorKind::NotADirectory => "a part of its path is a file: name one elsewhere",
        ErrorKind::AlreadyExists => "name one that does not",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room, or name one on another disk",
        ErrorKind::FileTooLarge => "raise the limit on the length of files (ulimit -f)",
        ErrorKind::InvalidFilename => "give it a shorter name",
        ErrorKind::BrokenPipe => "whoever was to read it has gone",
        _ => "name another one",
    }
}

/// Makes the folder that a file is to lie in, as far as it is missing, for its owner alone: what is recorded of a program is
/// its user's business.
///
/// # Errors
/// Of the system, told of the file.
pub fn make_folder_of(file: &Path) -> Result<(), Unwritable> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|reason| {
        // What `mkdir` says where a file stands in the way is that something exists.
        let reason = match reason.kind() {
            ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
            _ => reason,
        };
        Unwritable { path: file.to_owned(), reason }
    })
}

/// Makes the folder that a file is to lie in and looks whether the file can be made there, before work that may take long.
///
/// # Errors
/// Of the system, told of the file.
pub fn expect_writable(file: &Path) -> Result<(), Unwritable> {
    let at = Unwritable::at(file);
    match file.metadata() {
        Ok(there) if there.is_dir() => return Err(at(ErrorKind::IsADirectory.into())),
        // A device or a pipe is written to as it is.
        Ok(there) if !there.is_file() => return Ok(()),
        _ => {}
    }
    make_folder_of(file)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.try", std::process::id()));
    let beside = file.with_file_name(name);
    std::fs::File::create_new(&beside).and_then(|_| std::fs::remove_file(&beside)).map_err(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_are_made_for_their_owner_and_what_cannot_be_is_told_with_a_remedy() {
        let scratch = std::env::temp_dir().join(format!("hrr-cli-outputs-{}", std::process::id()));
        let file = scratch.join("a/b/report.json");
        expect_writable(&file).unwrap();
        let folder = file.parent().unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "nothing is left of the try");
        std::fs::write(&file, "").unwrap();
        for (path, wanted) in [
            (folder.to_owned(), "cannot be written: is a directory; it is a folder: name a file in it"),
            (file.join("x"), "cannot be written: not a directory; a part of its path is a file: name one elsewhere"),
        ] {
            let said = expect_writable(&path).unwrap_err().to_string();
            assert_eq!(said, format!("{} {wanted}", path.display()));
        }
        expect_writable(&file).unwrap();
        expect_writable(Path::new("/dev/null")).unwrap();
        std::fs::remove_dir_all(scratch).unwrap();
    }
}

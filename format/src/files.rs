//! Opening the files of an archive for reading.
//!
//! An archive comes from somebody else. A name in it may belong to a pipe or a device, where opening or reading would
//! wait for ever: only regular files are taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::Mmap;

/// Opens a regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe waits for its writer. Regular files do not know the difference.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Maps a regular file; `None` where it is empty.
pub(crate) fn map(path: &Path) -> io::Result<Option<Mmap>> {
    let file = open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: a file mapping is only sound to borrow while no one changes or truncates the file. An archive being read
    // is not being written: `hrr-playback` documents that archives must not change while it runs, and a file that
    // shrinks under the mapping ends the process with SIGBUS rather than corrupting memory.
    unsafe { Mmap::map(&file) }.map(Some)
}

/// Reads a regular file that is no longer than `limit_bytes`.
pub(crate) fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(too_long(limit_bytes));
    }
    Ok(bytes)
}

/// Replaces a file's contents: writes a private temporary file beside it, then renames that.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The process id keeps apart the temporary files of processes that write one root manifest.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    // One left by an earlier process that died with this id.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        // What could not be finished goes as far as it can; the error that matters is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The error of a file that is longer than what is read of its kind.
pub(crate) fn too_long(limit_bytes: u64) -> io::Error {
    let reason = format!("it is longer than {limit_bytes} bytes, the most that is read of such a file");
    io::Error::new(io::ErrorKind::FileTooLarge, reason)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn pipes_and_directories_are_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [&pipe, dir.path()] {
            assert_eq!(map(path).unwrap_err().to_string(), "it is not a regular file");
            assert!(read(path, 10).is_err());
        }
    }

    #[test]
    fn files_longer_than_the_limit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"0123456789");
        assert!(read(&path, 9).unwrap_err().to_string().contains("longer than 9 bytes"));
        assert_eq!(map(&path).unwrap().unwrap().len(), 10);
        std::fs::write(&path, "").unwrap();
        assert!(map(&path).unwrap().is_none());
    }
}

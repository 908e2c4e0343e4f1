//! Files that keep what repair cuts off, and files that repair replaces.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where cut-off bytes go.
#[derive(Debug)]
pub(super) struct SideFiles {
    dir: PathBuf,
}

impl SideFiles {
    pub(super) fn new(dir: &Path) -> Self {
        SideFiles { dir: dir.to_owned() }
    }

    /// Writes bytes to a new file `repair-WHAT.bin` and returns its name.
    pub(super) fn keep(&self, what: &str, bytes: &[u8]) -> io::Result<String> {
        let (name, mut file) = self.create(what)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(name)
    }

    /// Moves a file away to `repair-WHAT.bin` and returns that name.
    pub(super) fn take(&self, what: &str, path: &Path) -> io::Result<String> {
        let (name, _) = self.create(what)?;
        fs::rename(path, self.dir.join(&name))?;
        Ok(name)
    }

    fn create(&self, what: &str) -> io::Result<(String, File)> {
        // Repairs of later damage find files of earlier ones.
        const ATTEMPTS: u32 = 1000;
        for attempt in 1..=ATTEMPTS {
            let name = match attempt {
                1 => format!("repair-{what}.bin"),
                _ => format!("repair-{what}-{attempt}.bin"),
            };
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.dir.join(&name)) {
                Ok(file) => return Ok((name, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("there are {ATTEMPTS} files repair-{what}*.bin already")))
    }
}

/// Opens a file of the archive to change it, never through a symbolic link.
pub(super) fn open_to_change(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

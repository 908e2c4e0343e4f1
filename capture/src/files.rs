//! Files of the archive: made private, never through a symbolic link, and known again by device and inode.
//!
//! Capture's descriptors live in somebody else's process. A program that closes every descriptor it does not know (as
//! daemons do) and opens files of its own would make a recorder truncate or overwrite those; so the identity behind a
//! descriptor is checked before every use that changes a file, and the file opened anew by its path where it was lost.
//!
//! They also take no number that the program would get without a recorder: programs expect the lowest free one, and `select` takes
//! low ones alone.
//!
//! * [`held`]: the archive root, which paths are followed from

mod held;

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

pub(crate) use held::hold;

use crate::guest::quiet_write::quietly;

/// Mode of files.
const FILE_MODE: libc::c_uint = 0o600;
/// Mode of directories.
const DIR_MODE: libc::mode_t = 0o700;

/// An open file of the archive.
#[derive(Debug)]
pub(crate) struct GuardedFile {
    path: PathBuf,
    /// What it is opened with, once it is there.
    flags: libc::c_int,
    fd: AtomicI32,
    identity: (u64, u64),
}

impl GuardedFile {
    /// Makes a file that must not exist yet.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        Self::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens a directory.
    fn open_dir(path: &Path) -> io::Result<Self> {
        Self::open(path.to_owned(), libc::O_RDONLY | libc::O_DIRECTORY)
    }

    fn open(path: PathBuf, flags: libc::c_int) -> io::Result<Self> {
        let fd = open(&path, flags)?;
        let identity = identity(fd)?;
        if flags & libc::O_CREAT != 0 {
            // As for directories: it may have to be opened again.
            // SAFETY: the descriptor was opened just above.
            unsafe { libc::fchmod(fd, FILE_MODE) };
        }
        let flags = flags & !(libc::O_CREAT | libc::O_EXCL);
        Ok(GuardedFile { path, flags, fd: AtomicI32::new(fd), identity })
    }

    /// Where the file lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor that refers to this file at the moment of the check.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        // Relaxed: the number carries no data; what it refers to is checked with the kernel.
        let fd = self.fd.load(Ordering::Relaxed);
        if identity(fd).is_ok_and(|found| found == self.identity) {
            return Ok(fd);
        }
        let reopened = match self.flags & libc::O_DIRECTORY {
            0 => open(&self.path, self.flags)?,
            // The root, which others are followed from.
            _ => open_at(libc::AT_FDCWD, &c_path(&self.path)?, self.flags)?,
        };
        if identity(reopened)? != self.identity {
            // SAFETY: the descriptor was opened just above and is not used elsewhere.
            unsafe { libc::close(reopened) };
            return Err(io::Error::other("another file has taken its place"));
        }
        // The old number now belongs to the program; it is forgotten, not closed.
        self.fd.store(reopened, Ordering::Relaxed);
        Ok(reopened)
    }

    /// Writes all of `bytes` at an offset.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.write_memory_at(bytes.as_ptr(), bytes.len(), offset_bytes)
    }

    /// As [`Self::write_all_at`], of memory that may not be readable, or may change meanwhile: the kernel reads it.
    ///
    /// # Errors
    /// `EFAULT` where the memory cannot be read; a part of it may have been written then.
    pub(crate) fn write_memory_at(&self, mut from: *const u8, mut len: usize, mut offset_bytes: u64) -> io::Result<()> {
        let fd = self.fd()?;
        quietly(|| {
            while len > 0 {
                // SAFETY: `pwrite` only reads the memory, and answers with an error where it cannot.
                let written = unsafe { libc::pwrite(fd, from.cast(), len, offset_bytes as i64) };
                match usize::try_from(written) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        from = from.wrapping_add(written);
                        len -= written;
                        offset_bytes += written as u64;
                    }
                    Err(_) => {
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            return Err(error);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Reads as many bytes as `to` has room for at an offset.
    pub(crate) fn read_exact_at(&self, mut to: &mut [u8], mut offset_bytes: u64) -> io::Result<()> {
        let fd = self.fd()?;
        while !to.is_empty() {
            // SAFETY: `to` is a live slice of the length passed.
            let read = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), offset_bytes as i64) };
            match usize::try_from(read) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    to = &mut to[read..];
                    offset_bytes += read as u64;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Has room made on the disk behind the file's end, without changing its length.
    ///
    /// # Errors
    /// The file system cannot, or has no room; the file is as it was.
    pub(crate) fn preallocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let fd = self.fd()?;
        // SAFETY: the descriptor was just found to refer to this file; the call touches no memory of ours.
        let allocate =
            || unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset_bytes as i64, len_bytes as i64) };
        quietly(|| check(allocate()))
    }

    /// Sets the file's length.
    pub(crate) fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        let fd = self.fd()?;
        // SAFETY: the descriptor was just found to refer to this file; `ftruncate` touches no memory of ours.
        let truncate = || unsafe { libc::ftruncate(fd, len_bytes as i64) };
        quietly(|| check(truncate()))
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        let fd = *self.fd.get_mut();
        if identity(fd).is_ok_and(|found| found == self.identity) {
            // SAFETY: the descriptor refers to this file, which nothing else opened: it is ours to close.
            unsafe { libc::close(fd) };
        }
    }
}

/// Makes a directory that only its owner can enter.
///
/// # Errors
/// `AlreadyExists` where something stands there already.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let (from, path) = held::follow(path)?;
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::mkdirat(from, path.as_ptr(), DIR_MODE) })?;
    // A program's `umask` may take its owner's rights away too. Where that cannot be made good, what is made in it says so.
    // SAFETY: as above.
    unsafe { libc::fchmodat(from, path.as_ptr(), DIR_MODE, 0) };
    Ok(())
}

/// Makes a directory, and outside the archive those above it as far as they are missing; refuses a symbolic link in its own place.
pub(crate) fn ensure_dir(path: &Path) -> io::Result<()> {
    match create_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let (from, below) = held::follow(path)?;
            let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: `below` is NUL-terminated, and `status` is writable memory of the right type.
            check(unsafe { libc::fstatat(from, below.as_ptr(), status.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) })?;
            // SAFETY: `fstatat` succeeded and filled it.
            match unsafe { status.assume_init() }.st_mode & libc::S_IFMT {
                libc::S_IFDIR => Ok(()),
                libc::S_IFLNK => Err(io::Error::other("it is a symbolic link")),
                _ => Err(io::Error::other("it is not a directory")),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !held::is_below(path) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).ok_or(error)?;
            std::fs::DirBuilder::new().recursive(true).create(parent)?;
            create_dir(path)
        }
        Err(error) => Err(error),
    }
}

/// Takes a file away.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let (from, path) = held::follow(path)?;
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::unlinkat(from, path.as_ptr(), 0) })
}

fn rename(old: &Path, new: &Path) -> io::Result<()> {
    let ((old_from, old), (new_from, new)) = (held::follow(old)?, held::follow(new)?);
    // SAFETY: both paths are NUL-terminated.
    check(unsafe { libc::renameat(old_from, old.as_ptr(), new_from, new.as_ptr()) })
}

/// Reads all of a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = GuardedFile::open(path.to_owned(), libc::O_RDONLY)?;
    let mut bytes = Vec::new();
    const STEP_BYTES: usize = 64 << 10;
    loop {
        let done = bytes.len();
        bytes.resize(done + STEP_BYTES, 0);
        // SAFETY: the room behind what was read is that long.
        let read = unsafe { libc::pread(file.fd()?, bytes[done..].as_mut_ptr().cast(), STEP_BYTES, done as i64) };
        match usize::try_from(read) {
            Ok(read) => {
                bytes.truncate(done + read);
                if read == 0 {
                    return Ok(bytes);
                }
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
                bytes.truncate(done);
            }
        }
    }
}

/// Names in a directory.
pub(crate) fn list(path: &Path) -> io::Result<Vec<OsString>> {
    let fd = open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
    // SAFETY: the descriptor was opened just above; the stream owns it from here on.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: the stream did not take it.
        unsafe { libc::close(fd) };
        return Err(error);
    }
    let mut names = Vec::new();
    // SAFETY: the stream is this function's own; an entry is valid until the next one is asked for, and its name is NUL-terminated.
    unsafe {
        while let Some(entry) = libc::readdir(stream).as_ref() {
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        libc::closedir(stream);
    }
    Ok(names)
}

/// A lock on a directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct DirLock {
    fd: RawFd,
}

/// Locks a directory against other processes that lock it, as far as its file system can; gives up after a while, since a
/// holder may have been stopped.
pub(crate) fn lock_dir(path: &Path) -> Option<DirLock> {
    const TRIES: u32 = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    let lock = DirLock { fd: open(path, libc::O_RDONLY | libc::O_DIRECTORY).ok()? };
    for _ in 0..TRIES {
        // SAFETY: the descriptor was opened above and is this value's own.
        match check(unsafe { libc::flock(lock.fd, libc::LOCK_EX | libc::LOCK_NB) }) {
            Ok(()) => return Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    None
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened for this value; closing it gives the lock back.
        unsafe { libc::close(self.fd) };
    }
}

/// Replaces a file's contents: writes a private temporary file beside it and renames. Returns the file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<GuardedFile> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // The process id keeps apart the temporary files of processes that write one root manifest.
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    // One left by an earlier process that died with this id.
    let _ = remove(&temporary);
    let written = GuardedFile::create(temporary.clone()).and_then(|mut file| {
        file.write_all_at(bytes, 0)?;
        rename(&temporary, path)?;
        path.clone_into(&mut file.path);
        Ok(file)
    });
    if written.is_err() {
        // What could not be finished goes as far as it can; the error that matters is the first one.
        let _ = remove(&temporary);
    }
    written
}

fn open(path: &Path, flags: libc::c_int) -> io::Result<RawFd> {
    let (from, path) = held::follow(path)?;
    open_at(from, &path, flags)
}

fn open_at(from: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<RawFd> {
    // SAFETY: `path` is NUL-terminated, and the mode is given as `O_CREAT` demands.
    let fd = unsafe { libc::openat(from, path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOFOLLOW, FILE_MODE) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(out_of_the_way(fd)) }
}

/// Moves a descriptor from the number that the program would get next to one of the highest that it may have; where there is none, it
/// stays.
fn out_of_the_way(fd: RawFd) -> RawFd {
    /// Descriptors up to here cost a table that is no larger than a few pages.
    const HIGHEST: libc::rlim_t = 4096;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable memory of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return fd;
    }
    let lowest = limit.rlim_cur.min(HIGHEST) / 4 * 3;
    // SAFETY: the descriptor is the caller's own, which it gives up for the one that is returned.
    unsafe {
        let moved = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as libc::c_int);
        if moved < 0 {
            return fd;
        }
        libc::close(fd);
        moved
    }
}

fn identity(fd: RawFd) -> io::Result<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable memory of the right type.
    check(unsafe { libc::fstat(fd, status.as_mut_ptr()) })?;
    // SAFETY: `fstat` succeeded and filled it.
    let status = unsafe { status.assume_init() };
    Ok((status.st_dev, status.st_ino))
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::other("a path holds a NUL byte"))
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn files_and_directories_are_private() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        ensure_dir(&dir).unwrap();
        ensure_dir(&dir).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let file = GuardedFile::create(dir.join("f")).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        assert!(GuardedFile::create(dir.join("f")).is_err());
    }

    #[test]
    fn a_mask_that_takes_the_owners_rights_leaves_them() {
        let root = tempfile::tempdir().unwrap();
        // SAFETY: changes the mask of this process, which runs this test alone or with others that make private files too.
        let before = unsafe { libc::umask(0o777) };
        create_dir(&root.path().join("d")).unwrap();
        let file = GuardedFile::create(root.path().join("d/f")).unwrap();
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        assert_eq!(std::fs::metadata(root.path().join("d")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn symbolic_links_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        assert!(ensure_dir(&link).is_err());
        assert!(GuardedFile::create(link).is_err());
    }

    #[test]
    fn a_descriptor_the_program_took_over_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = GuardedFile::create(root.path().join("ours")).unwrap();
        let fd = file.fd().unwrap();
        let theirs = std::fs::File::create(root.path().join("theirs")).unwrap();
        // What a program does that closes every descriptor and opens its own files again.
        // SAFETY: both descriptors are open; `ours` is meant to lose its number.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&theirs), fd) };
        file.write_all_at(b"record", 0).unwrap();
        file.truncate(3).unwrap();
        assert_eq!(std::fs::read(root.path().join("ours")).unwrap(), b"rec");
        assert_eq!(std::fs::read(root.path().join("theirs")).unwrap(), b"");
        // SAFETY: the number is a duplicate of `theirs` made above.
        unsafe { libc::close(fd) };
    }

    #[test]
    fn replacing_leaves_no_temporary_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("m");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }
}

//! What can be told of a program from its file: why a recorder may not get into it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What keeps a recorder out of a program, or may do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The program starts others somewhere else: in a container, on another machine, or through a service.
    Elsewhere {
        /// How the recorder is put where the program runs.
        remedy: &'static str,
    },
    /// The loader ignores LD_PRELOAD for programs that run with more rights than their caller.
    Privileged {
        /// By what it has these rights.
        by: &'static str,
    },
    /// Its loader is of another C library than the recorder's, which it cannot load: it would refuse to start the program.
    OtherLoader {
        /// The loader.
        path: PathBuf,
    },
    /// There is no loader that could preload anything.
    Static {
        /// Whether the file holds HIP device code.
        with_hip: bool,
    },
    /// The program is of another architecture.
    Foreign,
}

/// Programs that start others out of the environment's reach, and what to write instead.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "docker",
        "put hrr-capture behind the image's name: docker run --device=/dev/kfd --device=/dev/dri -v DIR:DIR IMAGE hrr-capture -o DIR/run.hrr -- PROGRAM",
    ),
    (
        "podman",
        "put hrr-capture behind the image's name: podman run --device=/dev/kfd --device=/dev/dri -v DIR:DIR IMAGE hrr-capture -o DIR/run.hrr -- PROGRAM",
    ),
    (
        "apptainer",
        "put hrr-capture inside: apptainer exec --rocm --bind DIR IMAGE hrr-capture -o DIR/run.hrr -- PROGRAM",
    ),
    (
        "singularity",
        "put hrr-capture inside: singularity exec --rocm --bind DIR IMAGE hrr-capture -o DIR/run.hrr -- PROGRAM",
    ),
    ("kubectl", "put hrr-capture into the command that runs in the pod"),
    ("ssh", "put hrr-capture into the command for the other machine: ssh HOST hrr-capture -o run.hrr -- PROGRAM"),
    ("sudo", "put hrr-capture behind it: sudo hrr-capture -o run.hrr -- PROGRAM"),
    ("su", "put hrr-capture into the command that it runs"),
    ("systemd-run", "put hrr-capture behind it: systemd-run hrr-capture -o run.hrr -- PROGRAM"),
    ("srun", "put hrr-capture behind it: srun -n N hrr-capture -o run.hrr -- PROGRAM"),
    ("sbatch", "put hrr-capture into the batch script, before the program"),
    ("mpirun", "put hrr-capture behind it: mpirun -n N hrr-capture -o run.hrr -- PROGRAM"),
    ("mpiexec", "put hrr-capture behind it: mpiexec -n N hrr-capture -o run.hrr -- PROGRAM"),
    ("flux", "put hrr-capture behind it: flux run -n N hrr-capture -o run.hrr -- PROGRAM"),
];

/// What the file of a program says.
#[derive(Debug)]
pub(crate) struct Program {
    /// The interpreter of a script.
    pub(crate) interpreter: Option<PathBuf>,
    /// What keeps a recorder out of it.
    pub(crate) obstacle: Option<Obstacle>,
}

impl Program {
    /// Looks at the program that a name stands for.
    pub(crate) fn of(name: &OsStr) -> Option<Self> {
        let path = find(name, std::env::var_os("PATH"))?;
        let interpreter = interpreter(&path);
        let base = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let elsewhere = ELSEWHERE.iter().find(|(program, _)| *program == base);
        let obstacle = match elsewhere {
            Some((_, remedy)) => Some(Obstacle::Elsewhere { remedy }),
            None => obstacle(interpreter.as_deref().unwrap_or(&path)),
        };
        Some(Program { interpreter, obstacle })
    }
}

/// The file of a program, as `execvp` finds it.
fn find(name: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = path?;
    let runnable = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(runnable)
}

/// The interpreter in a script's first line.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = words.next()?;
    if first.ends_with(b"/env") {
        let name = words.find(|word| !word.starts_with(b"-"))?;
        return find(OsStr::from_bytes(name), std::env::var_os("PATH"));
    }
    Some(OsString::from_vec(first.to_vec()).into())
}

fn obstacle(path: &Path) -> Option<Obstacle> {
    const SET_ID: u32 = 0o6000;
    let found = fs::metadata(path).ok()?;
    // SAFETY: the calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let other_user = found.mode() & 0o4000 != 0 && found.uid() != user;
    let other_group = found.mode() & 0o2000 != 0 && found.gid() != group;
    if found.mode() & SET_ID != 0 && (other_user || other_group) {
        return Some(Obstacle::Privileged { by: "the set-user-ID or set-group-ID bit of its file" });
    }
    if user != 0 && has_capabilities(path) {
        return Some(Obstacle::Privileged { by: "the capabilities of its file" });
    }
    let file = fs::File::open(path).ok()?;
    // SAFETY: the mapping is read only; a file that shrinks meanwhile is a program that is being replaced under the user.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    elf_obstacle(&bytes)
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings are NUL-terminated; without a buffer only the size is asked for.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// What an ELF file says: only dynamically linked programs of this architecture and C library have a loader that preloads a recorder.
fn elf_obstacle(bytes: &[u8]) -> Option<Obstacle> {
    const EM_X86_64: u16 = 62;
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    if bytes.get(4) != Some(&2) || u16_at(bytes, 18)? != EM_X86_64 {
        return Some(Obstacle::Foreign);
    }
    if let Some(loader) = loader(bytes)? {
        // The GNU C library's, wherever it lies.
        let known = loader.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(b"ld-linux"));
        let path = || OsStr::from_bytes(loader).into();
        return (!known && !loader.is_empty()).then(|| Obstacle::OtherLoader { path: path() });
    }
    const HIP: [&[u8]; 2] = [b".hip_fatbin", b"__hipRegisterFatBinary"];
    let with_hip = HIP.iter().any(|name| bytes.windows(name.len()).any(|window| window == *name));
    Some(Obstacle::Static { with_hip })
}

/// The loader that a 64-bit ELF file asks for, empty where its name cannot be read; `Some(None)` where it asks for none, `None` where the
/// file is cut short.
fn loader(bytes: &[u8]) -> Option<Option<&[u8]>> {
    const PT_INTERP: u32 = 3;
    const HEADER_BYTES: usize = 56;
    let (offset, size, count) = (u64_at(bytes, 32)?, usize::from(u16_at(bytes, 54)?), usize::from(u16_at(bytes, 56)?));
    if size < HEADER_BYTES {
        return None;
    }
    let offset = usize::try_from(offset).ok()?;
    let header = |index: usize| size.checked_mul(index).and_then(|at| at.checked_add(offset));
    let asks = |at: &usize| u32_at(bytes, *at) == Some(PT_INTERP);
    let Some(at) = (0..count).filter_map(header).find(asks) else { return Some(None) };
    let name = || {
        let start = usize::try_from(u64_at(bytes, at.checked_add(8)?)?).ok()?;
        let len = usize::try_from(u64_at(bytes, at.checked_add(32)?)?).ok()?;
        bytes.get(start..start.checked_add(len)?)?.split(|&byte| byte == 0).next()
    };
    Some(Some(name().unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("s");
        fs::write(&script, "#!/bin/sh -e\nexit 3\n").unwrap();
        assert_eq!(interpreter(&script), Some("/bin/sh".into()));
        fs::write(&script, "#! /usr/bin/env -S sh -e\n").unwrap();
        assert!(interpreter(&script).unwrap().ends_with("sh"));
        fs::write(&script, "echo\n").unwrap();
        assert_eq!(interpreter(&script), None);
    }

    #[test]
    fn a_dynamically_linked_program_is_no_obstacle_and_a_cut_one_no_panic() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(elf_obstacle(&own), None);
        for cut in 0..4096 {
            let _ = elf_obstacle(&own[..cut]);
        }
        let mut foreign = own[..64].to_vec();
        foreign[18] = 183;
        assert_eq!(elf_obstacle(&foreign), Some(Obstacle::Foreign));
        let mut bare = own[..64].to_vec();
        bare[56] = 0;
        bare[57] = 0;
        assert_eq!(elf_obstacle(&bare), Some(Obstacle::Static { with_hip: false }));
        let mut other = own.clone();
        let at = own.windows(9).position(|window| window == b"/ld-linux").unwrap();
        other[at..at + 9].copy_from_slice(b"/ld-musl-");
        assert!(
            matches!(elf_obstacle(&other), Some(Obstacle::OtherLoader { path }) if path.to_string_lossy().contains("ld-musl-"))
        );
        bare.extend_from_slice(b"..hip_fatbin\0");
        assert_eq!(elf_obstacle(&bare), Some(Obstacle::Static { with_hip: true }));
    }
}

//! The environment that puts the recorder into a program.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::program::{Obstacle, Program};
use crate::settings::{self, Settings};

/// File name of the recorder.
const LIBRARY: &str = "libhrr_capture.so";
/// By it a runtime with dispatch tables finds the recorder.
const REGISTER: &str = "ROCPROFILER_REGISTER_LIBRARY";
/// Where the recorder lies, seen from the directory of this program: installed, or in a build tree.
const PLACES: [&str; 4] = ["../lib", "../lib64", ".", "../../lib"];

/// Why the recorder cannot be put into a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterceptionError {
    /// The library is not where it should be.
    #[error("{LIBRARY} is in none of {places}; give its path with --library")]
    LibraryMissing {
        /// Where it was looked for.
        places: String,
    },
    /// The library that was named is not there.
    #[error("--library {}: {reason}; give the path of {LIBRARY}", path.display())]
    LibraryUnreadable {
        /// What was named.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The loader takes neither spaces nor colons in LD_PRELOAD.
    #[error("{}: the loader cannot preload a library whose path has a space or a colon in it; link or copy it elsewhere", path.display())]
    LibraryPath {
        /// The library.
        path: PathBuf,
    },
    /// The recorder would not begin, or would use something else than what was asked for.
    #[error("{0}")]
    Setting(String),
    /// Something in the output's name looks like a pattern and is none.
    #[error(
        "--output: {0}; there are %pid%, %hostname%, %rank% and %env{{NAME}}%, and a name without % is taken as it is"
    )]
    OutputPattern(String),
    /// The output is there and no directory.
    #[error("--output {}: something else than a directory is there; give -o another name", path.display())]
    OutputNoDirectory {
        /// The output.
        path: PathBuf,
    },
    /// The program would run to its end unrecorded.
    #[error("--output {}: nothing can be made in {}: {reason}; give -o a place where you may write", path.display(), folder.display())]
    OutputUnwritable {
        /// The output.
        path: PathBuf,
        /// As much of its path as there is.
        folder: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The output has no name.
    #[error("--output: the directory's name is empty; give -o DIR, or leave it out")]
    OutputEmpty,
}

/// What to set in the environment of a program.
#[derive(Debug)]
pub(crate) struct Interception {
    variables: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

impl Interception {
    /// Finds the recorder and puts the environment together from the caller's own.
    pub(crate) fn new(
        library: Option<&Path>,
        output: &OsStr,
        content: bool,
        part: &[(&'static str, Option<OsString>)],
        journal: Option<&Path>,
    ) -> Result<Self, InterceptionError> {
        if output.to_string_lossy().trim().is_empty() {
            return Err(InterceptionError::OutputEmpty);
        }
        let library = match library {
            Some(path) => {
                let unreadable = |reason| InterceptionError::LibraryUnreadable { path: path.to_owned(), reason };
                let found = std::fs::canonicalize(path).map_err(unreadable)?;
                // The loader would pass over anything else, and the program run unrecorded.
                if !is_elf(&found).map_err(unreadable)? {
                    return Err(unreadable(std::io::Error::other("it is no shared library")));
                }
                found
            }
            None => find_library()?,
        };
        if library.to_string_lossy().contains([' ', ':', '\t', '\n']) {
            return Err(InterceptionError::LibraryPath { path: library });
        }
        // What a pattern stands for is known in the program only.
        if !output.as_bytes().contains(&b'%') && Path::new(output).metadata().is_ok_and(|there| !there.is_dir()) {
            return Err(InterceptionError::OutputNoDirectory { path: output.into() });
        }
        let output = std::path::absolute(output).map_or_else(|_| output.to_owned(), PathBuf::into_os_string);
        let mut variables =
            vec![("LD_PRELOAD", preload(&library, std::env::var_os("LD_PRELOAD"))), ("HIP_HRR_CAPTURE_OUTPUT", output)];
        let mut removed = Vec::new();
        // Runtimes that offer dispatch tables find the recorder by its preloading; the variable makes sure of it where a
        // program takes LD_PRELOAD out of the environment of what it starts. Another consumer that the user named stays.
        if std::env::var_os(REGISTER).is_none_or(|value| value.is_empty()) {
            variables.push((REGISTER, library.into_os_string()));
        }
        match content {
            true => variables.push(("HIP_HRR_CAPTURE_CONTENT", "1".into())),
            false => removed.push("HIP_HRR_CAPTURE_CONTENT"),
        }
        for (name, value) in part {
            match value {
                Some(value) => variables.push((*name, value.clone())),
                None => removed.push(*name),
            }
        }
        if let Some(journal) = journal {
            variables.push(("HIP_HRR_CAPTURE_JOURNAL", journal.as_os_str().to_owned()));
        }
        let interception = Interception { variables, removed };
        interception.check()?;
        Ok(interception)
    }

    /// Refuses a name of the archive with a pattern that would stay in it as it is.
    pub(crate) fn check_pattern(output: &OsStr) -> Result<(), InterceptionError> {
        settings::unknown_pattern(output.as_bytes()).map_or(Ok(()), |what| Err(InterceptionError::OutputPattern(what)))
    }

    /// Refuses a directory that could not be made, before a program runs for hours without being recorded.
    pub(crate) fn check_writable(output: &OsStr) -> Result<(), InterceptionError> {
        if output.as_bytes().contains(&b'%') {
            return Ok(());
        }
        let path = std::path::absolute(output).unwrap_or_else(|_| output.into());
        let unwritable = |folder: &Path, reason| {
            Err(InterceptionError::OutputUnwritable { path: output.into(), folder: folder.to_owned(), reason })
        };
        // What is missing of the path, the recorder makes.
        match path.ancestors().find_map(|folder| Some((folder, folder.metadata().ok()?))) {
            Some((folder, there)) if !there.is_dir() => unwritable(folder, std::io::ErrorKind::NotADirectory.into()),
            Some((folder, _)) => may_make_in(folder).or_else(|reason| unwritable(folder, reason)),
            None => Ok(()),
        }
    }

    /// Reads the settings as the recorder will, while whoever gave them can still be told.
    fn check(&self) -> Result<(), InterceptionError> {
        let lookup = |name: &str| {
            let set = self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
            let inherited = || std::env::var_os(name).filter(|_| !self.removed.contains(&name));
            set.or_else(inherited).map(|value| value.to_string_lossy().into_owned())
        };
        let settings = Settings::read(&lookup).map_err(InterceptionError::Setting)?;
        settings.doubts.into_iter().next().map_or(Ok(()), |doubt| Err(InterceptionError::Setting(doubt.what)))
    }

    /// Fits the environment to what a program's file says of it.
    pub(crate) fn fit(&mut self, program: Option<&Program>) {
        if let Some(Program { obstacle: Some(Obstacle::OtherLoader { .. }), .. }) = program {
            // Its loader would fail on the recorder, and the program with it.
            self.variables.retain(|(name, _)| *name != "LD_PRELOAD" && *name != REGISTER);
        }
    }

    /// The variables to set.
    pub(crate) fn variables(&self) -> &[(&'static str, OsString)] {
        &self.variables
    }

    /// Sets the variables for a command.
    pub(crate) fn apply(&self, command: &mut std::process::Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

/// Whether the system lets this process make something in a folder.
fn may_make_in(folder: &Path) -> std::io::Result<()> {
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that ends with a zero, and outlives the call.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether a file begins as programs and shared libraries do.
fn is_elf(path: &Path) -> std::io::Result<bool> {
    let mut first = Vec::new();
    std::fs::File::open(path)?.take(4).read_to_end(&mut first)?;
    Ok(first == b"\x7fELF")
}

/// The recorder first, then what the user preloads.
fn preload(library: &Path, users: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(users) = users.filter(|users| !users.is_empty()) {
        list.push(":");
        list.push(users);
    }
    list
}

fn find_library() -> Result<PathBuf, InterceptionError> {
    let own = std::env::current_exe().unwrap_or_default();
    let dir = own.parent().unwrap_or(Path::new(""));
    let rocm = std::env::var_os("ROCM_PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| "/opt/rocm".into());
    let places: Vec<PathBuf> =
        PLACES.iter().map(|place| dir.join(place)).chain([Path::new(&rocm).join("lib")]).collect();
    let found = places.iter().find_map(|place| std::fs::canonicalize(place.join(LIBRARY)).ok());
    found.ok_or_else(|| InterceptionError::LibraryMissing {
        places: places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_preloads_is_kept_behind_the_recorder() {
        let library = Path::new("/lib/x.so");
        assert_eq!(preload(library, None), "/lib/x.so");
        assert_eq!(preload(library, Some("".into())), "/lib/x.so");
        assert_eq!(preload(library, Some("a.so:b.so".into())), "/lib/x.so:a.so:b.so");
    }
}

//! What capture tells `hrr-capture`, which started the program: a line per thing that happened, in the file that
//! `HIP_HRR_CAPTURE_JOURNAL` names. From these lines the launcher says at the end what was recorded, or why nothing was.
//!
//! Every line is one `write(2)` to a file opened for appending, so that lines of several processes do not mix. Where the
//! file cannot be opened (another root directory, lost rights) the launcher learns nothing and says so.
//!
//! | line | meaning |
//! |---|---|
//! | `loaded PID EXECUTABLE` | the library was loaded into a process |
//! | `recording PID DIRECTORY` | the first HIP call of a process is about to be recorded there |
//! | `refused PID REASON` | recording was asked for and cannot begin |
//! | `stopped PID REASON` | recording ended before the process |
//! | `idle PID LIBRARIES` | a process ended without a HIP call; these GPU libraries were loaded into it |

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::guest::quiet_write::quietly;
use crate::guest::unnoticed::Unnoticed;

const VARIABLE: &CStr = c"HIP_HRR_CAPTURE_JOURNAL";

/// Says that the library was loaded into this process.
pub(crate) fn loaded() {
    let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    line(format_args!("loaded {} {}", std::process::id(), executable.display()));
}

/// Says where this process is recorded.
pub(crate) fn recording(dir: &std::path::Path) {
    line(format_args!("recording {} {}", std::process::id(), dir.display()));
}

/// Says why this process is not recorded.
pub(crate) fn refused(reason: fmt::Arguments<'_>) {
    line(format_args!("refused {} {reason}", std::process::id()));
}

/// Says why this process is recorded no more.
pub(crate) fn stopped(reason: fmt::Arguments<'_>) {
    line(format_args!("stopped {} {reason}", std::process::id()));
}

/// Says that this process made no HIP call.
pub(crate) fn idle() {
    if crate::config::variable(VARIABLE).is_some() {
        line(format_args!("idle {} {}", std::process::id(), gpu_libraries().join(" ")));
    }
}

fn line(message: fmt::Arguments<'_>) {
    let _unnoticed = Unnoticed::new();
    let Some(path) = crate::config::variable(VARIABLE) else { return };
    let Ok(path) = std::ffi::CString::new(path.as_bytes()) else { return };
    // SAFETY: `path` is NUL-terminated. The file is the launcher's: it is never made here, nor followed to elsewhere.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOFOLLOW) };
    if fd < 0 {
        return;
    }
    let mut text = message.to_string().replace('\n', " ");
    text.push('\n');
    let write = || {
        // SAFETY: the text is readable for its length, and the descriptor was opened just above.
        let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        if written < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // The launcher then says what it can see by itself.
    let _ = quietly(write);
    // SAFETY: as above.
    unsafe { libc::close(fd) };
}

/// Files of the GPU runtimes in this process.
fn gpu_libraries() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // SAFETY: the callback matches the prototype, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    /// What the file names of GPU runtimes begin with.
    const NAMES: [&str; 5] = ["libamdhip64", "libcuda.so", "libcudart", "libhsa-runtime64", "libOpenCL"];
    // SAFETY: the loader passes a valid object description, and `gpu_libraries` its own list.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<String>>()) };
    if !info.dlpi_name.is_null() {
        // SAFETY: the loader's names are NUL-terminated.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or_default();
        if NAMES.iter().any(|name| file.starts_with(name)) {
            found.push(path.into_owned());
        }
    }
    0
}

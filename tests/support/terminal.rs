//! A program whose standard error is a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::process::{End, end_of};

/// Runs `command` with a terminal for its standard error; what it wrote there. At most for `limit`; then it is killed.
///
/// # Panics
/// There is no terminal to be had, or the command cannot be started.
pub fn run_on_terminal(command: &mut Command, limit: Duration) -> (End, String) {
    let (main, other) = open();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(other));
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    // The command holds the other side; ours would keep the terminal open behind its end.
    command.stderr(Stdio::null());
    let reader = thread::spawn(move || {
        let (mut main, mut bytes) = (File::from(main), Vec::new());
        // Linux answers with an error when the last other side is closed.
        let _ = main.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let begun = std::time::Instant::now();
    let end = loop {
        match child.try_wait().unwrap_or_else(|error| panic!("cannot wait for {command:?}: {error}")) {
            Some(status) => break end_of(status),
            None if begun.elapsed() < limit => thread::sleep(Duration::from_millis(5)),
            None => {
                // Both fail only where it has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                break End::TimedOut;
            }
        }
    };
    (end, reader.join().expect("the reader does not panic"))
}

/// Both sides of a new terminal of 120 columns.
fn open() -> (OwnedFd, OwnedFd) {
    let (mut main, mut other) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: two descriptors are written, the size is read, and the rest may be null.
    let code = unsafe { libc::openpty(&mut main, &mut other, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(code, 0, "a terminal: {}", std::io::Error::last_os_error());
    // SAFETY: both are new and owned by nobody else.
    let sides = unsafe { (OwnedFd::from_raw_fd(main), OwnedFd::from_raw_fd(other)) };
    // SAFETY: the descriptor is open; no child is to inherit our side.
    unsafe { libc::fcntl(sides.0.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    sides
}

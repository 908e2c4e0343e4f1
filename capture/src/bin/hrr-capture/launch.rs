//! Starting the program, passing signals on, and its exit status.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::interception::Interception;

/// How the program ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It ran.
    Status(ExitStatus),
    /// It could not be started.
    NotStarted {
        /// The system's reason.
        reason: std::io::Error,
    },
}

impl Ended {
    /// The exit code that stands for it.
    pub(crate) fn exit_code(&self) -> u8 {
        /// As shells have it.
        const BY_SIGNAL: i32 = 128;
        const NOT_FOUND: u8 = 127;
        const NOT_RUNNABLE: u8 = 126;
        match self {
            Ended::Status(status) => {
                let code = status.code().unwrap_or_else(|| BY_SIGNAL + status.signal().unwrap_or(0));
                u8::try_from(code).unwrap_or(u8::MAX)
            }
            Ended::NotStarted { reason } if reason.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            Ended::NotStarted { .. } => NOT_RUNNABLE,
        }
    }
}

/// The program's process id, for the signal handler; zero while there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Signals that somebody sends to this process and means for the program.
const PASSED_ON: [libc::c_int; 5] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT];
/// Signals that the terminal sends to both.
const LEFT_TO_PROGRAM: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// What this process was started with, and the standard library changes before `main`: it ignores SIGPIPE, and opens `/dev/null` in the
/// place of a standard stream that is closed.
static BROKEN_PIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Runs before `main` and what comes before that.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = {
    extern "C" fn remember() {
        for (fd, closed) in (0..).zip(&CLOSED) {
            // SAFETY: asks for the flags of a descriptor.
            closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0, Ordering::Relaxed);
        }
        // SAFETY: the structure is writable and of the right type, and zero is a valid value of it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action);
            BROKEN_PIPE.store(action.sa_sigaction, Ordering::Relaxed);
        }
    }
    remember
};

/// Runs the program to its end.
pub(crate) fn run(program: &OsStr, arguments: &[OsString], interception: &Interception) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments);
    interception.apply(&mut command);
    let mut before = Vec::new();
    for signal in PASSED_ON {
        before.push((signal, set_handler(signal, pass_on as *const () as libc::sighandler_t)));
    }
    for signal in LEFT_TO_PROGRAM {
        before.push((signal, set_handler(signal, libc::SIG_IGN)));
    }
    // A signal that comes before the program has a number waits until it has one.
    let mask = block(&PASSED_ON);
    before.push((libc::SIGPIPE, BROKEN_PIPE.load(Ordering::Relaxed)));
    let own = std::process::id();
    // SAFETY: between fork and exec only `sigaction`, `pthread_sigmask`, `close`, `prctl`, `getppid` and `raise` are called, which are
    // safe there. The program gets the dispositions, the mask and the standard streams that this process was started with.
    unsafe {
        command.pre_exec(move || {
            for &(signal, handler) in &before {
                set_handler(signal, handler);
            }
            set_mask(&mask);
            // Who kills this process means the program, and this signal cannot be passed on.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != own as libc::pid_t {
                libc::raise(libc::SIGKILL);
            }
            for (fd, closed) in (0..).zip(&CLOSED) {
                if closed.load(Ordering::Relaxed) {
                    libc::close(fd);
                }
            }
            Ok(())
        });
    }
    let spawned = command.spawn();
    if let Ok(child) = &spawned {
        // Relaxed: the handler only needs the number, and runs on this thread.
        CHILD.store(i32::try_from(child.id()).unwrap_or(0), Ordering::Relaxed);
    }
    set_mask(&mask);
    let mut child = match spawned {
        Ok(child) => child,
        Err(reason) => return Ended::NotStarted { reason },
    };
    loop {
        match child.wait() {
            Ok(status) => {
                CHILD.store(0, Ordering::Relaxed);
                return Ended::Status(status);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(reason) => return Ended::NotStarted { reason },
        }
    }
}

/// Blocks signals, and returns the mask from before.
fn block(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the sets are writable and zero is a valid value of them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        before
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set was filled by `block`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Sets what a signal does, and returns what it did.
fn set_handler(signal: libc::c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: both structures are of the right type, and zero is a valid value of them; the handler only makes calls that are
    // safe in handlers.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, &mut before);
        before.sa_sigaction
    }
}

extern "C" fn pass_on(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: the process is this one's child and has not been waited for yet.
        unsafe { libc::kill(child, signal) };
    }
}

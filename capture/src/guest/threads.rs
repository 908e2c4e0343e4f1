//! Starting threads of our own inside somebody else's program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of ours, which takes no signals.
pub(crate) fn is_own() -> bool {
    OWN.with(Cell::get)
}

/// Which CPUs a thread may run on, and how it competes for them.
#[derive(Clone, Copy)]
struct Place {
    cpus: libc::cpu_set_t,
    /// Policy and real-time priority; `None` where they cannot be read.
    policy: Option<(libc::c_int, libc::c_int)>,
}

/// What the process was started with.
static START: OnceLock<Place> = OnceLock::new();

impl Place {
    /// The calling thread's; `None` where it cannot be known.
    fn here() -> Option<Self> {
        // SAFETY: zero is a valid value of the set, which is writable for the length passed.
        let cpus = unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut cpus) == 0).then_some(cpus)?
        };
        Some(Place { cpus, policy: policy_here() })
    }
}

/// Policy and priority of the calling thread, read from a file: a program may have filtered the system call that asks for them.
fn policy_here() -> Option<(libc::c_int, libc::c_int)> {
    /// Behind the thread's name, which may hold anything but ends with the last parenthesis, in the order of `proc(5)`.
    const PRIORITY: usize = 37;
    let text = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let mut numbers = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(PRIORITY).map(str::parse);
    let priority = numbers.next()?.ok()?;
    Some((numbers.next()?.ok()?, priority))
}

/// Remembers which CPUs the process was given, and with what priority, before its own code changes that for a thread of its.
pub(crate) fn remember_start() {
    if let Some(place) = Place::here() {
        let _ = START.set(place);
    }
}

/// Gives the calling thread what the process was started with: one that the program has pinned to a CPU, or given a real-time
/// priority, hands both on to the threads it starts, and ours would take its time there. System calls are made where there is
/// something to change only, and a refusal changes nothing.
fn as_started() {
    let (Some(start), Some(here)) = (START.get(), Place::here()) else { return };
    // SAFETY: the set is readable for the length passed; the parameter is of the right type.
    unsafe {
        if !libc::CPU_EQUAL(&start.cpus, &here.cpus) {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &start.cpus);
        }
        if let (Some(start), Some(here)) = (start.policy, here.policy)
            && start != here
        {
            let parameter = libc::sched_param { sched_priority: start.1 };
            libc::sched_setscheduler(0, start.0, &parameter);
        }
    }
}

/// Stack of a thread in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Starts a detached thread that takes none of the program's signals; says whether it could be started.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread inherits the signal mask. With every signal blocked, the program's handlers never run on it, and
    // growing a file past a limit gives it an error, and a SIGXFSZ that ends with it.
    // SAFETY: both sets are writable; `sigfillset` fills the first one before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        OWN.with(|own| own.set(true));
        crate::recorder::never_record_this_thread();
        as_started();
        // A panic must not print the standard library's message into the program's output twice over; it ends this
        // thread, and those that need its work do it themselves.
        let _ = catch_unwind(AssertUnwindSafe(body));
    });
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly the recorder's threads shared the CPU, and the priority, of the thread that made the first call.
    #[test]
    fn what_the_program_gave_its_own_thread_is_not_handed_on() {
        let place_of_ours = || {
            let (say, said) = std::sync::mpsc::channel();
            assert!(spawn("test", move || say.send(Place::here().unwrap()).unwrap()));
            said.recv().unwrap()
        };
        let pinned = std::thread::spawn(move || {
            remember_start();
            let start = *START.get().unwrap();
            // SAFETY: the set is of the right type, and readable for the length passed.
            unsafe {
                let mut one: libc::cpu_set_t = std::mem::zeroed();
                let first = (0..1024).find(|&cpu| libc::CPU_ISSET(cpu, &start.cpus)).unwrap();
                libc::CPU_SET(first, &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one), 0);
            }
            // Not everybody may have a real-time priority; a thread's own batch policy anybody may.
            let policies = [(libc::SCHED_BATCH, 0), (libc::SCHED_FIFO, 3)];
            for (policy, sched_priority) in policies {
                let parameter = libc::sched_param { sched_priority };
                // SAFETY: the parameter is of the right type.
                let set = unsafe { libc::sched_setscheduler(0, policy, &parameter) } == 0;
                assert!(set || policy == libc::SCHED_FIFO);
                let (here, ours) = (Place::here().unwrap(), place_of_ours());
                assert!(!set || here.policy == Some((policy, sched_priority)));
                // SAFETY: both sets are of the right type.
                assert!(unsafe { libc::CPU_EQUAL(&ours.cpus, &start.cpus) });
                assert_eq!(ours.policy, start.policy);
            }
        });
        pinned.join().unwrap();
    }
}

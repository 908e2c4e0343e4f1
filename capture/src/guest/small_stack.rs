//! Running what needs much stack from a thread that may have little.
//!
//! A thread's first recorded call makes files, and a process's first one starts the recording: that takes tens of KiB of
//! stack in calls of the standard library, and reading a compressed code object takes as much. A program's thread may have
//! 16 KiB in all, or be on a signal handler's stack.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::process;

/// Stack that is lent, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Calls `body` on a stack of its own. A panic in it ends the recording, with a line that says what was `done` meanwhile.
pub(crate) fn with_own_stack_or_stop<T>(done: &str, body: impl FnOnce() -> Option<T>) -> Option<T> {
    with_own_stack(body).unwrap_or_else(|| {
        process::stop(format_args!("an internal error occurred while {done}"));
        None
    })
}

/// Calls `body` on a stack of its own. Where none can be had, on the caller's.
///
/// A panic in `body` gives `None`.
pub(crate) fn with_own_stack<T>(body: impl FnOnce() -> T) -> Option<T> {
    let mut result = None;
    let mut task = Some(|| result = catch_unwind(AssertUnwindSafe(body)).ok());
    let mut run = || {
        if let Some(task) = task.take() {
            task();
        }
    };
    let mut call: &mut dyn FnMut() = &mut run;
    let Some(stack) = Stack::new() else {
        enter((&raw mut call).cast());
        return result;
    };
    // SAFETY: the stack is writable and of this call alone; the callee gets the address of a trait object that outlives the
    // call, and does not unwind out of it, since the task catches what it runs into.
    unsafe { call_on(stack.top(), enter, (&raw mut call).cast()) };
    drop(stack);
    result
}

/// Never inlined: what `body` needs must not become the caller's own need.
#[inline(never)]
extern "C" fn enter(call: *mut libc::c_void) {
    // SAFETY: `with_own_stack` passes the address of such a reference.
    let call = unsafe { &mut **call.cast::<&mut dyn FnMut()>() };
    call();
}

/// Calls a function with another stack.
///
/// # Safety
/// `top` is the 16-byte aligned end of a writable stack that nothing else uses; the function does not unwind.
#[cfg(target_arch = "x86_64")]
unsafe fn call_on(top: *mut u8, function: extern "C" fn(*mut libc::c_void), argument: *mut libc::c_void) {
    // SAFETY: the stack pointer is kept in a register that the callee preserves, and put back; everything that a C function
    // may change is declared as changed.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {function}",
            "mov rsp, r12",
            top = in(reg) top,
            function = in(reg) function,
            in("rdi") argument,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

struct Stack {
    base: *mut u8,
}

impl Stack {
    fn new() -> Option<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then(|| Stack { base: base.cast() })
    }

    fn top(&self) -> *mut u8 {
        self.base.wrapping_add(STACK_BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody runs on it any more.
        unsafe { libc::munmap(self.base.cast(), STACK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_runs_on_another_stack_and_its_panic_is_caught() {
        let here = 0u8;
        let distance = with_own_stack(|| {
            let there = 0u8;
            (&raw const there as usize).abs_diff(&raw const here as usize)
        });
        assert!(distance.unwrap() > 4096);
        assert_eq!(with_own_stack(|| std::panic::resume_unwind(Box::new(1))), None::<()>);
        assert_eq!(with_own_stack(|| format!("{}", 3.5)).as_deref(), Some("3.5"));
    }
}

//! The threads of a block, on one OS thread.
//!
//! A fiber runs the block's threads one after the other, as plain calls. Only when a thread reaches a barrier
//! does it keep its fiber, suspended, and another fiber goes on with the threads not yet started; when all
//! are at the barrier (or done), they are resumed in turn. A kernel without barriers thus costs two context
//! switches per block, one with barriers a fiber per thread.

use crate::kernel::{CpuThread, KernelFn};
use std::arch::naked_asm;
use std::ffi::c_void;
use std::fmt;

/// Usable stack of a fiber in bytes.
const STACK_BYTES: usize = 128 << 10;
/// Unmapped bytes below it: an overflow faults instead of corrupting a neighbour.
const GUARD_BYTES: usize = 4096;
/// Fibers a queue thread keeps between launches.
const KEPT_FIBERS: usize = 1024;

/// Saves the callee-saved registers and the stack pointer to `*save`, and continues where `load` was saved.
///
/// # Safety
/// `load` is a stack pointer that this function saved, or one that [`Fiber::new`] prepared, and nothing else resumes it.
#[unsafe(naked)]
unsafe extern "C" fn switch(save: *mut *mut u8, load: *mut u8) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// First instruction of a fiber: `switch` has left the fiber's address in r12.
///
/// # Safety
/// Entered only through the stack [`Fiber::new`] lays out.
#[unsafe(naked)]
unsafe extern "C" fn start_fiber() {
    naked_asm!("mov rdi, r12", "call {main}", "ud2", main = sym fiber_main)
}

/// One stack and what runs on it.
struct Fiber {
    mapping: *mut c_void,
    stack_pointer: *mut u8,
    block: *mut Block,
    /// Whether it stopped at a barrier (and not because there were no threads left).
    at_barrier: bool,
}

impl Fiber {
    fn new() -> Option<*mut Fiber> {
        let len_bytes = STACK_BYTES + GUARD_BYTES;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the first page of the mapping just made. If the kernel has no room for another split mapping, the
        // stack works all the same, without its guard.
        unsafe { libc::mprotect(mapping, GUARD_BYTES, libc::PROT_NONE) };
        let fiber = Box::into_raw(Box::new(Fiber {
            mapping,
            stack_pointer: std::ptr::null_mut(),
            block: std::ptr::null_mut(),
            at_barrier: false,
        }));
        let top = (mapping as usize + len_bytes) as *mut usize;
        // What `switch` pops: r15 r14 r13 r12 rbx rbp, then the return address. After that the stack pointer is
        // `top - 16`, 16-byte aligned as the ABI wants it before the call in `start_fiber`.
        // SAFETY: nine words below the top of a stack of 128 KiB, and `fiber` was just allocated.
        unsafe {
            let frame = top.sub(9);
            frame.add(3).write(fiber as usize);
            frame.add(6).write(start_fiber as *const () as usize);
            (*fiber).stack_pointer = frame.cast();
        }
        Some(fiber)
    }

    /// # Safety
    /// `fiber` came from [`Fiber::new`], is not running and is not used again.
    unsafe fn free(fiber: *mut Fiber) {
        // SAFETY: by the caller's promise this is the only owner of the box, and nothing runs on its stack.
        unsafe {
            let fiber = Box::from_raw(fiber);
            libc::munmap(fiber.mapping, STACK_BYTES + GUARD_BYTES);
        }
    }
}

/// Body of every fiber: runs threads of the block it is given, then waits for the next block.
extern "C" fn fiber_main(fiber: *mut Fiber) -> ! {
    loop {
        // SAFETY: the scheduler set `block` before it switched here and keeps it alive until this fiber reports back;
        // scheduler and fibers share one OS thread and never run at the same time.
        unsafe {
            let block = (*fiber).block;
            run_threads(block);
            (*fiber).at_barrier = false;
            switch(&raw mut (*fiber).stack_pointer, (*block).scheduler);
        }
    }
}

/// Runs the threads of `block` that no fiber has started.
///
/// # Safety
/// As in [`fiber_main`].
unsafe fn run_threads(block: *mut Block) {
    // SAFETY: fields are read and written through the raw pointer, one access at a time: a kernel call may switch
    // away, and then other fibers change them.
    unsafe {
        while (*block).next_thread < (*block).thread_count {
            let number = (*block).next_thread;
            (*block).next_thread = number + 1;
            let mut thread = (*block).template;
            let [width, height, _] = thread.block_dim;
            thread.thread_idx = [number % width, number / width % height, number / (width * height)];
            ((*block).entry)((*block).kernarg, &raw const thread);
        }
    }
}

/// `hip_cpu_thread::sync_threads`: `__syncthreads()`.
///
/// # Safety
/// `thread` is what [`run_threads`] passed to the kernel that calls.
pub(crate) unsafe extern "C" fn sync_threads(thread: *const CpuThread) {
    // SAFETY: `runtime_private` is the block, which lives until all its threads are done; see `fiber_main`.
    unsafe {
        let block: *mut Block = (*thread).runtime_private.cast();
        if (*block).thread_count == 1 {
            return;
        }
        let fiber = (*block).current;
        (*fiber).at_barrier = true;
        switch(&raw mut (*fiber).stack_pointer, (*block).scheduler);
    }
}

/// One block of a launch while it runs.
pub(crate) struct Block {
    entry: KernelFn,
    kernarg: *const c_void,
    template: CpuThread,
    next_thread: u32,
    thread_count: u32,
    current: *mut Fiber,
    scheduler: *mut u8,
}

impl Block {
    /// A block of `entry`; `template` is what all its threads share.
    pub(crate) fn new(entry: KernelFn, kernarg: *const c_void, template: CpuThread) -> Self {
        let [x, y, z] = template.block_dim;
        Self {
            entry,
            kernarg,
            template,
            next_thread: 0,
            thread_count: x * y * z,
            current: std::ptr::null_mut(),
            scheduler: std::ptr::null_mut(),
        }
    }
}

/// The fibers of one queue thread.
#[derive(Default)]
pub(crate) struct FiberPool {
    idle: Vec<*mut Fiber>,
    waiting: Vec<*mut Fiber>,
    resuming: Vec<*mut Fiber>,
}

impl fmt::Debug for FiberPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiberPool").field("idle", &self.idle.len()).finish_non_exhaustive()
    }
}

impl Drop for FiberPool {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl FiberPool {
    /// Runs all threads of `block` to their end. False if there was no memory for a stack.
    pub(crate) fn run(&mut self, mut block: Block) -> bool {
        let block = &raw mut block;
        block_private(block);
        // SAFETY: `block` is a local that outlives the fibers' use of it; all fibers in the lists are alive and
        // suspended, each in exactly one list.
        unsafe {
            while has_unstarted(block) {
                let Some(fiber) = self.idle.pop().or_else(Fiber::new) else { return false };
                self.resume(fiber, block);
            }
            while !self.waiting.is_empty() {
                std::mem::swap(&mut self.waiting, &mut self.resuming);
                while let Some(fiber) = self.resuming.pop() {
                    self.resume(fiber, block);
                }
            }
        }
        true
    }

    /// # Safety
    /// `fiber` is alive, suspended and in none of the lists; `block` lives until it is done.
    unsafe fn resume(&mut self, fiber: *mut Fiber, block: *mut Block) {
        // SAFETY: by the caller's promise; the fiber comes back through `scheduler`, which `switch` saves here.
        unsafe {
            (*fiber).block = block;
            (*block).current = fiber;
            switch(&raw mut (*block).scheduler, (*fiber).stack_pointer);
            if (*fiber).at_barrier { self.waiting.push(fiber) } else { self.idle.push(fiber) }
        }
    }

    /// Frees idle fibers beyond what a queue thread keeps.
    pub(crate) fn trim(&mut self) {
        self.keep(KEPT_FIBERS);
    }

    fn keep(&mut self, count: usize) {
        for fiber in self.idle.drain(count.min(self.idle.len())..) {
            // SAFETY: idle fibers are suspended at the end of `fiber_main`'s loop and owned by this list alone.
            unsafe { Fiber::free(fiber) }
        }
    }
}

/// Whether the block has threads that no fiber has started.
///
/// # Safety
/// `block` is alive and no fiber is running.
unsafe fn has_unstarted(block: *mut Block) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { (*block).next_thread < (*block).thread_count }
}

/// Lets the block's threads find it.
fn block_private(block: *mut Block) {
    // SAFETY: called with a live local of `FiberPool::run`.
    unsafe { (*block).template.runtime_private = block.cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const THREADS: u32 = 96;

    struct Seen {
        arrived: [AtomicU32; 3],
        early: AtomicU32,
        stopped: AtomicU32,
    }

    unsafe extern "C" fn three_phases(kernarg: *const c_void, thread: *const CpuThread) {
        // SAFETY: the test passes a live `Seen` and the scheduler a live thread.
        let (seen, info) = unsafe { (&*kernarg.cast::<Seen>(), &*thread) };
        let odd = info.thread_idx[0] % 2 == 1;
        for phase in 0..3 {
            if phase == 2 && odd {
                seen.stopped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            seen.arrived[phase].fetch_add(1, Ordering::Relaxed);
            // SAFETY: called with the thread the scheduler passed.
            unsafe { (info.sync_threads)(thread) };
            let expected = if phase == 2 { THREADS / 2 } else { THREADS };
            if seen.arrived[phase].load(Ordering::Relaxed) != expected {
                seen.early.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn no_thread_passes_a_barrier_before_all_are_there() {
        let mut pool = FiberPool::default();
        for _ in 0..3 {
            let seen = Seen { arrived: Default::default(), early: AtomicU32::new(0), stopped: AtomicU32::new(0) };
            let mut template = CpuThread::shared([1, 1, 1], [16, 3, 2]);
            template.sync_threads = sync_threads;
            assert!(pool.run(Block::new(three_phases, (&raw const seen).cast(), template)));
            assert_eq!(seen.arrived.map(AtomicU32::into_inner), [THREADS, THREADS, THREADS / 2]);
            assert_eq!(seen.early.into_inner(), 0);
            assert_eq!(seen.stopped.into_inner(), THREADS / 2);
            assert_eq!(pool.idle.len(), THREADS as usize, "fibers are kept and used again");
        }
        pool.keep(4);
        assert_eq!(pool.idle.len(), 4);
    }
}

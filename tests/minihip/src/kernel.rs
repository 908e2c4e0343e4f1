//! Kernels and their launches: x86-64 functions called once per thread of a grid.

use crate::abi::Dim3;
use crate::event::EventMark;
use crate::fiber::{Block, FiberPool, sync_threads};
use crate::module::CodeObject;
use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

/// A kernel's machine code: `void NAME(const void* kernarg, const struct hip_cpu_thread* thread)`.
pub(crate) type KernelFn = unsafe extern "C" fn(*const c_void, *const CpuThread);

/// `struct hip_cpu_thread`: what a kernel sees of its thread. Layout shared with the kernels' C header.
///
/// | offset | field |
/// |---|---|
/// | 0, 12, 24, 36 | thread index, block index, block size, grid size (in blocks), three u32 each |
/// | 48 | dynamic shared memory of the block |
/// | 56, 60 | its size in bytes; reserved |
/// | 64 | `sync_threads` |
/// | 72 | the runtime's own |
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuThread {
    pub(crate) thread_idx: [u32; 3],
    pub(crate) block_idx: [u32; 3],
    pub(crate) block_dim: [u32; 3],
    pub(crate) grid_dim: [u32; 3],
    pub(crate) dynamic_shared: *mut c_void,
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) reserved: u32,
    pub(crate) sync_threads: unsafe extern "C" fn(*const CpuThread),
    pub(crate) runtime_private: *mut c_void,
}

impl CpuThread {
    /// What all threads of a launch share.
    pub(crate) fn shared(grid_dim: [u32; 3], block_dim: [u32; 3]) -> Self {
        Self {
            thread_idx: [0; 3],
            block_idx: [0; 3],
            block_dim,
            grid_dim,
            dynamic_shared: std::ptr::null_mut(),
            dynamic_shared_bytes: 0,
            reserved: 0,
            sync_threads,
            runtime_private: std::ptr::null_mut(),
        }
    }
}

/// Place of one argument in the kernarg segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) offset: usize,
    pub(crate) len_bytes: usize,
}

/// A kernel of a loaded code object.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: CString,
    pub(crate) entry: KernelFn,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) kernarg_bytes: usize,
    /// Static shared memory per block in bytes.
    pub(crate) static_shared_bytes: usize,
    /// Keeps the code mapped while the kernel can run.
    pub(crate) code: Arc<CodeObject>,
}

/// Kernel arguments, laid out as the kernel reads them; 16-byte aligned.
pub(crate) type Kernarg = Vec<u128>;

/// One launch.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) kernarg: Kernarg,
    /// Events of the `hipExt` launches: reached when the kernel starts and when it ends.
    pub(crate) start: Option<Arc<EventMark>>,
    pub(crate) stop: Option<Arc<EventMark>>,
    /// The function as the caller named it, for graph queries.
    pub(crate) function: usize,
    /// What [`Launch::parameter_pointers`] handed out.
    pub(crate) pointers: OnceLock<Vec<usize>>,
}

impl Launch {
    /// Address of an array of pointers to the arguments, as `hipGraphKernelNodeGetParams` returns it; valid as long as
    /// the launch.
    pub(crate) fn parameter_pointers(&self) -> usize {
        let base = self.kernarg.as_ptr() as usize;
        let pointers =
            self.pointers.get_or_init(|| self.kernel.arguments.iter().map(|argument| base + argument.offset).collect());
        if pointers.is_empty() { 0 } else { pointers.as_ptr() as usize }
    }

    /// Runs the whole grid on the calling thread.
    pub(crate) fn execute(&self, fibers: &mut FiberPool) {
        if let Some(start) = &self.start {
            start.reach();
        }
        self.run_grid(fibers);
        if let Some(stop) = &self.stop {
            stop.reach();
        }
    }

    fn run_grid(&self, fibers: &mut FiberPool) {
        let static_bytes = self.kernel.static_shared_bytes.next_multiple_of(16);
        let dynamic_bytes = self.dynamic_shared_bytes as usize;
        // The contents carry over from block to block: like a device's, a block's shared memory starts undefined.
        let mut shared = vec![0_u128; (static_bytes + dynamic_bytes).div_ceil(16) + 1];
        let mut template = CpuThread::shared(self.grid.array(), self.block.array());
        // The static part comes first; kernels find it below the dynamic one.
        template.dynamic_shared = shared[static_bytes / 16..].as_mut_ptr().cast();
        template.dynamic_shared_bytes = self.dynamic_shared_bytes;
        let kernarg = self.kernarg.as_ptr().cast();
        for z in 0..self.grid.z {
            for y in 0..self.grid.y {
                for x in 0..self.grid.x {
                    template.block_idx = [x, y, z];
                    if !fibers.run(Block::new(self.kernel.entry, kernarg, template)) {
                        eprintln!("minihip: out of memory for the threads of {:?}", self.kernel.name);
                        return;
                    }
                }
            }
        }
        fibers.trim();
    }
}

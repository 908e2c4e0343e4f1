//! Builds the shared object, loads it as a program would, and offers its entry points and some kernels.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Kernels by the contract between code objects and this runtime.
const KERNELS: &str = r#"
#include <stdint.h>
struct hip_cpu_thread { uint32_t thread_idx[3], block_idx[3], block_dim[3], grid_dim[3]; void* dynamic_shared;
  uint32_t dynamic_shared_bytes, reserved; void (*sync_threads)(const struct hip_cpu_thread*); void* runtime_private; };
typedef const struct hip_cpu_thread thread;
#define ARGS(name, bytes, n, ...) const struct { uint32_t count, kernarg_size; struct { uint32_t offset, size; } arg[n]; } name##__args = { n, bytes, __VA_ARGS__ }
static uint32_t index_of(thread* t) { return t->block_idx[0] * t->block_dim[0] + t->thread_idx[0]; }

ARGS(add, 16, 3, { { 0, 8 }, { 8, 4 }, { 12, 4 } });
void add(const void* k, thread* t) { const struct { uint32_t* p; uint32_t value, n; }* a = k; uint32_t i = index_of(t); if (i < a->n) a->p[i] += a->value; }

/* Waits until *flag is not 0, then does what add does: a kernel that lasts as long as the test wants. */
ARGS(add_when, 24, 4, { { 0, 8 }, { 8, 4 }, { 12, 4 }, { 16, 8 } });
void add_when(const void* k, thread* t) { const struct { uint32_t* p; uint32_t value, n; volatile uint32_t* flag; }* a = k;
  while (!__atomic_load_n(a->flag, __ATOMIC_ACQUIRE)) __builtin_ia32_pause();
  uint32_t i = index_of(t); if (i < a->n) a->p[i] += a->value; }

ARGS(block_sums, 24, 3, { { 0, 8 }, { 8, 8 }, { 16, 4 } });
const uint32_t block_sums__static_shared = 4;
void block_sums(const void* k, thread* t) { const struct { const uint32_t* in; uint32_t* out; uint32_t n; }* a = k;
  uint32_t* dynamic = t->dynamic_shared; uint32_t* total = (uint32_t*)((char*)t->dynamic_shared - 16);
  uint32_t i = t->thread_idx[0] + t->block_dim[0] * t->thread_idx[1], threads = t->block_dim[0] * t->block_dim[1], g = t->block_idx[0] * threads + i;
  dynamic[i] = g < a->n ? a->in[g] : 0; if (i == 0) *total = 0; t->sync_threads(t);
  for (uint32_t width = threads / 2; width; width /= 2) { if (i < width) dynamic[i] += dynamic[i + width]; t->sync_threads(t); }
  if (i == 0) *total = dynamic[0]; t->sync_threads(t); if (i == threads - 1) a->out[t->block_idx[0]] = *total; }

uint32_t table[4] = { 10, 20, 30, 40 };
ARGS(add_table, 8, 1, { { 0, 8 } });
void add_table(const void* k, thread* t) { const struct { uint32_t* p; }* a = k; a->p[t->thread_idx[0]] += table[t->thread_idx[0] % 4]; }
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Directory with the shared object and the kernels, built once per test program.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("minihip");
        std::fs::create_dir_all(&out).expect("writable target directory");
        let lock = std::fs::File::create(out.join("lock")).expect("writable target directory");
        // SAFETY: flock on a descriptor this function owns; the lock ends with the file, after the build.
        assert_eq!(unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&lock), libc::LOCK_EX) }, 0);
        let status = Command::new(root().join("scripts/build-minihip")).arg(&out).status().expect("bash is there");
        assert!(status.success());
        std::fs::write(out.join("kernels.c"), KERNELS).expect("writable target directory");
        let status = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-nostdlib", "-o"])
            .args([out.join("kernels.so"), out.join("kernels.c")])
            .status()
            .expect("a C compiler is there");
        assert!(status.success());
        out
    })
}

/// Path of the built runtime.
pub(crate) fn library_path() -> PathBuf {
    built().join("libamdhip64.so.7")
}

/// The kernels' code object.
pub(crate) fn kernels() -> Vec<u8> {
    std::fs::read(built().join("kernels.so")).expect("just built")
}

/// The loaded runtime.
pub(crate) struct Hip(libloading::Library);

/// Declares safe-to-call wrappers: name, arguments; each returns the call's code.
macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[allow(non_snake_case, dead_code, clippy::too_many_arguments, reason = "HIP's names and signatures, not all used by every test program")]
        impl Hip {
            $(pub(crate) fn $name(&self, $($arg: $ty),*) -> i32 {
                type Call = unsafe extern "C" fn($($ty),*) -> i32;
                // SAFETY: the entry point has this prototype; tests pass pointers to live values.
                unsafe {
                    let call: libloading::Symbol<'_, Call> = self.0.get(concat!(stringify!($name), "\0").as_bytes()).expect("exported");
                    call($($arg),*)
                }
            })*
        }
    };
}

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dim3(pub(crate) u32, pub(crate) u32, pub(crate) u32);

pub(crate) type Handle = usize;

calls! {
    hipGetLastError();
    hipPeekAtLastError();
    hipExtGetLastError();
    hipGetDeviceCount(count: *mut i32);
    hipSetDevice(device: i32);
    hipGetDevice(device: *mut i32);
    hipDeviceSynchronize();
    hipMalloc(out: *mut usize, len: usize);
    hipFree(address: usize);
    hipHostMalloc(out: *mut usize, len: usize, flags: u32);
    hipHostFree(address: usize);
    hipHostRegister(address: usize, len: usize, flags: u32);
    hipHostUnregister(address: usize);
    hipMallocManaged(out: *mut usize, len: usize, flags: u32);
    hipMemGetAddressRange(base: *mut usize, len: *mut usize, address: usize);
    hipMemcpy(dst: usize, src: usize, len: usize, kind: i32);
    hipMemcpyAsync(dst: usize, src: usize, len: usize, kind: i32, stream: Handle);
    hipMemcpy2D(dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32);
    hipMemset(dst: usize, value: i32, len: usize);
    hipMemsetAsync(dst: usize, value: i32, len: usize, stream: Handle);
    hipMemsetD32Async(dst: usize, value: i32, count: usize, stream: Handle);
    hipStreamCreate(out: *mut Handle);
    hipStreamCreateWithFlags(out: *mut Handle, flags: u32);
    hipStreamDestroy(stream: Handle);
    hipStreamQuery(stream: Handle);
    hipStreamSynchronize(stream: Handle);
    hipStreamWaitValue32(stream: Handle, address: usize, value: u32, flags: u32, mask: u32);
    hipStreamWriteValue32(stream: Handle, address: usize, value: u32, flags: u32);
    hipStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    hipLaunchHostFunc(stream: Handle, function: extern "C" fn(usize), data: usize);
    hipEventCreate(out: *mut Handle);
    hipEventCreateWithFlags(out: *mut Handle, flags: u32);
    hipEventDestroy(event: Handle);
    hipEventRecord(event: Handle, stream: Handle);
    hipEventQuery(event: Handle);
    hipEventSynchronize(event: Handle);
    hipEventElapsedTime(ms: *mut f32, start: Handle, stop: Handle);
    hipModuleLoadData(out: *mut Handle, image: *const c_void);
    hipModuleUnload(module: Handle);
    hipModuleGetFunction(out: *mut Handle, module: Handle, name: *const std::ffi::c_char);
    hipModuleGetGlobal(address: *mut usize, len: *mut usize, module: Handle, name: *const std::ffi::c_char);
    hipModuleLaunchKernel(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: *const *const c_void, extra: *const *const c_void);
    hipExtModuleLaunchKernel(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize, stream: Handle, params: *const *const c_void, extra: *const *const c_void, start: Handle, stop: Handle, flags: u32);
    hipLaunchKernel(function: usize, grid: Dim3, block: Dim3, params: *const *const c_void, shared: usize, stream: Handle);
    hipStreamBeginCapture(stream: Handle, mode: i32);
    hipStreamEndCapture(stream: Handle, graph: *mut Handle);
    hipStreamIsCapturing(stream: Handle, status: *mut i32);
    hipThreadExchangeStreamCaptureMode(mode: *mut i32);
    hipGraphCreate(out: *mut Handle, flags: u32);
    hipGraphDestroy(graph: Handle);
    hipGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    hipGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize);
    hipGraphAddEmptyNode(out: *mut Handle, graph: Handle, deps: *const Handle, count: usize);
    hipGraphAddMemcpyNode1D(out: *mut Handle, graph: Handle, deps: *const Handle, count: usize, dst: usize, src: usize, len: usize, kind: i32);
    hipGraphInstantiate(out: *mut Handle, graph: Handle, error_node: *mut Handle, log: *mut u8, log_len: usize);
    hipGraphLaunch(exec: Handle, stream: Handle);
    hipGraphExecDestroy(exec: Handle);
    hipGraphExecMemcpyNodeSetParams1D(exec: Handle, node: Handle, dst: usize, src: usize, len: usize, kind: i32);
    hipMallocAsync(out: *mut usize, len: usize, stream: Handle);
    hipFreeAsync(address: usize, stream: Handle);
    hipDeviceGetDefaultMemPool(out: *mut Handle, device: i32);
    hipMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut u64);
    hipMemPoolSetAttribute(pool: Handle, attribute: i32, value: *const u64);
    hipMemAddressReserve(out: *mut usize, len: usize, align: usize, address: usize, flags: u64);
    hipMemAddressFree(address: usize, len: usize);
    hipMemCreate(out: *mut Handle, len: usize, props: *const [u32; 8], flags: u64);
    hipMemRelease(handle: Handle);
    hipMemMap(address: usize, len: usize, offset: usize, handle: Handle, flags: u64);
    hipMemUnmap(address: usize, len: usize);
    hipMemSetAccess(address: usize, len: usize, access: *const [u32; 3], count: usize);
    hipMallocArray(out: *mut usize, desc: *const [i32; 5], width: usize, height: usize, flags: u32);
    hipFreeArray(array: Handle);
    hipMemcpy2DToArray(dst: Handle, x: usize, y: usize, src: usize, spitch: usize, width: usize, height: usize, kind: i32);
    hipMemcpy2DFromArray(dst: usize, dpitch: usize, src: Handle, x: usize, y: usize, width: usize, height: usize, kind: i32);
    hipMemcpy2DArrayToArray(dst: Handle, dx: usize, dy: usize, src: Handle, sx: usize, sy: usize, width: usize, height: usize, kind: i32);
    hipGraphicsGLRegisterBuffer(out: *mut usize, buffer: u32, flags: u32);
}

/// Alone with the runtime: captures and device-wide waits of one test would disturb another.
pub(crate) fn hip() -> (&'static Hip, MutexGuard<'static, ()>) {
    static HIP: OnceLock<Hip> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: loading runs the library's initialisers, which only set up the Rust runtime.
    let hip = HIP.get_or_init(|| Hip(unsafe { libloading::Library::new(library_path()) }.expect("loads")));
    (hip, guard)
}

#[allow(dead_code, reason = "not all used by every test program")]
impl Hip {
    /// An entry point that is not in the list above.
    ///
    /// # Safety
    /// `Call` is the prototype of `name`.
    pub(crate) unsafe fn symbol<Call: Copy>(&self, name: &str) -> Call {
        // SAFETY: the caller's promise.
        *unsafe { self.0.get::<Call>(name.as_bytes()) }.expect("exported")
    }

    /// Device memory.
    pub(crate) fn device(&self, len: usize) -> usize {
        let mut address = 0;
        assert_eq!(self.hipMalloc(&mut address, len), 0);
        address
    }

    /// A zeroed u32 in pinned memory that tests use as a gate.
    pub(crate) fn gate(&self) -> Gate<'_> {
        let mut address = 0;
        assert_eq!(self.hipHostMalloc(&mut address, 64, 0), 0);
        let gate = Gate { hip: self, address };
        gate.set(0);
        gate
    }

    pub(crate) fn stream(&self, flags: u32) -> Handle {
        let mut stream = 0;
        assert_eq!(self.hipStreamCreateWithFlags(&mut stream, flags), 0);
        stream
    }

    pub(crate) fn event(&self) -> Handle {
        let mut event = 0;
        assert_eq!(self.hipEventCreate(&mut event), 0);
        event
    }

    /// The test kernels as a module.
    pub(crate) fn module(&self) -> Handle {
        let mut module = 0;
        assert_eq!(self.hipModuleLoadData(&mut module, kernels().as_ptr().cast()), 0);
        module
    }

    pub(crate) fn function(&self, module: Handle, name: &str) -> Handle {
        let (mut function, name) = (0, CString::new(name).expect("no zero in it"));
        assert_eq!(self.hipModuleGetFunction(&mut function, module, name.as_ptr()), 0);
        function
    }

    /// `count` words of device memory, read through the null stream.
    pub(crate) fn words(&self, address: usize, count: usize) -> Vec<u32> {
        let mut words = vec![0_u32; count];
        assert_eq!(self.hipMemcpy(words.as_mut_ptr() as usize, address, count * 4, 2), 0);
        words
    }

    /// Launches `add` (p[i] += value for i < n) with one block.
    pub(crate) fn add(&self, function: Handle, p: usize, value: u32, n: u32, stream: Handle) -> i32 {
        let params = [(&raw const p).cast(), (&raw const value).cast(), (&raw const n).cast::<c_void>()];
        self.hipModuleLaunchKernel(function, 1, 1, 1, n, 1, 1, 0, stream, params.as_ptr(), std::ptr::null())
    }
}

/// A word that a stream waits for until the test opens it; opened when dropped, so that a failed test does not hang.
pub(crate) struct Gate<'a> {
    hip: &'a Hip,
    pub(crate) address: usize,
}

#[allow(dead_code, reason = "not all used by every test program")]
impl Gate<'_> {
    fn set(&self, value: u32) {
        // SAFETY: a live, aligned word of pinned memory; queues access it atomically too.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.address as *mut u32) }
            .store(value, std::sync::atomic::Ordering::Release);
    }

    /// Makes `stream` wait for the gate.
    pub(crate) fn close(&self, stream: Handle) {
        assert_eq!(self.hip.hipStreamWaitValue32(stream, self.address, 1, 1, u32::MAX), 0);
    }

    pub(crate) fn open(&self) {
        self.set(1);
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.open();
        self.hip.hipHostFree(self.address);
    }
}

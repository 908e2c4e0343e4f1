//! What capture itself asks of the runtime: real functions with their types.
//!
//! These calls are made inside a recorded call, so neither they nor what they cause is recorded. Each one sets the
//! runtime's last error; [`LastError`] keeps the program from noticing.

use std::ffi::c_void;

use crate::interception::real;
use crate::interception::shims::id;
use crate::recorder;

/// `hipErrorNotReady`.
pub(crate) const NOT_READY: i32 = 600;
/// `hipErrorNotSupported`, where the runtime lacks the function.
const NOT_SUPPORTED: i32 = 801;
/// `hipEventDisableTiming`.
const DISABLE_TIMING: u32 = 2;
/// `hipStreamCaptureStatusActive`.
pub(crate) const CAPTURE_ACTIVE: i32 = 1;

macro_rules! real_calls {
    ($($(#[$doc:meta])* fn $name:ident = $api:ident($($param:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As HIP's documentation says; called inside a recorded call.
        #[allow(clippy::too_many_arguments, reason = "the parameters are HIP's")]
        pub(crate) unsafe fn $name($($param: $ty),*) -> i32 {
            let address = real::address(recorder::runtime(), id::$api);
            if address.is_null() {
                return NOT_SUPPORTED;
            }
            // SAFETY: the address is that of the entry point, whose prototype this is.
            unsafe {
                let real: unsafe extern "C-unwind" fn($($ty),*) -> i32 = std::mem::transmute(address);
                real($($param),*)
            }
        }
    )*};
}

real_calls! {
    /// `hipPeekAtLastError`.
    fn peek_last_error = hipPeekAtLastError();
    /// `hipGetLastError`.
    fn get_last_error = hipGetLastError();
    /// `hipGetDevice`.
    fn get_device = hipGetDevice(device: *mut i32);
    /// `hipSetDevice`.
    fn set_device = hipSetDevice(device: i32);
    /// `hipStreamGetDevice`.
    fn stream_get_device = hipStreamGetDevice(stream: *mut c_void, device: *mut i32);
    /// `hipStreamGetFlags`.
    fn stream_get_flags = hipStreamGetFlags(stream: *mut c_void, flags: *mut u32);
    /// `hipEventCreateWithFlags`.
    fn event_create_with_flags = hipEventCreateWithFlags(event: *mut *mut c_void, flags: u32);
    /// `hipEventRecord`.
    fn event_record = hipEventRecord(event: *mut c_void, stream: *mut c_void);
    /// `hipEventSynchronize`.
    fn event_synchronize = hipEventSynchronize(event: *mut c_void);
    /// `hipLaunchHostFunc`.
    fn launch_host_func = hipLaunchHostFunc(stream: *mut c_void, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    /// `hipEventQuery`.
    fn event_query = hipEventQuery(event: *mut c_void);
    /// `hipStreamGetCaptureInfo`.
    fn stream_get_capture_info = hipStreamGetCaptureInfo(stream: *mut c_void, status: *mut i32, id: *mut u64);
    /// `hipStreamGetCaptureInfo_v2`.
    fn stream_get_capture_info_v2 = hipStreamGetCaptureInfo_v2(stream: *mut c_void, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64, count: *mut usize);
    /// `hipArrayGetInfo`.
    fn array_get_info = hipArrayGetInfo(desc: *mut c_void, extent: *mut c_void, flags: *mut u32, array: *mut c_void);
    /// `hipDeviceSynchronize`.
    fn device_synchronize = hipDeviceSynchronize();
    /// `hipMemcpy`.
    fn memcpy = hipMemcpy(to: *mut c_void, from: *const c_void, len_bytes: usize, kind: i32);
    /// `hipMemcpyFromSymbol`.
    fn memcpy_from_symbol = hipMemcpyFromSymbol(to: *mut c_void, symbol: *const c_void, len_bytes: usize, skip_bytes: usize, kind: i32);
    /// `hipMemcpy2DFromArray`.
    fn memcpy_2d_from_array = hipMemcpy2DFromArray(to: *mut c_void, pitch_bytes: usize, array: *mut c_void, column_bytes: usize, row: usize, width_bytes: usize, height: usize, kind: i32);
    /// `hipMemcpy3D`.
    fn memcpy_3d = hipMemcpy3D(copy: *mut Memcpy3DParms);
    /// `hipGraphGetNodes`.
    fn graph_get_nodes = hipGraphGetNodes(graph: *mut c_void, nodes: *mut u64, count: *mut usize);
    /// `hipGraphMemcpyNodeGetParams`.
    fn graph_memcpy_node_get_params = hipGraphMemcpyNodeGetParams(node: *mut c_void, params: *mut Memcpy3DParms);
    /// `hipGetMipmappedArrayLevel`.
    fn get_mipmapped_array_level = hipGetMipmappedArrayLevel(array: *mut *mut c_void, mipmap: *mut c_void, level: u32);
    /// `hipRuntimeGetVersion`.
    fn runtime_get_version = hipRuntimeGetVersion(version: *mut i32);
    /// `hipGetDeviceCount`.
    fn get_device_count = hipGetDeviceCount(count: *mut i32);
    /// `hipDeviceGetName`.
    fn device_get_name = hipDeviceGetName(name: *mut u8, len: i32, device: i32);
    /// `hipDeviceTotalMem`.
    fn device_total_mem = hipDeviceTotalMem(bytes: *mut usize, device: i32);
    /// `hipDeviceGetPCIBusId`.
    fn device_get_pci_bus_id = hipDeviceGetPCIBusId(id: *mut u8, len: i32, device: i32);
    /// `hipModuleGetFunctionCount`.
    fn module_get_function_count = hipModuleGetFunctionCount(count: *mut u32, module: *mut c_void);
    /// `hipLibraryGetKernelCount`.
    fn library_get_kernel_count = hipLibraryGetKernelCount(count: *mut u32, library: *mut c_void);
    /// `hipModuleEnumerateFunctions`.
    fn module_enumerate_functions = hipModuleEnumerateFunctions(functions: *mut u64, count: u32, module: *mut c_void);
    /// `hipLibraryEnumerateKernels`.
    fn library_enumerate_kernels = hipLibraryEnumerateKernels(kernels: *mut u64, count: u32, library: *mut c_void);
    /// `hipKernelGetName`.
    fn kernel_get_name = hipKernelGetName(name: *mut *const libc::c_char, kernel: *mut c_void);
    /// `hipGetDevicePropertiesR0600`.
    fn get_device_properties = hipGetDevicePropertiesR0600(properties: *mut c_void, device: i32);
}

/// The calling thread's device, asked for where the program cannot have been told of an error of ours.
pub(crate) fn device_now() -> i32 {
    let _last_error = LastError::keep();
    device()
}

/// The calling thread's device.
pub(crate) fn device() -> i32 {
    let mut device = 0;
    // SAFETY: `device` is writable.
    unsafe { get_device(&mut device) };
    device
}

/// The device of a stream. The null stream and the two special handles are of the calling thread's device.
pub(crate) fn device_of(stream: u64) -> i32 {
    let mut found = -1;
    // SAFETY: the stream is one that the program has just used; `found` is writable.
    if stream > 2 && unsafe { stream_get_device(stream as *mut c_void, &mut found) } == 0 {
        return found;
    }
    device()
}

/// Whether work on the null stream waits for a stream; not known of the special handles.
pub(crate) fn waits_for_null_stream(stream: u64) -> bool {
    /// `hipStreamNonBlocking`.
    const NON_BLOCKING: u32 = 1;
    let mut flags = NON_BLOCKING;
    // SAFETY: the stream is one that the program has just used; `flags` is writable.
    stream > 2 && unsafe { stream_get_flags(stream as *mut c_void, &mut flags) } == 0 && flags & NON_BLOCKING == 0
}

/// Makes an event without timing on a device.
pub(crate) fn create_event(device_wanted: i32) -> Option<u64> {
    let before = device();
    let mut event = std::ptr::null_mut();
    // SAFETY: the device is one that a stream has; `event` is writable; the thread's device is put back.
    let failed = unsafe {
        if before != device_wanted && set_device(device_wanted) != 0 {
            return None;
        }
        let failed = event_create_with_flags(&mut event, DISABLE_TIMING);
        if before != device_wanted {
            set_device(before);
        }
        failed
    };
    (failed == 0).then_some(event as u64)
}

/// The capture sequence a stream is in, if any.
pub(crate) fn capture_of(stream: u64) -> Option<u64> {
    if stream == 0 || stream == 1 {
        // The legacy stream cannot be captured, and asking for it may fail.
        return None;
    }
    let _last_error = LastError::keep();
    let (mut status, mut id) = (0, 0);
    // SAFETY: the stream is one that the program is using; the results are writable.
    let failed = unsafe { stream_get_capture_info(stream as *mut c_void, &mut status, &mut id) };
    (failed == 0 && status == CAPTURE_ACTIVE).then_some(id)
}

/// How many nodes the next work of a captured stream comes after.
pub(crate) fn capture_node_count(stream: u64) -> usize {
    let _last_error = LastError::keep();
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, std::ptr::null(), 0);
    // SAFETY: the program is about to ask the same of the stream; the results are writable.
    let failed = unsafe {
        stream_get_capture_info_v2(stream as *mut c_void, &mut status, &mut id, &mut graph, &mut nodes, &mut count)
    };
    if failed == 0 && status == CAPTURE_ACTIVE { count } else { 0 }
}

/// Address and length in bytes of a variable of a module or library; `api` is `hipModuleGetGlobal` or `hipLibraryGetGlobal`.
pub(crate) fn global(api: usize, module: u64, name: &std::ffi::CStr) -> Option<(u64, u64)> {
    let _last_error = LastError::keep();
    let address = real::address(recorder::runtime(), api);
    if address.is_null() {
        return None;
    }
    let (mut found, mut len_bytes) = (std::ptr::null_mut(), 0usize);
    // SAFETY: the address is that of one of the two entry points, which share this prototype; the module is alive, the name
    // is a C string, and the results are writable.
    let code = unsafe {
        let real: unsafe extern "C-unwind" fn(*mut *mut c_void, *mut usize, *mut c_void, *const libc::c_char) -> i32 =
            std::mem::transmute(address);
        real(&mut found, &mut len_bytes, module as *mut c_void, name.as_ptr())
    };
    (code == 0 && !found.is_null()).then_some((found as u64, len_bytes as u64))
}

/// `hipMemcpy3DParms`: positions and extents count elements of the array that takes part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memcpy3DParms {
    pub(crate) from_array: u64,
    pub(crate) from: [u64; 3],
    /// `hipPitchedPtr`: address, bytes from row to row, bytes in a row, rows.
    pub(crate) from_memory: [u64; 4],
    pub(crate) to_array: u64,
    pub(crate) to: [u64; 3],
    pub(crate) to_memory: [u64; 4],
    pub(crate) extent: [u64; 3],
    pub(crate) kind: i32,
    pub(crate) padding: i32,
}

const _: () = assert!(size_of::<Memcpy3DParms>() == 160);

impl Memcpy3DParms {
    /// The struct as it lies in memory.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: plain integers without gaps, all initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Handles of a graph's nodes, in the order of the runtime; none where it does not tell.
pub(crate) fn nodes_of(graph: u64) -> Vec<u64> {
    let _last_error = LastError::keep();
    let graph = graph as *mut c_void;
    let mut count = 0;
    // SAFETY: the graph is one that the program has just used; `count` is writable.
    if unsafe { graph_get_nodes(graph, std::ptr::null_mut(), &mut count) } != 0 {
        return Vec::new();
    }
    let mut nodes = vec![0; count];
    // SAFETY: as above; there is room for `count` handles.
    let failed = count == 0 || unsafe { graph_get_nodes(graph, nodes.as_mut_ptr(), &mut count) } != 0;
    nodes.truncate(if failed { 0 } else { count });
    nodes
}

/// The addresses that a copy node of a graph copies from and to; `None` where it is none, or has none.
pub(crate) fn copy_node_addresses(node: u64) -> Option<[u64; 2]> {
    let last_error = LastError::keep();
    if !last_error.may_fail() {
        return None;
    }
    let mut params = Memcpy3DParms::default();
    // SAFETY: the program is about to use the node; `params` is what the call fills.
    let failed = unsafe { graph_memcpy_node_get_params(node as *mut c_void, &mut params) };
    (failed == 0).then(|| [params.from_memory[0], params.to_memory[0]])
}

/// An array's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayShape {
    /// Bytes of an element.
    pub(crate) element_bytes: u64,
    /// Bytes in a row.
    pub(crate) width_bytes: u64,
    /// Rows; zero in one dimension.
    pub(crate) height: u64,
    /// Slices; zero in two dimensions.
    pub(crate) depth: u64,
}

/// Bytes of an array's element, where they can be asked for without a trace.
pub(crate) fn array_element_bytes(array: u64) -> Option<u64> {
    array_shape(array).map(|shape| shape.element_bytes)
}

/// The shape of an array, where it can be asked for without a trace.
pub(crate) fn array_shape(array: u64) -> Option<ArrayShape> {
    let last_error = LastError::keep();
    if !last_error.may_fail() {
        return None;
    }
    let (mut desc, mut extent, mut flags) = ([0i32; 5], [0u64; 3], 0);
    // SAFETY: the array is one that the program is using; the results have the sizes of hipChannelFormatDesc, hipExtent and
    // unsigned int.
    let failed = unsafe {
        array_get_info(desc.as_mut_ptr().cast(), extent.as_mut_ptr().cast(), &mut flags, array as *mut c_void)
    };
    let bits: i32 = desc[..4].iter().sum();
    let element_bytes = u64::try_from(bits).ok().filter(|&bits| failed == 0 && bits > 0)? / 8;
    let width_bytes = extent[0].checked_mul(element_bytes)?;
    Some(ArrayShape { element_bytes, width_bytes, height: extent[1], depth: extent[2] })
}

/// Keeps what `hipGetLastError` will tell the program, across calls of capture's own.
///
/// Runtimes differ: in some every call overwrites the last error, in others an error stays until it is asked for; some
/// keep `hipErrorNotReady`, some do not count it as an error. Capture's calls are made after a call of the program that
/// succeeded. Where nothing is pending then, whatever capture's calls left is taken away again by asking for it. Where an
/// older error is pending, taking away would lose it; capture then makes only calls that succeed, since those leave an
/// error alone in the runtimes in which one can be pending at all.
#[derive(Debug)]
pub(crate) struct LastError {
    pending: i32,
}

impl LastError {
    /// Looks at what is pending.
    pub(crate) fn keep() -> Self {
        // SAFETY: the call has no preconditions and changes nothing.
        LastError { pending: unsafe { peek_last_error() } }
    }

    /// Whether a call that fails can be made without a trace.
    pub(crate) fn may_fail(&self) -> bool {
        self.pending == 0
    }
}

impl Drop for LastError {
    fn drop(&mut self) {
        // SAFETY: as above; the error that is taken away is one that capture's own calls left.
        unsafe {
            if self.pending == 0 && peek_last_error() != 0 {
                get_last_error();
            }
        }
    }
}

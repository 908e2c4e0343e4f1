//! The cuda backend on a driver in host memory (`cuda_driver/driver.c`), which checks what it is given as the real one does.

mod common;

use common::{Handle, Hip, hip};
use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::{MutexGuard, OnceLock};

const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;
const DEFAULT_KIND: i32 = 4;
const INVALID_VALUE: i32 = 1;
const INVALID_HANDLE: i32 = 400;

/// 32 bits unsigned, one channel.
const WORDS: [i32; 5] = [32, 0, 0, 0, 1];
const FLOATS: [i32; 5] = [32, 0, 0, 0, 2];

/// What the driver understands of these kernels: their names.
const KERNELS: &str = ".version 8.0\n.visible .entry mix(\n.visible .entry iota(\n.visible .entry fill(\n";

/// The runtime on that driver, which is loaded under the driver's name before the runtime asks for it.
fn on_driver() -> (&'static Hip, MutexGuard<'static, ()>) {
    static DRIVER: OnceLock<libloading::Library> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_driver/driver.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{}.so", std::process::id()));
        let status = Command::new("cc")
            .args([
                "-std=c17",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
                "-Wl,-soname,libcuda.so.1",
                "-o",
            ])
            .args([library.as_path(), &source])
            .status()
            .expect("a C compiler is there");
        assert!(status.success());
        // SAFETY: set before the runtime reads it, and before this program starts threads that read the environment.
        unsafe { std::env::set_var("MINIHIP_BACKEND", "cuda") };
        // SAFETY: a library without initialisers.
        let loaded = unsafe { libloading::Library::new(&library) }.expect("loads");
        std::fs::remove_file(&library).expect("just made");
        loaded
    });
    hip()
}

/// Calls an entry point that the common list does not have.
macro_rules! call {
    ($hip:expr, $name:literal, $($arg:expr => $ty:ty),*) => {{
        // SAFETY: the entry point has this prototype; the arguments are values or addresses of live ones.
        unsafe {
            type Call = unsafe extern "C" fn($($ty),*) -> i32;
            $hip.symbol::<Call>($name)($($arg),*)
        }
    }};
}

fn words(count: usize, seed: u32) -> Vec<u32> {
    (0..count).map(|i| (i as u32).wrapping_mul(2_654_435_761) ^ seed).collect()
}

fn array(hip: &Hip, width: usize, height: usize) -> Handle {
    let mut array = 0;
    assert_eq!(hip.hipMallocArray(&mut array, &WORDS, width, height, 0), 0);
    array
}

fn address<T>(values: &[T]) -> usize {
    values.as_ptr() as usize
}

#[test]
fn bytes_in_a_row_go_over_the_rows_of_an_array() {
    let (hip, _alone) = on_driver();
    let array = array(hip, 6, 5);
    let (first, second) = (words(30, 1), words(30, 2));
    assert_eq!(call!(hip, "hipMemcpyHtoA", array => usize, 0 => usize, address(&first) => usize, 120 => usize), 0);
    // From the second row's third word on, over two whole rows and into a fourth.
    assert_eq!(call!(hip, "hipMemcpyHtoA", array => usize, 32 => usize, address(&second) => usize, 64 => usize), 0);
    let mut got = vec![0_u32; 30];
    let out = got.as_mut_ptr() as usize;
    assert_eq!(hip.hipMemcpy2DFromArray(out, 24, array, 0, 0, 24, 5, DEVICE_TO_HOST), 0);
    let expected: Vec<u32> = [&first[..8], &second[..16], &first[24..]].concat();
    assert_eq!(got, expected);
    // One byte too many, and a handle that is none.
    assert_eq!(
        call!(hip, "hipMemcpyHtoA", array => usize, 4 => usize, address(&first) => usize, 120 => usize),
        INVALID_VALUE
    );
    assert_eq!(hip.hipFreeArray(array), 0);
    assert_eq!(hip.hipFreeArray(array), INVALID_HANDLE);
    assert_eq!(hip.hipMemcpy2DFromArray(out, 24, array, 0, 0, 24, 5, DEVICE_TO_HOST), INVALID_HANDLE);
}

#[test]
fn arrays_of_different_rows_are_copied_byte_by_byte() {
    let (hip, _alone) = on_driver();
    let (wide, narrow) = (array(hip, 10, 4), array(hip, 4, 10));
    let values = words(40, 7);
    assert_eq!(hip.hipMemcpy2DToArray(wide, 0, 0, address(&values), 40, 40, 4, HOST_TO_DEVICE), 0);
    assert_eq!(call!(hip, "hipMemcpyAtoA", narrow => usize, 0 => usize, wide => usize, 0 => usize, 160 => usize), 0);
    let mut got = vec![0_u32; 40];
    assert_eq!(hip.hipMemcpy2DFromArray(got.as_mut_ptr() as usize, 16, narrow, 0, 0, 16, 10, DEVICE_TO_HOST), 0);
    assert_eq!(got, values);
    for array in [wide, narrow] {
        assert_eq!(hip.hipFreeArray(array), 0);
    }
}

/// `hipMemcpy3DParms` as words: arrays at 0 and 10, positions, pitched pointers, extent, kind.
fn volume(dst: [usize; 8], src: [usize; 8], extent: [usize; 3]) -> [usize; 20] {
    let mut params = [0; 20];
    params[..8].copy_from_slice(&src);
    params[8..16].copy_from_slice(&dst);
    params[16..19].copy_from_slice(&extent);
    params[19] = DEFAULT_KIND as usize;
    params
}

fn memory_side(at: [usize; 3], pointer: usize, pitch: usize, rows: usize) -> [usize; 8] {
    [0, at[0], at[1], at[2], pointer, pitch, pitch, rows]
}

#[test]
fn volumes_count_elements_of_arrays_and_bytes_of_memory() {
    let (hip, _alone) = on_driver();
    let array = array(hip, 8, 4);
    let values = words(64, 3);
    let to = volume([array, 2, 1, 0, 0, 0, 0, 0], memory_side([8, 1, 0], address(&values), 40, 3), [3, 2, 1]);
    assert_eq!(call!(hip, "hipMemcpy3D", to.as_ptr() => *const usize), 0);
    let mut got = vec![0_u32; 64];
    let from =
        volume(memory_side([4, 0, 0], got.as_mut_ptr() as usize, 20, 2), [array, 2, 1, 0, 0, 0, 0, 0], [3, 2, 1]);
    assert_eq!(call!(hip, "hipMemcpy3D", from.as_ptr() => *const usize), 0);
    assert_eq!(got[1..4], values[12..15]);
    assert_eq!(got[6..9], values[22..25]);
    let outside = volume([array, 6, 0, 0, 0, 0, 0, 0], memory_side([0; 3], address(&values), 40, 3), [3, 2, 1]);
    assert_eq!(call!(hip, "hipMemcpy3D", outside.as_ptr() => *const usize), INVALID_VALUE);
    assert_eq!(hip.hipFreeArray(array), 0);
}

/// What the driver was told of an object (`struct object`).
#[repr(C)]
struct Made {
    is_live: i32,
    resource: [u64; 18],
    texture: [u32; 26],
    view: [u64; 14],
    has_view: i32,
}

fn made(object: u64) -> &'static Made {
    let (name, library) = (c"fake_textures", c"libcuda.so.1");
    // SAFETY: the driver of these tests is loaded under this name and has this variable, which lives as long as it.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let all = libc::dlsym(handle, name.as_ptr()).cast::<Made>();
        &*all.add(object as usize)
    }
}

#[test]
fn textures_are_described_to_the_driver_by_its_own_handles_and_flags() {
    let (hip, _alone) = on_driver();
    let mut mipmap = 0;
    let desc = FLOATS;
    type Extent = [usize; 3];
    let malloc = call!(
        hip, "hipMallocMipmappedArray", &raw mut mipmap => *mut usize, &raw const desc => *const [i32; 5],
        [16, 8, 0] => Extent, 3 => u32, 0 => u32
    );
    assert_eq!(malloc, 0);
    let resource: [u64; 8] = [1, mipmap as u64, 0, 0, 0, 0, 0, 0];
    let mut texture = [0_u32; 16];
    (texture[0], texture[1], texture[3]) = (1, 2, 1);
    (texture[10], texture[11], texture[12], texture[15]) = (1, 4, 1, 2.0_f32.to_bits());
    let view: [u64; 6] = [0, 16, 8, 0, 2 << 32, 0];
    let mut object = 0_u64;
    let create = |texture: &[u32; 16], object: &mut u64| {
        call!(
            hip, "hipCreateTextureObject", object => *mut u64, resource.as_ptr() => *const u64, texture.as_ptr() => *const u32,
            view.as_ptr() => *const u64
        )
    };
    assert_eq!(create(&texture, &mut object), 0);
    let told = made(object);
    assert_eq!((told.is_live, told.has_view, told.resource[0] as u32), (1, 1, 1));
    assert_ne!(told.resource[1], mipmap as u64, "the driver's own handle");
    // Clamp, mirror; linear; coordinates from 0 to 1 and exact levels, and not integers, as the elements are none.
    assert_eq!(told.texture[..6], [1, 2, 0, 1, 0x22, 4]);
    assert_eq!((told.texture[6], told.texture[9]), (1, 2.0_f32.to_bits()));
    // The view's format is the elements', one float, which the driver wants to be told.
    assert_eq!((told.view[0] as u32, &told.view[1..5]), (22, &view[1..5]));
    // What was told comes back as it was, and the handle is no surface.
    let mut found = [0_u64; 8];
    assert_eq!(call!(hip, "hipGetTextureObjectResourceDesc", found.as_mut_ptr() => *mut u64, object => u64), 0);
    // The type is half a word.
    assert_eq!((found[0] as u32, found[1]), (1, resource[1]));
    assert_eq!(call!(hip, "hipDestroySurfaceObject", object => u64), INVALID_VALUE);
    assert_eq!(call!(hip, "hipDestroyTextureObject", object => u64), 0);
    assert_eq!(made(object).is_live, 0);
    assert_eq!(call!(hip, "hipFreeMipmappedArray", mipmap => usize), 0);
    assert_eq!(create(&texture, &mut object), INVALID_HANDLE);
}

/// A bundle with `text` for an NVIDIA GPU in it.
fn bundle(text: &str) -> Vec<u8> {
    let id = b"hipv4-nvptx64-nvidia-cuda--sm_90";
    let mut image = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    image.extend(1_u64.to_le_bytes());
    for word in [32 + 24 + id.len(), text.len(), id.len()] {
        image.extend((word as u64).to_le_bytes());
    }
    image.extend(id);
    image.extend(text.as_bytes());
    image
}

fn module(hip: &Hip, text: &str) -> Handle {
    let mut module = 0;
    assert_eq!(hip.hipModuleLoadData(&mut module, bundle(text).as_ptr().cast()), 0);
    module
}

/// `hipKernelNodeParams` of `mix` over `params`.
fn mix_node(function: Handle, params: &[*const c_void; 4]) -> [usize; 8] {
    let one = 1 | 1 << 32;
    // Block and extra; function; grid; parameters.
    [one, 1, 0, function, one, 1, params.as_ptr() as usize, 0]
}

#[test]
fn copies_of_rows_in_an_executable_graph_change_and_the_rest_stays() {
    let (hip, _alone) = on_driver();
    let module = module(hip, KERNELS);
    let function = hip.function(module, "mix");
    let (device, mut graph, mut exec) = (hip.device(96), 0, 0);
    let (first, second) = (words(64, 1), words(64, 2));
    let mut out = vec![0_u32; 24];
    let up = volume(memory_side([0; 3], device, 24, 4), memory_side([0; 3], address(&first), 40, 4), [24, 4, 1]);
    let other = volume(memory_side([0; 3], device, 24, 4), memory_side([8, 1, 0], address(&second), 48, 5), [24, 4, 1]);
    assert_eq!(hip.hipGraphCreate(&mut graph, 0), 0);
    let mut nodes = [0; 3];
    let add = |node: &mut usize, params: &[usize; 20]| {
        call!(
            hip, "hipGraphAddMemcpyNode", node => *mut usize, graph => usize, std::ptr::null() => *const usize, 0 => usize,
            params.as_ptr() => *const usize
        )
    };
    assert_eq!(add(&mut nodes[0], &up), 0);
    let arguments = |values: &[u32; 3]| {
        [
            (&raw const device).cast(),
            (&raw const values[0]).cast(),
            (&raw const values[1]).cast(),
            (&raw const values[2]).cast::<c_void>(),
        ]
    };
    let (kernel, changed) = ([3_u32, 5, 24], [7_u32, 9, 24]);
    let (kernel, changed) = (arguments(&kernel), arguments(&changed));
    let node = mix_node(function, &kernel);
    let code = call!(
        hip, "hipGraphAddKernelNode", &raw mut nodes[1] => *mut usize, graph => usize, std::ptr::null() => *const usize,
        0 => usize, node.as_ptr() => *const usize
    );
    assert_eq!(code, 0);
    let down = out.as_mut_ptr() as usize;
    assert_eq!(
        hip.hipGraphAddMemcpyNode1D(&mut nodes[2], graph, std::ptr::null(), 0, down, device, 96, DEVICE_TO_HOST),
        0
    );
    assert_eq!(hip.hipGraphInstantiate(&mut exec, graph, std::ptr::null_mut(), std::ptr::null_mut(), 0), 0);
    let rows = |values: &[u32], first: usize, pitch: usize, factor: u32, addend: u32| -> Vec<u32> {
        let cells = (0..24).map(|i| values[first + i / 6 * pitch + i % 6]);
        cells.map(|value| value.wrapping_mul(factor).wrapping_add(addend)).collect()
    };
    let launch = || {
        assert_eq!(hip.hipGraphLaunch(exec, 0), 0);
        // SAFETY: the graph has run; nothing else writes these words.
        unsafe { std::slice::from_raw_parts(down as *const u32, 24) }.to_vec()
    };
    assert_eq!(launch(), rows(&first, 0, 10, 3, 5));
    // A kernel's change before the copy's, and a node switched off: both are there in what is made anew.
    let node = mix_node(function, &changed);
    assert_eq!(
        call!(hip, "hipGraphExecKernelNodeSetParams", exec => usize, nodes[1] => usize, node.as_ptr() => *const usize),
        0
    );
    assert_eq!(launch(), rows(&first, 0, 10, 7, 9));
    assert_eq!(
        call!(hip, "hipGraphExecMemcpyNodeSetParams", exec => usize, nodes[0] => usize, other.as_ptr() => *const usize),
        0
    );
    assert_eq!(launch(), rows(&second, 14, 12, 7, 9));
    assert_eq!(call!(hip, "hipGraphNodeSetEnabled", exec => usize, nodes[1] => usize, 0 => u32), 0);
    assert_eq!(
        call!(hip, "hipGraphExecMemcpyNodeSetParams", exec => usize, nodes[0] => usize, up.as_ptr() => *const usize),
        0
    );
    assert_eq!(launch(), rows(&first, 0, 10, 1, 0));
    let mut is_enabled = 7_u32;
    assert_eq!(
        call!(hip, "hipGraphNodeGetEnabled", exec => usize, nodes[1] => usize, &raw mut is_enabled => *mut u32),
        0
    );
    assert_eq!(is_enabled, 0);
    // The graph's own node is as it was.
    let mut found = [0_usize; 20];
    assert_eq!(call!(hip, "hipGraphMemcpyNodeGetParams", nodes[0] => usize, found.as_mut_ptr() => *mut usize), 0);
    assert_eq!((found[4], found[5], found[16], found[17]), (address(&first), 40, 24, 4));
    assert_eq!(hip.hipGraphExecDestroy(exec), 0);
    assert_eq!(hip.hipGraphDestroy(graph), 0);
    assert_eq!(hip.hipModuleUnload(module), 0);
    assert_eq!(hip.hipFree(device), 0);
}

#[test]
fn attributes_of_kernel_nodes_have_the_size_that_their_name_says() {
    let (hip, _alone) = on_driver();
    let module = module(hip, KERNELS);
    let function = hip.function(module, "iota");
    let (mut graph, mut kernel) = (0, 0);
    assert_eq!(hip.hipGraphCreate(&mut graph, 0), 0);
    let (device, values) = (hip.device(64), [1_u32, 4]);
    let params =
        [(&raw const device).cast(), (&raw const values[0]).cast(), (&raw const values[1]).cast(), std::ptr::null()];
    let node = mix_node(function, &params);
    let code = call!(
        hip, "hipGraphAddKernelNode", &raw mut kernel => *mut usize, graph => usize, std::ptr::null() => *const usize,
        0 => usize, node.as_ptr() => *const usize
    );
    assert_eq!(code, 0);
    // A cooperative kernel: 4 bytes are read and written, and none beside them.
    let (on, mut got) = ([1_i32, -1], [7_i32, 8]);
    assert_eq!(call!(hip, "hipGraphKernelNodeSetAttribute", kernel => usize, 2 => i32, on.as_ptr() => *const i32), 0);
    assert_eq!(
        call!(hip, "hipGraphKernelNodeGetAttribute", kernel => usize, 2 => i32, got.as_mut_ptr() => *mut i32),
        0
    );
    assert_eq!(got, [1, 8]);
    assert_eq!(hip.hipGraphDestroy(graph), 0);
    assert_eq!(hip.hipModuleUnload(module), 0);
    assert_eq!(hip.hipFree(device), 0);
}

#[test]
fn managed_variables_of_a_module_are_behind_its_pointers() {
    let (hip, _alone) = on_driver();
    let text = ".version 8.0\n.visible .global .b8 a_pointer$managed[16] = {1, 2};\n.visible .global .u64 a_pointer;";
    let handle = module(hip, text);
    let (mut at, mut len_bytes) = (0, 0);
    let name = CString::new("a_pointer").expect("text");
    assert_eq!(hip.hipModuleGetGlobal(&mut at, &mut len_bytes, handle, name.as_ptr()), 0);
    assert_eq!(len_bytes, 8);
    let target = hip.words(at, 2);
    assert_ne!(target, [0, 0], "the pointer is set");
    let storage = (u64::from(target[0]) | u64::from(target[1]) << 32) as usize;
    assert_eq!(hip.words(storage, 4), [1 | 2 << 8, 0, 0, 0], "what the variable starts as");
    assert_eq!(hip.hipModuleUnload(handle), 0);
    let mut base = 0;
    assert_ne!(hip.hipMemGetAddressRange(&mut base, &mut len_bytes, storage), 0, "freed with its module");
    let bad = call!(
        hip, "hipLibraryGetManaged", &raw mut base => *mut usize, std::ptr::null_mut() => *mut usize, 64 => usize,
        name.as_ptr() => *const std::ffi::c_char
    );
    assert_eq!(bad, INVALID_HANDLE);
}

/// `hipErrorInvalidMemcpyDirection`, `hipErrorNotReady`.
const INVALID_DIRECTION: i32 = 21;
const NOT_READY: i32 = 600;

#[test]
fn copies_of_no_kind_are_refused_in_every_spelling() {
    let (hip, _alone) = on_driver();
    let (device, array) = (hip.device(96), array(hip, 6, 4));
    let values = words(24, 1);
    let host = address(&values);
    for kind in [-1, 5, 77] {
        let mut params = volume(memory_side([0; 3], device, 24, 4), memory_side([0; 3], host, 24, 4), [24, 4, 1]);
        params[19] = kind as usize;
        let (mut graph, mut node) = (0, 0);
        assert_eq!(hip.hipGraphCreate(&mut graph, 0), 0);
        let refusals = [
            hip.hipMemcpy(device, host, 96, kind),
            hip.hipMemcpyAsync(device, host, 96, kind, 0),
            call!(hip, "hipMemcpyWithStream", device => usize, host => usize, 96 => usize, kind => i32, 0 => usize),
            call!(hip, "hipMemcpy_spt", device => usize, host => usize, 96 => usize, kind => i32),
            hip.hipMemcpy2D(device, 24, host, 24, 24, 4, kind),
            hip.hipMemcpy2DToArray(array, 0, 0, host, 24, 24, 4, kind),
            hip.hipMemcpy2DFromArray(device, 24, array, 0, 0, 24, 4, kind),
            hip.hipMemcpy2DArrayToArray(array, 0, 0, array, 0, 0, 24, 4, kind),
            call!(hip, "hipMemcpy3D", params.as_ptr() => *const usize),
            call!(hip, "hipMemcpy3DAsync", params.as_ptr() => *const usize, 0 => usize),
            hip.hipGraphAddMemcpyNode1D(&mut node, graph, std::ptr::null(), 0, device, host, 96, kind),
        ];
        assert_eq!(refusals, [INVALID_DIRECTION; 11], "kind {kind}");
        assert_eq!(hip.hipGraphDestroy(graph), 0);
    }
    // The last of the kinds has a number of its own.
    assert_eq!(hip.hipMemcpy(device, host, 96, 1024), 0);
    assert_eq!(hip.hipFreeArray(array), 0);
    assert_eq!(hip.hipFree(device), 0);
}

#[test]
fn waits_for_a_part_of_a_word_end_with_that_part() {
    let (hip, _alone) = on_driver();
    let (stream, module) = (hip.stream(1), module(hip, KERNELS));
    let function = hip.function(module, "iota");
    let (device, mut host) = (hip.device(64), 0);
    assert_eq!(hip.hipHostMalloc(&mut host, 64, 0), 0);
    let store = |word: u64| {
        // SAFETY: a live, aligned word of pinned memory, which streams look at with atomic loads too.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(host as *mut u64) }
            .store(word, std::sync::atomic::Ordering::Release);
    };
    let wait32 = |value, condition, mask| hip.hipStreamWaitValue32(stream, host, value, condition, mask);
    let wait64 = |value, condition, mask| {
        call!(
            hip, "hipStreamWaitValue64", stream => usize, host => usize, value => u64, condition => u32, mask => u64
        )
    };
    // What stands there first, the wait, what does not end it, and what does.
    type Wait<'a> = &'a dyn Fn() -> i32;
    let cases: [(u64, Wait<'_>, u64, u64); 5] = [
        (0, &|| wait32(0x1234, 1, 0xFF00), 0x34, 0x12FF),
        (0x1100, &|| wait32(0x1200, 0, 0xFF00), 0x11FF, 0x1300),
        (0, &|| wait32(0xFF12, 2, 0xFF), 0xFF00, 2),
        (1 << 40, &|| wait64(2 << 40, 0, !0 << 32), 1 << 40 | 0xFFFF_FFFF, 3 << 40),
        (0, &|| wait64(5 << 40, 1, 0xFF << 40), 5, 5 << 40 | 5),
    ];
    for (number, (before, wait, other, ends)) in cases.into_iter().enumerate() {
        store(before);
        assert_eq!(wait(), 0);
        let values = [100 * number as u32, 4];
        let params =
            [(&raw const device).cast(), (&raw const values[0]).cast(), (&raw const values[1]).cast::<c_void>()];
        let launched =
            hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params.as_ptr(), std::ptr::null());
        assert_eq!(launched, 0);
        store(other);
        assert_eq!(hip.hipStreamQuery(stream), NOT_READY, "case {number}");
        store(ends);
        assert_eq!(hip.hipStreamSynchronize(stream), 0);
        assert_eq!(hip.words(device, 2), [values[0], values[0] + 1]);
    }
    // A bit that both words lack is one that is masked out.
    assert_eq!(wait32(0, 3, 0xFF), 0);
    assert_eq!(hip.hipStreamSynchronize(stream), 0);
    assert_eq!(wait32(0, 4, 0xFF), INVALID_VALUE);
    assert_eq!(hip.hipStreamWaitValue32(stream, host + 2, 0, 1, 0xFF), INVALID_VALUE);
    for code in [hip.hipStreamDestroy(stream), hip.hipModuleUnload(module), hip.hipFree(device), hip.hipHostFree(host)]
    {
        assert_eq!(code, 0);
    }
}

#[test]
fn code_of_the_program_is_there_before_a_stream_waits() {
    let (hip, _alone) = on_driver();
    // The device was used before: what is registered late is loaded by the next call.
    let (waiting, other, gate, device) = (hip.stream(1), hip.stream(1), hip.gate(), hip.device(64));
    let image = bundle(KERNELS);
    let wrapper = [u64::from(0x4850_4946_u32) | 1 << 32, image.as_ptr() as u64, 0];
    let (stub, name) = ([0_u8; 1], CString::new("fill").expect("text"));
    // SAFETY: the registration's prototypes; the image, the stub's address and the name live to the end of the test.
    let binary = unsafe {
        type Register = unsafe extern "C" fn(*const u64) -> usize;
        type RegisterFunction =
            unsafe extern "C" fn(usize, usize, *mut i8, *const i8, u32, usize, usize, usize, usize, usize);
        let binary = hip.symbol::<Register>("__hipRegisterFatBinary")(wrapper.as_ptr());
        let register = hip.symbol::<RegisterFunction>("__hipRegisterFunction");
        register(binary, stub.as_ptr() as usize, name.as_ptr().cast_mut(), name.as_ptr(), 0, 0, 0, 0, 0, 0);
        binary
    };
    gate.close(waiting);
    assert_eq!(hip.hipStreamQuery(waiting), NOT_READY);
    let values = [9_u32, 4];
    let params = [(&raw const device).cast(), (&raw const values[0]).cast(), (&raw const values[1]).cast::<c_void>()];
    let one = common::Dim3(1, 1, 1);
    assert_eq!(hip.hipLaunchKernel(stub.as_ptr() as usize, one, one, params.as_ptr(), 0, other), 0);
    assert_eq!(hip.hipStreamSynchronize(other), 0);
    assert_eq!(hip.words(device, 4), [9; 4]);
    gate.open();
    assert_eq!(hip.hipStreamSynchronize(waiting), 0);
    // SAFETY: the registration's prototype.
    unsafe { hip.symbol::<unsafe extern "C" fn(usize)>("__hipUnregisterFatBinary")(binary) };
    for code in [hip.hipStreamDestroy(waiting), hip.hipStreamDestroy(other), hip.hipFree(device)] {
        assert_eq!(code, 0);
    }
}

#[test]
fn a_reset_device_is_bound_again_by_every_thread() {
    let (hip, _alone) = on_driver();
    let (stream, event) = (hip.stream(1), hip.event());
    assert_eq!(hip.hipDeviceSynchronize(), 0);
    assert_eq!(call!(hip, "hipDeviceReset",), 0);
    assert_eq!(hip.hipStreamSynchronize(stream), INVALID_HANDLE);
    assert_eq!(hip.hipEventSynchronize(event), INVALID_HANDLE);
    // The driver has no current context until this thread binds the new one.
    assert_eq!(hip.hipDeviceSynchronize(), 0);
    assert_ne!(hip.device(64), 0);
    assert_eq!(call!(hip, "hipDevicePrimaryCtxReset", 0 => i32), 0);
    assert_eq!(hip.hipDeviceSynchronize(), 0);
}

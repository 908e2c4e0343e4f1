//! Loaded code objects, the modules that own them, and function handles.

use crate::bundle;
use crate::config::config;
use crate::error::{HipError, HipResult};
use crate::kernel::{Argument, Kernel, KernelFn};
use crate::memory::{self, MemoryKind};
use crate::queue::splitmix;
use crate::registry::{Registry, lock};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A code object loaded for one device, with its own copy of every variable.
#[derive(Debug)]
pub(crate) struct CodeObject {
    /// One for each code object that was linked into the image.
    libraries: Vec<LibraryHandle>,
    pub(crate) device: usize,
    /// Size in bytes and kind of each exported symbol.
    symbols: HashMap<String, Symbol>,
    /// Base addresses of the variables made known to the memory map.
    variables: Mutex<Vec<usize>>,
    /// Storage of the image's managed variables, by name.
    managed: HashMap<String, Managed>,
    /// The images in memory. Open as long as the libraries are: the loader identifies a library by its path, and these
    /// ones' paths are the descriptors' numbers.
    _images: Vec<File>,
}

/// Memory of a managed variable that a code object brings with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Managed {
    pub(crate) storage: usize,
    pub(crate) len_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    len_bytes: usize,
    is_function: bool,
    /// Which of the libraries has it.
    library: usize,
}

/// What `dlopen` returned; closed when the code object is dropped.
#[derive(Debug)]
struct LibraryHandle(*mut c_void);

// SAFETY: a dlopen handle may be used from any thread; dlsym and dlclose lock internally.
unsafe impl Send for LibraryHandle {}
// SAFETY: as above.
unsafe impl Sync for LibraryHandle {}

impl Drop for LibraryHandle {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once; kernels that could still run hold the code object.
        unsafe { libc::dlclose(self.0) };
    }
}

impl Drop for CodeObject {
    fn drop(&mut self) {
        for base in lock(&self.variables).drain(..) {
            memory::remove_foreign(MemoryKind::Variable, base);
        }
        for variable in self.managed.values() {
            if let Some(gone) = memory::forget_host(variable.storage, |found| found.kind == MemoryKind::Managed) {
                memory::release_host(&gone);
            }
        }
    }
}

/// With chaos: memory that is held while code is loaded, so that it comes to lie elsewhere than the code that was unloaded
/// before. Its variables' addresses differ from load to load then, as on a device.
struct Elsewhere {
    address: *mut c_void,
    len_bytes: usize,
}

impl Elsewhere {
    fn drawn() -> Option<Self> {
        const PAGE_BYTES: usize = 4096;
        static LOADS: AtomicU64 = AtomicU64::new(0);
        let seed = config().chaos_seed?;
        // Relaxed: only a count.
        let draw = splitmix(seed ^ splitmix(LOADS.fetch_add(1, Ordering::Relaxed)));
        let len_bytes = (draw % 32) as usize * PAGE_BYTES;
        if len_bytes == 0 {
            return None;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping that nothing can touch, at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_NONE, flags, -1, 0) };
        (address != libc::MAP_FAILED).then_some(Elsewhere { address, len_bytes })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it.
        unsafe { libc::munmap(self.address, self.len_bytes) };
    }
}

impl CodeObject {
    /// Loads the x86-64 code objects in `image` for `device`.
    pub(crate) fn load(image: &[u8], device: usize) -> HipResult<Arc<Self>> {
        let mut loaded = Self {
            libraries: Vec::new(),
            device,
            symbols: HashMap::new(),
            variables: Mutex::default(),
            managed: HashMap::new(),
            _images: Vec::new(),
        };
        for code in bundle::find_all_code(image)? {
            loaded.add(&code)?;
        }
        loaded.make_managed()?;
        Ok(Arc::new(loaded))
    }

    /// Loads one code object. Fails with `hipErrorInvalidImage` on a symbol that another one has.
    fn add(&mut self, code: &[u8]) -> HipResult {
        for (name, symbol) in exported_symbols(code)? {
            if self.symbols.insert(name, Symbol { library: self.libraries.len(), ..symbol }).is_some() {
                return Err(HipError::INVALID_IMAGE);
            }
        }
        let mut file = memory_file()?;
        file.write_all(code).map_err(|_| HipError::OUT_OF_MEMORY)?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| HipError::UNKNOWN)?;
        let _elsewhere = Elsewhere::drawn();
        // SAFETY: a terminated path. The library's initialisers run: loading code is what the caller asked for.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            report_load_failure();
            return Err(HipError::SHARED_INIT_FAILED);
        }
        self.libraries.push(LibraryHandle(library));
        self._images.push(file);
        Ok(())
    }

    /// Gives each managed variable its memory: `NAME.managed` holds what it starts as, `NAME` is a pointer to it.
    fn make_managed(&mut self) -> HipResult {
        let names: Vec<String> =
            self.symbols.keys().filter_map(|name| name.strip_suffix(".managed")).map(str::to_owned).collect();
        for name in names {
            let c_name = |name: &str| CString::new(name).map_err(|_| HipError::INVALID_IMAGE);
            let (initial, address) =
                self.symbol(&c_name(&format!("{name}.managed"))?).ok_or(HipError::INVALID_IMAGE)?;
            let len_bytes = initial.len_bytes;
            let storage = memory::allocate_host(MemoryKind::Managed, self.device, len_bytes, 1)?;
            // SAFETY: the library's object of this length, and a fresh allocation of it.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, storage as *mut u8, len_bytes) };
            self.managed.insert(name.clone(), Managed { storage, len_bytes });
            self.bind_managed(&c_name(&name)?, storage);
        }
        Ok(())
    }

    /// The memory of managed variable `name`. Fails with `hipErrorNotFound`.
    pub(crate) fn managed(&self, name: &CStr) -> HipResult<Managed> {
        let found = name.to_str().ok().and_then(|name| self.managed.get(name));
        found.copied().ok_or(HipError::NOT_FOUND)
    }

    fn symbol(&self, name: &CStr) -> Option<(Symbol, usize)> {
        let symbol = *self.symbols.get(name.to_str().ok()?)?;
        // SAFETY: an open library handle and a terminated name.
        let address = unsafe { libc::dlsym(self.libraries.get(symbol.library)?.0, name.as_ptr()) };
        (!address.is_null()).then_some((symbol, address as usize))
    }

    /// Names of the exported functions that are kernels: those described by a `NAME__args` object.
    pub(crate) fn kernel_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .symbols
            .iter()
            .filter(|(name, symbol)| symbol.is_function && self.symbols.contains_key(&format!("{name}__args")))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        if config().reverse {
            names.reverse();
        }
        names
    }

    /// The kernel called `name`. Fails with `hipErrorNotFound`.
    pub(crate) fn kernel(self: &Arc<Self>, name: &CStr) -> HipResult<Kernel> {
        let (symbol, address) = self.symbol(name).ok_or(HipError::NOT_FOUND)?;
        if !symbol.is_function {
            return Err(HipError::NOT_FOUND);
        }
        let (arguments, kernarg_bytes) = self.arguments(name)?;
        // SAFETY: the symbol is a function of a code object made for this runtime, hence of this type; the code stays
        // mapped as long as the kernel holds the code object.
        let entry = unsafe { std::mem::transmute::<usize, KernelFn>(address) };
        Ok(Kernel {
            name: name.to_owned(),
            entry,
            arguments,
            kernarg_bytes,
            static_shared_bytes: self.word_object(name, "__static_shared").unwrap_or(0),
            code: Arc::clone(self),
        })
    }

    /// The u32 in `NAME<suffix>`, if it is exported.
    fn word_object(&self, name: &CStr, suffix: &str) -> Option<usize> {
        let (words, _) = self.words(name, suffix)?;
        words.first().map(|word| *word as usize)
    }

    /// The u32 words of the object `NAME<suffix>`, as many as its symbol says.
    fn words(&self, name: &CStr, suffix: &str) -> Option<(Vec<u32>, usize)> {
        let full = CString::new([name.to_bytes(), suffix.as_bytes()].concat()).ok()?;
        let (symbol, address) = self.symbol(&full)?;
        if symbol.is_function {
            return None;
        }
        // SAFETY: the object's symbol gives its size, and the library is mapped; unaligned, as nothing more is known.
        let words =
            (0..symbol.len_bytes / 4).map(|i| unsafe { (address as *const u32).add(i).read_unaligned() }).collect();
        Some((words, address))
    }

    /// `NAME__args`: count, kernarg size, then offset and size per argument. None means no arguments.
    fn arguments(&self, name: &CStr) -> HipResult<(Vec<Argument>, usize)> {
        let Some((words, _)) = self.words(name, "__args") else { return Ok((Vec::new(), 0)) };
        let [count, kernarg_bytes, rest @ ..] = words.as_slice() else { return Err(HipError::INVALID_IMAGE) };
        let (count, kernarg_bytes) = (*count as usize, *kernarg_bytes as usize);
        let arguments: Vec<Argument> = rest
            .chunks_exact(2)
            .take(count)
            .map(|pair| Argument { offset: pair[0] as usize, len_bytes: pair[1] as usize })
            .collect();
        let fits = |argument: &Argument| {
            argument.offset.checked_add(argument.len_bytes).is_some_and(|end| end <= kernarg_bytes)
        };
        if arguments.len() < count || kernarg_bytes > 1 << 20 || !arguments.iter().all(fits) {
            return Err(HipError::INVALID_IMAGE);
        }
        Ok((arguments, kernarg_bytes))
    }

    /// Address and size of the device variable `name`; from now on part of the memory map. Fails with `hipErrorNotFound`.
    pub(crate) fn variable(&self, name: &CStr) -> HipResult<(usize, usize)> {
        let (symbol, address) = self.symbol(name).ok_or(HipError::NOT_FOUND)?;
        if symbol.is_function {
            return Err(HipError::NOT_FOUND);
        }
        let mut variables = lock(&self.variables);
        if !variables.contains(&address) {
            memory::add_foreign(
                MemoryKind::Variable,
                self.device,
                address,
                symbol.len_bytes,
                0,
                HipError::ALREADY_MAPPED,
            )?;
            variables.push(address);
        }
        Ok((address, symbol.len_bytes))
    }

    /// Points the managed variable `name` (a pointer in device code) at its storage.
    pub(crate) fn bind_managed(&self, name: &CStr, storage: usize) {
        if let Some((symbol, address)) = self.symbol(name)
            && !symbol.is_function
            && symbol.len_bytes == size_of::<usize>()
        {
            // SAFETY: a writable pointer-sized object of the library, bound before any kernel of it runs.
            unsafe { (address as *mut usize).write_unaligned(storage) }
        }
    }
}

fn exported_symbols(code: &[u8]) -> HipResult<HashMap<String, Symbol>> {
    let elf = object::File::parse(code).map_err(|_| HipError::INVALID_IMAGE)?;
    Ok(elf
        .dynamic_symbols()
        .filter(ObjectSymbol::is_definition)
        .filter_map(|symbol| {
            let is_function = symbol.kind() == SymbolKind::Text;
            Some((
                symbol.name().ok()?.to_owned(),
                Symbol { len_bytes: usize::try_from(symbol.size()).ok()?, is_function, library: 0 },
            ))
        })
        .collect())
}

fn memory_file() -> HipResult<File> {
    // SAFETY: a terminated name; the returned descriptor is new and owned here.
    unsafe {
        let descriptor = libc::memfd_create(c"hip-code-object".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 { Err(HipError::OUT_OF_MEMORY) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

fn report_load_failure() {
    // SAFETY: dlerror returns null or a terminated string valid until the next dl* call on this thread.
    let reason = unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    eprintln!("minihip: a code object cannot be loaded: {reason}");
}

/// The bytes of an image in memory, whose length only it knows.
pub(crate) fn image_at<'a>(address: usize) -> HipResult<&'a [u8]> {
    if address == 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let mut len_bytes = 0;
    loop {
        // SAFETY: the caller of the entry point passed a pointer to an image; `image_bytes` only asks for bytes that
        // the image's own headers say are there, and the first ones any image has.
        let prefix = unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes) };
        let wanted = bundle::image_bytes(prefix)?;
        if wanted <= len_bytes {
            return Ok(&prefix[..wanted]);
        }
        len_bytes = wanted;
    }
}

/// A module loaded by the program.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) code: Arc<CodeObject>,
    /// Function handles given out, by name.
    functions: Mutex<HashMap<CString, usize>>,
}

static MODULES: Registry<Module> = Registry::new();
static FUNCTIONS: Registry<Kernel> = Registry::new();

/// Loads `image` on `device` and returns the module's handle.
pub(crate) fn load(image: &[u8], device: usize) -> HipResult<usize> {
    let code = CodeObject::load(image, device)?;
    MODULES.insert(|_| Arc::new(Module { code, functions: Mutex::default() }))
}

/// The module a handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve(handle: usize) -> HipResult<Arc<Module>> {
    MODULES.get(handle).ok_or(HipError::INVALID_HANDLE)
}

/// Ends a module and its functions; launches under way keep the code until they are done.
pub(crate) fn unload(handle: usize) -> HipResult {
    let module = MODULES.remove(handle).ok_or(HipError::INVALID_HANDLE)?;
    for (_, function) in lock(&module.functions).drain() {
        FUNCTIONS.remove(function);
    }
    crate::texture_reference::forget_module(handle);
    Ok(())
}

impl Module {
    /// The handle of kernel `name`; the same one for every request. Fails with `hipErrorNotFound`.
    pub(crate) fn function(&self, name: &CStr) -> HipResult<usize> {
        let mut functions = lock(&self.functions);
        if let Some(handle) = functions.get(name) {
            return Ok(*handle);
        }
        let kernel = self.code.kernel(name)?;
        let handle = FUNCTIONS.insert(|_| Arc::new(kernel))?;
        functions.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

impl Module {
    /// Handles of the first `count` kernels, by name.
    pub(crate) fn functions(&self, count: usize) -> HipResult<Vec<usize>> {
        let names = self.code.kernel_names();
        let named = names.iter().take(count).map(|name| CString::new(name.as_str()).map_err(|_| HipError::UNKNOWN));
        named.map(|name| self.function(&name?)).collect()
    }
}

/// A function handle for a kernel outside any module (`hipGetFuncBySymbol`).
pub(crate) fn function_for(kernel: &Arc<Kernel>) -> HipResult<usize> {
    FUNCTIONS.insert(|_| Arc::clone(kernel))
}

/// The kernel a function handle stands for. Fails with `hipErrorInvalidHandle`.
pub(crate) fn resolve_function(handle: usize) -> HipResult<Arc<Kernel>> {
    FUNCTIONS.get(handle).ok_or(HipError::INVALID_HANDLE)
}

//! Which kernel a launch names, and where its arguments lie.
//!
//! A host function symbol or a function handle leads to a [`Named`] kernel of a [`CodeObject`] through a table that is
//! read without a lock. Its signature is looked up at its first launch: programs register thousands of kernels and
//! launch a few. Only then does it get a number and a line in the archive's kernel table.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hrr_format::code_object::{ArgKind, KernelArg, KernelSignature, explicit_bytes, signatures};
use hrr_format::kernel_table;

use crate::files::GuardedFile;
use crate::guest::small_stack::with_own_stack_or_stop;
use crate::guest::unnoticed::Unnoticed;
use crate::handle_table::HandleTable;
use crate::plan::KernelWord;

/// A code object of the program.
#[derive(Debug)]
pub(crate) struct CodeObject {
    /// Number in the archive's store; `None` where contents are withheld.
    number: Option<u64>,
    code: Mutex<Code>,
    /// Names of its variables, where windows are recorded.
    variables: Vec<String>,
}

#[derive(Debug)]
enum Code {
    /// An image that lies in the program's memory for as long as it is registered: address and length.
    Registered(u64, usize),
    /// The signatures that were found in it.
    Parsed(HashMap<String, KernelSignature>),
}

/// A kernel that the program has a symbol or handle for.
#[derive(Debug)]
pub(crate) struct Named {
    object: &'static CodeObject,
    name: String,
    kernel: AtomicPtr<Kernel>,
}

/// A kernel that was launched.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Number in the archive's kernel table.
    pub(crate) number: u32,
    /// Its explicit arguments, where the code object describes them.
    pub(crate) signature: Option<Signature>,
}

/// What a launch must know of a kernel's arguments.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The explicit arguments.
    pub(crate) args: Box<[KernelArg]>,
    /// Bytes to the end of the last one.
    pub(crate) explicit_bytes: u32,
    /// Whether every argument is a pointer, so that nothing is withheld in metadata-only mode.
    pub(crate) only_pointers: bool,
}

/// The kernels of a process.
#[derive(Debug)]
pub(crate) struct Kernels {
    symbols: HandleTable<Named>,
    functions: HandleTable<Named>,
    state: Mutex<State>,
    path: PathBuf,
    withheld: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Code objects by the handle that HIP gave for them: fat binary registration, module or library.
    objects: HashMap<u64, &'static CodeObject>,
    /// Kernels by code object and name.
    named: HashMap<(usize, String), &'static Named>,
    file: Option<GuardedFile>,
    file_bytes: u64,
    launched: u32,
}

impl Kernels {
    /// No kernels yet; `withheld` says that code objects are not recorded.
    pub(crate) fn new(process_dir: &std::path::Path, withheld: bool) -> Self {
        Kernels {
            symbols: HandleTable::new(),
            functions: HandleTable::new(),
            state: Mutex::default(),
            path: process_dir.join(kernel_table::FILE),
            withheld,
        }
    }

    /// Number of kernels launched so far.
    pub(crate) fn launched(&self) -> u32 {
        self.state().launched
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a fat binary that stays in memory while it is registered.
    pub(crate) fn register(&self, handle: u64, number: Option<u64>, image: u64, len_bytes: usize) {
        self.add(handle, number, Code::Registered(image, len_bytes), Vec::new());
    }

    /// Remembers a code object that the program may free once it is loaded, and the variables in it that may be asked for.
    pub(crate) fn load(&self, handle: u64, number: Option<u64>, image: &[u8], variables: Vec<String>) {
        self.add(handle, number, Code::Parsed(parse(image)), variables);
    }

    /// Names of a module's or library's variables, as far as they are kept.
    pub(crate) fn variables(&self, handle: u64) -> Vec<String> {
        self.state().objects.get(&handle).map(|object| object.variables.clone()).unwrap_or_default()
    }

    fn add(&self, handle: u64, number: Option<u64>, code: Code, variables: Vec<String>) {
        let object = Box::leak(Box::new(CodeObject { number, code: Mutex::new(code), variables }));
        self.state().objects.insert(handle, object);
    }

    /// Forgets a code object whose memory, or handle, goes. Kernels that were launched keep what is known of them; the
    /// others have no signature any more, should a launch still come.
    pub(crate) fn unload(&self, handle: u64) {
        let object = self.state().objects.remove(&handle);
        if let Some(object) = object {
            *object.code() = Code::Parsed(HashMap::new());
        }
    }

    /// A host function symbol stands for a kernel of a registered fat binary.
    pub(crate) fn name_symbol(&self, symbol: u64, fat_binary: u64, name: &str) {
        if let Some(named) = self.named(fat_binary, name) {
            self.symbols.insert(symbol, named);
        }
    }

    /// A function or kernel handle stands for a kernel of a module or library.
    pub(crate) fn name_function(&self, function: u64, module: u64, name: &str) {
        if let Some(named) = self.named(module, name) {
            self.functions.insert(function, named);
        }
    }

    /// A function handle stands for the same kernel as a symbol or another handle.
    pub(crate) fn alias(&self, function: u64, of: u64) {
        if let Some(named) = self.find(of) {
            self.functions.insert(function, named);
        }
    }

    fn named(&self, handle: u64, name: &str) -> Option<&'static Named> {
        let mut state = self.state();
        let object = *state.objects.get(&handle)?;
        let key = (std::ptr::from_ref(object) as usize, name.to_owned());
        let named = state.named.entry(key).or_insert_with(|| {
            let kernel = AtomicPtr::new(std::ptr::null_mut());
            Box::leak(Box::new(Named { object, name: name.to_owned(), kernel }))
        });
        Some(named)
    }

    fn find(&self, handle: u64) -> Option<&'static Named> {
        self.symbols.get(handle).or_else(|| self.functions.get(handle))
    }

    /// The kernel that a launch names; `None` where the program got it in a way that was not seen.
    #[inline]
    pub(crate) fn launched_by(&self, word: KernelWord, words: &[u64]) -> Option<&'static Kernel> {
        let named = match word {
            KernelWord::Symbol(word) => self.symbols.get(words[usize::from(word)]),
            KernelWord::Function(word) => self.functions.get(words[usize::from(word)]),
        };
        self.resolve(named.or_else(|| match word {
            // Some entry points take either, and look which it is.
            KernelWord::Symbol(word) | KernelWord::Function(word) => self.find(words[usize::from(word)]),
        })?)
    }

    /// The kernel that a symbol or handle stands for.
    pub(crate) fn of(&self, symbol_or_handle: u64) -> Option<&'static Kernel> {
        self.resolve(self.find(symbol_or_handle)?)
    }

    #[inline]
    fn resolve(&self, named: &'static Named) -> Option<&'static Kernel> {
        // Acquire: pairs with the release in `first_launch`.
        let kernel = named.kernel.load(Ordering::Acquire);
        if kernel.is_null() {
            let _unnoticed = Unnoticed::new();
            return catch_unwind(AssertUnwindSafe(|| self.first_launch(named))).unwrap_or_default();
        }
        // SAFETY: kernels are leaked, never freed.
        Some(unsafe { &*kernel })
    }

    #[cold]
    fn first_launch(&self, named: &'static Named) -> Option<&'static Kernel> {
        let signature = named.object.signature(&named.name);
        let mut state = self.state();
        let known = named.kernel.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: kernels are leaked, never freed.
            return Some(unsafe { &*known });
        }
        let number = state.launched;
        let line = kernel_table::Kernel {
            kernel: number,
            name: named.name.clone(),
            code_object: named.object.number,
            kernarg_bytes: signature.as_ref().map_or(0, |signature| signature.kernarg_bytes),
            args: signature.as_ref().map(|signature| signature.args.clone()),
            withheld: self.withheld,
        }
        .to_line();
        if let Err(error) = self.append(&mut state, line.as_bytes()) {
            crate::process::stop(format_args!("{} cannot be written: {error}", self.path.display()));
            return None;
        }
        state.launched += 1;
        let signature = signature.map(|signature| Signature {
            explicit_bytes: explicit_bytes(&signature.args),
            only_pointers: signature.args.iter().all(|arg| is_pointer(arg.kind)),
            args: signature.args.into(),
        });
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel { number, signature }));
        // Release: whoever sees the pointer sees the kernel.
        named.kernel.store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Release);
        Some(kernel)
    }

    fn append(&self, state: &mut State, line: &[u8]) -> std::io::Result<()> {
        if state.file.is_none() {
            state.file = Some(GuardedFile::create(self.path.clone())?);
        }
        if let Some(file) = &state.file {
            crate::writer::segment::check_size_limit(state.file_bytes + line.len() as u64)?;
            file.write_all_at(line, state.file_bytes)?;
            state.file_bytes += line.len() as u64;
        }
        Ok(())
    }
}

/// Whether an argument of this kind is kept in metadata-only mode: an address is no content.
pub(crate) fn is_pointer(kind: ArgKind) -> bool {
    kind == ArgKind::GlobalBuffer
}

impl CodeObject {
    fn code(&self) -> MutexGuard<'_, Code> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signature(&self, name: &str) -> Option<KernelSignature> {
        let mut code = self.code();
        if let Code::Registered(address, len_bytes) = *code {
            // SAFETY: the image was measured when it was registered and stays in memory while it is; `unload` takes this
            // state away, under this lock, before the program's own unregistering returns.
            let image = unsafe { std::slice::from_raw_parts(address as *const u8, len_bytes) };
            *code = Code::Parsed(parse(image));
        }
        match &*code {
            Code::Parsed(signatures) => signatures.get(name).cloned(),
            Code::Registered(..) => None,
        }
    }
}

fn parse(image: &[u8]) -> HashMap<String, KernelSignature> {
    // An image without AMD GPU code, or one that cannot be read, describes no kernel: its launches are recorded without
    // arguments and counted, and replay names them.
    let found = with_own_stack_or_stop("a code object was read", || signatures(image).ok()).unwrap_or_default();
    found.into_iter().map(|signature| (signature.name.clone(), signature)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compressed bundle, zlib within a bundle of version 2, whose contents are no bundle: `stored` as they are.
    fn compressed(stored: &[u8]) -> Vec<u8> {
        let (a, b) = stored.iter().fold((1u32, 0u32), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65521;
            (a, (a + b) % 65521)
        });
        let len = stored.len() as u16;
        let lens = [len.to_le_bytes(), (!len).to_le_bytes()].concat();
        let zlib = [&[0x78, 0x01, 0x01], &lens[..], stored, &(b << 16 | a).to_be_bytes()].concat();
        let header = [24 + zlib.len() as u32, stored.len() as u32].map(u32::to_le_bytes).concat();
        [b"CCOB\x02\0\0\0", &header[..], &[0; 8], &zlib].concat()
    }

    /// The first launch of a registered kernel may be a thread's that has hardly any stack; unpacking takes more than it has.
    #[test]
    fn a_compressed_code_object_is_read_by_a_thread_with_little_stack() {
        let image = compressed(&[7; 600]);
        let said = signatures(&image).unwrap_err().to_string();
        assert!(!said.contains("compress"), "it unpacks: {said}");
        let thread = std::thread::Builder::new().stack_size(32 << 10);
        let found = thread.spawn(move || parse(&image).len()).unwrap().join().unwrap();
        assert_eq!(found, 0);
    }

    fn object(signatures: Vec<KernelSignature>) -> Code {
        Code::Parsed(signatures.into_iter().map(|signature| (signature.name.clone(), signature)).collect())
    }

    fn signature(name: &str, args: &[(u32, u32, ArgKind)]) -> KernelSignature {
        KernelSignature {
            name: name.into(),
            symbol: format!("{name}.kd"),
            kernarg_bytes: 64,
            args: args.iter().map(|&(offset, size, kind)| KernelArg { offset, size, kind }).collect(),
        }
    }

    #[test]
    fn kernels_are_told_apart_by_code_object_and_numbered_by_first_launch() {
        let dir = tempfile::tempdir().unwrap();
        let kernels = Kernels::new(dir.path(), false);
        let args = [(0, 8, ArgKind::GlobalBuffer), (8, 4, ArgKind::ByValue)];
        kernels.add(1, Some(10), object(vec![signature("k", &args)]), Vec::new());
        kernels.add(2, Some(11), object(vec![signature("k", &args[..1])]), Vec::new());
        kernels.name_symbol(0x100, 1, "k");
        kernels.name_function(0x200, 2, "k");
        kernels.name_function(0x300, 2, "k");
        kernels.alias(0x400, 0x100);
        let second = kernels.launched_by(KernelWord::Function(0), &[0x200]).unwrap();
        assert_eq!((second.number, second.signature.as_ref().unwrap().explicit_bytes), (0, 8));
        assert!(second.signature.as_ref().unwrap().only_pointers);
        let first = kernels.launched_by(KernelWord::Symbol(0), &[0x100]).unwrap();
        assert_eq!((first.number, first.signature.as_ref().unwrap().explicit_bytes), (1, 12));
        assert_eq!(kernels.of(0x300).unwrap().number, 0);
        assert_eq!(kernels.of(0x400).unwrap().number, 1);
        assert!(kernels.of(0x500).is_none());
        let table = kernel_table::KernelTable::open(&dir.path().join(kernel_table::FILE)).unwrap();
        assert_eq!(table.kernels().iter().map(|kernel| kernel.code_object).collect::<Vec<_>>(), [Some(11), Some(10)]);
    }

    #[test]
    fn a_handle_given_out_again_means_the_new_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let kernels = Kernels::new(dir.path(), true);
        kernels.add(1, None, object(vec![]), Vec::new());
        kernels.name_function(0x200, 1, "old");
        assert_eq!(kernels.of(0x200).unwrap().number, 0);
        kernels.unload(1);
        kernels.add(1, None, object(vec![]), Vec::new());
        kernels.name_function(0x200, 1, "new");
        let kernel = kernels.of(0x200).unwrap();
        assert_eq!(kernel.number, 1);
        assert!(kernel.signature.is_none());
    }
}

//! Kernels: launches name theirs and its code object; HIP wants a function handle or a registered symbol.
//!
//! A launch's code object is looked for, in this order: among the modules that the program has loaded from it, in the fat
//! binaries that it has registered, in the code object store. What stands for the kernel is made beforehand: behind the load
//! of the module, behind the registration of the fat binary, or at the very start. A launch that does not say which code
//! object it means is taken for the only one that has a kernel of its name; where there are several it is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use super::output::{Call, Output, SOME_POINTER};
use super::state::State;
use crate::catalogue::Role;
use crate::code_object::{self, ArgKind, KernelArg, KernelSignature};
use crate::kernel_table::Kernel as NativeKernel;
use crate::record::{BlobRef, Presence, SectionTag};
use crate::upstream::archive::{Stored, UpstreamArchive};
use crate::upstream::events::Event;
use crate::upstream::hash::ContentHash;
use crate::upstream::launch::{Argument, ArgumentKind, Kernel, Launch};
use crate::upstream::layout::{Extra, HEADER_BYTES, Kind, Layout};

/// Where handles begin that no runtime gave out: such addresses are in no process.
const FIRST_HANDLE: u64 = 0x4852_5200_0000_0000;

/// What a launch calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A function handle.
    Function(u64),
    /// A host symbol.
    Symbol(u64),
}

/// The kernel of a parsed record.
pub(super) fn launch_of<'a>(event: &Event<'a>) -> Result<Launch<'a>, String> {
    Launch::parse(event.bytes.get(HEADER_BYTES..).unwrap_or_default())
}

/// The kernel behind the fixed fields of a graph kernel node.
pub(super) fn node_of<'a>(event: &Event<'a>, layout: &Layout) -> Result<Kernel<'a>, String> {
    Kernel::parse_node(event.bytes.get(layout.size_bytes as usize..).unwrap_or_default())
}

/// Name, code object and arguments of a kernel.
type TableKey = (Vec<u8>, Option<u64>, Vec<KernelArg>);

#[derive(Debug)]
struct Module {
    handle: u64,
    code: ContentHash,
    device: i32,
    is_live: bool,
}

#[derive(Debug)]
struct FatBinary {
    handle: u64,
    /// Of the whole and of each image in it.
    hashes: HashSet<ContentHash>,
    is_live: bool,
}

/// Kernels and what stands for them.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    /// Names launched, by the code object that launches give.
    names: BTreeMap<ContentHash, BTreeSet<Vec<u8>>>,
    /// Names that launches give no code object for.
    nameless: BTreeSet<Vec<u8>>,
    /// Code objects with a kernel of such a name.
    candidates: HashMap<Vec<u8>, BTreeSet<ContentHash>>,
    modules: Vec<Module>,
    fat_binaries: Vec<FatBinary>,
    functions: HashMap<(u64, Vec<u8>), u64>,
    symbols: HashMap<(u64, Vec<u8>), u64>,
    loaded: HashMap<(ContentHash, i32), u64>,
    signatures: HashMap<ContentHash, Vec<KernelSignature>>,
    /// Numbers of code objects in the native store.
    numbers: HashMap<ContentHash, Option<u64>>,
    table: HashMap<TableKey, u32>,
    handles: u64,
}

impl Kernels {
    fn handle(&mut self) -> u64 {
        self.handles += 1;
        FIRST_HANDLE + self.handles * 16
    }

    /// Notes a record of the sequence, before anything is written.
    pub(super) fn survey(&mut self, event: &Event<'_>, layout: &Layout) {
        let kernel = match layout.kind {
            Kind::Launch => launch_of(event).map(|launch| launch.kernel),
            Kind::Node => node_of(event, layout),
            Kind::Fixed => return,
        };
        let Ok(kernel) = kernel else { return };
        if kernel.code.is_none() {
            self.nameless.insert(kernel.name.to_vec());
        } else {
            self.names.entry(kernel.code).or_default().insert(kernel.name.to_vec());
        }
    }

    /// Looks for the kernels of launches that do not say which code object they mean.
    pub(super) fn find_nameless(&mut self, archive: &UpstreamArchive) {
        if self.nameless.is_empty() {
            return;
        }
        let mut images: Vec<(ContentHash, bool)> =
            archive.code_object_hashes().into_iter().map(|hash| (hash, false)).collect();
        for event in archive.events() {
            if let Some(layout) = archive.layout(&event)
                && layout.api.name == "__hipRegisterFatBinary"
                && let Some(hash) = super::fields::hash(&event, layout, Extra::BlobLo, Extra::BlobHi)
            {
                images.push((hash, true));
            }
        }
        let mut parts = HashSet::new();
        let mut has = HashMap::<ContentHash, BTreeSet<Vec<u8>>>::new();
        for (hash, is_fat) in images {
            let Stored::Found(image) = (if is_fat { archive.blob(hash) } else { archive.code_object(hash) }) else {
                continue;
            };
            let names = code_object::signatures(&image).unwrap_or_default();
            has.insert(hash, names.into_iter().map(|known| known.name.into_bytes()).collect());
            // What a fat binary holds is the fat binary's.
            if is_fat {
                parts.extend(parts_of(&image));
            }
        }
        for (hash, names) in has {
            for name in names.into_iter().filter(|name| self.nameless.contains(name) && !parts.contains(&hash)) {
                self.candidates.entry(name).or_default().insert(hash);
            }
        }
        for name in &self.nameless {
            if let Some(only) = self.candidates.get(name).filter(|found| found.len() == 1).and_then(BTreeSet::first) {
                self.names.entry(*only).or_default().insert(name.clone());
            }
        }
    }

    /// Code objects of launches that nothing in the archive loads before: by the device of the launching thread.
    pub(super) fn to_be_loaded(&self, archive: &UpstreamArchive) -> BTreeSet<(i32, ContentHash)> {
        let mut live: HashMap<ContentHash, u64> = HashMap::new();
        let mut handles: HashMap<u64, ContentHash> = HashMap::new();
        let mut in_fat: HashMap<ContentHash, HashSet<ContentHash>> = HashMap::new();
        let mut fat = HashSet::new();
        let mut devices: HashMap<u64, i32> = HashMap::new();
        let mut wanted = BTreeSet::new();
        for event in archive.events() {
            let Some(layout) = archive.layout(&event) else { continue };
            if event.bytes.len() < layout.size_bytes as usize {
                continue;
            }
            let kernel = match layout.kind {
                Kind::Launch => launch_of(&event).map(|launch| launch.kernel).ok(),
                Kind::Node => node_of(&event, layout).ok(),
                Kind::Fixed => None,
            };
            if let Some(kernel) = kernel {
                let code = self.code_of(&kernel).unwrap_or(ContentHash::NONE);
                if !code.is_none() && !fat.contains(&code) && live.get(&code).copied().unwrap_or(0) == 0 {
                    wanted.insert((devices.get(&event.tid).copied().unwrap_or(0), code));
                }
                continue;
            }
            match layout.api.name {
                "hipSetDevice" => {
                    let device = super::fields::call(&event, layout).words[0] as u32 as i32;
                    devices.insert(event.tid, device);
                }
                "__hipRegisterFatBinary" => {
                    if let Some(hash) = super::fields::hash(&event, layout, Extra::BlobLo, Extra::BlobHi) {
                        let parts = in_fat.entry(hash).or_insert_with(|| match archive.blob(hash) {
                            Stored::Found(image) => parts_of(&image),
                            _ => HashSet::new(),
                        });
                        fat.extend(parts.iter().copied().chain([hash]));
                    }
                }
                "hipModuleUnload" => {
                    let handle = super::fields::call(&event, layout).word(0);
                    if let Some(hash) = handles.remove(&handle) {
                        *live.entry(hash).or_default() -= 1;
                    }
                }
                name if name.starts_with("hipModuleLoad") => {
                    if let Some(hash) = super::fields::hash(&event, layout, Extra::CodeLo, Extra::CodeHi) {
                        let call = super::fields::call(&event, layout);
                        let handle =
                            call.payload(SectionTag::Out, 0).and_then(|bytes| super::output::unsigned(bytes, 0, 8));
                        if let Some(handle) = handle
                            && handles.insert(handle, hash).is_none()
                        {
                            *live.entry(hash).or_default() += 1;
                        }
                    }
                }
                _ => {}
            }
        }
        wanted
    }

    /// The code object that a launch means.
    fn code_of(&self, kernel: &Kernel<'_>) -> Result<ContentHash, String> {
        if !kernel.code.is_none() {
            return Ok(kernel.code);
        }
        let name = String::from_utf8_lossy(kernel.name);
        match self.candidates.get(kernel.name) {
            Some(found) if found.len() == 1 => Ok(found.first().copied().unwrap_or(ContentHash::NONE)),
            Some(found) => Err(format!(
                "{} code objects have a kernel {name:?} and the record does not say which is meant",
                found.len()
            )),
            None => Err(format!("no code object of the archive has a kernel {name:?}")),
        }
    }

    /// Loads a code object that nothing else loads, and gets the functions that launches want. Calls to be made at the start.
    pub(super) fn load(
        &mut self,
        archive: &UpstreamArchive,
        output: &mut Output,
        device: i32,
        code: ContentHash,
    ) -> io::Result<Vec<Call>> {
        let Stored::Found(image) = archive.code_object(code) else { return Ok(Vec::new()) };
        let number = output.code_object(code, &image)?;
        let handle = self.handle();
        self.loaded.insert((code, device), handle);
        let why =
            "launches name this code object, which the program loaded before recording began or in a way not recorded";
        let mut calls = Vec::new();
        if let Some(mut call) = Call::added("hipModuleLoadData", why) {
            call.words = vec![SOME_POINTER, SOME_POINTER];
            call.section(SectionTag::Out, 0, Presence::Present, handle.to_le_bytes().to_vec());
            call.reference(SectionTag::Code, 1, BlobRef { number, size_bytes: image.len() as u64 });
            calls.push(call);
        }
        calls.extend(self.get_functions(handle, code));
        Ok(calls)
    }

    /// Calls that get, from a module, the functions that launches of its code object want.
    fn get_functions(&mut self, module: u64, code: ContentHash) -> Vec<Call> {
        let names: Vec<Vec<u8>> = self.names.get(&code).into_iter().flatten().cloned().collect();
        let mut calls = Vec::new();
        for name in names {
            let function = self.handle();
            self.functions.insert((module, name.clone()), function);
            let why = "a launch names this kernel";
            if let Some(mut call) = Call::added("hipModuleGetFunction", why) {
                call.words = vec![SOME_POINTER, module, SOME_POINTER];
                call.section(SectionTag::Out, 0, Presence::Present, function.to_le_bytes().to_vec());
                call.section(SectionTag::Text, 2, Presence::Present, name);
                calls.push(call);
            }
        }
        calls
    }

    /// A call that loads code was made: stores what it loads, and tells what to call right after it.
    pub(super) fn loads(
        &mut self,
        archive: &UpstreamArchive,
        output: &mut Output,
        event: &Event<'_>,
        layout: &Layout,
        call: &mut Call,
        device: i32,
    ) -> io::Result<Vec<Call>> {
        let is_fat = call.api.name == "__hipRegisterFatBinary";
        let found = if is_fat {
            super::fields::hash(event, layout, Extra::BlobLo, Extra::BlobHi)
        } else {
            super::fields::hash(event, layout, Extra::CodeLo, Extra::CodeHi)
        };
        let Some(hash) = found else {
            if call.api.params.iter().any(|param| param.role == Role::Image) && call.is_issued() {
                call.leave_out("upstream does not record the image; launches name their code objects");
            }
            return Ok(Vec::new());
        };
        if call.ret != 0 {
            return Ok(Vec::new());
        }
        let param = call.api.params.iter().position(|param| matches!(param.role, Role::Image | Role::CString));
        let param = param.unwrap_or(0) as u8;
        call.set(param, SOME_POINTER);
        let image = match if is_fat { archive.blob(hash) } else { archive.code_object(hash) } {
            Stored::Found(image) => image,
            Stored::Withheld => {
                call.reference(SectionTag::Code, param, BlobRef { number: BlobRef::WITHHELD, size_bytes: 0 });
                return Ok(Vec::new());
            }
            Stored::Unusable(_) if hash.is_none() => {
                call.refuse("its code object was not recorded");
                return Ok(Vec::new());
            }
            Stored::Unusable(reason) => {
                call.refuse(&reason);
                return Ok(Vec::new());
            }
        };
        let number = output.code_object(hash, &image)?;
        call.reference(SectionTag::Code, param, BlobRef { number, size_bytes: image.len() as u64 });
        let handle = match is_fat {
            true => call.payload(SectionTag::Return, crate::record::NO_PARAM),
            false => call.payload(SectionTag::Out, 0),
        };
        let Some(handle) = handle.and_then(|bytes| super::output::unsigned(bytes, 0, 8)).filter(|&handle| handle != 0)
        else {
            return Ok(Vec::new());
        };
        if !is_fat {
            self.modules.push(Module { handle, code: hash, device, is_live: true });
            return Ok(self.get_functions(handle, hash));
        }
        let mut hashes = parts_of(&image);
        hashes.insert(hash);
        let signatures = code_object::signatures(&image).unwrap_or_default();
        for &part in hashes.iter().filter(|part| self.names.contains_key(part)) {
            self.numbers.entry(part).or_insert(Some(number));
            self.signatures.entry(part).or_insert_with(|| signatures.clone());
        }
        let mut calls = Vec::new();
        let names: BTreeSet<Vec<u8>> =
            hashes.iter().filter_map(|part| self.names.get(part)).flatten().cloned().collect();
        for name in names {
            let symbol = self.handle();
            self.symbols.insert((handle, name.clone()), symbol);
            if let Some(mut call) = Call::added("__hipRegisterFunction", "a launch names this kernel") {
                call.words[..4].copy_from_slice(&[handle, symbol, SOME_POINTER, SOME_POINTER]);
                call.words[4] = u64::from(u32::MAX);
                call.section(SectionTag::Text, 2, Presence::Present, name.clone());
                call.section(SectionTag::Text, 3, Presence::Present, name);
                calls.push(call);
            }
        }
        self.fat_binaries.push(FatBinary { handle, hashes, is_live: true });
        Ok(calls)
    }

    /// The fat binary that a registration is about: the one of that handle, or the last one registered, since compiled code
    /// registers what is in a fat binary right behind it, and some recorders do not tell its handle.
    pub(super) fn fat_binary(&self, told: u64) -> u64 {
        let live = || self.fat_binaries.iter().rev().filter(|known| known.is_live);
        if live().any(|known| known.handle == told) {
            return told;
        }
        live().next().map_or(told, |known| known.handle)
    }

    /// A module or fat binary has gone.
    pub(super) fn unloads(&mut self, call: &Call) {
        if call.ret != 0 {
            return;
        }
        match call.api.name {
            "hipModuleUnload" => {
                let handle = call.word(0);
                self.modules.iter_mut().filter(|known| known.handle == handle).for_each(|known| known.is_live = false);
            }
            "__hipUnregisterFatBinary" => {
                let handle = call.word(0);
                self.fat_binaries
                    .iter_mut()
                    .filter(|known| known.handle == handle)
                    .for_each(|known| known.is_live = false);
            }
            _ => {}
        }
    }

    /// What a kernel of a launch on a device is called by.
    pub(super) fn resolve(&self, kernel: &Kernel<'_>, device: i32) -> Result<(ContentHash, Target), String> {
        let code = self.code_of(kernel)?;
        let name = kernel.name.to_vec();
        let of_module = |module: u64| self.functions.get(&(module, name.clone())).copied();
        let live = || self.modules.iter().rev().filter(|known| known.is_live && known.code == code);
        let module = live().find(|known| known.device == device).or_else(|| live().next());
        if let Some(function) = module.and_then(|module| of_module(module.handle)) {
            return Ok((code, Target::Function(function)));
        }
        let mut fat = self.fat_binaries.iter().rev().filter(|known| known.is_live && known.hashes.contains(&code));
        if let Some(symbol) = fat.find_map(|fat| self.symbols.get(&(fat.handle, name.clone())).copied()) {
            return Ok((code, Target::Symbol(symbol)));
        }
        let loaded = self.loaded.get(&(code, device)).copied().and_then(of_module);
        loaded.map(|function| (code, Target::Function(function))).ok_or_else(|| {
            format!("its code object {code} is not in the archive (kernel {:?})", String::from_utf8_lossy(&name))
        })
    }

    /// Gives a call the kernel's number and its arguments. `param` is where they are passed.
    #[expect(clippy::too_many_arguments, reason = "what is read, what is written, and the four parts of a launch")]
    pub(super) fn pass_arguments(
        &mut self,
        archive: &UpstreamArchive,
        output: &mut Output,
        state: &State,
        call: &mut Call,
        param: u8,
        kernel: &Kernel<'_>,
        code: ContentHash,
    ) -> io::Result<()> {
        let signature = self.signature(archive, code, kernel.name);
        let arguments: Vec<&Argument<'_>> = kernel.explicit().collect();
        if arguments.is_empty() && signature.is_some_and(|known| !known.args.is_empty()) {
            call.refuse("upstream recorded none of its kernel's arguments");
            return Ok(());
        }
        let fits = |known: &&KernelSignature| {
            known.args.len() == arguments.len()
                && known.args.iter().zip(&arguments).all(|(arg, told)| arg.size as usize == told.bytes.len())
        };
        let (mut args, kernarg_bytes) = match signature.filter(fits) {
            Some(known) => (known.args.clone(), known.kernarg_bytes),
            None => {
                let args = packed(&arguments);
                let end = code_object::explicit_bytes(&args);
                (args, end)
            }
        };
        for (arg, told) in args.iter_mut().zip(&arguments) {
            arg.kind = match told.kind {
                ArgumentKind::Pointer if told.bytes.len() == 8 => ArgKind::GlobalBuffer,
                _ => ArgKind::ByValue,
            };
        }
        for position in 1..args.len() {
            if is_split_address(state, arguments[position - 1], arguments[position])
                && args[position - 1].kind == ArgKind::ByValue
                && args[position].offset == args[position - 1].offset + 4
            {
                args[position - 1].kind = ArgKind::PointerLow;
            }
        }
        let mut bytes = vec![0; code_object::explicit_bytes(&args) as usize];
        for (arg, told) in args.iter().zip(&arguments) {
            bytes[arg.offset as usize..][..told.bytes.len()].copy_from_slice(told.bytes);
        }
        let number = match self.numbers.get(&code) {
            Some(&number) => number,
            None => {
                let number = match archive.code_object(code) {
                    Stored::Found(image) => Some(output.code_object(code, &image)?),
                    _ => None,
                };
                self.numbers.insert(code, number);
                number
            }
        };
        let key = (kernel.name.to_vec(), number, args);
        let next = self.table.len() as u32;
        if let Some(&known) = self.table.get(&key) {
            call.aux = known + 1;
        } else {
            output.writer().kernel(&NativeKernel {
                kernel: next,
                name: String::from_utf8_lossy(kernel.name).into_owned(),
                code_object: number,
                kernarg_bytes,
                args: Some(key.2.clone()),
                withheld: false,
            });
            self.table.insert(key, next);
            call.aux = next + 1;
        }
        call.section(SectionTag::KernelArgs, param, Presence::Present, bytes);
        Ok(())
    }

    fn signature(&mut self, archive: &UpstreamArchive, code: ContentHash, name: &[u8]) -> Option<&KernelSignature> {
        let known = self.signatures.entry(code).or_insert_with(|| match archive.code_object(code) {
            Stored::Found(image) => code_object::signatures(&image).unwrap_or_default(),
            _ => Vec::new(),
        });
        known.iter().find(|known| known.name.as_bytes() == name)
    }
}

/// The hashes of the images in a fat binary.
fn parts_of(image: &[u8]) -> HashSet<ContentHash> {
    let mut hashes = HashSet::new();
    // What cannot be read has no parts; whoever loads it will say so.
    let _ = code_object::visit_targets(image, |target| {
        if !target.image.is_empty() {
            hashes.insert(ContentHash::of(target.image));
        }
        Ok(())
    });
    hashes
}

/// Arguments one behind the other, each aligned to its size as far as that is a power of two.
fn packed(arguments: &[&Argument<'_>]) -> Vec<KernelArg> {
    let mut end = 0u32;
    arguments
        .iter()
        .map(|argument| {
            let size = argument.bytes.len() as u32;
            let align = if size == 0 { 1 } else { 1 << size.trailing_zeros().min(3) };
            let offset = end.next_multiple_of(align);
            end = offset + size;
            KernelArg { offset, size, kind: ArgKind::ByValue }
        })
        .collect()
}

/// Whether two arguments are the halves of an address of live memory.
fn is_split_address(state: &State, low: &Argument<'_>, high: &Argument<'_>) -> bool {
    let half = |argument: &Argument<'_>| {
        let bytes: [u8; 4] = argument.bytes.try_into().ok()?;
        (argument.kind == ArgumentKind::Value).then_some(u64::from(u32::from_le_bytes(bytes)))
    };
    let address = half(low).zip(half(high)).map(|(low, high)| low | high << 32);
    address.is_some_and(|address| state.find(address).is_some())
}

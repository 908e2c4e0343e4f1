//! What holds contents beside memory: arrays, mipmaps, and variables of modules and of compiled code.
//!
//! They are followed through every call, in windows and outside of them, so that what is read back for a window is there, whichever
//! call made it. The calls themselves are in the archive: [`Objects`](super::objects::Objects) has those made outside of windows.

use std::collections::{BTreeMap, HashMap, HashSet};

use hrr_format::catalogue::{Api, HandleKind, Role};

/// What follows a call here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderHook {
    /// It makes an array or a mipmap.
    Makes,
    /// It ends one.
    Ends,
    /// `__hipRegisterVar(modules, var, hostVar, deviceVar, ext, size, constant, global)`.
    Variable,
    /// `hipModuleGetTexRef(texRef, hmod, name)`.
    TextureReference,
}

impl HolderHook {
    /// What follows a call to an entry point; `None` where nothing does.
    pub(crate) fn of(api: &Api) -> Option<Self> {
        match api.name {
            "__hipRegisterVar" => return Some(HolderHook::Variable),
            "hipModuleGetTexRef" => return Some(HolderHook::TextureReference),
            _ => {}
        }
        let of_holder = |kind: HandleKind| matches!(kind, HandleKind::Array | HandleKind::Mipmap);
        api.params.iter().find_map(|param| match param.role {
            Role::Create(kind) if of_holder(kind) => Some(HolderHook::Makes),
            Role::Destroy(kind) if of_holder(kind) => Some(HolderHook::Ends),
            _ => None,
        })
    }
}

/// A variable that compiled code registered.
#[derive(Clone, Copy, Debug)]
struct Variable {
    len_bytes: u64,
    fat_binary: u64,
}

/// Everything that holds contents and is there now, beside memory.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Arrays, mipmaps, modules and libraries, with the devices they were made on.
    handles: BTreeMap<(Kind, u64), i32>,
    /// By host symbol.
    variables: BTreeMap<u64, Variable>,
    /// Addresses of variables that the program asked a module or library for.
    addresses: HashMap<u64, Vec<u64>>,
    /// Modules, and names of variables in them that are texture references: the runtime's own, which it fills.
    texture_references: HashSet<(u64, Vec<u8>)>,
}

/// Kinds of handles that hold contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An array.
    Array,
    /// A mipmapped array.
    Mipmap,
    /// A module, with its variables.
    Module,
    /// A library, with its variables.
    Library,
}

impl Kind {
    /// Which kind a handle of the catalogue is.
    pub(crate) fn of(kind: HandleKind) -> Option<Self> {
        Some(match kind {
            HandleKind::Array => Kind::Array,
            HandleKind::Mipmap => Kind::Mipmap,
            HandleKind::Module => Kind::Module,
            HandleKind::Library => Kind::Library,
            _ => return None,
        })
    }
}

impl Holders {
    /// Something was made on a device.
    pub(crate) fn made(&mut self, kind: Kind, value: u64, device: i32) {
        if value != 0 {
            self.handles.insert((kind, value), device);
        }
    }

    /// An array or a mipmap is given back.
    pub(crate) fn ended(&mut self, kind: Kind, value: u64) {
        self.handles.remove(&(kind, value));
    }

    /// A module, library or fat binary goes, and its variables with it. Returns the addresses that the program had of these.
    pub(crate) fn unloaded(&mut self, handle: u64) -> Vec<u64> {
        self.handles.remove(&(Kind::Module, handle));
        self.handles.remove(&(Kind::Library, handle));
        self.variables.retain(|_, variable| variable.fat_binary != handle);
        self.texture_references.retain(|(module, _)| *module != handle);
        self.addresses.remove(&handle).unwrap_or_default()
    }

    /// Compiled code registered a variable.
    pub(crate) fn registered(&mut self, fat_binary: u64, symbol: u64, len_bytes: u64) {
        self.variables.insert(symbol, Variable { len_bytes, fat_binary });
    }

    /// The program asked where a module's or library's variable lies.
    pub(crate) fn asked(&mut self, module: u64, address: u64) {
        let known = self.addresses.entry(module).or_default();
        if !known.contains(&address) {
            known.push(address);
        }
    }

    /// The program asked for a texture reference of a module.
    pub(crate) fn texture_reference(&mut self, module: u64, name: &str) {
        self.texture_references.insert((module, name.as_bytes().to_vec()));
    }

    /// A device was reset: nothing is left there but what compiled code registered.
    pub(crate) fn reset(&mut self, device: i32) {
        self.handles.retain(|_, of| *of != device);
    }

    /// Handles of a kind that are there, with the devices they were made on.
    pub(super) fn handles(&self, kind: Kind) -> Vec<(u64, i32)> {
        self.handles.range((kind, 0)..=(kind, u64::MAX)).map(|(&(_, value), &device)| (value, device)).collect()
    }

    /// Variables of compiled code that are there, with their lengths in bytes.
    pub(super) fn variables(&self) -> Vec<(u64, u64)> {
        self.variables.iter().map(|(&symbol, variable)| (symbol, variable.len_bytes)).collect()
    }

    /// Whether a variable of a module is a texture reference.
    pub(super) fn is_texture_reference(&self, module: u64, name: &str) -> bool {
        self.texture_references.contains(&(module, name.as_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_a_whole_goes() {
        let mut holders = Holders::default();
        holders.made(Kind::Module, 1, 0);
        holders.made(Kind::Array, 1, 1);
        holders.made(Kind::Array, 2, 0);
        holders.registered(7, 100, 4);
        holders.registered(8, 200, 16);
        holders.asked(1, 0x1000);
        holders.texture_reference(1, "t");
        assert!(holders.is_texture_reference(1, "t"));
        assert_eq!(holders.unloaded(1), [0x1000]);
        assert_eq!(holders.unloaded(7), [] as [u64; 0]);
        assert!(!holders.is_texture_reference(1, "t"));
        assert_eq!(holders.variables(), [(200, 16)]);
        assert_eq!((holders.handles(Kind::Module), holders.handles(Kind::Array)), (vec![], vec![(1, 1), (2, 0)]));
        holders.ended(Kind::Array, 2);
        holders.made(Kind::Array, 2, 1);
        holders.reset(1);
        assert_eq!(holders.handles(Kind::Array), []);
    }

    #[test]
    fn calls_about_arrays_and_variables_are_followed() {
        let hook = |name| HolderHook::of(Api::by_name(name).unwrap());
        for name in
            ["hipMallocArray", "hipMalloc3DArray", "hipArrayCreate", "hipArray3DCreate", "hipMallocMipmappedArray"]
        {
            assert_eq!(hook(name), Some(HolderHook::Makes), "{name}");
        }
        for name in ["hipFreeArray", "hipArrayDestroy", "hipFreeMipmappedArray", "hipMipmappedArrayDestroy"] {
            assert_eq!(hook(name), Some(HolderHook::Ends), "{name}");
        }
        assert_eq!(hook("__hipRegisterVar"), Some(HolderHook::Variable));
        assert_eq!(hook("hipModuleGetTexRef"), Some(HolderHook::TextureReference));
        assert_eq!(hook("hipGetMipmappedArrayLevel"), None);
        assert_eq!(hook("hipMalloc"), None);
    }
}

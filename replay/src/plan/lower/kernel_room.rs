//! Room for kernel arguments, by the metadata of the code objects themselves.
//!
//! The kernel table says how a kernel's arguments lie; what a runtime reads follows from the code object it was given. Where
//! the two agree, as they do in every archive that a recorder wrote, nothing is added. Where they do not, arguments get room
//! for whatever the launched kernel may take, so that the runtime reads nothing that was not laid out for it.

use rustc_hash::FxHashMap;

use hrr_format::code_object::{KernelArg, explicit_bytes, signatures};

/// What is to be added to the room of a launch's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Entries of `kernelParams`.
    pub(crate) args: usize,
    /// Bytes of arguments.
    pub(crate) bytes: usize,
}

impl Need {
    fn of(args: &[KernelArg]) -> Self {
        Need { args: args.len(), bytes: explicit_bytes(args) as usize }
    }

    fn max(self, other: Self) -> Self {
        Need { args: self.args.max(other.args), bytes: self.bytes.max(other.bytes) }
    }
}

/// The kernels of all code objects loaded so far, and which function is which.
#[derive(Debug, Default)]
pub(crate) struct KernelRooms {
    /// Argument lists by name; kernels of several code objects may share one.
    by_name: FxHashMap<Vec<u8>, Vec<Vec<KernelArg>>>,
    /// Kernel names of functions and host symbols, by number of the object.
    functions: FxHashMap<u32, Vec<u8>>,
    /// What the largest kernel takes.
    most: Need,
    /// What was found last for each function, with the number of the claimed kernel. Launches ask far more often than
    /// anything changes.
    found: FxHashMap<u32, (u32, Need)>,
}

impl KernelRooms {
    /// Takes in the kernels of a code object. One that cannot be read, or has no metadata, has none.
    pub(crate) fn learn(&mut self, image: &[u8]) {
        self.found.clear();
        for signature in signatures(image).unwrap_or_default() {
            self.most = self.most.max(Need::of(&signature.args));
            let known = self.by_name.entry(signature.name.into_bytes()).or_default();
            if !known.contains(&signature.args) {
                known.push(signature.args);
            }
        }
    }

    /// Notes that an object is the function of a kernel.
    pub(crate) fn name(&mut self, object: u32, name: &[u8]) {
        self.found.remove(&object);
        self.functions.insert(object, name.to_owned());
    }

    /// The kernel that an object is the function of.
    pub(crate) fn name_of(&self, object: u32) -> Option<&[u8]> {
        self.functions.get(&object).map(Vec::as_slice)
    }

    /// What a launch of `function` needs beyond arguments that lie as `claimed` for the kernel with this number.
    pub(crate) fn need(&mut self, function: Option<u32>, kernel: u32, claimed: &[KernelArg]) -> Need {
        let Some(object) = function else { return self.most };
        if let Some((_, need)) = self.found.get(&object).filter(|(of, _)| *of == kernel) {
            return *need;
        }
        let need = self.look_up(object, claimed);
        self.found.insert(object, (kernel, need));
        need
    }

    fn look_up(&self, object: u32, claimed: &[KernelArg]) -> Need {
        let known = self.functions.get(&object).and_then(|name| self.by_name.get(name));
        match known {
            Some(known) if known.iter().all(|args| args == claimed) => Need::default(),
            Some(known) => known.iter().map(|args| Need::of(args)).fold(Need::default(), Need::max),
            None => self.most,
        }
    }
}

#[cfg(test)]
mod tests {
    use hrr_format::code_object::ArgKind;

    use super::*;

    fn arg(offset: u32, size: u32) -> KernelArg {
        KernelArg { offset, size, kind: ArgKind::ByValue }
    }

    #[test]
    fn a_launch_gets_what_its_kernel_takes_and_not_what_the_table_claims() {
        let small = vec![arg(0, 4)];
        let large = vec![arg(0, 8), arg(8, 4096)];
        let mut rooms = KernelRooms { most: Need::of(&large), ..KernelRooms::default() };
        rooms.by_name.insert(b"small".to_vec(), vec![small.clone()]);
        rooms.by_name.insert(b"large".to_vec(), vec![large.clone()]);
        rooms.name(1, b"small");
        rooms.name(2, b"large");
        let (one, other, none) = (1, 2, 0);
        for _ in 0..2 {
            assert_eq!(rooms.need(Some(1), one, &small), Need::default());
            assert_eq!(rooms.need(Some(2), other, &large), Need::default());
            // The table says the launched kernel is another one, or has other arguments.
            assert_eq!(rooms.need(Some(2), one, &small), Need { args: 2, bytes: 4104 });
            assert_eq!(rooms.need(Some(1), none, &[]), Need { args: 1, bytes: 4 });
            // Nothing is known of the function.
            assert_eq!(rooms.need(Some(3), one, &small), Need { args: 2, bytes: 4104 });
            assert_eq!(rooms.need(None, one, &small), Need { args: 2, bytes: 4104 });
        }
        // Its number is given to another kernel's function.
        rooms.name(1, b"large");
        assert_eq!(rooms.need(Some(1), one, &small), Need { args: 2, bytes: 4104 });
    }
}

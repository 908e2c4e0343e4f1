//! Enumerations: handles of all functions of a module, or kernels of a library, in an order that is the runtime's own.
//!
//! Another runtime may have another order, so the record of such a call tells the names, by which replay finds the same kernels.
//! They are known once the call has returned, and a record has its length before: there is room for the names of all that
//! there are.

use std::ffi::{CStr, c_char, c_void};

use hrr_format::record::{MAX_RECORD_BYTES, Presence, SectionTag};

use crate::interception::real;
use crate::interception::shims::id;
use crate::recorder;
use crate::runtime::{self, LastError};
use crate::sections::{Drafting, Source};

/// Most handles whose names are asked for: any real module has far fewer functions.
const MOST: u32 = 1 << 17;

/// What an enumeration gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enumerated {
    /// `hipModuleEnumerateFunctions`.
    Functions,
    /// `hipLibraryEnumerateKernels`.
    Kernels,
}

/// The handles that a call `(handles*, count, module)` stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    what: Enumerated,
    first: *const u64,
    room: u32,
    /// The module or library.
    whole: u64,
}

impl Handles {
    /// Those of a call with these argument words.
    pub(crate) fn of(what: Enumerated, words: &[u64]) -> Self {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        Handles { what, first: word(0) as *const u64, room: word(1) as u32, whole: word(2) }
    }

    /// How many there are in all; none where the runtime does not tell.
    fn there_are(&self) -> u32 {
        let _last_error = LastError::keep();
        let mut count = 0;
        let whole = self.whole as *mut c_void;
        // SAFETY: the module or library is the one that the program asks about; `count` is writable.
        let failed = unsafe {
            match self.what {
                Enumerated::Functions => runtime::module_get_function_count(&mut count, whole),
                Enumerated::Kernels => runtime::library_get_kernel_count(&mut count, whole),
            }
        };
        if failed == 0 { count.min(MOST) } else { 0 }
    }

    /// Every handle there is, whatever the program has room for.
    fn all(&self) -> Vec<u64> {
        let mut handles = vec![0; self.there_are() as usize];
        if handles.is_empty() {
            return handles;
        }
        let _last_error = LastError::keep();
        let (whole, count) = (self.whole as *mut c_void, handles.len() as u32);
        // SAFETY: as above; there is room for `count` handles.
        let failed = unsafe {
            match self.what {
                Enumerated::Functions => runtime::module_enumerate_functions(handles.as_mut_ptr(), count, whole),
                Enumerated::Kernels => runtime::library_enumerate_kernels(handles.as_mut_ptr(), count, whole),
            }
        };
        if failed == 0 { handles } else { Vec::new() }
    }

    /// The name of a handle.
    fn name(&self, handle: u64) -> Option<&CStr> {
        let _last_error = LastError::keep();
        let name = match self.what {
            Enumerated::Kernels => {
                let mut name = std::ptr::null();
                // SAFETY: the runtime has just given the kernel; `name` is writable.
                let failed = unsafe { runtime::kernel_get_name(&mut name, handle as *mut c_void) };
                if failed == 0 { name } else { std::ptr::null() }
            }
            Enumerated::Functions => {
                let address = real::address(recorder::runtime(), id::hipKernelNameRef);
                if address.is_null() {
                    return None;
                }
                // SAFETY: the address is that of `hipKernelNameRef`, whose prototype this is; the runtime has just given the
                // function.
                unsafe {
                    let real: unsafe extern "C-unwind" fn(*mut c_void) -> *const c_char = std::mem::transmute(address);
                    real(handle as *mut c_void)
                }
            }
        };
        // SAFETY: the runtime's names are C strings that live as long as the module or library, which lives while it is asked about.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    /// Tells each handle that the call stored, and its name.
    ///
    /// # Safety
    /// The call succeeded, and so stored as many handles as there are and fit.
    pub(crate) unsafe fn each(&self, told: &mut dyn FnMut(u64, &CStr)) {
        for index in 0..self.room.min(self.there_are()) as usize {
            // SAFETY: by the caller's contract.
            let handle = unsafe { self.first.add(index).read_unaligned() };
            told(handle, self.name(handle).unwrap_or_default());
        }
    }

    /// Stores the names of the handles that the call stored, as far as there is room.
    ///
    /// # Safety
    /// As for [`Self::each`].
    pub(crate) unsafe fn store_names(&self, mut room: &mut [u8]) {
        // SAFETY: by the caller's contract.
        unsafe {
            self.each(&mut |_, name| {
                let bytes = name.to_bytes_with_nul();
                // Behind one that does not fit no other may take its place.
                let left = std::mem::take(&mut room);
                if let Some((place, rest)) = left.split_at_mut_checked(bytes.len()) {
                    place.copy_from_slice(bytes);
                    room = rest;
                }
            });
        }
    }
}

impl Drafting<'_> {
    /// Room for the names of what the call will give.
    pub(crate) fn names(&mut self, what: Enumerated) {
        let handles = Handles::of(what, self.call_words());
        let lengths =
            handles.all().into_iter().map(|handle| handles.name(handle).unwrap_or_default().count_bytes() + 1);
        let len_bytes: usize = lengths.sum();
        if len_bytes > 0 && len_bytes < MAX_RECORD_BYTES / 2 && !handles.first.is_null() {
            self.push(SectionTag::Names, 0, Presence::Absent, len_bytes, Source::NamesAfterCall(handles));
        }
    }
}

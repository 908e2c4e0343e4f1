//! Managed variables of code objects: memory that host and device share, behind a pointer in the code object.
//!
//! `NAME` is the pointer. What it starts as, and its size, is in `NAME$managed`: HIP's dot is no character of names in PTX.

use super::context::current_index;
use super::driver::{self as cu, got};
use crate::error::{HipError, HipResult};
use crate::registry::lock;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::sync::Mutex;

const SUFFIX: &[u8] = b"$managed";
/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;

/// By module and name.
static VARIABLES: Mutex<Option<HashMap<(usize, CString), Variable>>> = Mutex::new(None);

/// Memory of a managed variable.
#[derive(Clone, Copy, Debug)]
struct Variable {
    storage: usize,
    len_bytes: usize,
    /// Index of the device of the module, with which the memory ends.
    device: usize,
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

/// Names of the managed variables of a code object.
fn names(code: &[u8]) -> BTreeSet<CString> {
    let mut names = BTreeSet::new();
    for end in code.windows(SUFFIX.len()).enumerate().filter(|(_, bytes)| *bytes == SUFFIX).map(|(at, _)| at) {
        let goes_on = code.get(end + SUFFIX.len()).is_some_and(|byte| is_name(*byte));
        let begin = code[..end].iter().rposition(|byte| !is_name(*byte)).map_or(0, |at| at + 1);
        if !goes_on
            && begin < end
            && let Ok(name) = CString::new(&code[begin..end])
        {
            names.insert(name);
        }
    }
    names
}

fn variable(module: usize, name: &CStr) -> HipResult<(usize, usize)> {
    let (mut address, mut len_bytes) = (0, 0);
    cu::module_get_global(&mut address, &mut len_bytes, module, name.as_ptr())?;
    Ok((address, len_bytes))
}

/// Managed memory of `len_bytes`.
pub(super) fn allocate(len_bytes: usize) -> HipResult<usize> {
    got(|address| cu::mem_alloc_managed(address, len_bytes, ATTACH_GLOBAL))
}

/// Points variable `name` of a module at its memory. A module without it needs none.
pub(super) fn point(module: usize, name: &CStr, storage: usize) -> HipResult {
    match variable(module, name) {
        Ok((pointer, len_bytes)) if len_bytes == size_of::<usize>() => {
            cu::memcpy(pointer, &raw const storage as usize, size_of::<usize>())
        }
        Ok(_) => Err(HipError::INVALID_IMAGE),
        Err(HipError::NOT_FOUND) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives each managed variable of a module that was just loaded its memory.
pub(super) fn make(module: usize, parts: &[Vec<u8>]) -> HipResult {
    for name in parts.iter().flat_map(|code| names(code)) {
        let start = CString::new([name.as_bytes(), SUFFIX].concat()).map_err(|_| HipError::INVALID_IMAGE)?;
        let (initial, len_bytes) = variable(module, &start)?;
        let storage = allocate(len_bytes)?;
        cu::memcpy(storage, initial, len_bytes)?;
        point(module, &name, storage)?;
        lock(&VARIABLES)
            .get_or_insert_default()
            .insert((module, name), Variable { storage, len_bytes, device: current_index() });
    }
    Ok(())
}

/// Address and size of a managed variable. Fails with `hipErrorNotFound`.
pub(super) fn find(module: usize, name: &CStr) -> HipResult<(usize, usize)> {
    let known = lock(&VARIABLES);
    let found = known.as_ref().and_then(|known| known.get(&(module, name.to_owned()))).ok_or(HipError::NOT_FOUND)?;
    Ok((found.storage, found.len_bytes))
}

/// Forgets the managed variables of a device that is reset: their memory ends with its context.
pub(super) fn forget_device(index: usize) {
    if let Some(known) = lock(&VARIABLES).as_mut() {
        known.retain(|_, variable| variable.device != index);
    }
}

/// Frees the managed variables of a module that ends.
pub(super) fn forget(module: usize) -> HipResult {
    let mut gone = Vec::new();
    if let Some(known) = lock(&VARIABLES).as_mut() {
        known.retain(|(owner, _), variable| {
            if *owner == module {
                gone.push(variable.storage);
            }
            *owner != module
        });
    }
    gone.into_iter().try_for_each(cu::mem_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_with_a_start() {
        let code = b".visible .global .align 4 .b8 counters$managed[16] = {5};\n.global .u64 counters;\n\
            .global .b8 a_2$managed[4]; .global .b8 b$managedness[4]; .global .b8 $managed[4]; x counters$managed";
        let found: Vec<_> = names(code).into_iter().collect();
        assert_eq!(found, [c"a_2".to_owned(), c"counters".to_owned()]);
    }
}

//! Finding a function of the C library by reading its symbol table.
//!
//! Nothing is called for it. Sanitizers put functions of their own before the C library's (`dl_iterate_phdr` among them), which look
//! up the real ones by `dlsym` when they are set up: that comes here before any of theirs works.

use std::ffi::{CStr, c_int, c_void};

/// An object as the loader lists it (`struct link_map` of link.h, as far as it is public).
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const libc::c_char,
    dynamic: *const [u64; 2],
    next: *const LinkMap,
}

/// What the loader tells debuggers (`struct r_debug` of link.h, as far as it is needed).
#[repr(C)]
struct LoaderState {
    version: c_int,
    objects: *const LinkMap,
}

unsafe extern "C" {
    #[link_name = "_r_debug"]
    static LOADER: LoaderState;
}

/// Tags of the dynamic section (System V ABI, and GNU's for the hash table).
mod tag {
    pub(super) const NULL: u64 = 0;
    pub(super) const STRTAB: u64 = 5;
    pub(super) const SYMTAB: u64 = 6;
    pub(super) const GNU_HASH: u64 = 0x6fff_fef5;
    pub(super) const VERSYM: u64 = 0x6fff_fff0;
}

/// In a version table: the symbol is an old version, not the default one.
const HIDDEN_VERSION: u16 = 0x8000;

/// The address of the default version of a function in the C library, or null.
pub(crate) fn find_in_libc(name: &CStr) -> *mut c_void {
    // SAFETY: the loader fills it before anything of this process runs. Objects are added at the list's end, and the C library,
    // which is at its start, is never taken out.
    let mut next = unsafe { (&raw const LOADER.objects).read_volatile() };
    while !next.is_null() {
        // SAFETY: the loader's list is of such objects, and what a null name or next means is looked at.
        let object = unsafe { &*next };
        next = object.next;
        if object.name.is_null() {
            continue;
        }
        // SAFETY: the loader's names are NUL-terminated.
        let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
        // Before glibc 2.34 the functions were in libdl.
        if !path.ends_with(b"/libc.so.6") && !path.ends_with(b"/libdl.so.2") {
            continue;
        }
        // SAFETY: the object is loaded, and its dynamic section is as the loader itself reads it.
        if let Some(found) = unsafe { find_in_object(object, name) } {
            return found;
        }
    }
    std::ptr::null_mut()
}

unsafe fn find_in_object(object: &LinkMap, name: &CStr) -> Option<*mut c_void> {
    let base = object.base;
    let mut entry = object.dynamic;
    let (mut strings, mut symbols, mut hash, mut versions) = (0, 0, 0, 0);
    loop {
        // SAFETY: the dynamic section is an array of such pairs that a null tag ends.
        let [tag, value] = unsafe { *entry };
        // The loader has made most of these absolute; where it has not they are offsets from the base.
        let address = if value < base { base + value } else { value };
        match tag {
            tag::NULL => break,
            tag::STRTAB => strings = address,
            tag::SYMTAB => symbols = address,
            tag::GNU_HASH => hash = address,
            tag::VERSYM => versions = address,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if strings == 0 || symbols == 0 || hash == 0 {
        return None;
    }
    // SAFETY: the tables are those of a loaded object with a GNU hash table: a header of four words, the Bloom filter,
    // the buckets, then a chain value for each hashed symbol.
    unsafe {
        let table = hash as *const u32;
        let (bucket_count, first_symbol, filter_words) = (*table, *table.add(1), *table.add(2));
        if bucket_count == 0 {
            return None;
        }
        let buckets = table.add(4 + 2 * filter_words as usize);
        let chains = buckets.add(bucket_count as usize);
        let wanted = gnu_hash(name.to_bytes());
        let mut index = *buckets.add((wanted % bucket_count) as usize);
        if index < first_symbol {
            return None;
        }
        loop {
            let chain = *chains.add((index - first_symbol) as usize);
            let symbol = &*(symbols as *const libc::Elf64_Sym).add(index as usize);
            let default = versions == 0 || *(versions as *const u16).add(index as usize) & HIDDEN_VERSION == 0;
            if chain | 1 == wanted | 1
                && default
                && symbol.st_value != 0
                && CStr::from_ptr((strings + u64::from(symbol.st_name)) as *const libc::c_char) == name
            {
                return Some((base + symbol.st_value) as *mut c_void);
            }
            if chain & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_found_where_the_loader_finds_them() {
        for name in [c"dlsym", c"dlvsym", c"malloc"] {
            // SAFETY: the name is NUL-terminated.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(!expected.is_null());
            assert_eq!(find_in_libc(name), expected, "{name:?}");
        }
        assert!(find_in_libc(c"no_such_function_in_libc").is_null());
    }
}

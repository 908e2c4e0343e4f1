//! Hints for memory that is used soon and lies where the processor does not expect it: planning goes round many threads, each
//! with a place of its own in several tables, which is more than the processor follows by itself.

/// Has the line of memory at an address, which need not be one, fetched.
#[inline(always)]
pub(crate) fn line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing as far as the program is concerned, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Has this many lines from an address on fetched.
#[inline(always)]
pub(crate) fn lines<T>(address: *const T, count: usize) {
    const LINE_BYTES: usize = 64;
    (0..count).for_each(|number| line(address.wrapping_byte_add(number * LINE_BYTES)));
}

//! The C types HIP passes by value, and how each travels as 8-byte argument words.
//!
//! A record stores every argument in declaration order as one or more `u64` words; a by-value struct
//! takes as many words as it has 8-byte slots, zero padded. The same words are turned back into typed
//! arguments when a call is reissued, so nothing here depends on the machine's calling convention.

use std::ffi::c_void;

/// Any C pointer, opaque handle or function pointer.
pub type Ptr = *mut c_void;

/// `dim3`: a grid or block extent in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dim3 {
    /// Extent in x.
    pub x: u32,
    /// Extent in y.
    pub y: u32,
    /// Extent in z.
    pub z: u32,
}

/// `hipExtent`: width in bytes (or elements of an array), height and depth in rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Width in bytes, or in elements where an array takes part.
    pub width: u64,
    /// Height in rows.
    pub height: u64,
    /// Depth in slices.
    pub depth: u64,
}

/// `hipPitchedPtr`: a pointer with its row pitch and logical size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PitchedPtr {
    /// Base address.
    pub ptr: u64,
    /// Row pitch in bytes.
    pub pitch: u64,
    /// Logical row width in elements.
    pub xsize: u64,
    /// Logical height in rows.
    pub ysize: u64,
}

/// `hipMemLocation`: a location kind and its ordinal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemLocation {
    /// `hipMemLocationType`.
    pub kind: i32,
    /// Device ordinal or NUMA node.
    pub id: i32,
}

/// `hipIpcMemHandle_t` and `hipIpcEventHandle_t`: 64 opaque bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// The opaque bytes.
    pub reserved: [u64; 8],
}

/// `hipChannelFormatDesc`: bits per channel and the channel kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFormatDesc {
    /// Bits of x, y, z, w.
    pub bits: [i32; 4],
    /// `hipChannelFormatKind`.
    pub kind: i32,
}

/// A value that travels as a fixed number of argument words.
pub trait Words: Sized {
    /// How many words the value takes.
    const COUNT: usize;
    /// Writes the value to the first [`Self::COUNT`] words of `words`.
    fn store(self, words: &mut [u64]);
    /// Reads the value back from the first [`Self::COUNT`] words of `words`.
    fn load(words: &[u64]) -> Self;
}

macro_rules! integer_words {
    ($($ty:ty),*) => {$(
        impl Words for $ty {
            const COUNT: usize = 1;
            #[inline(always)]
            fn store(self, words: &mut [u64]) {
                // Signed values are sign-extended, so that -1 reads back as -1 in a wider type.
                words[0] = self as i64 as u64;
            }
            #[inline(always)]
            fn load(words: &[u64]) -> Self {
                words[0] as $ty
            }
        }
    )*};
}
integer_words!(i32, i64, u64);

macro_rules! unsigned_words {
    ($($ty:ty),*) => {$(
        impl Words for $ty {
            const COUNT: usize = 1;
            #[inline(always)]
            fn store(self, words: &mut [u64]) {
                words[0] = self as u64;
            }
            #[inline(always)]
            fn load(words: &[u64]) -> Self {
                words[0] as $ty
            }
        }
    )*};
}
unsigned_words!(u8, u16, u32);

impl Words for f32 {
    const COUNT: usize = 1;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[0] = u64::from(self.to_bits());
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        f32::from_bits(words[0] as u32)
    }
}

impl Words for Ptr {
    const COUNT: usize = 1;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[0] = self as u64;
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        words[0] as Ptr
    }
}

impl Words for Dim3 {
    const COUNT: usize = 2;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[0] = u64::from(self.x) | u64::from(self.y) << 32;
        words[1] = u64::from(self.z);
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        Dim3 { x: words[0] as u32, y: (words[0] >> 32) as u32, z: words[1] as u32 }
    }
}

impl Words for Extent {
    const COUNT: usize = 3;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[..3].copy_from_slice(&[self.width, self.height, self.depth]);
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        Extent { width: words[0], height: words[1], depth: words[2] }
    }
}

impl Words for PitchedPtr {
    const COUNT: usize = 4;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[..4].copy_from_slice(&[self.ptr, self.pitch, self.xsize, self.ysize]);
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        PitchedPtr { ptr: words[0], pitch: words[1], xsize: words[2], ysize: words[3] }
    }
}

impl Words for MemLocation {
    const COUNT: usize = 1;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[0] = u64::from(self.kind as u32) | u64::from(self.id as u32) << 32;
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        MemLocation { kind: words[0] as u32 as i32, id: (words[0] >> 32) as u32 as i32 }
    }
}

impl Words for IpcHandle {
    const COUNT: usize = 8;
    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words[..8].copy_from_slice(&self.reserved);
    }
    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        let mut reserved = [0; 8];
        reserved.copy_from_slice(&words[..8]);
        IpcHandle { reserved }
    }
}

/// A return value: what the caller gets, seen as the record's two fields (`ret`, and 8 raw bytes where
/// the value is a pointer).
pub trait Return: Sized {
    /// The value as an error code (`hipError_t` or `int`), zero where the call returns none.
    fn code(&self) -> i32;
    /// The value as raw bytes, for calls that return a pointer.
    fn raw(&self) -> u64;
}

impl Return for i32 {
    #[inline(always)]
    fn code(&self) -> i32 {
        *self
    }
    #[inline(always)]
    fn raw(&self) -> u64 {
        *self as u32 as u64
    }
}

impl Return for () {
    #[inline(always)]
    fn code(&self) -> i32 {
        0
    }
    #[inline(always)]
    fn raw(&self) -> u64 {
        0
    }
}

impl Return for Ptr {
    #[inline(always)]
    fn code(&self) -> i32 {
        0
    }
    #[inline(always)]
    fn raw(&self) -> u64 {
        *self as u64
    }
}

impl Return for ChannelFormatDesc {
    #[inline(always)]
    fn code(&self) -> i32 {
        0
    }
    #[inline(always)]
    fn raw(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Words + Copy + PartialEq + std::fmt::Debug>(value: T, expected: &[u64]) {
        let mut words = vec![0; T::COUNT];
        value.store(&mut words);
        assert_eq!(words, expected);
        assert_eq!(T::load(&words), value);
    }

    #[test]
    fn values_travel_as_the_words_the_format_promises() {
        round_trip(-1i32, &[u64::MAX]);
        round_trip(7u32, &[7]);
        round_trip(1.5f32, &[0x3fc0_0000]);
        round_trip(Dim3 { x: 1, y: 2, z: 3 }, &[1 | 2 << 32, 3]);
        round_trip(MemLocation { kind: 1, id: -1 }, &[1 | 0xffff_ffff << 32]);
        round_trip(Extent { width: 4, height: 5, depth: 6 }, &[4, 5, 6]);
        round_trip(PitchedPtr { ptr: 1, pitch: 2, xsize: 3, ysize: 4 }, &[1, 2, 3, 4]);
    }

    #[test]
    fn by_value_structs_have_the_size_hip_gives_them() {
        assert_eq!(size_of::<Dim3>(), 12);
        assert_eq!(size_of::<Extent>(), 24);
        assert_eq!(size_of::<PitchedPtr>(), 32);
        assert_eq!(size_of::<MemLocation>(), 8);
        assert_eq!(size_of::<IpcHandle>(), 64);
        assert_eq!(size_of::<ChannelFormatDesc>(), 20);
    }
}

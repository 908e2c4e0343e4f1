//! The content hash of upstream's stores: two 64-bit lanes over the bytes.

/// Start of the low lane, and multiplier of the high one.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// Start of the high lane, and multiplier of the low one.
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A content hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash {
    /// Low lane.
    pub lo: u64,
    /// High lane.
    pub hi: u64,
}

impl ContentHash {
    /// "No contents."
    pub const NONE: Self = ContentHash { lo: 0, hi: 0 };
    /// "There were contents, and they were withheld."
    pub const WITHHELD: Self = ContentHash { lo: u64::MAX, hi: u64::MAX };

    /// The hash of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let (mut lo, mut hi) = (BASIS, PRIME);
        for &byte in bytes {
            lo = (lo ^ u64::from(byte)).wrapping_mul(PRIME);
            hi = (hi ^ u64::from(byte)).wrapping_mul(BASIS);
        }
        ContentHash { lo, hi }
    }

    /// Whether the hash says that there were no contents.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.lo, self.hi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_start_and_multiply_with_each_other_s_constants() {
        assert_eq!(ContentHash::of(b""), ContentHash { lo: BASIS, hi: PRIME });
        // FNV-1a of "a" is a published value; the other lane is worked out by hand.
        let a = ContentHash::of(b"a");
        assert_eq!(a.lo, 0xaf63_dc4c_8601_ec8c);
        assert_eq!(a.hi, (PRIME ^ 0x61).wrapping_mul(BASIS));
        assert_eq!(a.to_string()[..16], *"af63dc4c8601ec8c");
    }
}

//! What a replay does otherwise than the recording, where it is told to: devices, placement, kernels, new memory.

use std::path::PathBuf;
use std::str::FromStr;

use crate::environment::{VariableError, number};
use crate::machine::device_map::DeviceMap;
use crate::memory::placement::PlacementPolicy;

/// `HIP_HRR_REPLAY_ALLOC_PAD_FACTOR` is at most this.
const MAX_PAD_FACTOR: u64 = 4096;
/// `HIP_HRR_REPLAY_ALLOC_PAD_MAX` where it is not set, in bytes.
const DEFAULT_PAD_MAX_BYTES: u64 = 1 << 30;

/// What is done otherwise.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Which devices stand for the recorded ones.
    pub devices: DeviceMap,
    /// Whether device memory is placed at its recorded addresses.
    pub placement: PlacementPolicy,
    /// Only kernels whose name contains this are launched, and no result is compared.
    pub kernel_filter: Option<String>,
    /// Kernels that are launched in place of recorded ones.
    pub replacements: Vec<Replacement>,
    /// Every pointer that lies in nothing live is named.
    pub warn_untranslated: Option<WarnUntranslated>,
    /// What new device memory is like.
    pub new_memory: NewMemory,
    /// What region sidecars are used for.
    pub regions: RegionPolicy,
    /// What lies between guards.
    pub guards: Guards,
    /// Copy sources hold this instead of recorded contents, and what needs recorded code is left out.
    pub synthetic: Option<Synthetic>,
}

/// What region sidecars are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionPolicy {
    /// Memory that no recorded call gave out is made real from them, and accesses outside live blocks are told.
    #[default]
    Used,
    /// The same, and such accesses fail the replay.
    Strict,
    /// Nothing.
    Ignored,
}

/// What lies between addresses at which nothing is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Each device allocation, and each segment that is made real.
    Segments,
    /// Each block.
    Blocks,
}

/// Where the end of memory between guards lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardAlignment {
    /// As close to the end of its mapping as an allocation's alignment allows.
    #[default]
    Aligned,
    /// At the end of its mapping, however its beginning is aligned then.
    Exact,
}

impl GuardAlignment {
    /// Alignment of the beginning in bytes.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            GuardAlignment::Aligned => 256,
            GuardAlignment::Exact => 1,
        }
    }
}

/// Guards around device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    /// Around what; `None` = nothing.
    pub around: Option<Guarded>,
    /// Smallest size in bytes that is guarded.
    pub min_bytes: u64,
    /// Largest.
    pub max_bytes: u64,
    /// All of it together, in bytes.
    pub budget_bytes: u64,
    /// Where ends lie.
    pub alignment: GuardAlignment,
}

impl Default for Guards {
    fn default() -> Self {
        Guards {
            around: None,
            min_bytes: 0,
            max_bytes: u64::MAX,
            budget_bytes: 4096 << 20,
            alignment: GuardAlignment::Aligned,
        }
    }
}

/// What stands for contents in a replay by shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synthetic {
    /// Zeros.
    Zeros,
    /// Bytes that do not compress, from this seed.
    Noise(u64),
}

impl FromStr for Synthetic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seed = match text.split_once(':') {
            None => Ok(0),
            Some(("noise", seed)) => seed.parse().map_err(|_| format!("the seed {seed:?} is not a number")),
            Some(_) => Err("give zeros, noise or noise:SEED".to_owned()),
        };
        match text.split(':').next() {
            Some("zeros") if !text.contains(':') => Ok(Synthetic::Zeros),
            Some("noise") => seed.map(Synthetic::Noise),
            _ => Err("give zeros, noise or noise:SEED".to_owned()),
        }
    }
}

impl std::fmt::Display for Synthetic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Synthetic::Zeros => f.write_str("zeros"),
            Synthetic::Noise(seed) => write!(f, "noise of seed {seed}"),
        }
    }
}

/// Names pointers that do not translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnUntranslated;

/// New device memory, as upstream's variables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMemory {
    /// Allocations are made this many times as large...
    pub pad_factor: u64,
    /// ... up to this many bytes.
    pub pad_max_bytes: u64,
    /// New memory is filled with this byte.
    pub fill: Option<u8>,
    /// Memory that is made real for a region is.
    pub region_fill: u8,
}

impl Default for NewMemory {
    fn default() -> Self {
        NewMemory { pad_factor: 1, pad_max_bytes: DEFAULT_PAD_MAX_BYTES, fill: None, region_fill: 0 }
    }
}

impl NewMemory {
    /// What the environment asks for: `HIP_HRR_REPLAY_ALLOC_PAD_FACTOR`, `_ALLOC_PAD_MAX`, `_ZERO_INIT`, `_FILL_BYTE`.
    ///
    /// # Errors
    /// The variable whose value cannot be used.
    pub fn from_env() -> Result<Self, VariableError> {
        let pad_factor =
            number("HIP_HRR_REPLAY_ALLOC_PAD_FACTOR", 1, 1..=MAX_PAD_FACTOR, "a whole number from 1 to 4096")?;
        let pad_max_bytes =
            number("HIP_HRR_REPLAY_ALLOC_PAD_MAX", DEFAULT_PAD_MAX_BYTES, 0.., "a whole number of bytes")?;
        let byte = number("HIP_HRR_REPLAY_FILL_BYTE", 0, 0..=u8::MAX, "a byte, 0 to 255")?;
        let fill = (number("HIP_HRR_REPLAY_ZERO_INIT", 0, 0..=1u8, "0 or 1")? != 0).then_some(byte);
        Ok(NewMemory { pad_factor, pad_max_bytes, fill, region_fill: byte })
    }

    /// Size in bytes that an allocation of `size_bytes` is made with.
    pub(crate) fn padded(&self, size_bytes: u64) -> u64 {
        size_bytes.max(size_bytes.saturating_mul(self.pad_factor).min(self.pad_max_bytes))
    }

    /// Whether allocations are made larger than they were.
    pub(crate) fn pads(&self) -> bool {
        self.pad_factor > 1
    }
}

/// Variables of the in-tree player that mean nothing here, and what there is instead.
pub(crate) const NOT_SUPPORTED: [(&str, &str); 10] = [
    ("HIP_HRR_PTR_RELAX", "an address belongs to memory that is live, or is named"),
    ("HIP_HRR_REPLAY_NO_RESCAN", "nothing is scanned again"),
    ("HIP_HRR_REPLAY_FORCE_EXT_CIJK", "launches are issued as they were recorded"),
    (
        "HIP_HRR_REPLAY_AUDIT_HOST_ARGS",
        "--warn-untranslated-args names pointer arguments that lie in no live allocation",
    ),
    ("HIP_HRR_REPLAY_SCAN_H2D", "uploads are looked through where memory was not placed"),
    ("HIP_HRR_REPLAY_EXPLAIN_ADDR", "--info --events shows what has an address"),
    ("HIP_HRR_REPLAY_PLACE_DENY", "--no-placement places nothing"),
    ("HIP_HRR_REPLAY_DUMP_PTRS_ORDINAL", "--info --events shows the arguments of launches"),
    ("HIP_HRR_REPLAY_SCAN_ARGS_ORDINAL", "--info --events shows the arguments of launches"),
    ("HIP_HRR_REPLAY_SCAN_ARGS_BYTES", "--info --events shows the arguments of launches"),
];

/// Refuses variables of the in-tree player that mean nothing here: who sets one expects something of it.
///
/// # Errors
/// The variable, and what there is instead.
pub(crate) fn refuse_unsupported() -> Result<(), String> {
    match NOT_SUPPORTED.iter().find(|(name, _)| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        Some((name, instead)) => Err(format!("{name} is not supported: {instead}; unset it")),
        None => Ok(()),
    }
}

/// A kernel that is launched in place of the recorded one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The recorded name, exactly.
    pub name: String,
    /// The file with its code object.
    pub path: PathBuf,
}

impl FromStr for Replacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Names of kernels may hold '='; the last one ends the name.
        match text.rsplit_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Replacement { name: name.to_owned(), path: path.into() })
            }
            _ => Err("give NAME=PATH: a kernel's recorded name and a file with a code object".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_equals_sign_ends_the_name() {
        let replacement: Replacement = "a<b=1>=dir/x.hsaco".parse().unwrap();
        assert_eq!((replacement.name.as_str(), replacement.path.to_str()), ("a<b=1>", Some("dir/x.hsaco")));
        for bad in ["a", "=x", "a="] {
            assert!(bad.parse::<Replacement>().is_err(), "{bad}");
        }
    }

    #[test]
    fn synthetic_contents_are_zeros_or_noise_of_a_seed() {
        for (text, expected) in
            [("zeros", Synthetic::Zeros), ("noise", Synthetic::Noise(0)), ("noise:7", Synthetic::Noise(7))]
        {
            assert_eq!(text.parse(), Ok(expected));
        }
        for bad in ["", "ones", "zeros:1", "noise:", "noise:x"] {
            assert!(bad.parse::<Synthetic>().is_err(), "{bad}");
        }
    }

    #[test]
    fn padding_never_shrinks_and_stops_at_its_limit() {
        let memory = NewMemory { pad_factor: 4, pad_max_bytes: 100, ..NewMemory::default() };
        assert_eq!([10, 50, 200].map(|size| memory.padded(size)), [40, 100, 200]);
        assert_eq!(NewMemory::default().padded(77), 77);
    }
}

//! What a launch must know of a kernel: where its explicit arguments lie and what they are.

use serde::{Deserialize, Serialize};

/// What an argument is, by the `.value_kind` of AMDGPU metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgKind {
    /// Bytes passed as they are; they may still hold an address that the compiler could not see as one.
    ByValue,
    /// An address in global memory.
    GlobalBuffer,
    /// A pointer into dynamic shared memory, given by its size.
    DynamicSharedPointer,
    /// The low half of an address whose high half is the next argument. No compiler says so; a conversion found that the
    /// two together name live memory.
    PointerLow,
    /// A sampler.
    Sampler,
    /// An image.
    Image,
    /// An OpenCL pipe.
    Pipe,
    /// An OpenCL queue.
    Queue,
    /// A kind this build does not know.
    #[serde(other)]
    Other,
}

impl ArgKind {
    /// The kind with this name in AMDGPU metadata; `None` for `hidden_*`, which the runtime fills in by itself.
    pub fn explicit(value_kind: &str) -> Option<Self> {
        Some(match value_kind {
            "by_value" => ArgKind::ByValue,
            "global_buffer" => ArgKind::GlobalBuffer,
            "dynamic_shared_pointer" => ArgKind::DynamicSharedPointer,
            "sampler" => ArgKind::Sampler,
            "image" => ArgKind::Image,
            "pipe" => ArgKind::Pipe,
            "queue" => ArgKind::Queue,
            hidden if hidden.starts_with("hidden_") => return None,
            _ => ArgKind::Other,
        })
    }
}

/// One explicit argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelArg {
    /// Offset in the kernel argument segment in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// What it is.
    pub kind: ArgKind,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSignature {
    /// Name, as `hipModuleGetFunction` takes it.
    pub name: String,
    /// Symbol of its kernel descriptor (`name.kd`).
    pub symbol: String,
    /// Size of the whole argument segment in bytes, hidden arguments included.
    pub kernarg_bytes: u32,
    /// Explicit arguments in order of declaration.
    pub args: Vec<KernelArg>,
}

impl KernelSignature {
    /// Bytes from the start of the segment to the end of the last explicit argument.
    pub fn explicit_bytes(&self) -> u32 {
        explicit_bytes(&self.args)
    }
}

/// Bytes from the start of the argument segment to the end of the last of these arguments.
pub fn explicit_bytes(args: &[KernelArg]) -> u32 {
    args.iter().map(|arg| arg.offset.saturating_add(arg.size)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_by_their_metadata_names_and_hidden_ones_are_none() {
        assert_eq!(ArgKind::explicit("global_buffer"), Some(ArgKind::GlobalBuffer));
        assert_eq!(ArgKind::explicit("hidden_block_count_x"), None);
        assert_eq!(ArgKind::explicit("something_new"), Some(ArgKind::Other));
        // The names in `kernels.jsonl` are the same ones.
        for name in ["by_value", "global_buffer", "dynamic_shared_pointer", "sampler", "image", "pipe", "queue"] {
            let kind: ArgKind = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!(Some(kind), ArgKind::explicit(name), "{name}");
        }
    }

    #[test]
    fn explicit_bytes_end_with_the_furthest_argument() {
        let arg = |offset, size| KernelArg { offset, size, kind: ArgKind::ByValue };
        assert_eq!(explicit_bytes(&[]), 0);
        assert_eq!(explicit_bytes(&[arg(8, 8), arg(0, 4)]), 16);
        assert_eq!(explicit_bytes(&[arg(u32::MAX, 8)]), u32::MAX);
    }
}

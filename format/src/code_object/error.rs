//! Why a code object cannot be read.

/// Why bytes are not a code object this crate can take signatures from. Offsets count from the start of the image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeObjectError {
    /// The image begins like no code object.
    #[error("the code object begins with {found:02x?}, which is neither a bundle nor an ELF image")]
    Unknown {
        /// Up to eight first bytes.
        found: Vec<u8>,
    },
    /// A bundle is malformed.
    #[error("the offload bundle is malformed at byte {offset_bytes}: {reason}")]
    Bundle {
        /// Where, counted from the start of the bundle.
        offset_bytes: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A compressed bundle is malformed or too large.
    #[error("the compressed offload bundle cannot be used: {reason}")]
    Compressed {
        /// What is wrong with it.
        reason: String,
    },
    /// An ELF image is malformed.
    #[error("the ELF image is malformed: {reason}")]
    Elf {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Kernel metadata is malformed.
    #[error("the kernel metadata is malformed: {reason}")]
    Metadata {
        /// What is wrong with it.
        reason: String,
    },
}

//! Values in memory that work writes and other work waits for on the device: an order between streams that no event tells.

use hrr_format::catalogue::Api;
use hrr_format::record::SectionTag;

use super::dependency::CallFacts;
use crate::plan::lower::{Call, word_at};

/// What a call says of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Nothing.
    None,
    /// Its stream waits for one: `(stream, address, ...)`.
    Waits,
    /// Its stream writes one: `(stream, address, ...)`.
    Writes,
    /// Several of both: `(stream, count, operations, ...)`.
    Batch,
}

/// Bytes of a `hipStreamBatchMemOpParams`, in which the operation comes first and then the address.
const OPERATION_BYTES: usize = 48;
/// `hipStreamMemOpWaitValue32`, `hipStreamMemOpWriteValue32`, `hipStreamMemOpWaitValue64`, `hipStreamMemOpWriteValue64`.
const WAITS: [u32; 2] = [0x1, 0x4];
const WRITES: [u32; 2] = [0x2, 0x5];

impl Values {
    /// Those of an entry point.
    pub(crate) fn of(api: &Api) -> Self {
        match api.name {
            "hipStreamWaitValue32" | "hipStreamWaitValue64" => Values::Waits,
            "hipStreamWriteValue32" | "hipStreamWriteValue64" => Values::Writes,
            "hipStreamBatchMemOp" => Values::Batch,
            _ => Values::None,
        }
    }

    /// Adds to the facts of a call what its work writes and waits for.
    pub(crate) fn note(self, call: &Call<'_>, facts: &mut CallFacts) {
        match self {
            Values::None => {}
            Values::Waits => facts.values.push((call.record.word(1), false)),
            Values::Writes => facts.values.push((call.record.word(1), true)),
            Values::Batch => {
                let operations = call.record.section(SectionTag::In, 2).map_or(&[][..], |section| section.payload);
                facts.values.extend(operations.chunks_exact(OPERATION_BYTES).filter_map(operation));
            }
        }
    }
}

/// The address of one operation, and whether it writes there.
fn operation(bytes: &[u8]) -> Option<(u64, bool)> {
    let kind = word_at(bytes, 0) as u32;
    let address = word_at(bytes, 8);
    match kind {
        _ if WAITS.contains(&kind) => Some((address, false)),
        _ if WRITES.contains(&kind) => Some((address, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_a_batch_are_told_by_their_kind() {
        let bytes = |kind: u64| {
            let mut bytes = vec![0; OPERATION_BYTES];
            bytes[..8].copy_from_slice(&kind.to_le_bytes());
            bytes[8..16].copy_from_slice(&0x4000u64.to_le_bytes());
            bytes
        };
        assert_eq!([1, 4].map(|kind| operation(&bytes(kind))), [Some((0x4000, false)); 2]);
        assert_eq!([2, 5].map(|kind| operation(&bytes(kind))), [Some((0x4000, true)); 2]);
        assert_eq!(operation(&bytes(6)), None);
    }
}

//! The host sides of copies that are described by a struct.
//!
//! Layouts are those of the HIP 7 public headers on x86-64.

use hrr_format::catalogue::Access;

use super::region::Region;

/// One side of a copy that may be host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// The memory.
    pub(crate) region: Region,
    /// How the copy uses it.
    pub(crate) access: Access,
    /// `hipMemcpyKind`, or that the struct says the memory is the host's.
    pub(crate) kind: SideKind,
}

/// What a struct says of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideKind {
    /// A `hipMemcpyKind`.
    Copy(u64),
    /// Host memory.
    Host,
    /// Whosever it is.
    Lookup,
}

/// `hipMemoryType` values.
mod memory_type {
    pub(super) const HOST: u32 = 1;
    pub(super) const UNIFIED: u32 = 11;
}

/// The sides of the copy in `bytes`, a struct called `name` at a readable place; empty for other structs.
///
/// `element_bytes` tells the size of an array's elements.
pub(crate) fn sides(name: &str, bytes: &[u8], element_bytes: &dyn Fn(u64) -> Option<u64>) -> [Option<Side>; 2] {
    let word =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw));
    let half = |at: usize| word(at) as u32;
    match name {
        "hipMemcpy3DParms" => parms_3d(0, &word, element_bytes),
        // hipGraphNodeParams of a memcpy node (type 1): the copy lies behind its flags.
        "hipGraphNodeParams" if half(0) == 1 => parms_3d(32, &word, element_bytes),
        "hip_Memcpy2D" => {
            let (width, height) = (word(112), word(120));
            let side = |x: usize, kind: usize, host: usize, device: usize, pitch: usize, access| {
                let (base, kind) = typed(half(kind), word(host), word(device))?;
                let pitch = if word(pitch) == 0 { width } else { word(pitch) };
                let start = base.checked_add(word(x + 8).checked_mul(pitch)?)?.checked_add(word(x))?;
                Some(Side { region: Region::rows(start, width, height, pitch)?, access, kind })
            };
            [side(0, 16, 24, 32, 48, Access::Read), side(56, 72, 80, 88, 104, Access::Write)]
        }
        "HIP_MEMCPY3D" => {
            let (width, height, depth) = (word(160), word(168), word(176));
            let side = |x: usize, access| {
                let (base, kind) = typed(half(x + 32), word(x + 40), word(x + 48))?;
                let pitch = if word(x + 64) == 0 { width } else { word(x + 64) };
                let rows = if word(x + 72) == 0 { height } else { word(x + 72) };
                let slice = pitch.checked_mul(rows)?;
                let start = offset(base, word(x), word(x + 8), word(x + 16), pitch, slice)?;
                Some(Side { region: Region::slices(start, width, height, depth, pitch, slice)?, access, kind })
            };
            [side(0, Access::Read), side(80, Access::Write)]
        }
        "hipMemcpy3DBatchOp" => {
            let (width, height, depth) = (word(80), word(88), word(96));
            let side = |at: usize, access| {
                if half(at) != 1 {
                    return None;
                }
                let pitch = if word(at + 16) == 0 { width } else { word(at + 16) };
                let rows = if word(at + 24) == 0 { height } else { word(at + 24) };
                let region = Region::slices(word(at + 8), width, height, depth, pitch, pitch.checked_mul(rows)?)?;
                Some(Side { region, access, kind: SideKind::Lookup })
            };
            [side(0, Access::Read), side(40, Access::Write)]
        }
        _ => [None, None],
    }
}

/// The base address and kind of a side that says its memory type; `None` for the device's and for arrays.
fn typed(kind: u32, host: u64, unified: u64) -> Option<(u64, SideKind)> {
    match kind {
        memory_type::HOST => Some((host, SideKind::Host)),
        memory_type::UNIFIED => Some((unified, SideKind::Lookup)),
        _ => None,
    }
    .filter(|(base, _)| *base != 0)
}

fn offset(base: u64, x: u64, y: u64, z: u64, pitch: u64, slice: u64) -> Option<u64> {
    base.checked_add(x)?.checked_add(y.checked_mul(pitch)?)?.checked_add(z.checked_mul(slice)?)
}

/// `hipMemcpy3DParms` at offset `at`.
fn parms_3d(at: usize, word: &dyn Fn(usize) -> u64, element_bytes: &dyn Fn(u64) -> Option<u64>) -> [Option<Side>; 2] {
    let (src_array, dst_array) = (word(at), word(at + 64));
    let (width, height, depth) = (word(at + 128), word(at + 136), word(at + 144));
    let kind = SideKind::Copy(u64::from(word(at + 152) as u32));
    // Where an array takes part, widths count its elements.
    let unit = match if src_array != 0 { src_array } else { dst_array } {
        0 => Some(1),
        array => element_bytes(array),
    };
    let side = |position: usize, pitched: usize, access| {
        let (base, pitch, rows) = (word(pitched), word(pitched + 8), word(pitched + 24));
        if base == 0 {
            return None;
        }
        let width_bytes = width.checked_mul(unit?)?;
        let pitch = if pitch == 0 { width_bytes } else { pitch };
        let slice = pitch.checked_mul(if rows == 0 { height } else { rows })?;
        let start = offset(base, word(position), word(position + 8), word(position + 16), pitch, slice)?;
        let region = Region::slices(start, width_bytes, height, depth, pitch, slice)?;
        Some(Side { region, access, kind })
    };
    let src = if src_array == 0 { side(at + 8, at + 32, Access::Read) } else { None };
    let dst = if dst_array == 0 { side(at + 72, at + 96, Access::Write) } else { None };
    [src, dst]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize, words: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for &(at, value) in words {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_3d_copy_starts_at_its_position() {
        // Source: host, position (4, 1, 2), pitch 64, 8 rows a slice; target: device.
        let parms = bytes(
            160,
            &[
                (8, 4),
                (16, 1),
                (24, 2),
                (32, 0x1000),
                (40, 64),
                (56, 8),
                (96, 0x9000),
                (128, 16),
                (136, 3),
                (144, 2),
                (152, 1),
            ],
        );
        let [src, dst] = sides("hipMemcpy3DParms", &parms, &|_| None);
        let src = src.unwrap();
        assert_eq!(src.region, Region::slices(0x1000 + 4 + 64 + 2 * 512, 16, 3, 2, 64, 512).unwrap());
        assert_eq!((src.access, src.kind), (Access::Read, SideKind::Copy(1)));
        assert_eq!(dst.unwrap().region, Region::slices(0x9000, 16, 3, 2, 16, 48).unwrap());
        // The same copy in a graph node.
        let node = [bytes(32, &[(0, 1)]), parms].concat();
        assert_eq!(sides("hipGraphNodeParams", &node, &|_| None)[0], Some(src));
    }

    #[test]
    fn widths_count_elements_where_an_array_takes_part() {
        let parms = bytes(160, &[(0, 0xa), (96, 0x9000), (128, 16), (136, 3), (144, 1), (152, 2)]);
        let [src, dst] = sides("hipMemcpy3DParms", &parms, &|array| (array == 0xa).then_some(4));
        assert_eq!(src, None);
        assert_eq!(dst.unwrap().region.len_bytes(), Some(16 * 4 * 3));
        assert_eq!(sides("hipMemcpy3DParms", &parms, &|_| None), [None, None]);
    }

    #[test]
    fn two_dimensional_copies_say_whose_memory_it_is() {
        let parms = bytes(128, &[(0, 2), (8, 1), (16, 1), (24, 0x1000), (48, 32), (72, 2), (112, 8), (120, 4)]);
        let [src, dst] = sides("hip_Memcpy2D", &parms, &|_| None);
        assert_eq!(src.unwrap().region, Region::rows(0x1000 + 32 + 2, 8, 4, 32).unwrap());
        assert_eq!(dst, None);
    }
}

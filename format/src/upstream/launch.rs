//! Kernel launches and the kernels of graph nodes.
//!
//! A launch, from record offset 32 on: u64 stream, u16 and bytes of the kernel's name, two u64 of its code object's hash, grid
//! and block as three u32 each, u32 dynamic shared bytes, u16 arguments, u16 snapshots; the arguments; where at least 8 bytes
//! are left, u32 attributes, u32 stride and the attributes; the snapshots, 41 bytes each. A graph kernel node: u16 and bytes of
//! the name, the hash, u16 arguments, the arguments.

use super::hash::ContentHash;

/// Size of a snapshot in bytes.
const SNAPSHOT_BYTES: usize = 41;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A value passed as it is.
    Value,
    /// An address.
    Pointer,
    /// An argument that the runtime fills in itself.
    Hidden,
    /// A struct with addresses in it.
    Struct,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// What it is.
    pub kind: ArgumentKind,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Offsets of addresses in a struct.
    pub pointers: Vec<u16>,
}

/// Pinned host memory as it was before a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Address of the allocation or range.
    pub address: u64,
    /// Offset of the chunk in it.
    pub offset_bytes: u64,
    /// Length of the chunk.
    pub len_bytes: u64,
    /// Its contents.
    pub hash: ContentHash,
    /// Whether the contents are to be restored before the launch.
    pub restore: bool,
}

/// A kernel with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Its code object; none where it was unknown.
    pub code: ContentHash,
    /// Arguments in order.
    pub arguments: Vec<Argument<'a>>,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// Stream handle.
    pub stream: u64,
    /// Kernel and arguments.
    pub kernel: Kernel<'a>,
    /// Grid as recorded.
    pub grid: [u32; 3],
    /// Block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Attributes, each `attribute_stride` bytes.
    pub attributes: Vec<&'a [u8]>,
    /// Size of an attribute in bytes.
    pub attribute_stride: u32,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
}

/// Reads front to back; every read is checked.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], String> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| format!("{what}: {len} bytes wanted, {} left", self.rest.len()))?;
        self.rest = rest;
        Ok(head)
    }

    fn unsigned(&mut self, len: usize, what: &'static str) -> Result<u64, String> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(self.bytes(len, what)?);
        Ok(u64::from_le_bytes(word))
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, String> {
        Ok(self.unsigned(2, what)? as u16)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, String> {
        Ok(self.unsigned(4, what)? as u32)
    }

    fn hash(&mut self) -> Result<ContentHash, String> {
        Ok(ContentHash {
            lo: self.unsigned(8, "the code object's hash")?,
            hi: self.unsigned(8, "the code object's hash")?,
        })
    }

    fn name(&mut self) -> Result<&'a [u8], String> {
        let len = self.u16("the name's length")?;
        self.bytes(usize::from(len), "the name")
    }

    fn arguments(&mut self, count: u16) -> Result<Vec<Argument<'a>>, String> {
        // No room is made for a count that was not seen to be true.
        let mut arguments = Vec::new();
        for _ in 0..count {
            let kind = match self.unsigned(1, "an argument's kind")? {
                0 => ArgumentKind::Value,
                1 => ArgumentKind::Pointer,
                2 => ArgumentKind::Hidden,
                3 => ArgumentKind::Struct,
                other => return Err(format!("an argument is of kind {other}")),
            };
            let size = self.u16("an argument's size")?;
            let bytes = self.bytes(usize::from(size), "an argument")?;
            let mut pointers = Vec::new();
            if kind == ArgumentKind::Struct {
                for _ in 0..self.u16("a struct's pointers")? {
                    let offset = self.u16("a pointer's offset")?;
                    if usize::from(offset) + 8 > bytes.len() {
                        return Err(format!("a pointer lies at byte {offset} of an argument of {size} bytes"));
                    }
                    pointers.push(offset);
                }
            }
            arguments.push(Argument { kind, bytes, pointers });
        }
        Ok(arguments)
    }
}

impl<'a> Launch<'a> {
    /// Reads what follows the record header.
    ///
    /// # Errors
    /// What is malformed.
    pub fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut cursor = Cursor { rest: body };
        let stream = cursor.unsigned(8, "the stream")?;
        let name = cursor.name()?;
        let code = cursor.hash()?;
        let mut extents = [0; 6];
        for extent in &mut extents {
            *extent = cursor.u32("grid and block")?;
        }
        let [gx, gy, gz, bx, by, bz] = extents;
        let shared_bytes = cursor.u32("the shared memory")?;
        let argument_count = cursor.u16("the number of arguments")?;
        let snapshot_count = cursor.u16("the number of snapshots")?;
        let arguments = cursor.arguments(argument_count)?;
        let (mut attributes, mut attribute_stride) = (Vec::new(), 0);
        if cursor.rest.len() >= 8 {
            let count = cursor.u32("the number of attributes")?;
            attribute_stride = cursor.u32("the attributes' stride")?;
            if count > 0 && attribute_stride == 0 {
                return Err(format!("{count} attributes of no size"));
            }
            for _ in 0..count {
                attributes.push(cursor.bytes(attribute_stride as usize, "an attribute")?);
            }
        }
        let mut snapshots = Vec::new();
        for _ in 0..snapshot_count {
            let mut one = Cursor { rest: cursor.bytes(SNAPSHOT_BYTES, "a snapshot")? };
            let address = one.unsigned(8, "a snapshot")?;
            let offset_bytes = one.unsigned(8, "a snapshot")?;
            let len_bytes = one.unsigned(8, "a snapshot")?;
            let hash = ContentHash { lo: one.unsigned(8, "a snapshot")?, hi: one.unsigned(8, "a snapshot")? };
            let restore = match one.unsigned(1, "a snapshot")? {
                0 => true,
                1 => false,
                other => return Err(format!("a snapshot's direction is {other}")),
            };
            snapshots.push(Snapshot { address, offset_bytes, len_bytes, hash, restore });
        }
        if !cursor.rest.is_empty() {
            return Err(format!("{} bytes follow its last part", cursor.rest.len()));
        }
        Ok(Launch {
            stream,
            kernel: Kernel { name, code, arguments },
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            shared_bytes,
            attributes,
            attribute_stride,
            snapshots,
        })
    }
}

impl<'a> Kernel<'a> {
    /// Reads what follows the fixed fields of a graph kernel node.
    ///
    /// # Errors
    /// What is malformed.
    pub fn parse_node(tail: &'a [u8]) -> Result<Self, String> {
        let mut cursor = Cursor { rest: tail };
        let name = cursor.name()?;
        let code = cursor.hash()?;
        let count = cursor.u16("the number of arguments")?;
        let arguments = cursor.arguments(count)?;
        if !cursor.rest.is_empty() {
            return Err(format!("{} bytes follow its last argument", cursor.rest.len()));
        }
        Ok(Kernel { name, code, arguments })
    }

    /// The arguments that the program passed.
    pub fn explicit(&self) -> impl Iterator<Item = &Argument<'a>> {
        self.arguments.iter().filter(|argument| argument.kind != ArgumentKind::Hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch of `k(3, pointer, {7, pointer})` with one attribute and one snapshot.
    fn bytes() -> Vec<u8> {
        let mut bytes = 5u64.to_le_bytes().to_vec();
        bytes.extend([1, 0, b'k']);
        bytes.extend(0x11u64.to_le_bytes());
        bytes.extend(0x22u64.to_le_bytes());
        for extent in [1u32, 2, 3, 4, 5, 6, 77] {
            bytes.extend(extent.to_le_bytes());
        }
        bytes.extend([3, 0, 1, 0]);
        bytes.extend([0, 4, 0, 3, 0, 0, 0]);
        bytes.extend([1, 8, 0, 0, 16, 0, 0, 0, 0, 0, 0]);
        bytes.extend([3, 16, 0]);
        bytes.extend([7; 16]);
        bytes.extend([1, 0, 8, 0]);
        bytes.extend([1, 0, 0, 0, 4, 0, 0, 0, 9, 9, 9, 9]);
        for word in [0x1000u64, 64, 3, 5, 6] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn every_part_is_read_from_its_place() {
        let bytes = bytes();
        let launch = Launch::parse(&bytes).unwrap();
        assert_eq!((launch.stream, launch.kernel.name), (5, &b"k"[..]));
        assert_eq!(launch.kernel.code, ContentHash { lo: 0x11, hi: 0x22 });
        assert_eq!((launch.grid, launch.block, launch.shared_bytes), ([1, 2, 3], [4, 5, 6], 77));
        assert_eq!(launch.kernel.arguments[2].pointers, [8]);
        assert_eq!((launch.attributes.len(), launch.attribute_stride), (1, 4));
        assert_eq!(launch.snapshots[0].offset_bytes, 64);
        assert!(launch.snapshots[0].restore);
    }

    #[test]
    fn every_cut_but_those_between_parts_is_malformed() {
        let whole = bytes();
        for cut in 0..whole.len() {
            assert!(Launch::parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_pointer_outside_its_struct_and_a_direction_above_1_are_malformed() {
        let mut bad = bytes();
        let end = bad.len();
        bad[end - 1] = 2;
        assert!(Launch::parse(&bad).is_err());
        let mut bad = bytes();
        let offset = bad.len() - 41 - 12 - 2;
        bad[offset] = 9;
        assert!(Launch::parse(&bad).is_err());
    }
}

//! `events.bin`: a header, then records until the trailer or the end.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u32 | [`MAGIC`] |
//! | 4 | u16 | format version |
//! | 6 | u16 | flags ([`FLAG_PACKED`]), zero before version 7 |
//!
//! A record:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | event id |
//! | 2 | u64 | sequence number |
//! | 10 | u64 | time in ns, `CLOCK_MONOTONIC`, when the record was written |
//! | 18 | u64 | OS thread id |
//! | 26 | u32 | length of the record, header included (up to version 3: u16, and 4 reserved bytes) |
//! | 30 | u8\[2\] | zero |
//!
//! The trailer is a record of id 0xffff with u64 number of records before it, then u32 [`TRAILER_MAGIC`].

use super::layout::HEADER_BYTES;

/// First four bytes of the file.
pub const MAGIC: u32 = 0x5252_4845;
/// Size of the file header in bytes.
pub const FILE_HEADER_BYTES: usize = 8;
/// Header flag: host contents of pitched copies are packed.
pub const FLAG_PACKED: u16 = 1;
/// Event id of the trailer.
pub const TRAILER_ID: u16 = 0xffff;
/// Last four bytes of the trailer.
pub const TRAILER_MAGIC: u32 = 0x464f_4548;
/// Size of the trailer in bytes.
pub const TRAILER_BYTES: usize = 44;
/// Longest record that is read.
pub const MAX_RECORD_BYTES: usize = 64 << 20;
/// Oldest format version that is known.
pub const OLDEST_VERSION: u16 = 3;
/// Last format version whose records are two bytes shorter in their length field.
const SHORT_LENGTH_VERSION: u16 = 3;
/// From this version on nothing counts that follows the trailer.
const TRAILER_ENDS_VERSION: u16 = 7;

/// The file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Format version.
    pub version: u16,
    /// Flags.
    pub flags: u16,
}

impl FileHeader {
    /// Reads the first bytes of the file.
    ///
    /// # Errors
    /// Why they are no header.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() else {
            return Err(format!("it is {} bytes long, shorter than its header of {FILE_HEADER_BYTES}", bytes.len()));
        };
        let magic = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if magic != MAGIC {
            return Err(format!("its first bytes are {:02x?}, not {:02x?}", &header[..4], MAGIC.to_le_bytes()));
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        if version < OLDEST_VERSION {
            return Err(format!("its format version is {version}, which no recorder wrote"));
        }
        Ok(FileHeader { version, flags: u16::from_le_bytes([header[6], header[7]]) })
    }

    /// Whether host contents of pitched copies are packed.
    pub fn packed(self) -> bool {
        self.flags & FLAG_PACKED != 0
    }
}

/// A record, borrowed from the file.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Event id, as the file numbers entry points.
    pub id: u16,
    /// Sequence number.
    pub sequence: u64,
    /// Time in ns.
    pub time_ns: u64,
    /// OS thread id.
    pub tid: u64,
    /// Offset in the file in bytes.
    pub offset_bytes: usize,
    /// The whole record, header included.
    pub bytes: &'a [u8],
}

impl<'a> Event<'a> {
    /// An unsigned integer of `size_bytes` (at most 8) at `offset_bytes`; `None` where the record is shorter.
    pub fn unsigned(&self, offset_bytes: usize, size_bytes: usize) -> Option<u64> {
        let field = self.bytes.get(offset_bytes..)?.get(..size_bytes.min(8))?;
        let mut word = [0; 8];
        word[..field.len()].copy_from_slice(field);
        Some(u64::from_le_bytes(word))
    }

    /// Bytes of the record; `None` where it is shorter.
    pub fn slice(&self, offset_bytes: usize, size_bytes: usize) -> Option<&'a [u8]> {
        self.bytes.get(offset_bytes..)?.get(..size_bytes)
    }
}

/// How reading ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Records before the trailer, as it counts them; `None` without a trailer.
    pub trailer_events: Option<u64>,
    /// Where the file stops making sense, and why.
    pub torn: Option<(usize, String)>,
    /// Bytes behind the trailer, which do not count.
    pub ignored_bytes: usize,
}

/// The records of a file, in file order.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    bytes: &'a [u8],
    version: u16,
    at: usize,
    ending: Ending,
    done: bool,
}

impl<'a> Events<'a> {
    /// The records behind the header of a file of this version.
    pub fn new(bytes: &'a [u8], version: u16) -> Self {
        Events { bytes, version, at: FILE_HEADER_BYTES, ending: Ending::default(), done: false }
    }

    /// The records from an offset on at which one begins.
    pub fn at(bytes: &'a [u8], version: u16, offset_bytes: usize) -> Self {
        Events { at: offset_bytes, ..Self::new(bytes, version) }
    }

    /// How it ended; final once iteration has.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    fn stop(&mut self, reason: String) -> Option<Event<'a>> {
        self.ending.torn = Some((self.at, reason));
        self.done = true;
        None
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            if self.done || rest.is_empty() {
                return None;
            }
            let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
                return self.stop(format!("{} bytes are no record header", rest.len()));
            };
            let event = Event {
                id: u16::from_le_bytes([header[0], header[1]]),
                sequence: 0,
                time_ns: 0,
                tid: 0,
                offset_bytes: self.at,
                bytes: rest,
            };
            let length_bytes = if self.version <= SHORT_LENGTH_VERSION { 2 } else { 4 };
            let len = event.unsigned(26, length_bytes).unwrap_or(0) as usize;
            if !(HEADER_BYTES..=MAX_RECORD_BYTES).contains(&len) {
                return self.stop(format!("a record says that it is {len} bytes long"));
            }
            let Some(bytes) = rest.get(..len) else {
                return self.stop(format!("a record of {len} bytes is cut off after {}", rest.len()));
            };
            let event = Event {
                sequence: event.unsigned(2, 8).unwrap_or(0),
                time_ns: event.unsigned(10, 8).unwrap_or(0),
                tid: event.unsigned(18, 8).unwrap_or(0),
                bytes,
                ..event
            };
            self.at += len;
            let is_trailer = event.id == TRAILER_ID
                && len == TRAILER_BYTES
                && event.unsigned(40, 4) == Some(u64::from(TRAILER_MAGIC));
            if !is_trailer {
                return Some(event);
            }
            self.ending.trailer_events = event.unsigned(32, 8);
            if self.version >= TRAILER_ENDS_VERSION {
                self.ending.ignored_bytes = self.bytes.len() - self.at;
                self.done = true;
            }
        }
    }
}

/// A record's header, for whoever writes one.
pub fn header_bytes(id: u16, sequence: u64, time_ns: u64, tid: u64, len_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&id.to_le_bytes());
    header[2..10].copy_from_slice(&sequence.to_le_bytes());
    header[10..18].copy_from_slice(&time_ns.to_le_bytes());
    header[18..26].copy_from_slice(&tid.to_le_bytes());
    header[26..30].copy_from_slice(&len_bytes.to_le_bytes());
    header
}

/// The trailer of a file with this many records.
pub fn trailer_bytes(next_sequence: u64, events: u64) -> Vec<u8> {
    let mut bytes = header_bytes(TRAILER_ID, next_sequence, 0, 0, TRAILER_BYTES as u32).to_vec();
    bytes.extend(events.to_le_bytes());
    bytes.extend(TRAILER_MAGIC.to_le_bytes());
    bytes
}

/// The header of a file.
pub fn file_header_bytes(header: FileHeader) -> [u8; FILE_HEADER_BYTES] {
    let mut bytes = [0; FILE_HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..6].copy_from_slice(&header.version.to_le_bytes());
    bytes[6..].copy_from_slice(&header.flags.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u16, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = file_header_bytes(FileHeader { version, flags: 0 }).to_vec();
        for (sequence, (id, body)) in records.iter().enumerate() {
            bytes.extend(header_bytes(*id, sequence as u64, 100, 7, (HEADER_BYTES + body.len()) as u32));
            bytes.extend(*body);
        }
        bytes
    }

    #[test]
    fn the_magic_lies_on_disk_as_it_is_spelled() {
        assert_eq!(file(7, &[])[..8], *b"EHRR\x07\0\0\0");
        assert_eq!(FileHeader::parse(b"EHRR\x08\0\x01\0").unwrap(), FileHeader { version: 8, flags: 1 });
        assert!(FileHeader::parse(b"EHRQ\x08\0\x01\0").is_err());
        assert!(FileHeader::parse(b"EHRR").is_err());
    }

    #[test]
    fn every_cut_keeps_the_records_before_it() {
        let whole = file(7, &[(1, b"abcd"), (2, b""), (3, b"xyz")]);
        let ends = [8 + 36, 8 + 36 + 32, 8 + 36 + 32 + 35];
        for cut in 8..=whole.len() {
            let mut events = Events::new(&whole[..cut], 7);
            let count = events.by_ref().count();
            assert_eq!(count, ends.iter().filter(|&&end| end <= cut).count(), "cut at {cut}");
            assert_eq!(events.ending().torn.is_some(), !ends.contains(&cut) && cut != 8, "cut at {cut}");
        }
    }

    #[test]
    fn a_trailer_ends_the_file_from_version_7_on() {
        for (version, expected) in [(6, 2), (7, 1), (8, 1)] {
            let mut bytes = file(version, &[(1, b"")]);
            bytes.extend(trailer_bytes(1, 1));
            bytes.extend(header_bytes(2, 9, 0, 0, 32));
            let mut events = Events::new(&bytes, version);
            assert_eq!(events.by_ref().count(), expected);
            assert_eq!(events.ending().trailer_events, Some(1));
        }
    }

    #[test]
    fn the_trailer_s_id_with_another_length_is_an_event() {
        let bytes = file(7, &[(TRAILER_ID, b"abcd"), (1, b"")]);
        assert_eq!(Events::new(&bytes, 7).map(|event| event.id).collect::<Vec<_>>(), [TRAILER_ID, 1]);
    }

    #[test]
    fn lengths_are_two_bytes_up_to_version_3() {
        let mut bytes = file(3, &[(1, b"abcd")]);
        bytes[8 + 28] = 0xff;
        assert_eq!(Events::new(&bytes, 3).count(), 1);
        assert_eq!(Events::new(&bytes, 4).count(), 0);
    }
}

//! Compressed offload bundles (`CCOB`).
//!
//! | field | version 1 | version 2 | version 3 |
//! |---|---|---|---|
//! | magic `CCOB` | 0 | 0 | 0 |
//! | u16 version | 4 | 4 | 4 |
//! | u16 method: 0 zlib, 1 zstd | 6 | 6 | 6 |
//! | total size, header included | | u32 at 8 | u64 at 8 |
//! | uncompressed size | u32 at 8 | u32 at 12 | u64 at 16 |
//! | u64 hash of the contents | 12 | 16 | 24 |
//! | compressed bytes | 20 | 24 | 32 |
//!
//! A version 1 bundle does not say where it ends: its compressed stream does, and has to be followed to find out.

use std::io::Read;

use zstd::stream::raw::Operation;

use super::error::CodeObjectError;
use super::read_at::ReadAt;

/// First bytes of a compressed bundle.
pub(super) const MAGIC: [u8; 4] = *b"CCOB";

/// Largest uncompressed size in bytes for each compressed byte that is believed; code objects shrink to a tenth or so.
const MAX_RATIO: u64 = 1024;

/// Bytes that are decompressed at a time to find the end of a stream.
const CHUNK_BYTES: usize = 1 << 17;

/// Header of a compressed bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    method: Method,
    header_bytes: usize,
    /// Header and data; `None` in version 1.
    total_bytes: Option<usize>,
    uncompressed_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Zlib,
    Zstd,
}

fn failed(reason: impl Into<String>) -> CodeObjectError {
    CodeObjectError::Compressed { reason: reason.into() }
}

/// Reads the header at the start of `bytes`.
fn header<B: ReadAt + ?Sized>(bytes: &B) -> Result<Header, CodeObjectError> {
    let cut_off = || failed("its header is cut off");
    let version = bytes.u16_at(4).ok_or_else(cut_off)?;
    let method = match bytes.u16_at(6).ok_or_else(cut_off)? {
        0 => Method::Zlib,
        1 => Method::Zstd,
        method => return Err(failed(format!("its compression method {method} is unknown"))),
    };
    let (header_bytes, total, uncompressed) = match version {
        1 => (20, None, bytes.u32_at(8).map(u64::from)),
        2 => (24, bytes.u32_at(8).map(u64::from), bytes.u32_at(12).map(u64::from)),
        3 => (32, bytes.u64_at(8), bytes.u64_at(16)),
        _ => return Err(failed(format!("its version {version} is unknown"))),
    };
    let uncompressed_bytes = uncompressed.ok_or_else(cut_off)?;
    let total_bytes = match total {
        None => None,
        Some(total) => Some(
            usize::try_from(total)
                .ok()
                .filter(|&total| total >= header_bytes && total <= super::MAX_IMAGE_BYTES)
                .ok_or_else(|| failed(format!("its size of {total} bytes cannot be right")))?,
        ),
    };
    Ok(Header { method, header_bytes, total_bytes, uncompressed_bytes })
}

/// Length in bytes of the bundle at the start of `bytes`.
pub(super) fn len_bytes<B: ReadAt + ?Sized>(bytes: &B) -> Option<usize> {
    let header = header(bytes).ok()?;
    match header.total_bytes {
        Some(total_bytes) => Some(total_bytes),
        None => Some(header.header_bytes + stream_bytes(bytes, &header)?),
    }
}

/// Length in bytes of the compressed stream behind a header, found by decompressing it. No byte behind the stream is
/// looked at, since it may not be mapped.
fn stream_bytes<B: ReadAt + ?Sized>(bytes: &B, header: &Header) -> Option<usize> {
    let limit_bytes = header.uncompressed_bytes.min(super::MAX_UNCOMPRESSED_BYTES);
    let mut contents = vec![0; CHUNK_BYTES];
    let mut input = Vec::new();
    let mut at = header.header_bytes;
    let mut zlib = flate2::Decompress::new(true);
    let mut zstd = zstd::stream::raw::Decoder::new().ok()?;
    let mut produced_bytes = 0u64;
    // How many bytes are known to be there: of zstd as many as its decoder asks for, which never is more than the frame
    // has; of zlib the next one.
    let mut wanted = 1;
    loop {
        input.clear();
        for offset in 0..wanted {
            input.extend(bytes.read::<1>(at.checked_add(offset)?)?);
        }
        let mut consumed = 0;
        // The decoder may have more to give out than the buffer takes.
        loop {
            let (used, made, ended, hint) = match header.method {
                Method::Zlib => {
                    let before = (zlib.total_in(), zlib.total_out());
                    let status =
                        zlib.decompress(&input[consumed..], &mut contents, flate2::FlushDecompress::None).ok()?;
                    let used = usize::try_from(zlib.total_in() - before.0).ok()?;
                    (used, zlib.total_out() - before.1, status == flate2::Status::StreamEnd, 1)
                }
                Method::Zstd => {
                    let status = zstd.run_on_buffers(&input[consumed..], &mut contents).ok()?;
                    (status.bytes_read, status.bytes_written as u64, status.remaining == 0, status.remaining)
                }
            };
            consumed += used;
            produced_bytes += made;
            if produced_bytes > limit_bytes {
                return None;
            }
            if ended {
                return at.checked_add(consumed)?.checked_sub(header.header_bytes);
            }
            wanted = hint.clamp(1, CHUNK_BYTES);
            if consumed == input.len() && made < CHUNK_BYTES as u64 {
                break;
            }
            if used == 0 && made == 0 {
                return None;
            }
        }
        at = at.checked_add(consumed)?;
    }
}

/// Decompresses the bundle at the start of `bytes` to at most `limit_bytes`: contents, and length of the bundle.
///
/// # Errors
/// [`CodeObjectError::Compressed`], also where the contents are not as long as the header says.
pub(super) fn decompress(bytes: &[u8], limit_bytes: u64) -> Result<(Vec<u8>, usize), CodeObjectError> {
    let header = header(bytes)?;
    let declared = header.uncompressed_bytes;
    let believable = |compressed_bytes: usize| {
        if declared > limit_bytes || declared > (compressed_bytes as u64).saturating_mul(MAX_RATIO) {
            let reason =
                format!("it says that it holds {declared} bytes, too many for {compressed_bytes} compressed ones");
            return Err(failed(reason));
        }
        Ok(())
    };
    // Before the stream is followed to its end, which takes as long as its contents are.
    believable(bytes.len())?;
    let len_bytes = self::len_bytes(bytes).ok_or_else(|| failed("its compressed stream has no end"))?;
    let data = bytes.get(header.header_bytes..len_bytes).ok_or_else(|| failed("its data is cut off"))?;
    believable(data.len())?;
    let mut contents = Vec::new();
    // One byte more than declared is asked for, so that contents that are too long are seen to be.
    let read = match header.method {
        Method::Zlib => flate2::bufread::ZlibDecoder::new(data).take(declared + 1).read_to_end(&mut contents),
        Method::Zstd => zstd::stream::read::Decoder::with_buffer(data)
            .and_then(|decoder| decoder.single_frame().take(declared + 1).read_to_end(&mut contents)),
    };
    read.map_err(|reason| failed(reason.to_string()))?;
    if contents.len() as u64 != declared {
        return Err(failed(format!("its contents are not the {declared} bytes that it declares")));
    }
    Ok((contents, len_bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    fn zlib(contents: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    /// A compressed bundle of a version and method.
    pub(in super::super) fn build(version: u16, method: u16, contents: &[u8]) -> Vec<u8> {
        let data = if method == 0 { zlib(contents) } else { zstd::encode_all(contents, 3).unwrap() };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(method.to_le_bytes());
        match version {
            1 => bytes.extend((contents.len() as u32).to_le_bytes()),
            2 => {
                bytes.extend((24 + data.len() as u32).to_le_bytes());
                bytes.extend((contents.len() as u32).to_le_bytes());
            }
            _ => {
                bytes.extend((32 + data.len() as u64).to_le_bytes());
                bytes.extend((contents.len() as u64).to_le_bytes());
            }
        }
        bytes.extend([0xaa; 8]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn headers_read_as_their_bytes_say() {
        #[rustfmt::skip]
        let v2 = [b'C', b'C', b'O', b'B', 2, 0, 1, 0,  40, 0, 0, 0,  100, 0, 0, 0,  9, 9, 9, 9, 9, 9, 9, 9];
        let expected =
            Header { method: Method::Zstd, header_bytes: 24, total_bytes: Some(40), uncompressed_bytes: 100 };
        assert_eq!(header(&v2[..]), Ok(expected));
        #[rustfmt::skip]
        let v3 = [
            b'C', b'C', b'O', b'B', 3, 0, 0, 0,  40, 0, 0, 0, 0, 0, 0, 0,  100, 0, 0, 0, 0, 0, 0, 0,
            9, 9, 9, 9, 9, 9, 9, 9,
        ];
        assert_eq!(header(&v3[..]), Ok(Header { method: Method::Zlib, header_bytes: 32, ..expected }));
        let v1 = [b'C', b'C', b'O', b'B', 1, 0, 1, 0, 100, 0, 0, 0];
        assert_eq!(header(&v1[..]), Ok(Header { header_bytes: 20, total_bytes: None, ..expected }));
    }

    #[test]
    fn every_version_and_method_gives_its_contents_back() {
        let contents = b"some contents that repeat, contents that repeat".repeat(9);
        for version in 1..=3 {
            for method in 0..=1 {
                let mut bytes = build(version, method, &contents);
                let len_bytes = bytes.len();
                assert_eq!(self::len_bytes(&bytes[..]), Some(len_bytes), "{version} {method}");
                bytes.extend(b"something after it");
                assert_eq!(self::len_bytes(&bytes[..]), Some(len_bytes), "{version} {method}");
                assert_eq!(decompress(&bytes, 1 << 20), Ok((contents.clone(), len_bytes)), "{version} {method}");
                for cut in 0..len_bytes {
                    assert!(decompress(&bytes[..cut], 1 << 20).is_err(), "{version} {method} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_long_stream_is_found_and_no_byte_behind_it_is_read() {
        // Contents that do not shrink, longer than the chunks they are read in, and contents that shrink to nothing.
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(700_001)
        .collect();
        for contents in [noise, vec![0; 1 << 20], Vec::new()] {
            for method in 0..=1 {
                let bytes = build(1, method, &contents);
                // A slice ends where the bundle does, so that reading on would find nothing and fail.
                assert_eq!(len_bytes(&bytes[..]), Some(bytes.len()), "{} {method}", contents.len());
                assert_eq!(len_bytes(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn contents_longer_than_declared_or_allowed_are_refused_without_being_made() {
        let bomb = vec![0; 4 << 20];
        for method in 0..=1 {
            let mut bytes = build(3, method, &bomb);
            let limited = decompress(&bytes, 1 << 20).unwrap_err().to_string();
            assert!(limited.contains("too many"), "{limited}");
            bytes[16..24].copy_from_slice(&1000u64.to_le_bytes());
            let longer = decompress(&bytes, 1 << 20).unwrap_err().to_string();
            assert!(longer.contains("not the 1000 bytes"), "{longer}");
            bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
            assert!(decompress(&bytes, u64::MAX).is_err());
        }
    }
}

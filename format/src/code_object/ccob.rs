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
//! A version 1 bundle does not say where it ends, so it is taken to be the last of its image.

use std::io::Read;

use super::error::CodeObjectError;
use super::read_at::ReadAt;

/// First bytes of a compressed bundle.
pub(super) const MAGIC: [u8; 4] = *b"CCOB";

/// Largest uncompressed size in bytes for each compressed byte that is believed; code objects shrink to a tenth or so.
const MAX_RATIO: u64 = 1024;

/// Header of a compressed bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    method: Method,
    header_bytes: usize,
    /// Header and data; `None` in version 1.
    pub(super) total_bytes: Option<usize>,
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
pub(super) fn header<B: ReadAt + ?Sized>(bytes: &B) -> Result<Header, CodeObjectError> {
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

/// Decompresses the bundle at the start of `bytes` to at most `limit_bytes`: contents, and length of the bundle.
///
/// # Errors
/// [`CodeObjectError::Compressed`], also where the contents are not as long as the header says.
pub(super) fn decompress(bytes: &[u8], limit_bytes: u64) -> Result<(Vec<u8>, usize), CodeObjectError> {
    let header = header(bytes)?;
    let len_bytes = header.total_bytes.unwrap_or(bytes.len());
    let data = bytes.get(header.header_bytes..len_bytes).ok_or_else(|| failed("its data is cut off"))?;
    let declared = header.uncompressed_bytes;
    if declared > limit_bytes || declared > (data.len() as u64).saturating_mul(MAX_RATIO) {
        return Err(failed(format!(
            "it says that it holds {declared} bytes, too many for {} compressed ones",
            data.len()
        )));
    }
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
                if version > 1 {
                    bytes.extend(b"something after it");
                }
                assert_eq!(decompress(&bytes, 1 << 20), Ok((contents.clone(), len_bytes)), "{version} {method}");
                for cut in 0..len_bytes {
                    assert!(decompress(&bytes[..cut], 1 << 20).is_err(), "{version} {method} cut at {cut}");
                }
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

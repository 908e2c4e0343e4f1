//! A short run of every fuzz target, the same each time: over its seeds, each cut at many places and with bytes changed.
//! `scripts/fuzz` runs them for longer, with a sanitizer and inputs of its own.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "the file is a library of its own")]
mod fuzz;

/// Changed inputs for each seed.
const CHANGES: u64 = 150;
/// Cuts for each seed, spread over it.
const CUTS: usize = 40;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(dir: &Path, strip: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter_map(|name| name.strip_suffix(strip).map(str::to_owned)).collect();
    names.sort();
    names
}

/// A seed's bytes: hexadecimal text, or the file as it is.
fn bytes_of(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if path.extension().is_none_or(|extension| extension != "hex") {
        return bytes;
    }
    let digits: Vec<u8> = bytes.into_iter().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % limit.max(1) as u64) as usize
}

/// A few changes of one kind: bits, values that numbers go wrong at, bytes put in or taken out.
fn changed(seed: &[u8], state: &mut u64) -> Vec<u8> {
    const VALUES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    let mut bytes = seed.to_vec();
    for _ in 0..=random(state, 3) {
        let at = random(state, bytes.len());
        match random(state, 5) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random(state, 8),
            2 => {
                let value = VALUES[random(state, VALUES.len())].to_le_bytes();
                let width = 1 << random(state, 4);
                bytes.iter_mut().skip(at).zip(&value[..width]).for_each(|(byte, value)| *byte = *value);
            }
            3 => bytes.insert(at, VALUES[random(state, 4)] as u8),
            _ if !bytes.is_empty() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

#[test]
fn every_target_has_a_program_and_seeds() {
    let targets: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&fuzz_dir().join("fuzz_targets"), ".rs"), targets);
    assert_eq!(names(&fuzz_dir().join("seeds"), ""), targets);
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    for (name, _) in fuzz::TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        assert!(!names(&fuzz_dir().join("seeds").join(name), "").is_empty(), "{name}");
    }
}

#[test]
fn every_target_survives_its_seeds_and_what_becomes_of_them() {
    for (name, target) in fuzz::TARGETS {
        let dir = fuzz_dir().join("seeds").join(name);
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for file in names(&dir, "") {
            let seed = bytes_of(&dir.join(&file));
            target(&seed);
            for cut in (0..seed.len()).step_by(seed.len().div_ceil(CUTS).max(1)) {
                target(&seed[..cut]);
            }
            for _ in 0..CHANGES {
                target(&changed(&seed, &mut state));
            }
        }
    }
}

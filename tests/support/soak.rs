//! How often, and with which random delays.
//!
//! `HRR_SOAK` replays of each kind (2 unless set; a soak takes 50), `HRR_SOAK_KILLS` kills (8; a soak takes 100),
//! `HRR_SOAK_PROGRAMS` random programs (120; a soak takes 10000), and `HRR_SOAK_SEED` for another sequence of delays (1).

/// A number from the environment.
///
/// # Panics
/// The variable is set to something else.
fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Err(_) => otherwise,
        Ok(text) => text.trim().parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    }
}

/// Replays of each kind.
pub fn replays() -> u64 {
    number("HRR_SOAK", 2).max(1)
}

/// Recordings to kill.
pub fn kills() -> u64 {
    number("HRR_SOAK_KILLS", 8).max(1)
}

/// Random programs.
pub fn programs() -> u64 {
    number("HRR_SOAK_PROGRAMS", 120).max(1)
}

/// The seed of the `index`-th run of a kind, never zero; `kind` tells apart what would else get the same delays.
pub fn seed(kind: &str, index: u64) -> u64 {
    // FNV-1a over the kind, then the finaliser of SplitMix64.
    let hash = kind
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut mixed = hash ^ number("HRR_SOAK_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index << 32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Short enough to type.
    (mixed >> 33) + 1
}

#[cfg(test)]
mod tests {
    use super::seed;

    #[test]
    fn seeds_differ() {
        let seeds: std::collections::BTreeSet<u64> =
            ["a", "b"].iter().flat_map(|kind| (0..100).map(move |index| seed(kind, index))).collect();
        assert_eq!(seeds.len(), 200);
        assert!(!seeds.contains(&0));
    }
}

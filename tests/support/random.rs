//! Numbers that are the same in every run, for tests that change files at random places. Of the standard library alone: other
//! crates' tests take this file in by its path.

/// A generator (xorshift64).
#[derive(Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers of a seed, which is not zero.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0, "of zero this generator makes zeros only");
        Random { state: seed }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit
    }
}

//! Numbers from a seed that stay the same on every machine and in every release, which no generator of `rand` promises:
//! a run can be resumed years later, and a seed written in a model card keeps its meaning.

/// One pass over the training pictures: every random choice made in it follows from these two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The run's seed.
    pub seed: u64,
    /// The number of the epoch.
    pub number: u64,
}

/// The numbers from 0 to `n - 1` in the random order of one epoch.
pub fn shuffle(n: usize, epoch: Epoch) -> Vec<usize> {
    let mut random = Random::new(&[epoch.seed, epoch.number]);
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each sequence of words.
    pub fn new(words: &[u64]) -> Self {
        words.iter().fold(Self(0), |mut random, word| Self(random.next() ^ word))
    }

    /// A whole number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

//! Random starting weights, as the book's code draws them.

use rand::{SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, StandardNormal};

use crate::error::Result;

/// Standard deviation of the starting weights (the book's `initializer_range`).
const STD: f32 = 0.02;

/// A source of starting weights for [`ViT::new`](super::ViT::new): scales of norms are one, biases zero, everything
/// else normal with a standard deviation of 0.02. The same seed gives the same weights on every machine.
pub fn random(seed: u64) -> impl FnMut(&str, &[usize]) -> Result<Vec<f32>> {
    let mut rng = StdRng::seed_from_u64(seed);
    move |name, shape| {
        let count = shape.iter().product();
        if name.ends_with(".bias") {
            return Ok(vec![0.0; count]);
        }
        if name.contains("norm") {
            return Ok(vec![1.0; count]);
        }
        let normal = |_| -> f32 { StandardNormal.sample(&mut rng) };
        Ok((0..count).map(normal).map(|value| STD * value).collect())
    }
}

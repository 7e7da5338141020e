//! Rotary positions (RoPE) on a grid of patches, as DINOv3 has them in place of a learned table.

use std::f64::consts::TAU;

use burn::{
    module::Module,
    tensor::{Tensor, TensorData},
};

use super::{Parameters, ViTConfig};
use crate::error::Result;

/// Turns pairs of a query's or key's values by angles that depend on where its patch lies, so that a score depends on
/// how far two patches lie apart. Tokens that are no patches are not turned.
#[derive(Module, Debug)]
pub struct Rotary {
    /// `[1, 1, tokens, head_width]`
    cos: Tensor<4>,
    /// The sines, negative for the first half of the values: `[1, 1, tokens, head_width]`.
    sin: Tensor<4>,
}

impl Rotary {
    /// The angles for the config's grid. A period is the length of a whole turn, where the picture is 2 long.
    ///
    /// # Errors
    /// Whatever the source of the periods answers.
    pub fn new(config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        let half = config.head_width() / 2;
        let periods = parameters.values("rotary.periods", &[half / 2])?;
        let mut turns = vec![0.0; config.prefix_tokens() * half];
        let (rows, cols) = config.grid();
        for row in 0..rows {
            for col in 0..cols {
                for place in [centre(row, rows), centre(col, cols)] {
                    turns.extend(periods.iter().map(|&period| place / f64::from(period)));
                }
            }
        }
        let shape = [1, 1, config.tokens(), half];
        let tensor = |values: Vec<f32>| Tensor::<4>::from_data(TensorData::new(values, shape), parameters.device());
        let cos = tensor(turns.iter().map(|turn| (TAU * turn).cos() as f32).collect());
        let sin = tensor(turns.iter().map(|turn| (TAU * turn).sin() as f32).collect());
        Ok(Self { cos: Tensor::cat(vec![cos.clone(), cos], 3), sin: Tensor::cat(vec![-sin.clone(), sin], 3) })
    }

    /// # Shapes
    /// `[batch, heads, tokens, head_width]` to the same
    pub fn turn(&self, x: Tensor<4>) -> Tensor<4> {
        let half = x.dims()[3] / 2;
        let swapped = Tensor::cat(vec![x.clone().narrow(3, half, half), x.clone().narrow(3, 0, half)], 3);
        x * self.cos.clone() + swapped * self.sin.clone()
    }
}

/// The centre of the `i`th of `count` patches, where the edges of the picture lie at -1 and 1.
fn centre(i: usize, count: usize) -> f64 {
    (2 * i + 1) as f64 / count as f64 - 1.0
}

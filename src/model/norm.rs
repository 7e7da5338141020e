//! Layer norm.

use burn::{
    module::{Module, Param},
    tensor::Tensor,
};

use super::{Parameters, kernels};
use crate::error::Result;

/// Layer norm over a token's values: `(x - mean) / √(variance + eps) · γ + β` (Ba et al. 2016).
#[derive(Module, Debug)]
pub struct Norm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    eps: f64,
}

impl Norm {
    /// A norm over `width` values, with its epsilon.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, width: usize, eps: f64, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            weight: parameters.tensor(&format!("{name}.weight"), [width])?,
            bias: parameters.tensor(&format!("{name}.bias"), [width])?,
            eps,
        })
    }

    /// # Shapes
    /// `[.., width]` to the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        kernels::layer_norm(x, self.weight.val(), self.bias.val(), self.eps)
    }
}

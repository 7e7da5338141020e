//! Layer norm.

use burn::{
    module::{Module, Param},
    tensor::Tensor,
};

use super::{Parameters, ViTConfig, kernels};
use crate::error::Result;

/// Layer norm over a token's values: `(x - mean) / √(variance + eps) · γ + β` (Ba et al. 2016).
#[derive(Module, Debug)]
pub struct Norm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    eps: f64,
}

impl Norm {
    /// A norm of the config's width and epsilon.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            weight: parameters.tensor(&format!("{name}.weight"), [config.width])?,
            bias: parameters.tensor(&format!("{name}.bias"), [config.width])?,
            eps: config.norm_eps,
        })
    }

    /// # Shapes
    /// `[batch, tokens, width]` to the same
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        kernels::layer_norm(x, self.weight.val(), self.bias.val(), self.eps)
    }
}

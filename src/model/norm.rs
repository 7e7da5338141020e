//! Layer norm, and RMS norm.

use burn::{
    module::{Module, Param},
    tensor::Tensor,
};

use super::{Parameters, ViTConfig, kernels};
use crate::error::Result;

/// Layer norm over a token's values: `(x - mean) / √(variance + eps) · γ + β` (Ba et al. 2016). Without a bias it is RMS
/// norm: `x / √(mean of the squares + eps) · γ` (Zhang and Sennrich 2019).
#[derive(Module, Debug)]
pub struct Norm {
    weight: Param<Tensor<1>>,
    bias: Option<Param<Tensor<1>>>,
    eps: f64,
}

impl Norm {
    /// A norm over `width` values, of the config's kind and epsilon.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, width: usize, config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        let mut tensor = |leaf: &str| parameters.tensor(&format!("{name}.{leaf}"), [width]);
        Ok(Self {
            weight: tensor("weight")?,
            bias: if config.rms_norm { None } else { Some(tensor("bias")?) },
            eps: config.norm_eps,
        })
    }

    /// # Shapes
    /// `[.., width]` to the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match &self.bias {
            Some(bias) => kernels::layer_norm(x, self.weight.val(), bias.val(), self.eps),
            None => {
                let mean = (x.clone() * x.clone()).mean_dim(D - 1);
                x / (mean + self.eps).sqrt() * self.weight.val().unsqueeze()
            }
        }
    }
}

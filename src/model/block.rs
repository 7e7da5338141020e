//! One transformer block: attention and MLP, each behind a layer norm and beside a residual path.

use burn::{
    module::Module,
    nn::Linear,
    tensor::{Tensor, activation::sigmoid},
};

use super::{Activation, Attention, Norm, Parameters, Queries, ViTConfig, Weights, kernels};
use crate::error::Result;

/// A pre-norm block: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
#[derive(Module, Debug)]
pub struct Block {
    norm1: Norm,
    attention: Attention,
    norm2: Norm,
    mlp: Mlp,
}

impl Block {
    /// Block number `index` of a model.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(index: usize, config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        let name = format!("blocks.{index}");
        let attention = format!("{name}.attention");
        Ok(Self {
            norm1: Norm::new(&format!("{name}.norm1"), config, parameters)?,
            attention: Attention::new(&attention, config.width, config.heads, config.qkv_bias, parameters)?,
            norm2: Norm::new(&format!("{name}.norm2"), config, parameters)?,
            mlp: Mlp::new(&format!("{name}.mlp"), config, parameters)?,
        })
    }

    /// The block's output tokens, and the attention of the queries asked for.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to the same, and weights as [`Attention::forward`] gives them
    pub fn forward(&self, x: Tensor<3>, queries: &Queries, max_scores: usize) -> (Tensor<3>, Weights) {
        let (attended, weights) = self.attention.forward(self.norm1.forward(x.clone()), queries, max_scores);
        let x = x + attended;
        let mixed = self.mlp.forward(self.norm2.forward(x.clone()));
        (x + mixed, weights)
    }
}

/// Two linear layers with a nonlinearity between them, applied to each token alone.
#[derive(Module, Debug)]
pub struct Mlp {
    fc1: Linear,
    fc2: Linear,
    #[module(skip)]
    activation: Activation,
}

impl Mlp {
    /// An MLP of the config's widths.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            fc1: parameters.linear(&format!("{name}.fc1"), config.width, config.mlp_width, true)?,
            fc2: parameters.linear(&format!("{name}.fc2"), config.mlp_width, config.width, true)?,
            activation: config.activation,
        })
    }

    /// # Shapes
    /// `[batch, tokens, width]` to the same
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let hidden = self.fc1.forward(x);
        let hidden = match self.activation {
            Activation::GeluErf => kernels::gelu(hidden),
            Activation::GeluTanh => kernels::gelu_tanh(hidden),
            Activation::QuickGelu => hidden.clone() * sigmoid(hidden * 1.702),
        };
        self.fc2.forward(hidden)
    }
}

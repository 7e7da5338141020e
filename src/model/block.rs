//! One transformer block: attention and MLP, each behind a layer norm and beside a residual path.

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{Tensor, activation::sigmoid},
};

use super::{Activation, Attention, Norm, Parameters, Queries, Rotary, ViTConfig, Weights, kernels};
use crate::error::Result;

/// A pre-norm block: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
#[derive(Module, Debug)]
pub struct Block {
    norm1: Norm,
    attention: Attention,
    scale1: Option<Scale>,
    norm2: Norm,
    mlp: Mlp,
    scale2: Option<Scale>,
}

/// LayerScale: a learned factor for each of a token's values.
type Scale = Param<Tensor<1>>;

impl Block {
    /// Block number `index` of a model, with the model's rotary positions.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(index: usize, config: &ViTConfig, rotary: Option<&Rotary>, parameters: &mut Parameters) -> Result<Self> {
        let name = format!("blocks.{index}");
        let scale = |part: &str, parameters: &mut Parameters| -> Result<Option<Scale>> {
            let named = || parameters.tensor(&format!("{name}.{part}"), [config.width]);
            config.layer_scale.then(named).transpose()
        };
        let width = config.width;
        Ok(Self {
            norm1: Norm::new(&format!("{name}.norm1"), width, config, parameters)?,
            attention: Attention::from_config(&format!("{name}.attention"), config, rotary, parameters)?,
            scale1: scale("scale1", parameters)?,
            norm2: Norm::new(&format!("{name}.norm2"), width, config, parameters)?,
            mlp: Mlp::new(&format!("{name}.mlp"), config, parameters)?,
            scale2: scale("scale2", parameters)?,
        })
    }

    /// The first output tokens of the block, or all if there are fewer, and the attention of the queries asked for.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to `[batch, outputs, width]`, and weights as [`Attention::forward`] gives them
    pub fn forward(&self, x: Tensor<3>, queries: &Queries, outputs: usize, max_scores: usize) -> (Tensor<3>, Weights) {
        let (attended, weights) = self.attention.forward(self.norm1.forward(x.clone()), queries, outputs, max_scores);
        let x = x.narrow(1, 0, attended.dims()[1]);
        let x = kernels::add(x, scaled(attended, &self.scale1));
        let mixed = self.mlp.forward(self.norm2.forward(x.clone()));
        (kernels::add(x, scaled(mixed, &self.scale2)), weights)
    }
}

fn scaled(x: Tensor<3>, scale: &Option<Scale>) -> Tensor<3> {
    match scale {
        Some(scale) => x * scale.val().unsqueeze(),
        None => x,
    }
}

/// Two linear layers with a nonlinearity between them, applied to each token alone.
#[derive(Module, Debug)]
pub struct Mlp {
    fc1: Linear,
    fc2: Linear,
    #[module(skip)]
    activation: Activation,
    gated: bool,
}

impl Mlp {
    /// An MLP of the config's widths.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            fc1: parameters.linear(&format!("{name}.fc1"), config.width, config.mlp_outputs(), true)?,
            fc2: parameters.linear(&format!("{name}.fc2"), config.mlp_width, config.width, true)?,
            activation: config.activation,
            gated: config.gated_mlp,
        })
    }

    /// # Shapes
    /// `[batch, tokens, width]` to the same
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let hidden = kernels::linear(&self.fc1, x);
        let hidden = if self.gated {
            let half = hidden.dims()[2] / 2;
            self.activate(hidden.clone().narrow(2, 0, half)) * hidden.narrow(2, half, half)
        } else {
            self.activate(hidden)
        };
        kernels::linear(&self.fc2, hidden)
    }

    fn activate(&self, x: Tensor<3>) -> Tensor<3> {
        match self.activation {
            Activation::GeluErf => kernels::gelu(x),
            Activation::GeluTanh => kernels::gelu_tanh(x),
            Activation::QuickGelu => x.clone() * sigmoid(x * 1.702),
            Activation::Silu => x.clone() * sigmoid(x),
        }
    }
}

//! A probe that attends to the final tokens: what SigLIP has in place of a CLS token.

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::Tensor,
};

use super::{Parameters, ViTConfig, attention::score, kernels::softmax};
use crate::error::Result;

/// A learned query that asks every final token. Only its attention is computed, not the vector pooled by it.
#[derive(Module, Debug)]
pub struct Probe {
    token: Param<Tensor<3>>,
    /// Query and key projections side by side, `[width, 2 * width]`.
    qk: Linear,
    heads: usize,
}

impl Probe {
    /// The probe of a model.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(config: &ViTConfig, parameters: &mut Parameters) -> Result<Self> {
        let width = config.width;
        Ok(Self {
            token: parameters.tensor("probe.token", [1, 1, width])?,
            qk: parameters.linear("probe.qk", width, 2 * width, true)?,
            heads: config.heads,
        })
    }

    /// The probe's attention to the tokens.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to `[batch, heads, 1, tokens]`
    pub fn forward(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, tokens, _] = x.dims();
        let (token, _) = self.project(self.token.val());
        let (_, keys) = self.project(x);
        let [_, heads, _, head_width] = token.dims();
        softmax(score(token.expand([batch, heads, 1, head_width]), keys.transpose())).reshape([batch, heads, 1, tokens])
    }

    /// Queries and keys of every head.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to twice `[batch, heads, tokens, width / heads]`
    fn project(&self, x: Tensor<3>) -> (Tensor<4>, Tensor<4>) {
        let [batch, tokens, width] = x.dims();
        let heads = self.heads;
        let qk = self.qk.forward(x).reshape([batch, tokens, 2 * heads, width / heads]).swap_dims(1, 2);
        (qk.clone().narrow(1, 0, heads), qk.narrow(1, heads, heads))
    }
}

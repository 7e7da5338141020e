//! A probe that attends to the final tokens and pools them: what SigLIP has in place of a CLS token.

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::Tensor,
};

use super::{
    Mlp, Norm, Parameters, ViTConfig,
    kernels::{linear, softmax},
};
use crate::error::Result;

/// A learned query that asks the final tokens, and an MLP on the answer.
#[derive(Module, Debug)]
pub struct Probe {
    token: Param<Tensor<3>>,
    query: Linear,
    /// Key and value projections side by side, `[width, 2 * width]`.
    kv: Linear,
    projection: Linear,
    norm: Norm,
    mlp: Mlp,
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
            query: parameters.linear("probe.query", width, width, true)?,
            kv: parameters.linear("probe.kv", width, 2 * width, true)?,
            projection: parameters.linear("probe.projection", width, width, true)?,
            norm: Norm::new("probe.norm", width, config, parameters)?,
            mlp: Mlp::new("probe.mlp", &ViTConfig { gated_mlp: false, ..config.clone() }, parameters)?,
            heads: config.heads,
        })
    }

    /// What the probe pools, and its attention to the tokens.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to `[batch, width]` and `[batch, heads, 1, tokens]`
    pub fn forward(&self, x: Tensor<3>) -> (Tensor<2>, Tensor<4>) {
        let [batch, tokens, width] = x.dims();
        let (heads, head_width) = (self.heads, width / self.heads);
        let query = self.query.forward(self.token.val()).reshape([1, 1, heads, head_width]).swap_dims(1, 2);
        let kv = linear(&self.kv, x).reshape([batch, tokens, 2 * heads, head_width]).swap_dims(1, 2);
        let (keys, values) = (kv.clone().narrow(1, 0, heads), kv.narrow(1, heads, heads));
        let scale = 1.0 / (head_width as f64).sqrt();
        let weights = softmax(query.repeat_dim(0, batch).matmul(keys.transpose()), scale);
        let pooled = weights.clone().matmul(values).swap_dims(1, 2).reshape([batch, 1, width]);
        let pooled = self.projection.forward(pooled);
        let pooled = pooled.clone() + self.mlp.forward(self.norm.forward(pooled));
        (pooled.squeeze_dim::<2>(1), weights)
    }
}

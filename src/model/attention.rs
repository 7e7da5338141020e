//! Multi-head self-attention in the four stages of the book's listing 3.4. It knows nothing of pictures: any sequence
//! of tokens will do.

use burn::{
    module::Module,
    nn::Linear,
    tensor::{Int, Tensor, TensorData},
};

use super::{
    Norm, Parameters, Rotary, ViTConfig,
    kernels::{self, linear, softmax},
};
use crate::error::Result;

/// Whose attention a forward pass should hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queries {
    /// Nobody's: only the output tokens are wanted.
    None,
    /// Every token's: the full matrix.
    All,
    /// These tokens', ascending.
    Rows(Vec<usize>),
}

/// Softmax weights that a layer hands out, cut along the queries where one tensor would be too large for the device.
///
/// # Shapes
/// Each piece is `[batch, heads, queries, keys]`; the pieces follow each other along the queries.
#[derive(Debug, Clone)]
pub struct Weights(pub Vec<Tensor<4>>);

/// Multi-head self-attention with learned projections.
#[derive(Module, Debug)]
pub struct Attention {
    /// Query, key and value projections of all heads side by side, `[width, 3 * width]`.
    qkv: Linear,
    /// The output projection, `[width, width]`.
    projection: Linear,
    /// Norms of each head's queries and keys, where the model has them.
    norms: Option<[Norm; 2]>,
    /// Positions that turn queries and keys, where the model has them.
    rotary: Option<Rotary>,
    heads: usize,
}

impl Attention {
    /// Attention of `heads` heads over tokens of `width` values; `width` is a multiple of `heads`.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn new(name: &str, width: usize, heads: usize, qkv_bias: bool, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            qkv: parameters.linear(&format!("{name}.qkv"), width, 3 * width, qkv_bias)?,
            projection: parameters.linear(&format!("{name}.projection"), width, width, true)?,
            norms: None,
            rotary: None,
            heads,
        })
    }

    /// A block's attention: the plain one, and what else the config asks for.
    ///
    /// # Errors
    /// Whatever the source of the parameters answers.
    pub fn from_config(
        name: &str,
        config: &ViTConfig,
        rotary: Option<&Rotary>,
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let plain = Self::new(name, config.width, config.heads, config.qkv_bias, parameters)?;
        let mut norm = |part: &str| Norm::new(&format!("{name}.{part}"), config.head_width(), config, parameters);
        let norms = if config.qk_norm { Some([norm("query_norm")?, norm("key_norm")?]) } else { None };
        Ok(Self { norms, rotary: rotary.cloned(), ..plain })
    }

    /// Attends: project; score; scale and softmax over the keys; weigh the values.
    ///
    /// Scores of more than `max_scores` elements are computed in blocks of queries.
    ///
    /// # Shapes
    /// - `x`: `[batch, tokens, width]`
    /// - output: `[batch, outputs, width]` of the first `outputs` tokens, or all if there are fewer, and weights
    ///   `[batch, heads, queries, tokens]`
    pub fn forward(&self, x: Tensor<3>, queries: &Queries, outputs: usize, max_scores: usize) -> (Tensor<3>, Weights) {
        let [batch, tokens, _] = x.dims();
        let outputs = outputs.min(tokens);

        // 1. Project.
        let [q, k, v] = self.project(x);
        let [q, k] = self.prepare([q, k]);
        let block = (max_scores / (batch * self.heads * tokens)).clamp(1, tokens);
        // What each block of queries reads again lies in one piece.
        let keys = k.transpose();
        let [keys, v] = if block < tokens { [keys, v].map(in_one_piece) } else { [keys, v] };
        let scale = 1.0 / (q.dims()[3] as f64).sqrt();

        let mut kept = Vec::new();
        if let Queries::Rows(rows) = queries {
            let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
            let rows = Tensor::<1, Int>::from_data(TensorData::from(rows.as_slice()), &q.device());
            kept.push(softmax(q.clone().select(2, rows).matmul(keys.clone()), scale));
        }

        let asking = if *queries == Queries::All { tokens } else { outputs };
        let mut blocks = Vec::new();
        for first in (0..asking).step_by(block) {
            let q = q.clone().narrow(2, first, block.min(asking - first));
            // 2. Score every query against every key.
            let scores = q.matmul(keys.clone());
            // 3. Scale by the square root of the head's dimension; softmax over the keys: each query's weights sum to one.
            let weights = softmax(scores, scale);
            if *queries == Queries::All {
                kept.push(weights.clone());
            }
            // 4. Weigh the values.
            if first < outputs {
                let count = weights.dims()[2].min(outputs - first);
                blocks.push(weights.narrow(2, 0, count).matmul(v.clone()));
            }
        }
        let output = if blocks.len() == 1 { blocks.remove(0) } else { Tensor::cat(blocks, 2) };
        (self.concatenate(output), Weights(kept))
    }

    /// Queries, keys and values of every head.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to three times `[batch, heads, tokens, width / heads]`
    fn project(&self, x: Tensor<3>) -> [Tensor<4>; 3] {
        let [batch, tokens, width] = x.dims();
        let heads = self.heads;
        let qkv = linear(&self.qkv, x).reshape([batch, tokens, 3 * heads, width / heads]);
        // Views all the way: products take strided matrices as they are.
        let qkv = qkv.swap_dims(1, 2);
        [0, 1, 2].map(|part| qkv.clone().narrow(1, part * heads, heads))
    }

    /// Queries and keys as they meet: nothing happens to them in the book's model.
    ///
    /// # Shapes
    /// twice `[batch, heads, tokens, width / heads]` to the same
    fn prepare(&self, [mut q, mut k]: [Tensor<4>; 2]) -> [Tensor<4>; 2] {
        if let Some([query_norm, key_norm]) = &self.norms {
            (q, k) = (query_norm.forward(q), key_norm.forward(k));
        }
        if let Some(rotary) = &self.rotary {
            (q, k) = (rotary.turn(q), rotary.turn(k));
        }
        [q, k]
    }

    /// Heads side by side again, mixed by the output projection.
    ///
    /// # Shapes
    /// `[batch, heads, tokens, width / heads]` to `[batch, tokens, width]`
    fn concatenate(&self, heads: Tensor<4>) -> Tensor<3> {
        linear(&self.projection, kernels::concatenate(heads))
    }
}

/// A copy of what may be a view of something larger.
fn in_one_piece(x: Tensor<4>) -> Tensor<4> {
    let shape = x.dims();
    x.reshape([shape.iter().product::<usize>()]).reshape(shape)
}

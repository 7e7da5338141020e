//! The Vision Transformer: patches in, tokens, attention and class scores out.

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{Device, Tensor},
};

use super::{Block, Norm, Parameters, Pool, Probe, Queries, Rotary, ViTConfig, Weights, kernels::linear};
use crate::{error::Result, record::TokenLayout};

/// A Vision Transformer (Dosovitskiy et al. 2020; the book's chapter 3).
#[derive(Module, Debug)]
pub struct ViT {
    patch_embedding: Linear,
    patch_norm: Option<Norm>,
    cls_token: Option<Param<Tensor<3>>>,
    dist_token: Option<Param<Tensor<3>>>,
    registers: Option<Param<Tensor<3>>>,
    /// One for each token; zero for tokens that have no place in the picture.
    position_embedding: Option<Param<Tensor<3>>>,
    first_norm: Option<Norm>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    prefix_norm: Option<Norm>,
    probe: Option<Probe>,
    pooled_norm: Option<Norm>,
    classifier: Option<Linear>,
    dist_classifier: Option<Linear>,
    #[module(skip)]
    config: ViTConfig,
}

/// What a forward pass should compute besides the tokens.
pub struct Forward<'a> {
    /// Whose attention each layer hands out.
    pub queries: &'a (dyn Fn(usize) -> Queries + Sync),
    /// Layers to run, at most the model's depth. With fewer than all there are no class scores.
    pub layers: usize,
    /// Most elements of a score tensor that the device can hold at once.
    pub max_scores: usize,
    /// The same where the whole attention is not handed out, so that no such tensor needs to exist.
    pub block_scores: usize,
    /// Whether the probe hands out its attention.
    pub probe: bool,
    /// Whether all tokens are wanted, and not only what is pooled.
    pub tokens: bool,
}

/// What a forward pass leaves.
pub struct Output {
    /// Tokens after the last layer that ran (and after the final norm, if all ran), `[batch, tokens, width]`; the first
    /// of them if not all were wanted.
    pub tokens: Tensor<3>,
    /// Class scores `[batch, classes]`, if the model has classes and all layers ran.
    pub logits: Option<Tensor<2>>,
    /// Attention of the probe to the tokens that it sees, `[batch, heads, 1, tokens]`, if it was asked for, the model has
    /// one and all layers ran.
    pub probe: Option<Tensor<4>>,
}

impl ViT {
    /// Builds the model on `device` from named arrays, see [`Parameters`].
    ///
    /// # Errors
    /// Whatever the source answers.
    pub fn new(
        config: &ViTConfig,
        device: &Device,
        mut source: impl FnMut(&str, &[usize]) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let mut parameters = Parameters::new(device, &mut source);
        let p = &mut parameters;
        let (width, classes) = (config.width, config.classes);
        let token = |there: bool, name: &str, count: usize, p: &mut Parameters| {
            there.then(|| p.tensor(name, [1, count, width])).transpose()
        };
        let norm =
            |there: bool, name: &str, p: &mut Parameters| there.then(|| Norm::new(name, width, config, p)).transpose();
        let linear = |there: bool, name: &str, inputs: usize, p: &mut Parameters| {
            there.then(|| p.linear(name, inputs, classes, true)).transpose()
        };
        let rotary = config.rotary.then(|| Rotary::new(config, p)).transpose()?;
        let two_heads = classes > 0 && config.pool == Pool::ClsAndDist;
        Ok(Self {
            patch_embedding: p.linear("patch_embedding", config.patch_values(), width, true)?,
            patch_norm: norm(config.patch_norm, "patch_norm", p)?,
            cls_token: token(config.cls_token, "cls_token", 1, p)?,
            dist_token: token(config.dist_token, "dist_token", 1, p)?,
            registers: token(config.registers > 0, "registers", config.registers, p)?,
            position_embedding: token(!config.rotary, "position_embedding", config.tokens(), p)?,
            first_norm: norm(config.first_norm, "first_norm", p)?,
            blocks: (0..config.depth).map(|i| Block::new(i, config, rotary.as_ref(), p)).collect::<Result<_>>()?,
            final_norm: norm(config.final_norm, "final_norm", p)?,
            prefix_norm: norm(config.prefix_norm, "prefix_norm", p)?,
            probe: config.probe.then(|| Probe::new(config, p)).transpose()?,
            pooled_norm: norm(classes > 0 && config.pooled_norm, "pooled_norm", p)?,
            classifier: linear(classes > 0, "classifier", config.pooled_width(), p)?,
            dist_classifier: linear(two_heads, "dist_classifier", width, p)?,
            config: config.clone(),
        })
    }

    /// The model's sizes and choices.
    pub fn config(&self) -> &ViTConfig {
        &self.config
    }

    /// Which token is what.
    pub fn layout(&self) -> TokenLayout {
        self.config.layout()
    }

    /// Runs the model; `observe` gets each layer's attention as soon as the layer is enqueued.
    ///
    /// # Shapes
    /// `pixels`: `[batch, channels, rows, cols]`, normalised
    ///
    /// # Errors
    /// Whatever `observe` answers.
    pub fn forward(
        &self,
        pixels: Tensor<4>,
        forward: &Forward,
        mut observe: impl FnMut(usize, Weights) -> Result<()>,
    ) -> Result<Output> {
        let mut x = self.embed(pixels);
        for (layer, block) in self.blocks.iter().enumerate().take(forward.layers) {
            let queries = (forward.queries)(layer);
            let most = if queries == Queries::All { forward.max_scores } else { forward.block_scores };
            let outputs = if layer + 1 == forward.layers { self.last_outputs(forward) } else { usize::MAX };
            let (output, weights) = block.forward(x, &queries, outputs, most);
            observe(layer, weights)?;
            x = output;
        }
        if forward.layers < self.blocks.len() {
            return Ok(Output { tokens: x, logits: None, probe: None });
        }
        let x = self.normalise(x);
        let pools = self.config.pool == Pool::Probe && self.classifier.is_some();
        let probe = self.probe.as_ref().filter(|_| forward.probe || pools);
        let (pooled, probe) = probe.map(|probe| probe.forward(self.probed(&x))).unzip();
        let logits = self.classify(&x, pooled);
        Ok(Output { tokens: x, logits, probe: probe.filter(|_| forward.probe) })
    }

    /// How many tokens the last layer that runs has to put out. What is pooled stands first; one patch more, so that there
    /// are some of either kind for the norms.
    fn last_outputs(&self, forward: &Forward) -> usize {
        let pooled = match self.config.pool {
            Pool::Cls | Pool::ClsAndDist => true,
            Pool::Mean | Pool::ClsAndMean | Pool::Probe => self.classifier.is_none(),
        };
        if forward.tokens || forward.probe || !pooled { usize::MAX } else { self.config.prefix_tokens() + 1 }
    }

    /// The final norm, where the model has one, or has two.
    fn normalise(&self, x: Tensor<3>) -> Tensor<3> {
        let prefix = self.config.prefix_tokens();
        match (&self.final_norm, &self.prefix_norm) {
            (None, _) => x,
            (Some(norm), None) => norm.forward(x),
            (Some(norm), Some(prefix_norm)) => {
                let patches = x.clone().narrow(1, prefix, x.dims()[1] - prefix);
                Tensor::cat(vec![prefix_norm.forward(x.narrow(1, 0, prefix)), norm.forward(patches)], 1)
            }
        }
    }

    /// The tokens that the probe sees.
    fn probed(&self, x: &Tensor<3>) -> Tensor<3> {
        let first = if self.config.probe_sees_prefix { 0 } else { self.config.prefix_tokens() };
        x.clone().narrow(1, first, x.dims()[1] - first)
    }

    /// Patches, embedded, behind CLS and its like, with positions.
    ///
    /// # Shapes
    /// `[batch, channels, rows, cols]` to `[batch, tokens, width]`
    fn embed(&self, pixels: Tensor<4>) -> Tensor<3> {
        let patches = linear(&self.patch_embedding, patchify(pixels, self.config.patch_size));
        let patches = self.patch_norm.as_ref().map_or(patches.clone(), |norm| norm.forward(patches));
        let batch = patches.dims()[0];
        let prefix = [&self.cls_token, &self.dist_token, &self.registers].into_iter().flatten();
        let mut parts: Vec<_> = prefix.map(|token| token.val().repeat_dim(0, batch)).collect();
        parts.push(patches);
        let mut x = Tensor::cat(parts, 1);
        if let Some(positions) = &self.position_embedding {
            x = x + positions.val();
        }
        match &self.first_norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    /// Class scores from what the model pools.
    ///
    /// # Shapes
    /// `[batch, tokens, width]`, and `[batch, width]` from the probe, to `[batch, classes]`
    fn classify(&self, x: &Tensor<3>, probed: Option<Tensor<2>>) -> Option<Tensor<2>> {
        let classifier = self.classifier.as_ref()?;
        let token = |index: usize| x.clone().narrow(1, index, 1).squeeze_dim::<2>(1);
        let mean = || {
            let prefix = self.config.prefix_tokens();
            x.clone().narrow(1, prefix, x.dims()[1] - prefix).mean_dim(1).squeeze_dim::<2>(1)
        };
        let pooled = match self.config.pool {
            Pool::Cls | Pool::ClsAndDist => token(0),
            Pool::Mean => mean(),
            Pool::ClsAndMean => Tensor::cat(vec![token(0), mean()], 1),
            Pool::Probe => probed?,
        };
        let pooled = self.pooled_norm.as_ref().map_or(pooled.clone(), |norm| norm.forward(pooled));
        let logits = classifier.forward(pooled);
        match &self.dist_classifier {
            Some(second) => Some((logits + second.forward(token(1))) / 2.0),
            None => Some(logits),
        }
    }
}

/// Cuts pictures into patches, row by row; a patch's values come in the order channel, row, column, so that a linear
/// layer on them equals the usual strided convolution.
///
/// # Shapes
/// `[batch, channels, rows, cols]` to `[batch, patches, channels * patch_rows * patch_cols]`
pub fn patchify(pixels: Tensor<4>, patch: (usize, usize)) -> Tensor<3> {
    let [batch, channels, rows, cols] = pixels.dims();
    let (grid_rows, grid_cols) = (rows / patch.0, cols / patch.1);
    pixels.reshape([batch, channels, grid_rows, patch.0, grid_cols, patch.1]).permute([0, 2, 4, 1, 3, 5]).reshape([
        batch,
        grid_rows * grid_cols,
        channels * patch.0 * patch.1,
    ])
}

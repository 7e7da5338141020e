//! The Vision Transformer: patches in, tokens, attention and class scores out.

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{Device, Tensor},
};

use super::{Block, Norm, Parameters, Queries, ViTConfig, Weights};
use crate::{error::Result, record::TokenLayout};

/// A Vision Transformer (Dosovitskiy et al. 2020; the book's chapter 3).
#[derive(Module, Debug)]
pub struct ViT {
    patch_embedding: Linear,
    cls_token: Option<Param<Tensor<3>>>,
    registers: Option<Param<Tensor<3>>>,
    position_embedding: Param<Tensor<3>>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    classifier: Option<Linear>,
    #[module(skip)]
    config: ViTConfig,
}

/// What a forward pass should compute besides the tokens.
pub struct Forward<'a> {
    /// Whose attention each layer hands out.
    pub queries: &'a dyn Fn(usize) -> Queries,
    /// Layers to run, at most the model's depth. With fewer than all there are no class scores.
    pub layers: usize,
    /// Most elements of a score tensor that the device can hold at once.
    pub max_scores: usize,
}

/// What a forward pass leaves.
pub struct Output {
    /// Tokens after the last layer that ran (and after the final norm, if all ran), `[batch, tokens, width]`.
    pub tokens: Tensor<3>,
    /// Class scores `[batch, classes]`, if the model has classes and all layers ran.
    pub logits: Option<Tensor<2>>,
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
        let width = config.width;
        let positions = config.tokens() - config.registers;
        Ok(Self {
            patch_embedding: p.linear("patch_embedding", config.patch_values(), width, true)?,
            cls_token: config.cls_token.then(|| p.tensor("cls_token", [1, 1, width])).transpose()?,
            registers: (config.registers > 0)
                .then(|| p.tensor("registers", [1, config.registers, width]))
                .transpose()?,
            position_embedding: p.tensor("position_embedding", [1, positions, width])?,
            blocks: (0..config.depth).map(|i| Block::new(i, config, p)).collect::<Result<_>>()?,
            final_norm: config.final_norm.then(|| Norm::new("final_norm", config, p)).transpose()?,
            classifier: (config.classes > 0)
                .then(|| p.linear("classifier", width, config.classes, true))
                .transpose()?,
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
            let (output, weights) = block.forward(x, &(forward.queries)(layer), forward.max_scores);
            observe(layer, weights)?;
            x = output;
        }
        if forward.layers < self.blocks.len() {
            return Ok(Output { tokens: x, logits: None });
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(x);
        }
        let logits = self.classify(&x);
        Ok(Output { tokens: x, logits })
    }

    /// Patches, embedded, with CLS, positions and registers.
    ///
    /// # Shapes
    /// `[batch, channels, rows, cols]` to `[batch, tokens, width]`
    fn embed(&self, pixels: Tensor<4>) -> Tensor<3> {
        let patches = self.patch_embedding.forward(patchify(pixels, self.config.patch_size));
        let batch = patches.dims()[0];
        let every = |token: &Param<Tensor<3>>| token.val().repeat_dim(0, batch);
        let mut x = match &self.cls_token {
            Some(cls) => Tensor::cat(vec![every(cls), patches], 1),
            None => patches,
        };
        x = x + self.position_embedding.val();
        if let Some(registers) = &self.registers {
            // Registers have no place in the picture, so they come in after the positions (Darcet et al. 2023).
            let cls = usize::from(self.config.cls_token);
            let rest = x.clone().narrow(1, cls, x.dims()[1] - cls);
            let mut parts = vec![every(registers), rest];
            if cls > 0 {
                parts.insert(0, x.narrow(1, 0, cls));
            }
            x = Tensor::cat(parts, 1);
        }
        x
    }

    /// Class scores from CLS, or from the mean of the patches where there is no CLS.
    ///
    /// # Shapes
    /// `[batch, tokens, width]` to `[batch, classes]`
    fn classify(&self, x: &Tensor<3>) -> Option<Tensor<2>> {
        let classifier = self.classifier.as_ref()?;
        let prefix = self.config.prefix_tokens();
        let pooled = if self.config.cls_token {
            x.clone().narrow(1, 0, 1)
        } else {
            x.clone().narrow(1, prefix, x.dims()[1] - prefix).mean_dim(1)
        };
        Some(classifier.forward(pooled.squeeze_dim::<2>(1)))
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

//! What real Vision Transformers vary, as one plain struct.

use crate::record::TokenLayout;

/// The MLP's nonlinearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// x·Φ(x), by the error function: PyTorch's default `GELU()`.
    GeluErf,
    /// The tanh approximation of GELU, as in the book and in BERT's original code.
    GeluTanh,
    /// x·σ(1.702x), as in OpenAI's CLIP.
    QuickGelu,
}

/// Sizes and choices of a Vision Transformer. The default is the book's model for 32x32 pictures.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ViTConfig {
    /// Picture size in pixels, (rows, cols); a multiple of `patch_size`.
    pub image_size: (usize, usize),
    /// Patch size in pixels, (rows, cols).
    pub patch_size: (usize, usize),
    /// Colour channels of the picture.
    pub channels: usize,
    /// Width D of a token.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads of a block; divides `width`.
    pub heads: usize,
    /// Hidden width of the MLP.
    pub mlp_width: usize,
    /// The MLP's nonlinearity.
    pub activation: Activation,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Epsilon of every layer norm.
    pub norm_eps: f64,
    /// Whether a layer norm follows the last block.
    pub final_norm: bool,
    /// Whether a CLS token comes first.
    pub cls_token: bool,
    /// Register tokens between CLS and the patches; they get no position.
    pub registers: usize,
    /// Classes of the classifier, 0 for none.
    pub classes: usize,
}

impl Default for ViTConfig {
    fn default() -> Self {
        Self {
            image_size: (32, 32),
            patch_size: (4, 4),
            channels: 3,
            width: 48,
            depth: 4,
            heads: 4,
            mlp_width: 192,
            activation: Activation::GeluTanh,
            qkv_bias: true,
            norm_eps: 1e-5,
            final_norm: false,
            cls_token: true,
            registers: 0,
            classes: 10,
        }
    }
}

/// One learned tensor: its canonical name, and its shape as PyTorch stores it (a linear layer's weight is `[out, in]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Canonical name, such as `blocks.3.attention.qkv.weight`.
    pub name: String,
    /// Shape, in PyTorch's order.
    pub shape: Vec<usize>,
}

impl ViTConfig {
    /// Patches as (rows, cols).
    pub fn grid(&self) -> (usize, usize) {
        (self.image_size.0 / self.patch_size.0, self.image_size.1 / self.patch_size.1)
    }

    /// Number of values in one patch.
    pub fn patch_values(&self) -> usize {
        self.channels * self.patch_size.0 * self.patch_size.1
    }

    /// Number of tokens before the patches.
    pub fn prefix_tokens(&self) -> usize {
        usize::from(self.cls_token) + self.registers
    }

    /// Number of tokens: prefix and patches.
    pub fn tokens(&self) -> usize {
        self.prefix_tokens() + self.grid().0 * self.grid().1
    }

    /// Which token is what.
    pub fn layout(&self) -> TokenLayout {
        let cls = self.cls_token.then(|| "CLS".to_owned());
        let registers = (0..self.registers).map(|i| format!("REG{i}"));
        TokenLayout { prefix: cls.into_iter().chain(registers).collect(), grid: self.grid() }
    }

    /// Every learned tensor of the model, in the order of the data flow.
    pub fn parameters(&self) -> Vec<Parameter> {
        let d = self.width;
        let positions = usize::from(self.cls_token) + self.grid().0 * self.grid().1;
        let mut list = List::default();
        list.linear("patch_embedding", d, self.patch_values(), true);
        if self.cls_token {
            list.tensor("cls_token", &[1, 1, d]);
        }
        if self.registers > 0 {
            list.tensor("registers", &[1, self.registers, d]);
        }
        list.tensor("position_embedding", &[1, positions, d]);
        for i in 0..self.depth {
            list.norm(&format!("blocks.{i}.norm1"), d);
            list.linear(&format!("blocks.{i}.attention.qkv"), 3 * d, d, self.qkv_bias);
            list.linear(&format!("blocks.{i}.attention.projection"), d, d, true);
            list.norm(&format!("blocks.{i}.norm2"), d);
            list.linear(&format!("blocks.{i}.mlp.fc1"), self.mlp_width, d, true);
            list.linear(&format!("blocks.{i}.mlp.fc2"), d, self.mlp_width, true);
        }
        if self.final_norm {
            list.norm("final_norm", d);
        }
        if self.classes > 0 {
            list.linear("classifier", self.classes, d, true);
        }
        list.0
    }
}

#[derive(Default)]
struct List(Vec<Parameter>);

impl List {
    fn tensor(&mut self, name: &str, shape: &[usize]) {
        self.0.push(Parameter { name: name.to_owned(), shape: shape.to_vec() });
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) {
        self.tensor(&format!("{name}.weight"), &[outputs, inputs]);
        if bias {
            self.tensor(&format!("{name}.bias"), &[outputs]);
        }
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.tensor(&format!("{name}.weight"), &[width]);
        self.tensor(&format!("{name}.bias"), &[width]);
    }
}

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
    /// x·σ(x), the gate of SwiGLU.
    Silu,
}

/// What the classifier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// The CLS token.
    Cls,
    /// The mean of the patches.
    Mean,
    /// CLS, and beside it the mean of the patches: twice the width (DINOv2).
    ClsAndMean,
    /// CLS and the distillation token, each with a classifier of its own, averaged (DeiT).
    ClsAndDist,
    /// What the probe pools.
    Probe,
}

/// Sizes and choices of a Vision Transformer. The default is the book's model for 32x32 pictures.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ViTConfig {
    /// Size in pixels of the pictures that the model is run on, (rows, cols); a multiple of `patch_size`.
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
    /// Whether the MLP's hidden values are gated: `activation(a) · b`, with a and b projections of their own (SwiGLU).
    pub gated_mlp: bool,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether each head's queries and keys pass a layer norm before they meet.
    pub qk_norm: bool,
    /// Whether learned factors scale what attention and MLP add to a token (LayerScale, Touvron et al. 2021).
    pub layer_scale: bool,
    /// Epsilon of every norm.
    pub norm_eps: f64,
    /// Whether norms are RMS norms: no mean is subtracted, and nothing added.
    pub rms_norm: bool,
    /// Whether embedded patches pass a norm before they get their positions (AIMv2).
    pub patch_norm: bool,
    /// Whether a layer norm precedes the first block (CLIP).
    pub first_norm: bool,
    /// Whether a layer norm follows the last block.
    pub final_norm: bool,
    /// Whether the tokens before the patches have a final norm of their own (DINOv3 7B).
    pub prefix_norm: bool,
    /// Whether a CLS token comes first.
    pub cls_token: bool,
    /// Whether a distillation token follows it (DeiT).
    pub dist_token: bool,
    /// Register tokens between those and the patches (Darcet et al. 2023).
    pub registers: usize,
    /// Whether positions turn queries and keys (DINOv3), in place of a learned position for each token.
    pub rotary: bool,
    /// What the classifier looks at.
    pub pool: Pool,
    /// Whether a layer norm stands between that and the classifier.
    pub pooled_norm: bool,
    /// Whether a learned probe attends to the final tokens, with as many heads as a block (SigLIP).
    pub probe: bool,
    /// Whether the probe sees CLS and its like too, not only the patches.
    pub probe_sees_prefix: bool,
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
            gated_mlp: false,
            qkv_bias: true,
            qk_norm: false,
            layer_scale: false,
            norm_eps: 1e-5,
            rms_norm: false,
            patch_norm: false,
            first_norm: false,
            final_norm: false,
            prefix_norm: false,
            cls_token: true,
            dist_token: false,
            registers: 0,
            rotary: false,
            pool: Pool::Cls,
            pooled_norm: false,
            probe: false,
            probe_sees_prefix: false,
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

    /// Width of a head's queries, keys and values.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Outputs of the MLP's first layer: twice its hidden width if half of them are gates.
    pub fn mlp_outputs(&self) -> usize {
        if self.gated_mlp { 2 * self.mlp_width } else { self.mlp_width }
    }

    /// Number of values that the classifier looks at.
    pub fn pooled_width(&self) -> usize {
        if self.pool == Pool::ClsAndMean { 2 * self.width } else { self.width }
    }

    /// Which token is what.
    pub fn layout(&self) -> TokenLayout {
        let named = [(self.cls_token, "CLS"), (self.dist_token, "DIST")];
        let named = named.into_iter().filter(|(there, _)| *there).map(|(_, name)| name.to_owned());
        let registers = (0..self.registers).map(|i| format!("REG{i}"));
        TokenLayout { prefix: named.chain(registers).collect(), grid: self.grid() }
    }

    /// Number of tokens before the patches.
    pub fn prefix_tokens(&self) -> usize {
        usize::from(self.cls_token) + usize::from(self.dist_token) + self.registers
    }

    /// Number of tokens: prefix and patches.
    pub fn tokens(&self) -> usize {
        self.prefix_tokens() + self.grid().0 * self.grid().1
    }

    /// Every learned tensor of the model, in the order of the data flow.
    pub fn parameters(&self) -> Vec<Parameter> {
        let d = self.width;
        let mut list = List { parameters: Vec::new(), shifted: !self.rms_norm };
        list.linear("patch_embedding", d, self.patch_values(), true);
        if self.patch_norm {
            list.norm("patch_norm", d);
        }
        if self.cls_token {
            list.tensor("cls_token", &[1, 1, d]);
        }
        if self.dist_token {
            list.tensor("dist_token", &[1, 1, d]);
        }
        if self.registers > 0 {
            list.tensor("registers", &[1, self.registers, d]);
        }
        if self.rotary {
            list.tensor("rotary.periods", &[self.head_width() / 4]);
        } else {
            list.tensor("position_embedding", &[1, self.tokens(), d]);
        }
        if self.first_norm {
            list.norm("first_norm", d);
        }
        for i in 0..self.depth {
            self.block_parameters(&format!("blocks.{i}"), &mut list);
        }
        if self.final_norm {
            list.norm("final_norm", d);
        }
        if self.prefix_norm {
            list.norm("prefix_norm", d);
        }
        if self.probe {
            list.tensor("probe.token", &[1, 1, d]);
            list.linear("probe.query", d, d, true);
            list.linear("probe.kv", 2 * d, d, true);
            list.linear("probe.projection", d, d, true);
            list.norm("probe.norm", d);
            list.linear("probe.mlp.fc1", self.mlp_width, d, true);
            list.linear("probe.mlp.fc2", d, self.mlp_width, true);
        }
        if self.classes > 0 {
            if self.pooled_norm {
                list.norm("pooled_norm", d);
            }
            list.linear("classifier", self.classes, self.pooled_width(), true);
            if self.pool == Pool::ClsAndDist {
                list.linear("dist_classifier", self.classes, d, true);
            }
        }
        list.parameters
    }

    fn block_parameters(&self, block: &str, list: &mut List) {
        let d = self.width;
        list.norm(&format!("{block}.norm1"), d);
        list.linear(&format!("{block}.attention.qkv"), 3 * d, d, self.qkv_bias);
        if self.qk_norm {
            list.norm(&format!("{block}.attention.query_norm"), self.head_width());
            list.norm(&format!("{block}.attention.key_norm"), self.head_width());
        }
        list.linear(&format!("{block}.attention.projection"), d, d, true);
        if self.layer_scale {
            list.tensor(&format!("{block}.scale1"), &[d]);
        }
        list.norm(&format!("{block}.norm2"), d);
        list.linear(&format!("{block}.mlp.fc1"), self.mlp_outputs(), d, true);
        list.linear(&format!("{block}.mlp.fc2"), d, self.mlp_width, true);
        if self.layer_scale {
            list.tensor(&format!("{block}.scale2"), &[d]);
        }
    }
}

struct List {
    parameters: Vec<Parameter>,
    /// Whether norms have biases.
    shifted: bool,
}

impl List {
    fn tensor(&mut self, name: &str, shape: &[usize]) {
        self.parameters.push(Parameter { name: name.to_owned(), shape: shape.to_vec() });
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) {
        self.tensor(&format!("{name}.weight"), &[outputs, inputs]);
        if bias {
            self.tensor(&format!("{name}.bias"), &[outputs]);
        }
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.tensor(&format!("{name}.weight"), &[width]);
        if self.shifted {
            self.tensor(&format!("{name}.bias"), &[width]);
        }
    }
}

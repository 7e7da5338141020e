//! What a family of checkpoints is: how it is recognised, and where it keeps each of the model's parameters.

use std::{collections::BTreeSet, ops::Range};

use super::{
    Positions, Settings, Tensors, book, google, hf_clip, hf_dinov2, hf_dinov3, hf_siglip, hf_vit, meta, names::squeeze,
    open_clip, tensors::transpose_each, timm, torchvision, wrappers,
};
use crate::{
    error::{Error, Result},
    model::config::{Parameter, ViTConfig},
    picture::Recipe,
};

/// Every family that can be opened. Exactly one recognises a given checkpoint.
pub static FAMILIES: &[Family] = &[
    book::FAMILY,
    hf_vit::VIT,
    hf_vit::DEIT,
    hf_dinov2::PLAIN,
    hf_dinov2::WITH_REGISTERS,
    hf_dinov3::FAMILY,
    hf_clip::FAMILY,
    hf_siglip::FAMILY,
    timm::VIT,
    timm::EVA,
    meta::DINO,
    meta::DINOV2,
    meta::DINOV3,
    meta::DEIT,
    meta::MAE,
    open_clip::FAMILY,
    torchvision::FAMILY,
    google::FAMILY,
];

/// One layout of keys and config, with its preprocessing.
#[derive(Debug)]
pub struct Family {
    /// Short name, unique in [`FAMILIES`].
    pub name: &'static str,
    /// Whether a checkpoint is of this family.
    pub recognise: fn(&Evidence) -> bool,
    /// Model, preprocessing and labels of a checkpoint of this family.
    pub build: fn(&Evidence) -> Result<Plan>,
    /// Where the file keeps a parameter of the model.
    pub source: fn(&Evidence, &ViTConfig, &Parameter) -> Source,
    /// Beginnings or endings of names that the family's files hold beside the model, with what they are.
    pub beside: &'static [(&'static str, &'static str)],
    /// What the names of a block's tensors begin with, where every one of them must be used; otherwise the file is of
    /// a model that computes something else.
    pub blocks: Option<fn(&Evidence) -> &'static str>,
}

/// What there is to go by: the headers of the weights file, and the JSON files beside it.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Names and shapes in the weights file, without wrappers.
    pub tensors: &'a Tensors,
    /// The `config.json`.
    pub settings: Option<&'a Settings>,
    /// The `preprocessor_config.json`.
    pub processor: Option<&'a Settings>,
    /// The number of heads, where a person says it.
    pub heads: Option<usize>,
}

/// The model that a family read out of its evidence.
#[derive(Debug)]
pub struct Plan {
    /// Sizes and choices of the model, as it was trained.
    pub config: ViTConfig,
    /// How the model wants its pictures.
    pub recipe: Recipe,
    /// Names of the classes in order; empty if unknown.
    pub labels: Vec<String>,
    /// The file's table of positions; `None` for rotary ones.
    pub positions: Option<Positions>,
    /// What a person should know, such as what had to be guessed, one sentence each.
    pub notes: Vec<String>,
}

/// What a parameter's values are made of, one after the other in row-major order: stacked along dimension 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// The pieces in order.
    pub pieces: Vec<Piece>,
}

/// A piece of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A tensor of the weights file, and the shape that it must have there (dimensions of one aside).
    Stored {
        /// The tensor's name, without wrappers.
        key: String,
        /// The shape it must have.
        shape: Vec<usize>,
    },
    /// Some rows of a tensor.
    Rows {
        /// The tensor's name, without wrappers.
        key: String,
        /// The shape it must have.
        shape: Vec<usize>,
        /// Which indices of dimension 0.
        rows: Range<usize>,
    },
    /// A tensor of the weights file whose dimensions come in another order there.
    Transposed {
        /// The tensor's name, without wrappers.
        key: String,
        /// The shape it must have there.
        shape: Vec<usize>,
        /// Steps to the model's order: each transposes every matrix of (rows, cols) values.
        steps: Vec<(usize, usize)>,
    },
    /// This many zeros, for a bias that the model does without.
    Zeros(usize),
    /// Values that the family knows without the file.
    Known(Vec<f32>),
    /// A table of positions, brought to the model's grid.
    Positions {
        /// The table's name, without wrappers.
        key: String,
        /// The shape it must have, `[1, leading + patches, width]`.
        shape: [usize; 3],
        /// What it covers, and how it is resampled.
        table: Positions,
        /// Tokens of the model before the patches.
        prefix: usize,
        /// The model's grid, (rows, cols).
        grid: (usize, usize),
    },
}

fn product(shape: &[usize]) -> usize {
    shape.iter().copied().fold(1, usize::saturating_mul)
}

impl Piece {
    /// Number of values.
    pub fn elements(&self) -> usize {
        match self {
            Self::Stored { shape, .. } | Self::Transposed { shape, .. } => product(shape),
            Self::Rows { shape, rows, .. } => rows.len().saturating_mul(product(shape.get(1..).unwrap_or_default())),
            Self::Zeros(count) => *count,
            Self::Known(values) => values.len(),
            Self::Positions { shape, prefix, grid, .. } => (prefix + grid.0 * grid.1).saturating_mul(shape[2]),
        }
    }

    /// The tensor that it is read from.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Stored { key, .. }
            | Self::Rows { key, .. }
            | Self::Transposed { key, .. }
            | Self::Positions { key, .. } => Some(key),
            Self::Zeros(_) | Self::Known(_) => None,
        }
    }

    /// The periods of rotary positions: powers of the longest one.
    pub(super) fn periods(config: &ViTConfig, longest: f64) -> Self {
        let width = config.head_width();
        Self::Known((0..width / 4).map(|i| longest.powf(4.0 * i as f64 / width as f64) as f32).collect())
    }

    /// Appends the piece's values.
    pub(super) fn read(&self, tensors: &Tensors, values: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::Stored { key, .. } => tensors.read(key, values)?,
            Self::Rows { key, shape, rows } => {
                let mut whole = Vec::new();
                tensors.read(key, &mut whole)?;
                let length = product(shape.get(1..).unwrap_or_default());
                values.extend(whole.get(rows.start * length..rows.end * length).unwrap_or_default());
            }
            Self::Transposed { key, steps, .. } => {
                let before = values.len();
                tensors.read(key, values)?;
                steps.iter().for_each(|matrix| transpose_each(values, before, *matrix));
            }
            Self::Zeros(count) => values.resize(values.len() + count, 0.0),
            Self::Known(known) => values.extend(known),
            Self::Positions { key, shape, table, prefix, grid } => {
                let mut stored = Vec::new();
                tensors.read(key, &mut stored)?;
                values.extend(table.at(&stored, *prefix, *grid, shape[2]));
            }
        }
        Ok(())
    }

    /// What is wrong with this tensor in the file, in words.
    pub(super) fn problem(&self, tensors: &Tensors) -> Option<String> {
        let (key, shape) = match self {
            Self::Stored { key, shape } | Self::Rows { key, shape, .. } | Self::Transposed { key, shape, .. } => {
                (key, shape.as_slice())
            }
            Self::Positions { key, shape, .. } => (key, shape.as_slice()),
            Self::Zeros(_) | Self::Known(_) => return None,
        };
        let Some(found) = tensors.get(key) else {
            return Some(format!("{key}: missing, expected shape {shape:?}"));
        };
        let name = &found.name;
        if squeeze(&found.shape) != squeeze(shape) {
            return Some(format!("{name}: expected shape {shape:?}, found {:?}", found.shape));
        }
        (!found.dtype.is_float()).then(|| format!("{name}: expected values in f32, f16 or bf16, found {}", found.dtype))
    }
}

impl Evidence<'_> {
    /// The shape of a tensor.
    pub fn shape(&self, key: &str) -> Option<&[usize]> {
        self.tensors.get(key).map(|tensor| tensor.shape.as_slice())
    }

    /// Whether any tensor's name begins with `prefix`.
    pub fn has_under(&self, prefix: &str) -> bool {
        self.tensors.keys_under(prefix).next().is_some()
    }

    /// How many different numbers follow `prefix` in the tensors' names: 12 for `blocks.0.` to `blocks.11.`.
    pub fn count(&self, prefix: &str) -> usize {
        let number = |key: &str| key.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
        self.tensors.keys_under(prefix).filter_map(number).collect::<BTreeSet<_>>().len()
    }

    /// An error about what the checkpoint says of itself: names `config.json` if there is one, else the weights file.
    pub fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::checkpoint(self.settings.map_or(self.tensors.path(), Settings::path), reason)
    }
}

/// Kinds of models that are told from a Vision Transformer by a part of a tensor's name.
const OTHERS: [(&str, &str); 24] = [
    ("layer1.0.conv1.", "a ResNet"),
    ("embedder.convolution.", "a ResNet"),
    ("cpb_mlp", "a Swin Transformer"),
    ("continuous_position_bias_mlp", "a Swin Transformer"),
    ("relative_position_bias_table", "a Swin or BEiT Transformer"),
    ("relative_position.relative_position_bias", "a Swin or BEiT Transformer"),
    ("relative_position_index", "a Swin or BEiT Transformer"),
    ("lambda_1", "a BEiT"),
    ("local_mp.", "an XCiT"),
    ("mlp_tokens.", "an MLP-Mixer"),
    ("token_mixing.", "an MLP-Mixer"),
    ("dwconv", "a ConvNeXt"),
    ("conv_dw", "a convolutional network such as ConvNeXt"),
    ("depthwise", "a convolutional network such as ConvNeXt"),
    ("A_log", "a Mamba"),
    ("block_sparse_moe", "a text model"),
    ("word_embeddings", "a text model"),
    ("embed_tokens", "a text model"),
    ("token_embedding", "a text model"),
    ("wte.weight", "a text model"),
    ("SelfAttention.", "a text model"),
    ("lora_A.", "an adapter (LoRA) without the model that it changes"),
    ("unet.", "a diffusion model"),
    ("running_mean", "a convolutional network"),
];

/// What else a model is by the names of its tensors.
fn other<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'static str> {
    let named = |(part, _): &&(&str, &str)| names.clone().any(|name| name.contains(part));
    OTHERS.iter().find(named).map(|(_, kind)| *kind)
}

/// The tensors without the wrappers around the model, and the model's family.
pub(super) fn recognise(
    mut tensors: Tensors,
    settings: Option<&Settings>,
) -> Result<(Tensors, Vec<&'static str>, &'static Family)> {
    for chain in wrappers::chains(&tensors) {
        tensors = tensors.strip(&chain);
        let found = Evidence { tensors: &tensors, settings, processor: None, heads: None };
        let family = FAMILIES.iter().find(|family| (family.recognise)(&found));
        // Others share most names with some family, but not all of their blocks'.
        let first = |family: &Family| family.blocks.map(|blocks| format!("{}0.", blocks(&found)));
        let other = |family: &Family| first(family).and_then(|block| other(found.tensors.keys_under(&block)));
        if let Some(family) = family.filter(|family| other(family).is_none()) {
            return Ok((tensors, chain, family));
        }
    }
    tensors = tensors.strip(&[]);
    Err(unknown(&Evidence { tensors: &tensors, settings, processor: None, heads: None }))
}

/// Why a checkpoint is of no family.
fn unknown(evidence: &Evidence) -> Error {
    let known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    let seen: Vec<&str> = evidence.tensors.keys().take(4).collect();
    let more = if evidence.tensors.count() > seen.len() { ", ..." } else { "" };
    let kind = other(evidence.tensors.keys());
    let model = evidence.settings.and_then(|settings| settings.word("model_type").ok().flatten());
    let kind = match (model, kind) {
        (Some(model), _) => format!(", but config.json says {model}"),
        (None, Some(kind)) => format!(", but {kind} by the look of it"),
        (None, None) => String::new(),
    };
    let (known, seen) = (known.join(", "), seen.join(", "));
    let reason = format!(
        "not a Vision Transformer in a layout this tool knows ({known}){kind}: its tensors are named {seen}{more}"
    );
    Error::checkpoint(evidence.tensors.path(), reason)
}

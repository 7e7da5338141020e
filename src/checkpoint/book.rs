//! The book's own layout: the PyTorch code of tintn/vision-transformer-from-scratch, in both its forms of attention
//! (a query, key and value of its own for each head; or one fused `qkv_projection`).
//!
//! Beyond the book, `config.json` may give `image_size` and `patch_size` as `[rows, cols]`, and the classes' `labels`.

use std::path::Path;

use safetensors::{Dtype, SafeTensorError, tensor::TensorView};

use super::{Covers, Evidence, Family, Piece, Plan, Positions, Resampling, Settings, Source};
use crate::{
    error::{Error, Result},
    map::Artifact,
    model::config::{Parameter, ViTConfig},
    picture::Recipe,
};

/// The book's row of the family table.
pub(super) const FAMILY: Family = Family { name: "book", recognise, build, source, beside: &[], blocks: None };

/// The classes of CIFAR-10 in the book's order.
pub const CIFAR10_LABELS: [&str; 10] = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

const CLS: &str = "embedding.cls_token";
const POSITIONS: &str = "embedding.position_embeddings";
const PATCHES: &str = "embedding.patch_embeddings.projection.weight";
/// Where block 0 keeps its heads if each has tensors of its own.
const HEADS: &str = "encoder.blocks.0.attention.heads.";

/// Canonical names to the book's, part by part.
const NAMES: [(&str, &str); 10] = [
    ("patch_embedding.", "embedding.patch_embeddings.projection."),
    ("cls_token", CLS),
    ("position_embedding", POSITIONS),
    ("blocks.", "encoder.blocks."),
    ("norm1", "layernorm_1"),
    ("norm2", "layernorm_2"),
    ("attention.qkv", "attention.qkv_projection"),
    ("attention.projection", "attention.output_projection"),
    ("mlp.fc1", "mlp.dense_1"),
    ("mlp.fc2", "mlp.dense_2"),
];

fn recognise(evidence: &Evidence) -> bool {
    // Any of the three, so that a file that lacks one is told which.
    [CLS, POSITIONS, PATCHES].iter().any(|key| evidence.shape(key).is_some())
}

fn build(evidence: &Evidence) -> Result<Plan> {
    let layout = Layout::of(evidence);
    let config = match evidence.settings {
        Some(settings) => stated(settings, &layout, evidence)?,
        None => inferred(&layout, evidence)?,
    };
    let labels = labels(&config, evidence)?;
    let recipe = Recipe::book(config.image_size.0, config.image_size.1);
    Ok(Plan { recipe, labels, positions: Some(positions(&config, evidence)?), notes: Vec::new(), config })
}

/// The book's code knows no other size than that of its positions; they are resampled as PyTorch users do it.
fn positions(config: &ViTConfig, evidence: &Evidence) -> Result<Positions> {
    let (rows, cols) = config.patch_size;
    let grid = config.image_size.0.checked_div(rows).zip(config.image_size.1.checked_div(cols));
    let grid = grid.ok_or_else(|| evidence.refuse("has patches of no size"))?;
    Ok(Positions { covers: Covers::All, grid, resampling: Resampling::Bicubic })
}

/// What the keys tell of the attention.
struct Layout {
    /// Heads of block 0 if each has its own tensors, else 0.
    separate_heads: usize,
    fused: bool,
    bias: bool,
}

impl Layout {
    fn of(evidence: &Evidence) -> Self {
        let any = |ending: &str| evidence.tensors.keys().any(|key| key.ends_with(ending));
        Self {
            separate_heads: evidence.count(HEADS),
            fused: any(".attention.qkv_projection.weight"),
            bias: any(".attention.qkv_projection.bias") || any(".query.bias"),
        }
    }
}

/// The model that `config.json` describes, held against what the keys tell.
fn stated(settings: &Settings, layout: &Layout, evidence: &Evidence) -> Result<ViTConfig> {
    let heads = settings.size("num_attention_heads")?;
    if layout.separate_heads > 0 && layout.separate_heads != heads {
        let found = layout.separate_heads;
        return Err(evidence.refuse(format!("num_attention_heads is {heads}, but the weights have {found} heads")));
    }
    for (name, found) in [("use_faster_attention", layout.fused), ("qkv_bias", layout.bias)] {
        if settings.flag(name)?.is_some_and(|stated| stated != found) {
            return Err(evidence.refuse(format!("{name} is {}, but the weights' keys say {found}", !found)));
        }
    }
    Ok(ViTConfig {
        image_size: settings.rows_cols("image_size")?,
        patch_size: settings.rows_cols("patch_size")?,
        channels: settings.size("num_channels")?,
        width: settings.size("hidden_size")?,
        depth: settings.size("num_hidden_layers")?,
        heads,
        mlp_width: settings.size("intermediate_size")?,
        qkv_bias: layout.bias,
        classes: settings.size("num_classes")?,
        ..ViTConfig::default()
    })
}

/// The model as far as a bare state dict tells.
fn inferred(layout: &Layout, evidence: &Evidence) -> Result<ViTConfig> {
    let unknown = |what: &str| evidence.refuse(format!("{what}: put the model's config.json beside the weights"));
    let shape = |key: &str| evidence.shape(key).ok_or_else(|| unknown(&format!("{key} is missing and so is a config")));
    if layout.separate_heads == 0 {
        return Err(unknown("fused attention does not tell its number of heads"));
    }
    let &[width, channels, rows, cols] = shape(PATCHES)? else {
        return Err(unknown("the patch embedding is not a convolution"));
    };
    // The book's code knows square pictures only, so that without a config any other grid cannot have come from it.
    let patches = shape(POSITIONS)?.get(1).map_or(0, |tokens| tokens.saturating_sub(1));
    let side = patches.isqrt();
    if side * side != patches {
        return Err(unknown(&format!(
            "{patches} patches are not a square, so that their rows and columns are unknown"
        )));
    }
    let first = |key: &str| Ok::<_, Error>(shape(key)?.first().copied().unwrap_or(0));
    Ok(ViTConfig {
        image_size: (side.saturating_mul(rows), side.saturating_mul(cols)),
        patch_size: (rows, cols),
        channels,
        width,
        depth: evidence.count("encoder.blocks."),
        heads: layout.separate_heads,
        mlp_width: first("encoder.blocks.0.mlp.dense_1.weight")?,
        qkv_bias: layout.bias,
        classes: first("classifier.weight")?,
        ..ViTConfig::default()
    })
}

/// The labels that `config.json` states, or those of the one data set that the book's code trains on.
fn labels(config: &ViTConfig, evidence: &Evidence) -> Result<Vec<String>> {
    let stated = evidence.settings.map(|settings| settings.words("labels")).transpose()?.flatten();
    match stated {
        Some(labels) if labels.len() == config.classes => Ok(labels),
        Some(labels) => {
            let (given, classes) = (labels.len(), config.classes);
            Err(evidence.refuse(format!("lists {given} labels for {classes} classes: expected one each")))
        }
        None if (config.image_size, config.channels, config.classes) == ((32, 32), 3, CIFAR10_LABELS.len()) => {
            Ok(CIFAR10_LABELS.map(str::to_owned).to_vec())
        }
        None => Ok(Vec::new()),
    }
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    let (key, shape) = stored(config, parameter);
    match key.split_once("qkv_projection.") {
        Some((attention, leaf)) if evidence.has_under(HEADS) => separate(attention, leaf, config, &parameter.shape),
        _ => Source { pieces: vec![Piece::Stored { key, shape }] },
    }
}

/// Name and shape of the one tensor that holds a parameter, with fused attention.
fn stored(config: &ViTConfig, parameter: &Parameter) -> (String, Vec<usize>) {
    let key = NAMES.iter().fold(parameter.name.clone(), |name, (ours, theirs)| name.replace(ours, theirs));
    // A convolution's [D, C, p, p] holds its values in the order of the linear layer's [D, C*p*p].
    let (rows, cols) = config.patch_size;
    let shape = if key == PATCHES { vec![config.width, config.channels, rows, cols] } else { parameter.shape.clone() };
    (key, shape)
}

/// All queries, then all keys, then all values; in each, head by head.
fn separate(attention: &str, leaf: &str, config: &ViTConfig, fused: &[usize]) -> Source {
    let mut shape = fused.to_vec();
    if let Some(rows) = shape.first_mut() {
        *rows = config.width / config.heads;
    }
    let piece = |kind: &str, head| Piece::Stored {
        key: format!("{attention}heads.{head}.{kind}.{leaf}"),
        shape: shape.clone(),
    };
    let pieces = ["query", "key", "value"].iter().flat_map(|kind| (0..config.heads).map(|head| piece(kind, head)));
    Source { pieces: pieces.collect() }
}

/// The `config.json` that the book's code writes, and the labels.
#[derive(serde::Serialize)]
struct BookConfig<'a> {
    patch_size: RowsCols,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_dropout_prob: f64,
    attention_probs_dropout_prob: f64,
    initializer_range: f64,
    image_size: RowsCols,
    num_classes: usize,
    num_channels: usize,
    qkv_bias: bool,
    use_faster_attention: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'a [String],
}

/// One number for a square, which is all that the book's code knows, else rows and columns.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum RowsCols {
    Square(usize),
    Both(usize, usize),
}

impl<'a> BookConfig<'a> {
    fn new(config: &ViTConfig, labels: &'a [String]) -> Self {
        Self {
            patch_size: config.patch_size.into(),
            hidden_size: config.width,
            num_hidden_layers: config.depth,
            num_attention_heads: config.heads,
            intermediate_size: config.mlp_width,
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            initializer_range: 0.02,
            image_size: config.image_size.into(),
            num_classes: config.classes,
            num_channels: config.channels,
            qkv_bias: config.qkv_bias,
            use_faster_attention: true,
            labels,
        }
    }
}

impl From<(usize, usize)> for RowsCols {
    fn from((rows, cols): (usize, usize)) -> Self {
        if rows == cols { Self::Square(rows) } else { Self::Both(rows, cols) }
    }
}

/// A model as `config.json` and `model.safetensors` in the book's layout, with fused attention; `values` gives each
/// parameter by its canonical name, row-major in PyTorch's order.
///
/// # Errors
/// [`Error::Checkpoint`] if the book's code has no such model (it has a CLS token, a classifier, no registers, no
/// final norm and tanh GELU), or if a parameter has the wrong number of values.
pub fn save_book(config: &ViTConfig, labels: &[String], values: impl Fn(&str) -> Vec<f32>) -> Result<Vec<Artifact>> {
    let refuse = |reason: String| Error::checkpoint(Path::new("model.safetensors"), reason);
    let ViTConfig { image_size, patch_size, channels, width, depth, heads, mlp_width, qkv_bias, classes, .. } = *config;
    let default = ViTConfig::default();
    let book =
        ViTConfig { image_size, patch_size, channels, width, depth, heads, mlp_width, qkv_bias, classes, ..default };
    if *config != book || classes == 0 {
        return Err(refuse("the book's layout cannot hold this model: it differs in more than its sizes".to_owned()));
    }
    let mut tensors = Vec::new();
    for parameter in config.parameters() {
        let (key, shape) = stored(config, &parameter);
        let bytes: Vec<u8> = values(&parameter.name).iter().flat_map(|value| value.to_le_bytes()).collect();
        tensors.push((key, shape, bytes));
    }
    let views = tensors.iter().map(|(key, shape, bytes)| Ok((key, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    let weights = views.collect::<Result<Vec<_>, _>>().and_then(|views| safetensors::serialize(views, None));
    let weights = weights.map_err(|error: SafeTensorError| refuse(error.to_string()))?;
    let mut text =
        serde_json::to_vec_pretty(&BookConfig::new(config, labels)).map_err(|error| refuse(error.to_string()))?;
    text.push(b'\n');
    Ok(vec![
        Artifact { name: "config.json".to_owned(), bytes: text },
        Artifact { name: "model.safetensors".to_owned(), bytes: weights },
    ])
}

//! Google's `.npz` files: vit_jax's names, and big_vision's (SigLIP, LiT), whose blocks may be stacked in one array.
//!
//! The only files that state the heads in a shape: `[width, heads, head_width]`. Their matrices are `[in, out]`.

use super::{
    Covers, Evidence, Family, Piece, Plan, Positions, Resampling, Source, heads::heads, hf::grid, names::Names,
};
use crate::{
    error::Result,
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Filter, Recipe},
};

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "google",
    recognise: |evidence| {
        ["patch_embedding.weight", "blocks.0.attention.qkv.weight", "blocks.0.norm1.weight"]
            .iter()
            .all(|name| keys(evidence, name).iter().all(|key| evidence.shape(key).is_some()))
    },
    build,
    source,
    beside: &[
        ("../", "the text tower, or what joins it to the pictures"),
        ("pre_logits.", "a head of two layers, whose class scores are left out"),
        ("head.", "a head of two layers, or the projection to the text's space"),
    ],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

const NAMES: Names = Names {
    blocks: &["Transformer.encoderblock_"],
    parts: &[
        ("patch_embedding", &[&["embedding"]]),
        ("cls_token", &[&["cls"]]),
        ("position_embedding", &[&["Transformer.posembed_input.pos_embedding"], &["pos_embedding"]]),
        ("norm1", &[&["LayerNorm_0"]]),
        (
            "attention.qkv",
            &[
                &[
                    "MultiHeadDotProductAttention_1.query",
                    "MultiHeadDotProductAttention_1.key",
                    "MultiHeadDotProductAttention_1.value",
                ],
                &[
                    "MultiHeadDotProductAttention_0.query",
                    "MultiHeadDotProductAttention_0.key",
                    "MultiHeadDotProductAttention_0.value",
                ],
            ],
        ),
        ("attention.projection", &[&["MultiHeadDotProductAttention_1.out"], &["MultiHeadDotProductAttention_0.out"]]),
        ("norm2", &[&["LayerNorm_2"], &["LayerNorm_1"]]),
        ("mlp.fc1", &[&["MlpBlock_3.Dense_0"], &["MlpBlock_0.Dense_0"]]),
        ("mlp.fc2", &[&["MlpBlock_3.Dense_1"], &["MlpBlock_0.Dense_1"]]),
        ("final_norm", &[&["Transformer.encoder_norm"]]),
        ("probe.token", &[&["MAPHead_0.probe"]]),
        ("probe.query", &[&["MAPHead_0.MultiHeadDotProductAttention_0.query"]]),
        (
            "probe.kv",
            &[&["MAPHead_0.MultiHeadDotProductAttention_0.key", "MAPHead_0.MultiHeadDotProductAttention_0.value"]],
        ),
        ("probe.projection", &[&["MAPHead_0.MultiHeadDotProductAttention_0.out"]]),
        ("probe.norm", &[&["MAPHead_0.LayerNorm_0"]]),
        ("probe.mlp.fc1", &[&["MAPHead_0.MlpBlock_0.Dense_0"]]),
        ("probe.mlp.fc2", &[&["MAPHead_0.MlpBlock_0.Dense_1"]]),
        ("classifier", &[&["head"]]),
    ],
    unbiased: &[],
};

/// The names of what the model calls `name`: Flax has no weights, but kernels and scales.
fn keys(evidence: &Evidence, name: &str) -> Vec<String> {
    let leaf = if name.contains("norm") { "scale" } else { "kernel" };
    let keys = NAMES.keys(evidence, name).into_iter();
    keys.map(|key| key.strip_suffix("weight").map_or(key.clone(), |stem| format!("{stem}{leaf}"))).collect()
}

/// The shape of a tensor that the file must have, of so many dimensions.
fn shape<const D: usize>(evidence: &Evidence, name: &str) -> Result<[usize; D]> {
    let key = keys(evidence, name).into_iter().next().unwrap_or_default();
    let found = evidence.shape(&key);
    found.and_then(|shape| shape.try_into().ok()).ok_or_else(|| {
        let found = found.map_or("is missing".to_owned(), |shape| format!("has shape {shape:?}"));
        evidence.refuse(format!("{key} {found}: expected {D} dimensions"))
    })
}

fn build(evidence: &Evidence) -> Result<Plan> {
    if evidence.has_under("conv_root.") {
        return Err(
            evidence.refuse("is one of Google's hybrids, a ResNet before a Transformer, which is not supported")
        );
    }
    let mut notes = Vec::new();
    let has = |name: &str| keys(evidence, name).iter().all(|key| evidence.shape(key).is_some());
    let [patch_rows, patch_cols, channels, width] = shape(evidence, "patch_embedding.weight")?;
    let [_, stated, _] = shape(evidence, "blocks.0.attention.qkv.weight")?;
    let [_, mlp_width] = shape(evidence, "blocks.0.mlp.fc1.weight")?;
    // Beside a text tower, the head leads to the space that both share.
    let scores = has("classifier.weight") && !evidence.has_under("pre_logits.") && !evidence.has_under("../");
    let (cls_token, probe) = (has("cls_token"), has("probe.token"));
    let mut config = ViTConfig {
        patch_size: (patch_rows, patch_cols),
        channels,
        width,
        depth: evidence.count(NAMES.blocks(evidence)),
        heads: heads(evidence, Some(stated), width, &mut notes)?,
        mlp_width,
        activation: Activation::GeluTanh,
        qkv_bias: has("blocks.0.attention.qkv.bias"),
        norm_eps: 1e-6,
        final_norm: has("final_norm.weight"),
        cls_token,
        pool: match (probe, cls_token) {
            (true, _) => Pool::Probe,
            (false, true) => Pool::Cls,
            (false, false) => Pool::Mean,
        },
        probe,
        probe_sees_prefix: true,
        classes: if scores { shape::<2>(evidence, "classifier.weight")?[1] } else { 0 },
        ..ViTConfig::default()
    };
    let positions = positions(evidence, &config)?;
    let side = |count: usize, patch: usize| count.saturating_mul(patch);
    config.image_size = (side(positions.grid.0, patch_rows), side(positions.grid.1, patch_cols));
    let recipe = Recipe::book(config.image_size.0, config.image_size.1);
    notes.push(
        "a .npz has no config: norms have an epsilon of 1e-6, the MLP the tanh GELU, and pictures are resized bilinear \
         without antialias to values from -1 to 1, as in Google's own code"
            .to_owned(),
    );
    let recipe = Recipe { filter: Filter::BilinearNoAntialias, ..recipe };
    Ok(Plan { config, recipe, labels: Vec::new(), positions: Some(positions), notes })
}

/// vit_jax's table has a row for the class token; big_vision's has none, since its token comes after the positions.
fn positions(evidence: &Evidence, config: &ViTConfig) -> Result<Positions> {
    let key = keys(evidence, "position_embedding").concat();
    if evidence.shape(&key).is_none() {
        return Err(evidence.refuse("holds no positions: those that big_vision computes (sincos2d) are not supported"));
    }
    let [_, rows, _] = shape(evidence, "position_embedding")?;
    let covers = if key.contains("posembed_input") { Covers::All } else { Covers::Patches };
    let mut positions = Positions { covers, grid: (0, 0), resampling: Resampling::BilinearAligned };
    let patches = rows.saturating_sub(positions.leading(config.prefix_tokens()));
    positions.grid = grid(evidence, patches, None, config.patch_size)?;
    Ok(positions)
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    let (name, keys) = (parameter.name.as_str(), keys(evidence, &parameter.name));
    let mut shape = parameter.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first /= keys.len().max(1);
    }
    let (width, heads, head_width) = (config.width, config.heads, config.head_width());
    let by_head = ["attention.qkv", "probe.query", "probe.kv"].iter().any(|part| name.contains(part));
    // In the file, inputs come before outputs, and what belongs to heads is split over them.
    let (shape, steps) = match *shape.as_slice() {
        [..] if name == "patch_embedding.weight" => {
            let ((rows, cols), channels) = (config.patch_size, config.channels);
            (vec![rows, cols, channels, width], vec![(rows * cols * channels, width), (rows * cols, channels)])
        }
        [..] if name.ends_with("projection.weight") => (vec![heads, head_width, width], vec![(width, width)]),
        [_, inputs] if by_head => (vec![inputs, heads, head_width], vec![(inputs, width)]),
        [outputs, inputs] => (vec![inputs, outputs], vec![(inputs, outputs)]),
        [_] if by_head => (vec![heads, head_width], Vec::new()),
        _ => (shape, Vec::new()),
    };
    let piece = |key| Piece::Transposed { key, shape: shape.clone(), steps: steps.clone() };
    Source { pieces: keys.into_iter().map(piece).collect() }
}

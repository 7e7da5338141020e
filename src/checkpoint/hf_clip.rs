//! CLIP's vision tower in transformers, alone or out of a whole CLIP.

use super::{Covers, Evidence, Family, Resampling, hf, names::Names};
use crate::{
    model::config::{Activation, Pool},
    picture::Recipe,
};

/// CLIP's mean colour.
pub(super) const MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
/// CLIP's deviation of colours.
pub(super) const STD: [f32; 3] = [0.268_629_55, 0.261_302_6, 0.275_777_1];

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "hf-clip",
    recognise,
    build: |evidence| CLIP.plan(evidence),
    source: |evidence, config, parameter| NAMES.source(evidence, config, parameter),
    beside: BESIDE,
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

/// What a file holds beside CLIP's or SigLIP's vision tower.
pub(super) const BESIDE: &[(&str, &str)] = &[
    ("text_model.", "the text tower"),
    ("text_projection.", "the text tower"),
    ("visual_projection.", "the projection to the text's space"),
    ("post_layernorm.", "the norm of the pooled token, which comes after the tokens"),
    ("logit_", "the scale of the similarities"),
    ("embeddings.position_ids", "the numbers of the positions"),
];

/// Also SigLIP's.
pub(super) const NAMES: Names = Names {
    blocks: &["encoder.layers."],
    parts: &[
        ("patch_embedding", &[&["embeddings.patch_embedding"]]),
        ("cls_token", &[&["embeddings.class_embedding"]]),
        ("position_embedding", &[&["embeddings.position_embedding.weight"]]),
        // Spelt so.
        ("first_norm", &[&["pre_layrnorm"]]),
        ("norm1", &[&["layer_norm1"]]),
        ("attention.qkv", &[&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]]),
        ("attention.projection", &[&["self_attn.out_proj"]]),
        ("norm2", &[&["layer_norm2"]]),
    ],
    unbiased: &["patch_embedding"],
};

// The tokens that transformers gives out come before its last norm, which only the pooled CLS passes.
const CLIP: hf::Hf = hf::Hf {
    models: &["clip", "clip_vision_model"],
    names: &NAMES,
    heads: 12,
    eps: 1e-5,
    activation: Activation::QuickGelu,
    pool: Pool::Cls,
    covers: Covers::All,
    resampling: Resampling::Bicubic,
    recipe: |(rows, _)| Recipe { mean: MEAN, std: STD, ..hf::crop_recipe(rows, rows) },
};

fn recognise(evidence: &Evidence) -> bool {
    ["cls_token", "first_norm.weight", "position_embedding"].iter().all(|name| NAMES.has(evidence, name))
}

//! SigLIP's and SigLIP 2's vision tower in transformers, alone or out of a whole SigLIP: no CLS token, but a probe that
//! attends to the final tokens.

use super::{Covers, Evidence, Family, Piece, Plan, Resampling, Source, hf, hf_clip, names::Names};
use crate::{
    error::Result,
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Filter, Recipe},
};

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "hf-siglip",
    recognise,
    build,
    source,
    beside: &[
        ("text_model.", "the text tower"),
        ("logit_", "the scale of the similarities"),
        ("embeddings.position_ids", "the numbers of the positions"),
    ],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

const NAMES: Names = Names {
    parts: &[
        ("patch_embedding", &[&["embeddings.patch_embedding"]]),
        ("position_embedding", &[&["embeddings.position_embedding.weight"]]),
        ("norm1", &[&["layer_norm1"]]),
        ("attention.qkv", &[&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]]),
        ("attention.projection", &[&["self_attn.out_proj"]]),
        ("norm2", &[&["layer_norm2"]]),
        ("final_norm", &[&["post_layernorm"]]),
        ("probe.token", &[&["head.probe"]]),
        ("probe.query", &[&["head.attention.in_proj_"]]),
        ("probe.kv", &[&["head.attention.in_proj_"]]),
        ("probe.projection", &[&["head.attention.out_proj"]]),
        ("probe.norm", &[&["head.layernorm"]]),
        ("probe.mlp.fc1", &[&["head.mlp.fc1"]]),
        ("probe.mlp.fc2", &[&["head.mlp.fc2"]]),
    ],
    unbiased: &[],
    ..hf_clip::NAMES
};

const SIGLIP: hf::Hf = hf::Hf {
    models: &["siglip", "siglip_vision_model"],
    names: &NAMES,
    heads: 12,
    eps: 1e-6,
    activation: Activation::GeluTanh,
    pool: Pool::Mean,
    covers: Covers::Patches,
    resampling: Resampling::Bicubic,
    recipe: |(rows, cols)| Recipe { filter: Filter::Bicubic, ..Recipe::book(rows, cols) },
};

fn recognise(evidence: &Evidence) -> bool {
    let has = |name: &str| NAMES.has(evidence, name);
    has("position_embedding")
        && has("patch_embedding.weight")
        && has("final_norm.weight")
        && !hf_clip::NAMES.has(evidence, "cls_token")
}

fn build(evidence: &Evidence) -> Result<Plan> {
    if evidence.shape("embeddings.patch_embedding.weight").is_some_and(|shape| shape.len() == 2) {
        return Err(evidence.refuse(
            "is a SigLIP 2 of the NaFlex kind, which takes patches instead of pictures: use one with a fixed size",
        ));
    }
    SIGLIP.plan(evidence)
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    let mut source = NAMES.source(evidence, config, parameter);
    if !parameter.name.starts_with("probe.") {
        return source;
    }
    let thirds = match parameter.name.split('.').nth(1) {
        Some("query") => 0..config.width,
        Some("kv") => config.width..3 * config.width,
        _ => return source,
    };
    for piece in &mut source.pieces {
        if let Piece::Stored { key, shape } = piece {
            let whole = shape.iter_mut().enumerate().map(|(i, size)| if i == 0 { 3 * config.width } else { *size });
            *piece = Piece::Rows { key: std::mem::take(key), shape: whole.collect(), rows: thirds.clone() };
        }
    }
    source
}

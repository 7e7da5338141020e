//! torchvision's `vit_*`: no config, and names that tell nearly everything.

use super::{
    Covers, Evidence, Family, Plan, Positions, Resampling,
    heads::heads_of,
    hf::{crop_recipe, grid},
    names::Names,
};
use crate::{
    error::Result,
    model::config::{Activation, Pool},
    picture::{Crop, Filter, Middle, Recipe},
};

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "torchvision",
    recognise,
    build,
    source: |evidence, config, parameter| NAMES.source(evidence, config, parameter),
    beside: &[("heads.", "a head of two layers, whose class scores are left out")],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

const NAMES: Names = Names {
    blocks: &["encoder.layers.encoder_layer_"],
    parts: &[
        ("patch_embedding", &[&["conv_proj"]]),
        ("cls_token", &[&["class_token"]]),
        ("position_embedding", &[&["encoder.pos_embedding"]]),
        ("norm1", &[&["ln_1"]]),
        ("attention.qkv", &[&["self_attention.in_proj_"]]),
        ("attention.projection", &[&["self_attention.out_proj"]]),
        ("norm2", &[&["ln_2"]]),
        ("mlp.fc1", &[&["mlp.0"], &["mlp.linear_1"]]),
        ("mlp.fc2", &[&["mlp.3"], &["mlp.linear_2"]]),
        ("final_norm", &[&["encoder.ln"]]),
        ("classifier", &[&["heads.head"]]),
    ],
    unbiased: &[],
};

fn recognise(evidence: &Evidence) -> bool {
    ["patch_embedding.weight", "position_embedding", "blocks.0.attention.qkv.weight"]
        .iter()
        .all(|name| NAMES.has(evidence, name))
}

fn build(evidence: &Evidence) -> Result<Plan> {
    let mut notes = Vec::new();
    let mut config = NAMES.infer(evidence)?;
    // Of the published models, H/14 alone has heads of another size.
    let usual = if config.width == 1280 { 80 } else { 64 };
    config.heads = heads_of(evidence, usual, config.width, &mut notes)?;
    config.activation = Activation::GeluErf;
    config.norm_eps = 1e-6;
    config.pool = Pool::Cls;
    if evidence.has_under("heads.pre_logits.") {
        config.classes = 0;
    }
    let rows = NAMES.shape(evidence, "position_embedding").and_then(|shape| shape.first().copied()).unwrap_or(0);
    let grid = grid(evidence, rows.saturating_sub(1), None, config.patch_size)?;
    let size = (grid.0.saturating_mul(config.patch_size.0), grid.1.saturating_mul(config.patch_size.1));
    config.image_size = size;
    let positions = Some(Positions { covers: Covers::All, grid, resampling: Resampling::BicubicAligned });
    let crop = Crop { rows: size.0, cols: size.1, middle: Middle::Even };
    let recipe = crop_recipe(size.0.saturating_mul(256) / 224, size.0);
    let recipe = Recipe { filter: Filter::Bilinear, crop: Some(crop), ..recipe };
    Ok(Plan { config, recipe, labels: Vec::new(), positions, notes })
}

//! ViT of transformers (also DINO's, MSN's and the encoder of MAE, whose masking is left out), and DeiT, which has a
//! distillation token.

use super::{Covers, Evidence, Family, Plan, Resampling, Source, hf};
use crate::{
    error::Result,
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// ViT's row of the family table.
pub(super) const VIT: Family = Family {
    name: "hf-vit",
    recognise: |evidence| is_vit(evidence) && !has_distillation(evidence),
    build: |evidence| HF_VIT.plan(evidence),
    source,
    beside: BESIDE,
    blocks: Some(blocks),
};

/// DeiT's row of the family table.
pub(super) const DEIT: Family = Family {
    name: "hf-deit",
    recognise: |evidence| is_vit(evidence) && has_distillation(evidence),
    build: deit,
    source,
    beside: BESIDE,
    blocks: Some(blocks),
};

const BESIDE: &[(&str, &str)] = &[
    ("pooler.", "a pooler, which comes after the tokens"),
    ("decoder.", "a decoder for pre-training"),
    ("embeddings.mask_token", "a token for pre-training"),
];

const HF_VIT: hf::Hf = hf::Hf {
    models: &["vit", "vit_mae", "vit_msn"],
    names: &hf::NAMES,
    heads: 12,
    eps: 1e-12,
    activation: Activation::GeluErf,
    pool: Pool::Cls,
    covers: Covers::All,
    resampling: Resampling::Bicubic,
    recipe: |(rows, cols)| Recipe::book(rows, cols),
};

const HF_DEIT: hf::Hf = hf::Hf { models: &["deit"], recipe: deit_recipe, ..HF_VIT };

fn is_vit(evidence: &Evidence) -> bool {
    let has = |name: &str| hf::NAMES.has(evidence, name);
    has("cls_token")
        && has("position_embedding")
        && ["layernorm_before", "layernorm_after"]
            .iter()
            .all(|norm| evidence.has_under(&format!("{}0.{norm}.", hf::NAMES.blocks(evidence))))
}

fn has_distillation(evidence: &Evidence) -> bool {
    hf::NAMES.has(evidence, "dist_token")
}

fn deit(evidence: &Evidence) -> Result<Plan> {
    let mut plan = HF_DEIT.plan(evidence)?;
    if hf::NAMES.has(evidence, "dist_classifier.weight") {
        plan.config.pool = Pool::ClsAndDist;
    }
    Ok(plan)
}

/// That of the published checkpoints, which differs from the class's default in its mean and deviation.
fn deit_recipe((rows, cols): (usize, usize)) -> Recipe {
    Recipe {
        resize: Resize::Squash { rows: rows * 256 / 224, cols: cols * 256 / 224 },
        filter: Filter::Bicubic,
        crop: Some(Crop { rows, cols, middle: Middle::Down }),
        mean: hf::IMAGENET_MEAN,
        std: hf::IMAGENET_STD,
    }
}

fn blocks(evidence: &Evidence) -> &'static str {
    hf::NAMES.blocks(evidence)
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    hf::NAMES.source(evidence, config, parameter)
}

//! DINOv2 of transformers, without and with registers. Its positions are always resampled, with antialiasing only where
//! there are registers.

use super::{Covers, Evidence, Family, Plan, Resampling, hf};
use crate::{
    error::Result,
    model::config::{Activation, Pool},
};

/// The row of the family table without registers.
pub(super) const PLAIN: Family = Family {
    name: "hf-dinov2",
    recognise: |evidence| is_dinov2(evidence) && !hf::NAMES.has(evidence, "registers"),
    build: |evidence| build(&DINOV2, evidence),
    source: |evidence, config, parameter| hf::NAMES.source(evidence, config, parameter),
    beside: &[("embeddings.mask_token", "a token for pre-training")],
    blocks: Some(|evidence| hf::NAMES.blocks(evidence)),
};

/// The row of the family table with registers.
pub(super) const WITH_REGISTERS: Family = Family {
    name: "hf-dinov2-registers",
    recognise: |evidence| is_dinov2(evidence) && hf::NAMES.has(evidence, "registers"),
    build: |evidence| build(&DINOV2_REGISTERS, evidence),
    ..PLAIN
};

const DINOV2: hf::Hf = hf::Hf {
    models: &["dinov2"],
    names: &hf::NAMES,
    heads: 12,
    eps: 1e-6,
    activation: Activation::GeluErf,
    pool: Pool::ClsAndMean,
    covers: Covers::ClsAndPatches,
    resampling: Resampling::Bicubic,
    recipe: |_| hf::crop_recipe(256, 224),
};

const DINOV2_REGISTERS: hf::Hf =
    hf::Hf { models: &["dinov2_with_registers"], resampling: Resampling::BicubicAntialias, ..DINOV2 };

fn is_dinov2(evidence: &Evidence) -> bool {
    ["cls_token", "position_embedding", "blocks.0.scale1"].iter().all(|name| hf::NAMES.has(evidence, name))
}

fn build(family: &hf::Hf, evidence: &Evidence) -> Result<Plan> {
    let mut plan = family.plan(evidence)?;
    if plan.config.gated_mlp {
        // Whatever hidden_act says.
        plan.config.activation = Activation::Silu;
    }
    Ok(plan)
}

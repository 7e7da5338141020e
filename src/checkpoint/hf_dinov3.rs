//! DINOv3 ViT of transformers: rotary positions, registers, and biases that each model has or lacks.

use super::{Covers, Evidence, Family, Piece, Plan, Resampling, Source, hf, names::Names};
use crate::{
    error::Result,
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Filter, Recipe, Resize},
};

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "hf-dinov3",
    recognise,
    build,
    source,
    beside: &[("embeddings.mask_token", "a token for pre-training")],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

const NAMES: Names = Names { unbiased: &["attention.qkv", "attention.projection", "mlp.fc1", "mlp.fc2"], ..hf::NAMES };

const DINOV3: hf::Hf = hf::Hf {
    models: &["dinov3_vit"],
    names: &NAMES,
    heads: 6,
    eps: 1e-5,
    activation: Activation::GeluErf,
    pool: Pool::Cls,
    covers: Covers::Patches,
    resampling: Resampling::Bicubic,
    recipe: |_| Recipe {
        resize: Resize::Squash { rows: 224, cols: 224 },
        filter: Filter::Bilinear,
        crop: None,
        mean: hf::IMAGENET_MEAN,
        std: hf::IMAGENET_STD,
    },
};

/// Fields of `config.json` that say whether a bias is there, and what the bias is called in a block.
const BIASES: [(&str, &str); 5] = [
    ("query_bias", "attention.q_proj.bias"),
    ("key_bias", "attention.k_proj.bias"),
    ("value_bias", "attention.v_proj.bias"),
    ("proj_bias", "attention.o_proj.bias"),
    ("mlp_bias", "mlp.down_proj.bias"),
];

fn recognise(evidence: &Evidence) -> bool {
    let has = |name: &str| NAMES.has(evidence, name);
    has("cls_token") && has("blocks.0.scale1") && !has("position_embedding") && has("blocks.0.attention.qkv.weight")
}

fn build(evidence: &Evidence) -> Result<Plan> {
    let mut plan = DINOV3.plan(evidence)?;
    let block = format!("{}0.", NAMES.blocks(evidence));
    let settings = evidence.settings;
    for (field, bias) in BIASES {
        let found = evidence.shape(&format!("{block}{bias}")).is_some();
        let stated = settings.map(|settings| settings.flag(field)).transpose()?.flatten();
        if stated.is_some_and(|stated| stated != found) {
            return Err(evidence.refuse(format!("{field} is {}, but the weights' names say {found}", !found)));
        }
    }
    plan.config.rotary = true;
    Ok(plan)
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    if parameter.name != "rotary.periods" {
        return NAMES.source(evidence, config, parameter);
    }
    let theta = evidence.settings.and_then(|settings| settings.number("rope_theta").ok().flatten());
    Source { pieces: vec![Piece::periods(config, theta.unwrap_or(THETA))] }
}

/// DINOv3's longest period.
pub(super) const THETA: f64 = 100.0;

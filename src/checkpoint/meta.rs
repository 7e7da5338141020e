//! Checkpoints as Meta gives them away, and as its training code keeps them: DINO, DINOv2, DINOv3, DeiT and MAE. They come
//! without a config, so that what the names do not tell is taken from the published models.

use super::{
    Covers, Evidence, Family, Piece, Plan, Positions, Resampling, Source,
    heads::heads_of,
    hf::{self, IMAGENET_MEAN, IMAGENET_STD, grid},
    hf_dinov3,
    timm::{self, NAMES},
};
use crate::{
    error::Result,
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// DINO's row of the family table.
pub(super) const DINO: Family = Family {
    name: "meta-dino",
    recognise: |evidence| kind(evidence) == Some(Kind::Dino),
    build: |evidence| build(evidence, Kind::Dino),
    source,
    beside: BESIDE,
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

/// DINOv2's row.
pub(super) const DINOV2: Family = Family {
    name: "meta-dinov2",
    recognise: |evidence| kind(evidence) == Some(Kind::Dinov2),
    build: |evidence| build(evidence, Kind::Dinov2),
    ..DINO
};

/// DINOv3's row.
pub(super) const DINOV3: Family = Family {
    name: "meta-dinov3",
    recognise: |evidence| kind(evidence) == Some(Kind::Dinov3),
    build: |evidence| build(evidence, Kind::Dinov3),
    ..DINO
};

/// DeiT's row.
pub(super) const DEIT: Family = Family {
    name: "meta-deit",
    recognise: |evidence| kind(evidence) == Some(Kind::Deit),
    build: |evidence| build(evidence, Kind::Deit),
    ..DINO
};

/// MAE's row.
pub(super) const MAE: Family = Family {
    name: "meta-mae",
    recognise: |evidence| kind(evidence) == Some(Kind::Mae),
    build: |evidence| build(evidence, Kind::Mae),
    ..DINO
};

const BESIDE: &[(&str, &str)] = &[
    ("student.", "the student, of which the teacher is an average"),
    ("optimizer.", "the optimiser's state"),
    ("dino_loss.", "the loss's state"),
    ("head.mlp.", "a head for pre-training"),
    ("head.last_layer.", "a head for pre-training"),
    ("dino_head.", "a head for pre-training"),
    ("ibot_head.", "a head for pre-training"),
    ("decoder_", "a decoder for pre-training"),
    ("mask_token", "a token for pre-training"),
    (".bias_mask", "a mask for the biases of queries, keys and values, which is applied"),
    ("local_cls_norm.", "a norm for pre-training"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dino,
    Dinov2,
    Dinov3,
    Deit,
    Mae,
}

/// Which of Meta's projects the names point to. A bare encoder without any hint is taken for DINO's.
fn kind(evidence: &Evidence) -> Option<Kind> {
    let has = |name: &str| NAMES.has(evidence, name);
    let vit = has("cls_token") && has("patch_embedding.weight") && has("blocks.0.attention.qkv.weight");
    if !vit || !timm::architecture(evidence).is_empty() {
        return None;
    }
    let positions = has("position_embedding");
    if evidence.shape("rope_embed.periods").is_some() || !positions {
        (!positions).then_some(Kind::Dinov3)
    } else if evidence.has_under("decoder_") || has("pooled_norm.weight") {
        Some(Kind::Mae)
    } else if has("classifier.weight") {
        Some(Kind::Deit)
    } else if has("registers") || has("blocks.0.scale1") {
        Some(Kind::Dinov2)
    } else {
        Some(Kind::Dino)
    }
}

fn build(evidence: &Evidence, kind: Kind) -> Result<Plan> {
    let mut notes = Vec::new();
    let mut config = NAMES.infer(evidence)?;
    // Of the published models, those of these widths have heads of another size.
    let usual = match (kind, config.width) {
        (Kind::Dinov3, 4096) => 128,
        (Kind::Deit | Kind::Mae, 1280) => 80,
        _ => 64,
    };
    config.heads = heads_of(evidence, usual, config.width, &mut notes)?;
    config.activation = if config.gated_mlp { Activation::Silu } else { Activation::GeluErf };
    config.norm_eps = if kind == Kind::Dinov3 { 1e-5 } else { 1e-6 };
    config.rotary = kind == Kind::Dinov3;
    config.pool = if config.dist_token {
        Pool::ClsAndDist
    } else if config.pooled_norm {
        Pool::Mean
    } else {
        Pool::Cls
    };
    let positions = if config.rotary { None } else { Some(positions(evidence, &config, kind)?) };
    let (rows, cols) = config.patch_size;
    let size =
        positions.as_ref().map_or((256, 256), |p| (p.grid.0.saturating_mul(rows), p.grid.1.saturating_mul(cols)));
    config.image_size = (size.0 / rows.max(1) * rows, size.1 / cols.max(1) * cols);
    let recipe = recipe(kind, size.0);
    notes.push(format!(
        "without a config.json, norms have an epsilon of {:e}, the MLP {} and pictures ImageNet's mean and deviation, \
         as in the published models",
        config.norm_eps,
        if config.gated_mlp { "SwiGLU" } else { "exact GELU" },
    ));
    Ok(Plan { config, recipe, labels: Vec::new(), positions, notes })
}

/// The table's grid is a square. It covers CLS and what is like it, CLS alone, or only the patches (DeiT III).
fn positions(evidence: &Evidence, config: &ViTConfig, kind: Kind) -> Result<Positions> {
    let rows = match *NAMES.shape(evidence, "position_embedding").unwrap_or_default() {
        [rows, _] => rows,
        _ => 1,
    };
    let resampling = match kind {
        Kind::Dino => Resampling::BicubicOffset,
        Kind::Dinov2 if config.registers == 0 => Resampling::BicubicOffset,
        Kind::Dinov2 => Resampling::BicubicAntialias,
        Kind::Dinov3 | Kind::Deit | Kind::Mae => Resampling::Bicubic,
    };
    let covers = [Covers::ClsAndPatches, Covers::All, Covers::Patches];
    let fits = |covers: Covers| {
        let table = Positions { covers, grid: (0, 0), resampling };
        let patches = rows.saturating_sub(table.leading(config.prefix_tokens()));
        Some(Positions { grid: grid(evidence, patches, None, config.patch_size).ok()?, ..table })
    };
    match covers.into_iter().find_map(fits) {
        Some(positions) => Ok(positions),
        None => grid(evidence, rows, None, config.patch_size).map(|grid| Positions {
            covers: Covers::Patches,
            grid,
            resampling,
        }),
    }
}

/// Meta's transforms for evaluation.
fn recipe(kind: Kind, side: usize) -> Recipe {
    let squash = Recipe {
        resize: Resize::Squash { rows: side, cols: side },
        filter: Filter::Bilinear,
        crop: None,
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
    };
    // DINOv2 was trained on at most 518 pixels, and is evaluated on 224.
    let side = if kind == Kind::Dinov2 && side == 518 { 224 } else { side };
    let crop = Crop { rows: side, cols: side, middle: Middle::Even };
    match kind {
        Kind::Dinov3 => squash,
        _ => Recipe { crop: Some(crop), ..hf::crop_recipe(side.saturating_mul(256) / 224, side) },
    }
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    let width = config.width;
    if parameter.name == "rotary.periods" {
        let key = "rope_embed.periods".to_owned();
        let stored = Piece::Stored { shape: parameter.shape.clone(), key };
        let there = evidence.shape("rope_embed.periods").is_some();
        return Source { pieces: vec![if there { stored } else { Piece::periods(config, hf_dinov3::THETA) }] };
    }
    let key = NAMES.keys(evidence, &parameter.name).concat();
    if key.ends_with(".attn.qkv.bias") && evidence.shape(&format!("{key}_mask")).is_some() {
        // The mask takes the keys' biases away, whatever they are.
        let part = |third: usize| {
            let rows = third * width..(third + 1) * width;
            Piece::Rows { key: key.clone(), shape: vec![3 * width], rows }
        };
        return Source { pieces: vec![part(0), Piece::Zeros(width), part(2)] };
    }
    NAMES.source(evidence, config, parameter)
}

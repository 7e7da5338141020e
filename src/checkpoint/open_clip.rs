//! The vision tower of OpenCLIP and OpenAI's CLIP (`visual.*`), with OpenCLIP's `open_clip_config.json` or without.

use super::{
    Covers, Evidence, Family, Plan, Positions, Resampling, Settings,
    heads::heads,
    hf::{crop_recipe, grid},
    hf_clip::{MEAN, STD},
    names::Names,
};
use crate::{
    error::{Error, Result},
    model::config::{Activation, Pool},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// The row of the family table.
pub(super) const FAMILY: Family = Family {
    name: "open-clip",
    recognise,
    build,
    source: |evidence, config, parameter| NAMES.source(evidence, config, parameter),
    beside: &[
        ("../", "the text tower, or what joins it to the pictures"),
        ("attn_pool.", "a pooling that comes after the tokens"),
        ("ln_post.", "the norm of what is pooled, which comes after the tokens"),
        ("proj", "the projection to the text's space"),
    ],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

const NAMES: Names = Names {
    blocks: &["transformer.resblocks."],
    parts: &[
        ("patch_embedding", &[&["conv1"]]),
        ("cls_token", &[&["class_embedding"]]),
        ("position_embedding", &[&["positional_embedding"]]),
        ("first_norm", &[&["ln_pre"]]),
        ("norm1", &[&["ln_1"]]),
        ("attention.qkv", &[&["attn.in_proj_"]]),
        ("attention.projection", &[&["attn.out_proj"]]),
        ("scale1", &[&["ls_1.gamma"]]),
        ("norm2", &[&["ln_2"]]),
        ("mlp.fc1", &[&["mlp.c_fc"]]),
        ("mlp.fc2", &[&["mlp.c_proj"]]),
        ("scale2", &[&["ls_2.gamma"]]),
        ("final_norm", &[&["ln_post"]]),
    ],
    unbiased: &["patch_embedding"],
};

fn recognise(evidence: &Evidence) -> bool {
    ["patch_embedding.weight", "cls_token", "position_embedding", "blocks.0.attention.qkv.weight"]
        .iter()
        .all(|name| NAMES.has(evidence, name))
}

fn build(evidence: &Evidence) -> Result<Plan> {
    let model = evidence.settings.and_then(|settings| settings.section("model_cfg"));
    let vision = model.as_ref().and_then(|model| model.section("vision_cfg"));
    let vision = vision.as_ref();
    let mut notes = Vec::new();
    let mut config = NAMES.infer(evidence)?;
    let head_width = match vision {
        Some(vision) => Some(vision.size_if("head_width")?.unwrap_or(64)),
        None => None,
    };
    config.heads = heads(evidence, head_width.map(|width| config.width / width), config.width, &mut notes)?;
    config.activation = activation(model.as_ref(), vision, evidence, &mut notes)?;
    let eps = vision.and_then(|vision| vision.section("norm_kwargs")).map(|norm| norm.number("eps")).transpose()?;
    config.norm_eps = eps.flatten().unwrap_or(1e-5);
    // Where something is pooled first, the norm comes after that.
    let late = vision.map(|vision| vision.flag("final_ln_after_pool")).transpose()?.flatten().unwrap_or(false);
    config.final_norm &= !late && !evidence.has_under("attn_pool.");
    config.pool = Pool::Cls;
    let stated = vision.filter(|vision| vision.stated("image_size").is_some());
    let stated = stated.map(|vision| vision.rows_cols("image_size")).transpose()?;
    let rows = NAMES.shape(evidence, "position_embedding").and_then(|shape| shape.first().copied()).unwrap_or(0);
    let grid = grid(evidence, rows.saturating_sub(1), stated, config.patch_size)?;
    config.image_size = (grid.0.saturating_mul(config.patch_size.0), grid.1.saturating_mul(config.patch_size.1));
    let positions = Some(Positions { covers: Covers::All, grid, resampling: Resampling::BicubicAntialias });
    let preprocess = evidence.settings.and_then(|settings| settings.section("preprocess_cfg"));
    let recipe = recipe(preprocess.as_ref(), stated.unwrap_or(config.image_size), &mut notes)?;
    Ok(Plan { config, recipe, labels: Vec::new(), positions, notes })
}

fn activation(
    model: Option<&Settings>,
    vision: Option<&Settings>,
    evidence: &Evidence,
    notes: &mut Vec<String>,
) -> Result<Activation> {
    let Some(model) = model else {
        // Only OpenAI's own files hold these numbers.
        let openai = ["../input_resolution", "../context_length"].iter().any(|key| evidence.shape(key).is_some());
        let (activation, name) =
            if openai { (Activation::QuickGelu, "quick GELU") } else { (Activation::GeluErf, "exact GELU") };
        notes.push(format!("without open_clip_config.json, the MLP is taken to use {name}"));
        return Ok(activation);
    };
    let act = vision.and_then(|vision| vision.section("act_kwargs"));
    let approximate = match &act {
        Some(act) => act.word("approximate")?,
        None => None,
    };
    match (model.flag("quick_gelu")?, approximate) {
        (Some(true), _) => Ok(Activation::QuickGelu),
        (_, Some("tanh")) => Ok(Activation::GeluTanh),
        _ => Ok(Activation::GeluErf),
    }
}

/// OpenCLIP's transform for evaluation.
pub(super) fn recipe(
    preprocess: Option<&Settings>,
    (rows, cols): (usize, usize),
    notes: &mut Vec<String>,
) -> Result<Recipe> {
    let crop = Some(Crop { rows, cols, middle: Middle::Even });
    let mut recipe = Recipe { mean: MEAN, std: STD, crop, ..crop_recipe(rows, rows) };
    if rows != cols {
        recipe.resize = Resize::Cover { rows, cols };
    }
    let Some(preprocess) = preprocess else { return Ok(recipe) };
    recipe.mean = preprocess.colours("mean")?.unwrap_or(MEAN);
    recipe.std = preprocess.colours("std")?.unwrap_or(STD);
    recipe.filter = match preprocess.word("interpolation")? {
        Some("bicubic") | None => Filter::Bicubic,
        Some("bilinear") => Filter::Bilinear,
        Some(other) => {
            let reason = format!("interpolation is {other}: expected bicubic or bilinear");
            return Err(Error::checkpoint(preprocess.path(), reason));
        }
    };
    match preprocess.word("resize_mode")? {
        Some("shortest") | None => {}
        Some("squash") => (recipe.resize, recipe.crop) = (Resize::Squash { rows, cols }, None),
        Some(other) => notes.push(format!("resize_mode is {other}: the shortest edge is resized instead")),
    }
    Ok(recipe)
}

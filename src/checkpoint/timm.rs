//! timm's VisionTransformer, and the DINOv3 among its Eva models; `config.json` names the architecture, or where such a
//! model is the tower of an OpenCLIP, `open_clip_config.json`.

use super::{
    Covers, Evidence, Family, Piece, Plan, Positions, Resampling, Settings, Source,
    heads::heads,
    hf::{IMAGENET_MEAN, IMAGENET_STD, grid},
    hf_dinov3,
    names::Names,
    open_clip,
};
use crate::{
    error::{Error, Result},
    model::config::{Activation, Parameter, Pool, ViTConfig},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// The VisionTransformer's row of the family table.
pub(super) const VIT: Family = Family {
    name: "timm",
    recognise: |evidence| is_timm(evidence) && has_positions(evidence),
    build,
    source,
    beside: &[
        ("../", "the text tower, or what joins it to the pictures"),
        ("head.proj.", "the projection to the text's space"),
        ("head.mlp.", "the projection to the text's space"),
    ],
    blocks: Some(|evidence| NAMES.blocks(evidence)),
};

/// The row of the family table for DINOv3.
pub(super) const EVA: Family = Family {
    name: "timm-dinov3",
    recognise: |evidence| is_timm(evidence) && !has_positions(evidence) && architecture(evidence).contains("dinov3"),
    ..VIT
};

/// timm's names, which began as Meta's.
pub(super) const NAMES: Names = Names {
    blocks: &["blocks."],
    parts: &[
        ("patch_embedding", &[&["patch_embed.proj"]]),
        ("patch_norm", &[&["patch_embed.norm"]]),
        ("registers", &[&["reg_token"], &["register_tokens"], &["storage_tokens"]]),
        ("position_embedding", &[&["pos_embed"]]),
        ("first_norm", &[&["norm_pre"]]),
        ("attention.qkv", &[&["attn.qkv"]]),
        ("attention.query_norm", &[&["attn.q_norm"]]),
        ("attention.key_norm", &[&["attn.k_norm"]]),
        ("attention.projection", &[&["attn.proj"]]),
        ("scale1", &[&["ls1.gamma"], &["gamma_1"]]),
        ("mlp.fc1", &[&["mlp.fc1_g", "mlp.fc1_x"], &["mlp.w12"], &["mlp.w1", "mlp.w2"], &["mlp.fc1"]]),
        ("mlp.fc2", &[&["mlp.w3"], &["mlp.fc2"]]),
        ("scale2", &[&["ls2.gamma"], &["gamma_2"]]),
        ("final_norm", &[&["norm"]]),
        ("prefix_norm", &[&["cls_norm"]]),
        ("probe.token", &[&["attn_pool.latent"]]),
        ("probe.query", &[&["attn_pool.q"]]),
        ("probe.kv", &[&["attn_pool.kv"]]),
        ("probe.projection", &[&["attn_pool.proj"]]),
        ("probe.norm", &[&["attn_pool.norm"]]),
        ("probe.mlp.fc1", &[&["attn_pool.mlp.fc1"]]),
        ("probe.mlp.fc2", &[&["attn_pool.mlp.fc2"]]),
        ("pooled_norm", &[&["fc_norm"]]),
        ("classifier", &[&["head"]]),
        ("dist_classifier", &[&["head_dist"]]),
    ],
    unbiased: &["patch_embedding", "attention.projection", "mlp.fc1", "mlp.fc2"],
};

/// Heads by a word of the architecture's name; the first word that fits counts. Of 0, each head has 128 values.
const HEADS: [(&str, usize); 34] = [
    ("aimv2", 0),
    ("base_patch16_gap_224", 16),
    ("base_patch16_plus", 14),
    ("base_patch32_plus", 14),
    ("huge_plus", 20),
    ("7b_", 32),
    ("giant_patch14_dinov2", 24),
    ("giant_patch14_reg", 24),
    ("giantopt", 16),
    ("giant_", 16),
    ("gigantic_", 16),
    ("huge_", 16),
    ("so400m", 16),
    ("so150m2", 13),
    ("so150m", 14),
    ("intern300m", 16),
    ("large_", 16),
    ("base_", 12),
    ("mediumd_", 8),
    ("medium_", 8),
    ("betwixt_", 10),
    ("xsmall_", 4),
    ("small_", 6),
    ("dlittle_", 5),
    ("little_", 5),
    ("dpwee_", 4),
    ("dwee_", 4),
    ("pwee_", 4),
    ("wee_", 4),
    ("tiny_", 3),
    ("test_vit2", 2),
    ("test_vit3", 3),
    ("test_vit4", 3),
    ("test_vit", 2),
];

/// Words of architectures that have the same names but compute something else, with what that is.
const DIFFERENT: [(&str, &str); 3] = [
    ("_rpn_", "puts its norms after attention and MLP"),
    ("radio", "normalises its pictures inside the model"),
    ("_xp_", "computes attention and MLP side by side"),
];

/// Words of architectures whose MLP uses the tanh approximation of GELU.
const TANH: [&str; 6] = [
    "patch32_siglip",
    "large_patch16_siglip_512",
    "large_patch16_siglip_gap_512",
    "so400m_patch16_siglip",
    "giantopt_patch16_siglip",
    "gelu_tanh",
];

fn is_timm(evidence: &Evidence) -> bool {
    !architecture(evidence).is_empty()
        && ["patch_embedding.weight", "blocks.0.attention.qkv.weight", "blocks.0.norm1.weight"]
            .iter()
            .all(|name| NAMES.has(evidence, name))
}

fn has_positions(evidence: &Evidence) -> bool {
    NAMES.has(evidence, "position_embedding")
}

/// timm's name for the model; empty if it is none of timm's.
pub(super) fn architecture(evidence: &Evidence) -> String {
    let own = evidence.settings.and_then(|settings| settings.word("architecture").ok().flatten());
    let tower = || open_clip_vision(evidence.settings?)?.word("timm_model_name").ok().flatten().map(str::to_owned);
    own.map(str::to_owned).or_else(tower).unwrap_or_default()
}

/// The part on the image tower of an `open_clip_config.json`.
fn open_clip_vision(settings: &Settings) -> Option<Settings> {
    settings.section("model_cfg")?.section("vision_cfg")
}

fn build(evidence: &Evidence) -> Result<Plan> {
    let settings = evidence.settings.ok_or_else(|| evidence.refuse("has no config.json"))?;
    let name = &architecture(evidence);
    let tower = open_clip_vision(settings);
    let arguments = settings.section("model_args");
    let arguments = arguments.as_ref();
    let mut notes = Vec::new();
    let mut config = NAMES.infer(evidence)?;
    refuse_different(evidence, name)?;
    let stated = arguments.map(|arguments| arguments.size_if("num_heads")).transpose()?.flatten();
    let known = HEADS
        .iter()
        .find(|(word, _)| format!("{name}_").contains(word))
        .map(|(_, heads)| if *heads == 0 { config.width / 128 } else { *heads });
    config.heads = heads(evidence, stated.or(known), config.width, &mut notes)?;
    config.activation = activation(name, arguments, &config)?;
    config.norm_eps =
        if ["clip", "beit3", "dinov3", "aimv2"].iter().any(|word| name.contains(word)) { 1e-5 } else { 1e-6 };
    config.rms_norm = evidence.shape("blocks.0.norm1.bias").is_none();
    config.patch_norm = NAMES.has(evidence, "patch_norm.weight");
    config.rotary = !has_positions(evidence);
    // Eva keeps the biases of queries and values apart.
    config.qkv_bias |= evidence.shape("blocks.0.attn.q_bias").is_some();
    let pooling = match &tower {
        Some(tower) => tower.word("timm_pool")?,
        None => arguments.map(|arguments| arguments.word("global_pool")).transpose()?.flatten(),
    };
    config.pool = pool(settings, pooling, &config)?;
    config.probe_sees_prefix = name == "test_vit3";
    let recipe = Pretrained::new(settings);
    let stated = |part: Option<&Settings>, field: &str| {
        part.filter(|part| part.stated(field).is_some()).map(|part| part.rows_cols(field)).transpose()
    };
    let size = stated(tower.as_ref(), "image_size")?.or(stated(arguments, "img_size")?).or(recipe.input_size()?);
    let positions = if config.rotary { None } else { Some(positions(evidence, &config, size)?) };
    let (rows, cols) = (config.patch_size.0.max(1), config.patch_size.1.max(1));
    let trained = positions.as_ref().map(|p| (p.grid.0.saturating_mul(rows), p.grid.1.saturating_mul(cols)));
    config.image_size = trained.or(size).map_or((224, 224), |(h, w)| (h / rows * rows, w / cols * cols));
    let wanted = recipe.input_size()?.or(size).unwrap_or(config.image_size);
    let recipe = match &tower {
        Some(_) => open_clip::recipe(settings.section("preprocess_cfg").as_ref(), wanted, &mut notes)?,
        None => recipe.recipe(wanted, &mut notes)?,
    };
    let labels = settings.words("label_names")?.filter(|labels| labels.len() == config.classes).unwrap_or_default();
    Ok(Plan { config, recipe, labels, positions, notes })
}

fn refuse_different(evidence: &Evidence, name: &str) -> Result<()> {
    if let Some((_, why)) = DIFFERENT.iter().find(|(word, _)| name.contains(word)) {
        return Err(evidence.refuse(format!("timm's {name} {why}, which is not supported")));
    }
    if evidence.has_under("blocks.0.attn.norm.") || evidence.has_under("blocks.0.mlp.norm.") {
        return Err(
            evidence.refuse(format!("timm's {name} has norms inside attention or MLP, which are not supported"))
        );
    }
    Ok(())
}

fn activation(name: &str, arguments: Option<&Settings>, config: &ViTConfig) -> Result<Activation> {
    let stated = arguments.map(|arguments| arguments.word("act_layer")).transpose()?.flatten();
    match stated {
        Some("gelu") => Ok(Activation::GeluErf),
        Some("gelu_tanh") => Ok(Activation::GeluTanh),
        Some("quick_gelu") => Ok(Activation::QuickGelu),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some(other) => Err(Error::checkpoint(
            arguments.map_or("config.json".as_ref(), Settings::path),
            format!("act_layer is {other}: expected gelu, gelu_tanh, quick_gelu or silu"),
        )),
        None if config.gated_mlp => Ok(Activation::Silu),
        None if name.contains("quickgelu") => Ok(Activation::QuickGelu),
        None if TANH.iter().any(|word| name.contains(word)) => Ok(Activation::GeluTanh),
        None => Ok(Activation::GeluErf),
    }
}

fn pool(settings: &Settings, stated: Option<&str>, config: &ViTConfig) -> Result<Pool> {
    match stated.or(settings.word("global_pool")?) {
        _ if config.dist_token => Ok(Pool::ClsAndDist),
        Some("map") => Ok(Pool::Probe),
        Some("avg") => Ok(Pool::Mean),
        Some("token" | "") | None => Ok(Pool::Cls),
        // Only the class scores depend on it, and without classes nothing does.
        Some(_) if config.classes == 0 => Ok(Pool::Cls),
        Some(other) => {
            let reason = format!("global_pool is {other}: expected token, avg or map");
            Err(Error::checkpoint(settings.path(), reason))
        }
    }
}

/// The table covers either all tokens or the patches alone.
fn positions(evidence: &Evidence, config: &ViTConfig, size: Option<(usize, usize)>) -> Result<Positions> {
    let rows = match *NAMES.shape(evidence, "position_embedding").unwrap_or_default() {
        [rows, _] => rows,
        _ => 1,
    };
    let prefix = config.prefix_tokens();
    let all = grid(evidence, rows.saturating_sub(prefix), size, config.patch_size);
    let (covers, grid) = match all {
        Ok(grid) => (Covers::All, grid),
        Err(_) => (Covers::Patches, grid(evidence, rows, size, config.patch_size)?),
    };
    Ok(Positions { covers, grid, resampling: Resampling::BicubicAntialias })
}

/// `pretrained_cfg`, or the whole file in its older form.
struct Pretrained(Settings);

impl Pretrained {
    fn new(settings: &Settings) -> Self {
        Self(settings.section("pretrained_cfg").unwrap_or_else(|| settings.clone()))
    }

    /// (rows, cols)
    fn input_size(&self) -> Result<Option<(usize, usize)>> {
        let Some(value) = self.0.stated("input_size") else { return Ok(None) };
        let side = |i: usize| value.get(i).and_then(|side| usize::try_from(side.as_u64()?).ok());
        let size = side(1).zip(side(2)).filter(|(rows, cols)| (1..=super::MAX_SIZE).contains(rows.max(cols)));
        size.map(Some).ok_or_else(|| self.0.refuse("input_size", value, "[channels, rows, cols]"))
    }

    fn recipe(&self, (rows, cols): (usize, usize), notes: &mut Vec<String>) -> Result<Recipe> {
        let share = self.0.number("crop_pct")?.unwrap_or(0.875);
        if !(0.01..=1.0).contains(&share) {
            return Err(Error::checkpoint(self.0.path(), format!("crop_pct is {share}: expected 0.01 to 1")));
        }
        let larger = |side: usize| (side as f64 / share).floor() as usize;
        let filter = match self.0.word("interpolation")? {
            Some("bilinear") => Filter::Bilinear,
            Some("lanczos") => Filter::Lanczos,
            Some("bicubic") | None => Filter::Bicubic,
            Some(other) => {
                let reason = format!("interpolation is {other}: expected bicubic, bilinear or lanczos");
                return Err(Error::checkpoint(self.0.path(), reason));
            }
        };
        let mode = self.0.word("crop_mode")?.unwrap_or("center");
        if !["center", "squash"].contains(&mode) {
            notes.push(format!("crop_mode is {mode}: the crop is taken from the centre instead"));
        }
        let resize = match (mode, larger(rows), larger(cols)) {
            ("squash", rows, cols) => Resize::Squash { rows, cols },
            (_, rows, cols) if rows == cols => Resize::ShortestEdge(rows),
            (_, rows, cols) => Resize::Cover { rows, cols },
        };
        Ok(Recipe {
            resize,
            filter,
            crop: Some(Crop { rows, cols, middle: Middle::Even }),
            mean: self.0.colours("mean")?.unwrap_or(IMAGENET_MEAN),
            std: self.0.colours("std")?.unwrap_or(IMAGENET_STD),
        })
    }
}

fn source(evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
    if parameter.name == "rotary.periods" {
        return Source { pieces: vec![Piece::periods(config, hf_dinov3::THETA)] };
    }
    let key = NAMES.keys(evidence, &parameter.name).concat();
    match key.strip_suffix("qkv.bias") {
        Some(attention)
            if evidence.shape(&key).is_none() && evidence.shape(&format!("{attention}q_bias")).is_some() =>
        {
            let bias = |name: &str| Piece::Stored { key: format!("{attention}{name}"), shape: vec![config.width] };
            Source { pieces: vec![bias("q_bias"), Piece::Zeros(config.width), bias("v_bias")] }
        }
        _ => NAMES.source(evidence, config, parameter),
    }
}

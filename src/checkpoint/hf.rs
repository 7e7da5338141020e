//! What the families of Hugging Face's transformers share: the fields of `config.json`, and most of the names.

use super::{Covers, Evidence, Plan, Positions, Resampling, Settings, heads::heads, names::Names, processor};
use crate::{
    error::{Error, Result},
    model::config::{Activation, Pool, ViTConfig},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// ImageNet's mean colour.
pub(super) const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// ImageNet's deviation of colours.
pub(super) const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// The names of ViT, DeiT, DINOv2 and DINOv3, in every spelling of theirs.
pub(super) const NAMES: Names = Names {
    blocks: &["encoder.layer.", "layers.", "layer.", "encoder.layers.", "model.layer."],
    parts: &[
        ("patch_embedding", &[&["embeddings.patch_embeddings.projection"], &["embeddings.patch_embeddings"]]),
        ("cls_token", &[&["embeddings.cls_token"]]),
        ("dist_token", &[&["embeddings.distillation_token"]]),
        ("registers", &[&["embeddings.register_tokens"]]),
        ("position_embedding", &[&["embeddings.position_embeddings"]]),
        ("norm1", &[&["layernorm_before"], &["norm1"]]),
        (
            "attention.qkv",
            &[
                &["attention.attention.query", "attention.attention.key", "attention.attention.value"],
                &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
            ],
        ),
        ("attention.projection", &[&["attention.output.dense"], &["attention.o_proj"]]),
        ("scale1", &[&["layer_scale1.lambda1"]]),
        ("norm2", &[&["layernorm_after"], &["norm2"]]),
        (
            "mlp.fc1",
            &[
                &["intermediate.dense"],
                &["mlp.fc1"],
                &["mlp.weights_in"],
                &["mlp.gate_proj", "mlp.up_proj"],
                &["mlp.up_proj"],
            ],
        ),
        ("mlp.fc2", &[&["output.dense"], &["mlp.fc2"], &["mlp.weights_out"], &["mlp.down_proj"]]),
        ("scale2", &[&["layer_scale2.lambda1"]]),
        ("final_norm", &[&["layernorm"], &["norm"]]),
        ("classifier", &[&["classifier"], &["cls_classifier"]]),
        ("dist_classifier", &[&["distillation_classifier"]]),
    ],
    unbiased: &[],
};

/// What a family of transformers takes for granted where `config.json` is silent.
#[derive(Debug)]
pub(super) struct Hf {
    /// Values of `model_type`.
    pub models: &'static [&'static str],
    pub names: &'static Names,
    pub heads: usize,
    pub eps: f64,
    pub activation: Activation,
    pub pool: Pool,
    pub covers: Covers,
    pub resampling: Resampling,
    /// The recipe without a `preprocessor_config.json`, for a picture size.
    pub recipe: fn((usize, usize)) -> Recipe,
}

impl Hf {
    /// Model, preprocessing and labels.
    pub fn plan(&self, evidence: &Evidence) -> Result<Plan> {
        let section = evidence.settings.and_then(|settings| settings.section("vision_config"));
        let settings = section.as_ref().or(evidence.settings);
        let mut notes = Vec::new();
        let mut config = self.names.infer(evidence)?;
        if let Some(settings) = settings {
            self.override_with(settings, &mut config, evidence)?;
        }
        let stated = match settings {
            Some(settings) => Some(settings.size_if("num_attention_heads")?.unwrap_or(self.heads)),
            None => None,
        };
        config.heads = heads(evidence, stated, config.width, &mut notes)?;
        config.norm_eps = settings.map(|s| s.number("layer_norm_eps")).transpose()?.flatten().unwrap_or(self.eps);
        config.activation = self.activation(settings)?;
        config.pool = self.pool;
        let stated = settings.filter(|settings| settings.stated("image_size").is_some());
        let stated = stated.map(|settings| settings.rows_cols("image_size")).transpose()?;
        let positions = self.positions(evidence, &config, stated)?;
        let (rows, cols) = (config.patch_size.0.max(1), config.patch_size.1.max(1));
        let trained = positions.as_ref().map(|p| (p.grid.0.saturating_mul(rows), p.grid.1.saturating_mul(cols)));
        let size = stated.or(trained).unwrap_or((224, 224));
        // What is left over beyond whole patches is never seen.
        config.image_size = (size.0 / rows * rows, size.1 / cols * cols);
        let recipe = (self.recipe)(size);
        let recipe = match evidence.processor {
            Some(file) => processor::recipe(file, recipe)?,
            None => recipe,
        };
        let labels = labels(evidence.settings, config.classes)?;
        Ok(Plan { config, recipe, labels, positions, notes })
    }

    /// What `config.json` states wins over what the shapes tell, so that a difference shows when the tensors are checked.
    fn override_with(&self, settings: &Settings, config: &mut ViTConfig, evidence: &Evidence) -> Result<()> {
        if let Some(model) = settings.word("model_type")?.filter(|model| !self.models.contains(model)) {
            let known = self.models.join(" or ");
            return Err(evidence.refuse(format!("model_type is {model}, but the weights are named like {known}")));
        }
        let fields = [
            ("hidden_size", &mut config.width),
            ("num_hidden_layers", &mut config.depth),
            ("intermediate_size", &mut config.mlp_width),
            ("num_channels", &mut config.channels),
        ];
        for (name, field) in fields {
            *field = settings.size_if(name)?.unwrap_or(*field);
        }
        if settings.stated("patch_size").is_some() {
            config.patch_size = settings.rows_cols("patch_size")?;
        }
        let found = config.qkv_bias;
        if settings.flag("qkv_bias")?.is_some_and(|stated| stated != found) {
            return Err(evidence.refuse(format!("qkv_bias is {}, but the weights' names say {found}", !found)));
        }
        Ok(())
    }

    fn activation(&self, settings: Option<&Settings>) -> Result<Activation> {
        let Some(settings) = settings else { return Ok(self.activation) };
        match settings.word("hidden_act")? {
            None => Ok(self.activation),
            Some("gelu" | "gelu_python") => Ok(Activation::GeluErf),
            Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Ok(Activation::GeluTanh),
            Some("quick_gelu") => Ok(Activation::QuickGelu),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some(other) => {
                let valid = "gelu, gelu_new, gelu_pytorch_tanh, quick_gelu or silu";
                Err(Error::checkpoint(settings.path(), format!("hidden_act is {other}: expected {valid}")))
            }
        }
    }

    /// The file's table of positions, on the grid of the stated picture size, or else on a square.
    fn positions(
        &self,
        evidence: &Evidence,
        config: &ViTConfig,
        size: Option<(usize, usize)>,
    ) -> Result<Option<Positions>> {
        if !self.names.has(evidence, "position_embedding") {
            return Ok(None);
        }
        let mut positions = Positions { covers: self.covers, grid: (0, 0), resampling: self.resampling };
        let shape = self.names.shape(evidence, "position_embedding").unwrap_or_default();
        let rows = if let [rows, _] = *shape { rows } else { 1 };
        let patches = rows.saturating_sub(positions.leading(config.prefix_tokens()));
        positions.grid = grid(evidence, patches, size, config.patch_size)?;
        Ok(Some(positions))
    }
}

/// The grid of `patches` positions: that of the stated picture size, or else a square.
pub(super) fn grid(
    evidence: &Evidence,
    patches: usize,
    size: Option<(usize, usize)>,
    patch: (usize, usize),
) -> Result<(usize, usize)> {
    let side = patches.isqrt();
    let square = (side * side == patches).then_some((side, side));
    let stated = size.map(|(rows, cols)| (rows / patch.0.max(1), cols / patch.1.max(1)));
    match stated {
        Some((rows, cols)) if rows.saturating_mul(cols) == patches && patches > 0 => Ok((rows, cols)),
        Some((rows, cols)) => Err(evidence.refuse(format!(
            "image_size and patch_size make {rows} x {cols} patches, but the weights hold positions for {patches}"
        ))),
        None => square.filter(|_| patches > 0).ok_or_else(|| {
            evidence.refuse(format!("{patches} positions are not a square, so that their rows and columns are unknown"))
        }),
    }
}

/// The names of the classes, unless they are but numbers.
fn labels(settings: Option<&Settings>, classes: usize) -> Result<Vec<String>> {
    let Some(settings) = settings.filter(|settings| classes > 0 && settings.stated("id2label").is_some()) else {
        return Ok(Vec::new());
    };
    let mut names = settings.map_of_words("id2label")?;
    let labels: Vec<String> = (0..classes).map_while(|class| names.remove(&class.to_string())).collect();
    let numbers = labels.iter().enumerate().all(|(class, label)| *label == format!("LABEL_{class}"));
    Ok(if labels.len() == classes && !numbers { labels } else { Vec::new() })
}

/// The usual recipe of self-supervised models: somewhat larger, then a crop from the middle.
pub(super) fn crop_recipe(edge: usize, crop: usize) -> Recipe {
    Recipe {
        resize: Resize::ShortestEdge(edge),
        filter: Filter::Bicubic,
        crop: Some(Crop { rows: crop, cols: crop, middle: Middle::Down }),
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
    }
}

//! How a family names its tensors, and what their shapes tell of the model.

use super::{Evidence, Piece, Source};
use crate::{
    error::{Error, Result},
    model::config::{Parameter, ViTConfig},
};

/// A family's names for the parts of a model.
///
/// A part has one or more spellings, of which a checkpoint uses one throughout. A spelling is one name, or several where
/// the file keeps apart what the model holds in one tensor, such as query, key and value.
#[derive(Debug)]
pub(super) struct Names {
    /// What comes before the number of a block.
    pub blocks: &'static [&'static str],
    /// Canonical parts (see [`ViTConfig::parameters`], without `blocks.N.` and `.weight`) and their spellings. A
    /// spelling that ends in `_` is joined to `weight` or `bias` without a dot.
    pub parts: &'static [(&'static str, &'static [&'static [&'static str]])],
    /// Parts whose bias a model of this family may lack; it then counts as zero.
    pub unbiased: &'static [&'static str],
}

/// A canonical name, taken apart.
struct Name<'a> {
    block: Option<&'a str>,
    part: &'a str,
    leaf: &'a str,
}

impl<'a> Name<'a> {
    fn new(name: &'a str) -> Self {
        let (block, rest) = match name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
            Some((block, rest)) => (Some(block), rest),
            None => (None, name),
        };
        match rest.rsplit_once('.') {
            Some((part, leaf @ ("weight" | "bias"))) => Self { block, part, leaf },
            _ => Self { block, part: rest, leaf: "" },
        }
    }
}

impl Names {
    /// The prefix of this checkpoint's blocks, such as `encoder.layer.`.
    pub fn blocks(&self, evidence: &Evidence) -> &'static str {
        let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let numbered = |prefix: &&&str| {
            evidence.tensors.keys_under(prefix).any(|key| key.strip_prefix(**prefix).is_some_and(digit))
        };
        self.blocks.iter().find(numbered).or(self.blocks.first()).copied().unwrap_or_default()
    }

    /// The names in this checkpoint of what the model calls `name`.
    pub fn keys(&self, evidence: &Evidence, name: &str) -> Vec<String> {
        let Name { block, part, leaf } = Name::new(name);
        let prefix = block.map_or(String::new(), |block| format!("{}{block}.", self.blocks(evidence)));
        let own = [part];
        let spellings = self.parts.iter().find(|(ours, _)| *ours == part).map_or(&[][..], |(_, theirs)| theirs);
        let used = |spelling: &&&[&str]| spelling.iter().all(|name| evidence.has_under(&format!("{prefix}{name}")));
        let spelling = spellings.iter().find(used).or(spellings.first()).copied().unwrap_or(&own);
        let dot = |name: &str| if leaf.is_empty() || name.ends_with('_') { "" } else { "." };
        spelling.iter().map(|name| format!("{prefix}{name}{}{leaf}", dot(name))).collect()
    }

    /// Whether the checkpoint has any of it.
    pub fn has(&self, evidence: &Evidence, name: &str) -> bool {
        self.keys(evidence, name).iter().any(|key| evidence.shape(key).is_some())
    }

    /// The shape in the checkpoint, dimensions of one left out; several tensors are stacked along dimension 0.
    pub fn shape(&self, evidence: &Evidence, name: &str) -> Option<Vec<usize>> {
        let mut whole: Option<Vec<usize>> = None;
        for key in self.keys(evidence, name) {
            let shape = squeeze(evidence.shape(&key)?);
            match whole.as_mut().and_then(|whole| whole.first_mut()) {
                Some(rows) => *rows = rows.saturating_add(shape.first().copied().unwrap_or(1)),
                None => whole = Some(shape),
            }
        }
        whole
    }

    /// The model as far as the names and shapes tell: all but `image_size`, `heads`, `activation`, `norm_eps` and `pool`.
    pub fn infer(&self, evidence: &Evidence) -> Result<ViTConfig> {
        let rows = |name: &str| self.shape(evidence, name).and_then(|shape| shape.first().copied()).unwrap_or(0);
        let has = |name: &str| self.has(evidence, name);
        let patches = self.keys(evidence, "patch_embedding.weight").concat();
        let &[width, channels, patch_rows, patch_cols] = evidence.shape(&patches).unwrap_or_default() else {
            return Err(missing(evidence, &patches, "a convolution of four dimensions"));
        };
        let fc2 = self.keys(evidence, "blocks.0.mlp.fc2.weight").concat();
        let &[_, mlp_width] = evidence.shape(&fc2).unwrap_or_default() else {
            return Err(missing(evidence, &fc2, "a matrix"));
        };
        let registers = self.keys(evidence, "registers").concat();
        Ok(ViTConfig {
            patch_size: (patch_rows, patch_cols),
            channels,
            width,
            depth: evidence.count(self.blocks(evidence)),
            mlp_width,
            gated_mlp: mlp_width > 0 && rows("blocks.0.mlp.fc1.weight") == 2 * mlp_width,
            qkv_bias: has("blocks.0.attention.qkv.bias"),
            qk_norm: has("blocks.0.attention.query_norm.weight"),
            layer_scale: has("blocks.0.scale1"),
            first_norm: has("first_norm.weight"),
            final_norm: has("final_norm.weight"),
            cls_token: has("cls_token"),
            dist_token: has("dist_token"),
            registers: evidence.shape(&registers).and_then(|shape| shape.iter().rev().nth(1)).copied().unwrap_or(0),
            probe: has("probe.token"),
            prefix_norm: has("prefix_norm.weight"),
            pooled_norm: has("pooled_norm.weight"),
            classes: rows("classifier.weight"),
            ..ViTConfig::default()
        })
    }

    /// Where the checkpoint keeps a parameter.
    pub fn source(&self, evidence: &Evidence, config: &ViTConfig, parameter: &Parameter) -> Source {
        let keys = self.keys(evidence, &parameter.name);
        let mut shape = parameter.shape.clone();
        if parameter.name == "patch_embedding.weight" {
            let (rows, cols) = config.patch_size;
            shape = vec![config.width, config.channels, rows, cols];
        } else if let Some(first) = shape.first_mut() {
            *first /= keys.len().max(1);
        }
        let piece = |(index, key): (usize, String)| {
            if self.lacks_bias(evidence, config, &parameter.name, index) {
                Piece::Zeros(shape.iter().product())
            } else {
                Piece::Stored { key, shape: shape.clone() }
            }
        };
        Source { pieces: keys.into_iter().enumerate().map(piece).collect() }
    }

    /// Whether the checkpoint rightly lacks this bias: such biases may be missing, and neither does the first block have
    /// it nor the last.
    fn lacks_bias(&self, evidence: &Evidence, config: &ViTConfig, name: &str, index: usize) -> bool {
        let Name { block, part, leaf } = Name::new(name);
        if leaf != "bias" || !self.unbiased.contains(&part) {
            return false;
        }
        let has = |name: &str| self.keys(evidence, name).get(index).is_some_and(|key| evidence.shape(key).is_some());
        match block {
            Some(_) => {
                let ends = [0, config.depth.saturating_sub(1)].map(|block| format!("blocks.{block}.{part}.bias"));
                !has(name) && !ends.iter().any(|name| has(name))
            }
            None => !has(name),
        }
    }
}

fn missing(evidence: &Evidence, key: &str, expected: &str) -> Error {
    let found = match evidence.shape(key) {
        Some(shape) => format!("has shape {shape:?}"),
        None => "is missing".to_owned(),
    };
    Error::checkpoint(evidence.tensors.path(), format!("{key} {found}: expected {expected}"))
}

/// A shape without its dimensions of one.
pub(super) fn squeeze(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|&size| size != 1).collect()
}

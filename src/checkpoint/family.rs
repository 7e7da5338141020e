//! What a family of checkpoints is: how it is recognised, and where it keeps each of the model's parameters.

use std::collections::BTreeSet;

use super::{Settings, Tensors, book};
use crate::{
    error::{Error, Result},
    model::config::{Parameter, ViTConfig},
    picture::Recipe,
};

/// Every family that can be opened. Exactly one recognises a given checkpoint.
pub static FAMILIES: &[Family] = &[book::FAMILY];

/// One layout of keys and config, with its preprocessing.
#[derive(Debug)]
pub struct Family {
    /// Short name, unique in [`FAMILIES`].
    pub name: &'static str,
    /// Whether a checkpoint is of this family.
    pub recognise: fn(&Evidence) -> bool,
    /// Model, preprocessing and labels of a checkpoint of this family.
    pub build: fn(&Evidence) -> Result<Plan>,
    /// Where the file keeps a parameter of the model.
    pub source: fn(&Evidence, &ViTConfig, &Parameter) -> Source,
}

/// What there is to go by: the headers of the weights file, and the `config.json` if there is one.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Names and shapes in the weights file.
    pub tensors: &'a Tensors,
    /// The `config.json`.
    pub settings: Option<&'a Settings>,
}

/// The model that a family read out of its evidence.
#[derive(Debug)]
pub struct Plan {
    /// Sizes and choices of the model.
    pub config: ViTConfig,
    /// How the model wants its pictures.
    pub recipe: Recipe,
    /// Names of the classes in order; empty if unknown.
    pub labels: Vec<String>,
}

/// The tensors whose values, one after the other in row-major order, are a parameter's values: stacked along
/// dimension 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The tensors in order.
    pub pieces: Vec<Piece>,
}

/// One tensor of the weights file, and the shape that it must have there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The tensor's name in the file.
    pub key: String,
    /// The shape it must have.
    pub shape: Vec<usize>,
}

impl Piece {
    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().copied().fold(1, usize::saturating_mul)
    }

    /// What is wrong with this tensor in the file, in words.
    pub(super) fn problem(&self, tensors: &Tensors) -> Option<String> {
        let Self { key, shape } = self;
        let Some(found) = tensors.get(key) else {
            return Some(format!("{key}: missing, expected shape {shape:?}"));
        };
        if found.shape != *shape {
            return Some(format!("{key}: expected shape {shape:?}, found {:?}", found.shape));
        }
        (!found.dtype.is_float()).then(|| format!("{key}: expected values in f32, f16 or bf16, found {}", found.dtype))
    }
}

impl Evidence<'_> {
    /// The shape of a tensor.
    pub fn shape(&self, key: &str) -> Option<&[usize]> {
        self.tensors.get(key).map(|tensor| tensor.shape.as_slice())
    }

    /// Whether any tensor's name begins with `prefix`.
    pub fn has_under(&self, prefix: &str) -> bool {
        self.tensors.keys_under(prefix).next().is_some()
    }

    /// How many different numbers follow `prefix` in the tensors' names: 12 for `blocks.0.` to `blocks.11.`.
    pub fn count(&self, prefix: &str) -> usize {
        let number = |key: &str| key.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
        self.tensors.keys_under(prefix).filter_map(number).collect::<BTreeSet<_>>().len()
    }

    /// An error about what the checkpoint says of itself: names `config.json` if there is one, else the weights file.
    pub fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::checkpoint(self.settings.map_or(self.tensors.path(), Settings::path), reason)
    }
}

/// The family of a checkpoint.
pub(super) fn recognise(evidence: &Evidence) -> Result<&'static Family> {
    FAMILIES.iter().find(|family| (family.recognise)(evidence)).ok_or_else(|| {
        let known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let seen: Vec<&str> = evidence.tensors.keys().take(4).collect();
        let more = if evidence.tensors.count() > seen.len() { ", ..." } else { "" };
        let reason = format!(
            "not a Vision Transformer in a layout this tool knows ({}): its tensors are named {}{more}",
            known.join(", "),
            seen.join(", ")
        );
        Error::checkpoint(evidence.tensors.path(), reason)
    })
}

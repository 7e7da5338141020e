//! `manifest.json`: everything about a run that its pictures do not show.

use std::time::Duration;

use serde::Serialize;

use super::{Drawing, label};
use crate::{
    device::{Adapter, Backend},
    error::{Error, Result},
    map::{Artifact, MapStats},
    model::ViTConfig,
    picture::Geometry,
    record::TokenLayout,
};

/// Version of the manifest's layout; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Everything about a run.
#[derive(Debug, Serialize)]
pub struct Manifest<'a> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the tool.
    pub tool_version: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// The picture.
    pub input: Input,
    /// How the picture became patches.
    pub geometry: &'a Geometry,
    /// Which token is what.
    pub tokens: TokenLayout,
    /// The model.
    pub model: Model<'a>,
    /// Where it ran.
    pub backend: Backend,
    /// The graphics adapter, on wgpu.
    pub adapter: Option<&'a Adapter>,
    /// Layers with maps; one `null` for the probe.
    pub layers: &'a [Option<usize>],
    /// Heads with maps.
    pub heads: &'a [usize],
    /// The view.
    pub view: View<'a>,
    /// Every map, layer by layer.
    pub maps: Vec<Entry>,
    /// Classes by falling probability, if the model has classes.
    pub prediction: Option<&'a [Class]>,
    /// Every file of the run.
    pub files: Vec<String>,
    /// What a person should know, one sentence each.
    pub warnings: &'a [String],
    /// Seconds by stage.
    pub seconds: Vec<Stage>,
}

/// The picture.
#[derive(Debug, Serialize)]
pub struct Input {
    /// Path as typed.
    pub path: String,
    /// Width in pixels, upright.
    pub width: u32,
    /// Height in pixels, upright.
    pub height: u32,
    /// Of the file's bytes.
    pub sha256: String,
}

/// The model.
#[derive(Debug, Serialize)]
pub struct Model<'a> {
    /// Path as typed, or `built-in`.
    pub name: &'a str,
    /// Checkpoint family.
    pub family: &'a str,
    /// Sizes and choices.
    pub config: &'a ViTConfig,
    /// Learned numbers in all.
    pub parameters: usize,
    /// Of the weights file's bytes.
    pub weights_sha256: &'a str,
}

/// The view.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    /// As in file names.
    pub word: &'a str,
    /// In words.
    pub title: &'a str,
    /// Query tokens whose attention is averaged; none for the probe, which is no token.
    pub queries: &'a [usize],
}

/// One map.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Layer, from 0; `null` for the probe, which comes after all layers.
    pub layer: Option<usize>,
    /// Head, from 0.
    pub head: usize,
    /// Its heatmap, if pictures were written.
    pub file: Option<String>,
    /// The values that the ends of the colour bar stand for.
    pub scale: (f32, f32),
    /// Its statistics.
    #[serde(flatten)]
    pub stats: MapStats,
}

/// A class with its probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    /// Index in the classifier.
    pub index: usize,
    /// Name, where the checkpoint tells it.
    pub label: Option<String>,
    /// Softmax probability, 0 to 1.
    pub probability: f32,
}

/// Time of one stage.
#[derive(Debug, Clone, Serialize)]
pub struct Stage {
    /// What was done.
    pub stage: &'static str,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Stage {
    /// A stage that took `time`.
    pub fn new(stage: &'static str, time: Duration) -> Self {
        Self { stage, seconds: time.as_secs_f64() }
    }
}

/// One entry a map; heatmaps have file names only if they were among the `files`.
pub fn entries(drawing: &Drawing, files: &[String]) -> Vec<Entry> {
    let entry = |(map, range): (&crate::map::Map, super::scale::Range)| {
        let file = format!("{}-{}.png", drawing.maps.view, label(map));
        Entry {
            layer: map.layer,
            head: map.head,
            file: files.contains(&file).then_some(file),
            scale: (range.lo, range.hi),
            stats: map.stats,
        }
    };
    drawing.pairs().map(entry).collect()
}

/// The classes of `logits` by falling probability.
pub fn classes(logits: &[f32], labels: &[String]) -> Vec<Class> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&logit| f64::from(logit - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let class = |(index, power): (usize, &f64)| Class {
        index,
        label: labels.get(index).cloned(),
        probability: (power / sum) as f32,
    };
    let mut classes: Vec<Class> = powers.iter().enumerate().map(class).collect();
    classes.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    classes
}

/// `manifest.json`.
///
/// # Errors
/// [`Error::Numbers`] if it cannot be put in JSON.
pub fn file(manifest: &Manifest) -> Result<Artifact> {
    let mut bytes = serde_json::to_vec_pretty(manifest)
        .map_err(|error| Error::Numbers(format!("the manifest cannot be written as JSON: {error}")))?;
    bytes.push(b'\n');
    Ok(Artifact { name: "manifest.json".to_owned(), bytes })
}

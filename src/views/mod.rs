//! What to look at: each view turns attention into maps.
//!
//! A view first says which query rows it needs, so that nothing else is computed or read back.

use std::{fmt, str::FromStr};

use crate::{
    error::{Error, Result},
    map::{Map, MapSet, MapStats},
    picture::Geometry,
    record::{AttentionRecord, LayerAttention, TokenLayout},
};

/// A view, as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View {
    /// What the CLS token attends to.
    Cls,
    /// What the patches attend to, on average.
    Mean,
    /// What the patch at (row, col) of the grid attends to.
    Patch(usize, usize),
    /// What the patch under the point (x, y) of the original picture attends to.
    At(f64, f64),
}

/// How each view is typed, and what it shows.
pub const VIEWS: [(&str, &str); 4] = [
    ("cls", "what the CLS token attends to"),
    ("mean", "what the patches attend to on average"),
    ("patch=ROW,COL", "what one patch attends to, counted in patches from the top left"),
    ("at=X,Y", "what the patch under a point of the original picture attends to, in pixels"),
];

impl FromStr for View {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        fn pair<T: FromStr>(text: &str) -> Option<(T, T)> {
            let (a, b) = text.split_once(',')?;
            Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
        }
        let view = match text.split_once('=') {
            None if text == "cls" => Some(Self::Cls),
            None if text == "mean" => Some(Self::Mean),
            Some(("patch", at)) => pair(at).map(|(row, col)| Self::Patch(row, col)),
            Some(("at", at)) => pair(at).map(|(x, y)| Self::At(thousandths(x), thousandths(y))),
            _ => None,
        };
        let view = view.filter(|view| !matches!(view, Self::At(x, y) if !(x.is_finite() && y.is_finite())));
        view.ok_or_else(|| format!("expected one of {}", VIEWS.map(|(typed, _)| typed).join(", ")))
    }
}

/// A coordinate as exact as a file name need tell it, and never -0.
fn thousandths(at: f64) -> f64 {
    (at * 1000.0).round() / 1000.0 + 0.0
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Cls => f.write_str("cls"),
            Self::Mean => f.write_str("mean"),
            Self::Patch(row, col) => write!(f, "patch={row},{col}"),
            Self::At(x, y) => write!(f, "at={x},{y}"),
        }
    }
}

/// A view settled for one model and picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The view as a plain word for file names: `cls`, `mean`, `patch-3-5`, `at-120-80`.
    pub word: String,
    /// The view in words.
    pub title: String,
    /// The query tokens whose attention is averaged, ascending.
    pub queries: Vec<usize>,
}

impl View {
    /// The view that a model without a wish is shown in: `cls`, or `mean` where there is no CLS.
    pub fn default_for(tokens: &TokenLayout) -> Self {
        if tokens.cls().is_some() { Self::Cls } else { Self::Mean }
    }

    /// Settles the view for a model's tokens and a picture's geometry.
    ///
    /// # Errors
    /// [`Error::Selection`] where the model has no CLS token, or the patch or point lies outside.
    pub fn resolve(&self, tokens: &TokenLayout, geometry: &Geometry) -> Result<Resolved> {
        let refuse = |valid: String| Error::selection("--view", self.to_string(), valid);
        let patch = |(row, col)| vec![tokens.patch(row, col)];
        let (rows, cols) = tokens.grid;
        let word = self.to_string().replace(['=', ','], "-");
        let (title, queries) = match *self {
            Self::Cls => {
                let cls = tokens.cls().ok_or_else(|| refuse("this model has no CLS token, so try mean".to_owned()))?;
                ("attention of the CLS token".to_owned(), vec![cls])
            }
            Self::Mean => {
                ("attention of all patches, averaged".to_owned(), (tokens.prefix.len()..tokens.tokens()).collect())
            }
            Self::Patch(row, col) if row < rows && col < cols => {
                (format!("attention of the patch in row {row}, column {col}"), patch((row, col)))
            }
            Self::Patch(..) => {
                let valid = format!("this model has {rows} rows and {cols} columns of patches, counted from 0");
                return Err(refuse(valid));
            }
            Self::At(x, y) => {
                let place = geometry.patch_at(x, y).ok_or_else(|| refuse(outside(geometry)))?;
                let title = format!("attention of the patch under ({x}, {y}): row {}, column {}", place.0, place.1);
                (title, patch(place))
            }
        };
        Ok(Resolved { word, title, queries })
    }
}

/// Which points of the original picture the model saw.
fn outside(geometry: &Geometry) -> String {
    let (width, height) = (geometry.x.original, geometry.y.original);
    format!("the point lies outside what the model saw of this {width}x{height} picture")
}

impl Resolved {
    /// The maps of the picked heads in every layer of the record.
    ///
    /// # Errors
    /// [`Error::Numbers`] if the record lacks a query row, which is the caller's mistake.
    pub fn maps(&self, record: &AttentionRecord, heads: &[usize]) -> Result<MapSet> {
        let mut maps = Vec::new();
        for layer in &record.layers {
            for &head in heads {
                maps.push(self.map(&record.tokens, layer, head)?);
            }
        }
        Ok(MapSet {
            view: self.word.clone(),
            title: self.title.clone(),
            layers: record.layers.iter().map(|layer| layer.layer).collect(),
            heads: heads.to_vec(),
            maps,
        })
    }

    fn map(&self, tokens: &TokenLayout, layer: &LayerAttention, head: usize) -> Result<Map> {
        let mut mean = vec![0.0f64; layer.keys];
        let mut entropy = 0.0;
        for &query in &self.queries {
            let row = layer.row(head, query).ok_or_else(|| {
                Error::Numbers(format!(
                    "layer {}, head {head}: the attention of token {query} was not kept",
                    layer.layer
                ))
            })?;
            for (sum, &weight) in mean.iter_mut().zip(row) {
                *sum += f64::from(weight) / self.queries.len() as f64;
            }
            entropy += row_entropy(row) / self.queries.len() as f64;
        }
        let values: Vec<f32> = mean[tokens.prefix.len()..].iter().map(|&weight| weight as f32).collect();
        let stats = stats(&values, tokens.grid, entropy);
        Ok(Map { layer: layer.layer, head, rows: tokens.grid.0, cols: tokens.grid.1, values, stats })
    }
}

/// -Σ a ln a in nats, with 0 ln 0 = 0.
fn row_entropy(row: &[f32]) -> f64 {
    row.iter().map(|&a| f64::from(a)).filter(|&a| a > 0.0).map(|a| -a * a.ln()).sum()
}

fn stats(values: &[f32], grid: (usize, usize), entropy: f64) -> MapStats {
    let share: f64 = values.iter().map(|&value| f64::from(value)).sum();
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let (top, max) = values
        .iter()
        .copied()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (index, value)| if value > best.1 { (index, value) } else { best });
    let top_share = if share > 0.0 { f64::from(max) / share } else { 0.0 };
    MapStats {
        min,
        max,
        mean: (share / values.len() as f64) as f32,
        patch_share: share as f32,
        top_share: top_share as f32,
        top: (top / grid.1, top % grid.1),
        entropy: entropy as f32,
    }
}

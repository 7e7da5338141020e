//! How far attention of two sources lies apart: plain arithmetic on records, with sums in f64.

use serde::Serialize;

use crate::{
    error::{Error, Result},
    map::{Map, MapSet, MapStats},
    record::{AttentionRecord, LayerAttention},
};

/// One weight as two sources give it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// Layer, from 0.
    pub layer: usize,
    /// Head, from 0.
    pub head: usize,
    /// Query token, from 0.
    pub query: usize,
    /// Key token, from 0.
    pub key: usize,
    /// The first source's weight.
    pub first: f32,
    /// The second source's weight.
    pub second: f32,
}

impl Place {
    /// The absolute difference; NaN if a weight is.
    pub fn difference(&self) -> f64 {
        apart(self.first, self.second)
    }
}

/// How far one layer's attention lies apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerDifference {
    /// Layer, from 0.
    pub layer: usize,
    /// Largest absolute difference of a weight.
    pub max_abs: f64,
    /// Mean absolute difference of a weight.
    pub mean_abs: f64,
    /// Largest Kullback-Leibler divergence of a row of the second source from the first's, in nats.
    pub max_kl: f64,
    /// Share of rows whose strongest patch is the same, 0 to 1.
    pub same_top: f64,
    /// Largest absolute difference in each head.
    pub max_abs_by_head: Vec<f64>,
    /// The weight that differs most.
    pub worst: Place,
}

/// Compares two records layer by layer; a weight that is not a number differs more than any other.
///
/// # Errors
/// [`Error::Numbers`] if the records are not of the same tokens, layers, heads and queries.
pub fn attention(first: &AttentionRecord, second: &AttentionRecord) -> Result<Vec<LayerDifference>> {
    if first.tokens != second.tokens || first.layers.len() != second.layers.len() {
        let describe =
            |record: &AttentionRecord| format!("{} layers of {} tokens", record.layers.len(), record.tokens.tokens());
        return Err(Error::Numbers(format!("{} cannot be compared with {}", describe(first), describe(second))));
    }
    let prefix = first.tokens.prefix.len();
    first.layers.iter().zip(&second.layers).map(|(first, second)| layer(first, second, prefix)).collect()
}

/// The place that differs most in all layers; `None` without layers.
pub fn worst(layers: &[LayerDifference]) -> Option<Place> {
    layers.iter().map(|layer| layer.worst).reduce(|a, b| if worse(b.difference(), a.difference()) { b } else { a })
}

/// The largest absolute difference of two lists of numbers; `None` if they are not equally long.
pub fn max_abs(first: &[f32], second: &[f32]) -> Option<f64> {
    let apart = || first.iter().zip(second).map(|(&a, &b)| apart(a, b));
    (first.len() == second.len()).then(|| apart().fold(0.0, |most, next| if worse(next, most) { next } else { most }))
}

/// The maps of the second set minus those of the first, with the statistics' differences beside them: minimum, maximum,
/// mean and strongest patch are those of the differences themselves.
///
/// # Errors
/// [`Error::Numbers`] if the sets are not of the same layers, heads and grids.
pub fn maps(first: &MapSet, second: &MapSet) -> Result<MapSet> {
    let fits = |(a, b): (&Map, &Map)| (a.layer, a.head, a.rows, a.cols) == (b.layer, b.head, b.rows, b.cols);
    if first.maps.len() != second.maps.len() || !first.maps.iter().zip(&second.maps).all(fits) {
        return Err(Error::Numbers("maps of different layers, heads or grids cannot be subtracted".to_owned()));
    }
    Ok(MapSet {
        view: format!("difference-{}", second.view),
        title: format!("difference of the {}", second.title),
        layers: second.layers.clone(),
        heads: second.heads.clone(),
        query: second.query.filter(|_| first.query == second.query),
        maps: first.maps.iter().zip(&second.maps).map(|(first, second)| subtract(first, second)).collect(),
    })
}

fn subtract(first: &Map, second: &Map) -> Map {
    let values: Vec<f32> = first.values.iter().zip(&second.values).map(|(a, b)| b - a).collect();
    let top = strongest(&values);
    let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
    let stats = MapStats {
        min: values.iter().copied().fold(f32::INFINITY, f32::min),
        max: values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        mean: (sum / values.len() as f64) as f32,
        patch_share: second.stats.patch_share - first.stats.patch_share,
        top_share: second.stats.top_share - first.stats.top_share,
        top: (top / second.cols.max(1), top % second.cols.max(1)),
        entropy: second.stats.entropy - first.stats.entropy,
    };
    Map { layer: second.layer, head: second.head, rows: second.rows, cols: second.cols, values, stats }
}

fn layer(first: &LayerAttention, second: &LayerAttention, prefix: usize) -> Result<LayerDifference> {
    let heads = check(first, second)?;
    let (queries, keys) = (first.queries.len(), first.keys);
    let mut worst: Option<Place> = None;
    let mut by_head = vec![0.0; heads];
    let (mut sum, mut max_kl, mut same) = (0.0, 0.0, 0_usize);
    for (row, (a, b)) in first.weights.chunks(keys).zip(second.weights.chunks(keys)).enumerate() {
        let (head, query) = (row / queries, first.queries[row % queries]);
        for (key, (&first_weight, &second_weight)) in a.iter().zip(b).enumerate() {
            let place = Place { layer: first.layer, head, query, key, first: first_weight, second: second_weight };
            let difference = place.difference();
            sum += difference;
            if worse(difference, by_head[head]) {
                by_head[head] = difference;
            }
            if worst.is_none_or(|worst| worse(difference, worst.difference())) {
                worst = Some(place);
            }
        }
        let divergence = divergence(a, b);
        if worse(divergence, max_kl) {
            max_kl = divergence;
        }
        same += usize::from(strongest(&a[prefix..]) == strongest(&b[prefix..]));
    }
    let worst = worst.ok_or_else(|| Error::Numbers(format!("layer {} has no weights to compare", first.layer)))?;
    Ok(LayerDifference {
        layer: first.layer,
        max_abs: worst.difference(),
        mean_abs: sum / first.weights.len() as f64,
        max_kl,
        same_top: same as f64 / (heads * queries) as f64,
        max_abs_by_head: by_head,
        worst,
    })
}

/// The number of heads, if the layers are alike.
fn check(first: &LayerAttention, second: &LayerAttention) -> Result<usize> {
    let shape = |layer: &LayerAttention| [layer.layer, layer.heads(), layer.queries.len(), layer.keys];
    let (a, b) = (shape(first), shape(second));
    if a != b || first.queries != second.queries || first.weights.len() != second.weights.len() {
        let words = |[layer, heads, queries, keys]: [usize; 4]| {
            format!("layer {layer} of {heads} heads, {queries} queries and {keys} keys")
        };
        return Err(Error::Numbers(format!("{} cannot be compared with {}", words(a), words(b))));
    }
    Ok(a[1])
}

fn apart(a: f32, b: f32) -> f64 {
    (f64::from(a) - f64::from(b)).abs()
}

/// Whether `a` is further off than `b`; nothing is further off than NaN.
fn worse(a: f64, b: f64) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

/// Σ a ln(a / b) − a + b in nats: the Kullback-Leibler divergence of `b` from `a` where both sum to one, and not
/// below zero where rounding keeps them from it.
///
/// Weights below the smallest normal f32 count as that, since it is up to the backend whether they become zero.
fn divergence(a: &[f32], b: &[f32]) -> f64 {
    let floor = |weight: f32| f64::from(if weight < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { weight });
    let term = |(&a, &b): (&f32, &f32)| {
        let (a, b) = (floor(a), floor(b));
        a * (a / b).ln() - a + b
    };
    a.iter().zip(b).map(term).sum()
}

/// The index of the largest value, the first of equals.
fn strongest(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |top, index| if values[index] > values[top] { index } else { top })
}

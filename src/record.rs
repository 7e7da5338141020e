//! Attention on the host: plain numbers, no burn type, no picture.

use rayon::prelude::*;

use crate::error::{Error, Result};

/// Which token is what: the prefix tokens (CLS, registers), then the patches row by row.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TokenLayout {
    /// Names of the tokens before the patches, such as `CLS`, `REG0`.
    pub prefix: Vec<String>,
    /// Patches as (rows, cols).
    pub grid: (usize, usize),
}

impl TokenLayout {
    /// Number of tokens: prefix and patches.
    pub fn tokens(&self) -> usize {
        self.prefix.len() + self.patches()
    }

    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.grid.0 * self.grid.1
    }

    /// Index of the CLS token, if there is one.
    pub fn cls(&self) -> Option<usize> {
        self.prefix.iter().position(|name| name == "CLS")
    }

    /// Token index of the patch at (row, col), which must lie in the grid.
    pub fn patch(&self, row: usize, col: usize) -> usize {
        self.prefix.len() + row * self.grid.1 + col
    }

    /// A token in words: `CLS`, or `patch 3,5` for the one in row 3, column 5.
    pub fn name(&self, token: usize) -> String {
        let (cols, place) = (self.grid.1.max(1), token.saturating_sub(self.prefix.len()));
        self.prefix.get(token).cloned().unwrap_or_else(|| format!("patch {},{}", place / cols, place % cols))
    }
}

/// Attention of one layer for one picture: rows are queries, each row over all keys sums to one.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerAttention {
    /// Layer index, from 0.
    pub layer: usize,
    /// Query tokens that were kept, ascending.
    pub queries: Vec<usize>,
    /// Number of keys (all tokens).
    pub keys: usize,
    /// Softmax weights, `[heads, queries.len(), keys]`, row-major.
    pub weights: Vec<f32>,
}

impl LayerAttention {
    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.weights.len() / (self.queries.len() * self.keys).max(1)
    }

    /// The weights of query token `query` in `head` over all keys, or `None` if that row was not kept.
    pub fn row(&self, head: usize, query: usize) -> Option<&[f32]> {
        let place = self.queries.binary_search(&query).ok()?;
        let start = (head * self.queries.len() + place) * self.keys;
        self.weights.get(start..start + self.keys)
    }

    /// The largest distance of a row's sum from one.
    pub fn row_sum_error(&self) -> f32 {
        row_sum_error(&self.weights, self.keys)
    }
}

/// What a model's probe, which is no token, attends to after the last layer, for one picture.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeAttention {
    /// Number of keys: the tokens that the probe sees, which are all or the patches alone.
    pub keys: usize,
    /// Softmax weights, `[heads, keys]`, row-major; a row sums to one.
    pub weights: Vec<f32>,
}

impl ProbeAttention {
    /// The weights in `head` over all keys, or `None` if there is no such head.
    pub fn row(&self, head: usize) -> Option<&[f32]> {
        self.weights.chunks(self.keys.max(1)).nth(head)
    }

    /// Checks that every row sums to one within [`ROW_SUM_TOLERANCE`].
    ///
    /// # Errors
    /// [`Error::Numbers`] telling how far off they are.
    pub fn check(&self) -> Result<()> {
        check_sums("the probe", row_sum_error(&self.weights, self.keys))
    }
}

/// Rows that a thread checks at least, so that handing over pays.
const ROWS: usize = 64;

/// The largest distance of the sum of `keys` weights from one.
fn row_sum_error(weights: &[f32], keys: usize) -> f32 {
    let error = |row: &[f32]| (sum(row) - 1.0).abs() as f32;
    // `f32::max` ignores NaN, and a NaN row is the worst there is.
    let worse = |a: f32, b: f32| if b.is_nan() || b > a { b } else { a };
    weights.par_chunks(keys.max(1)).with_min_len(ROWS).map(error).reduce(|| 0.0, worse)
}

/// The sum of a row, in partial sums that run side by side: one alone would wait for itself at every weight.
fn sum(row: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for part in row.chunks(lanes.len()) {
        lanes.iter_mut().zip(part).for_each(|(lane, &weight)| *lane += f64::from(weight));
    }
    lanes.iter().sum()
}

fn check_sums(whose: &str, error: f32) -> Result<()> {
    if error.is_nan() || error > ROW_SUM_TOLERANCE {
        return Err(Error::Numbers(format!(
            "attention rows of {whose} do not sum to one (off by {error:.1e}, {ROW_SUM_TOLERANCE:.0e} allowed): the \
             weights or the backend are broken"
        )));
    }
    Ok(())
}

/// Attention of one picture, for the layers and queries that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionRecord {
    /// What each token is.
    pub tokens: TokenLayout,
    /// The kept layers, ascending.
    pub layers: Vec<LayerAttention>,
}

/// How far a row's sum may lie from one before [`AttentionRecord::check`] complains.
pub const ROW_SUM_TOLERANCE: f32 = 1e-5;

impl AttentionRecord {
    /// Checks that every attention row sums to one within [`ROW_SUM_TOLERANCE`].
    ///
    /// # Errors
    /// [`Error::Numbers`] naming the worst layer.
    pub fn check(&self) -> Result<()> {
        self.layers.iter().try_for_each(|layer| check_sums(&format!("layer {}", layer.layer), layer.row_sum_error()))
    }
}

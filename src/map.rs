//! A labelled grid of values with its statistics. No colour.

/// What a map's picture cannot show.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct MapStats {
    /// Smallest patch weight.
    pub min: f32,
    /// Largest patch weight.
    pub max: f32,
    /// Mean patch weight.
    pub mean: f32,
    /// Share of the query's attention that falls on patches; the rest went to CLS and registers. 0 to 1.
    pub patch_share: f32,
    /// Share of the patches' attention that the strongest patch has, 0 to 1.
    pub top_share: f32,
    /// The strongest patch, (row, col).
    pub top: (usize, usize),
    /// Entropy of the query's attention over all tokens, in nats; uniform is ln(tokens).
    pub entropy: f32,
}

/// The patch weights that one head gives for one query.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Layer index, from 0; `None` for the probe, which comes after all layers.
    pub layer: Option<usize>,
    /// Head index, from 0.
    pub head: usize,
    /// Grid rows.
    pub rows: usize,
    /// Grid columns.
    pub cols: usize,
    /// Raw softmax weights of the patches, `[rows, cols]`, row-major; not renormalised.
    pub values: Vec<f32>,
    /// Statistics of the row that the map was cut from.
    pub stats: MapStats,
}

/// The maps of one view: `layers.len() * heads.len()` of them, layer-major.
#[derive(Debug, Clone, PartialEq)]
pub struct MapSet {
    /// The view as a plain word for file names: `cls`, `probe`, `mean`, `patch-3-5`, `at-120-80`.
    pub view: String,
    /// The view in words: `attention of CLS to the patches`.
    pub title: String,
    /// Layer indices, ascending; one `None` for the probe.
    pub layers: Vec<Option<usize>>,
    /// Head indices, ascending.
    pub heads: Vec<usize>,
    /// The patch (row, col) whose attention this is, if it is that of one patch.
    pub query: Option<(usize, usize)>,
    /// The maps, `[layers, heads]`.
    pub maps: Vec<Map>,
}

/// A finished file in memory: its name inside the output directory, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// File name, such as `cls-L03-H00.png`.
    pub name: String,
    /// The file's bytes.
    pub bytes: Vec<u8>,
}

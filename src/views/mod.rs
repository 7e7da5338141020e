//! What to look at: each view turns attention into maps.
//!
//! A view first says which query rows it needs, so that nothing else is computed or read back.

use std::{fmt, str::FromStr};

use crate::{
    error::{Error, Result},
    map::{Map, MapSet, MapStats},
    picture::Geometry,
    record::{AttentionRecord, ProbeAttention, TokenLayout},
};

/// A view, as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View {
    /// What the CLS token attends to.
    Cls,
    /// What the probe attends to, which pools the final tokens.
    Probe,
    /// What the patches attend to, on average.
    Mean,
    /// What the patch at (row, col) of the grid attends to.
    Patch(usize, usize),
    /// What the patch under the point (x, y) of the original picture attends to.
    At(f64, f64),
}

/// How each view is typed, and what it shows.
pub const VIEWS: [(&str, &str); 5] = [
    ("cls", "what the CLS token attends to"),
    ("probe", "what the probe attends to, which pools the final tokens"),
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
            None if text == "probe" => Some(Self::Probe),
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
            Self::Probe => f.write_str("probe"),
            Self::Mean => f.write_str("mean"),
            Self::Patch(row, col) => write!(f, "patch={row},{col}"),
            Self::At(x, y) => write!(f, "at={x},{y}"),
        }
    }
}

/// A view settled for one model and picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The view as a plain word for file names: `cls`, `probe`, `mean`, `patch-3-5`, `at-120-80`.
    pub word: String,
    /// The view in words.
    pub title: String,
    /// The query tokens whose attention is averaged, ascending; none for the probe, which is no token.
    pub queries: Vec<usize>,
    /// The one patch (row, col) that is asked, if it is one.
    pub patch: Option<(usize, usize)>,
}

impl View {
    /// The view that a model without a wish is shown in: that of the `probe`, if there is one to show, else `cls`, or
    /// `mean` where there is no CLS.
    pub fn default_for(tokens: &TokenLayout, probe: bool) -> Self {
        match tokens.cls() {
            _ if probe => Self::Probe,
            Some(_) => Self::Cls,
            None => Self::Mean,
        }
    }

    /// Settles the view for a model's tokens, whether it has a probe, and a picture's geometry.
    ///
    /// # Errors
    /// [`Error::Selection`] where the model has no CLS token or no probe, or the patch or point lies outside.
    pub fn resolve(&self, tokens: &TokenLayout, probe: bool, geometry: &Geometry) -> Result<Resolved> {
        let refuse = |valid: String| Error::selection("--view", self.to_string(), valid);
        let one = |title, place: (usize, usize)| (title, vec![tokens.patch(place.0, place.1)], Some(place));
        let (rows, cols) = tokens.grid;
        let word = self.to_string().replace(['=', ','], "-");
        let (title, queries, patch) = match *self {
            Self::Cls => {
                let other = Self::default_for(tokens, probe);
                let cls = tokens.cls().ok_or_else(|| refuse(format!("this model has no CLS token, so try {other}")))?;
                ("attention of the CLS token".to_owned(), vec![cls], None)
            }
            Self::Probe if probe => ("attention of the probe that pools the final tokens".to_owned(), Vec::new(), None),
            Self::Probe => {
                let other = Self::default_for(tokens, false);
                return Err(refuse(format!("this model has no probe, so try {other}")));
            }
            Self::Mean => {
                let patches = tokens.prefix.len()..tokens.tokens();
                ("attention of all patches, averaged".to_owned(), patches.collect(), None)
            }
            Self::Patch(row, col) if row < rows && col < cols => {
                one(format!("attention of the patch in row {row}, column {col}"), (row, col))
            }
            Self::Patch(..) => {
                let valid = format!("this model has {rows} rows and {cols} columns of patches, counted from 0");
                return Err(refuse(valid));
            }
            Self::At(x, y) => {
                let place = geometry.patch_at(x, y).ok_or_else(|| refuse(outside(geometry)))?;
                let title = format!("attention of the patch under ({x}, {y}): row {}, column {}", place.0, place.1);
                one(title, place)
            }
        };
        Ok(Resolved { word, title, queries, patch })
    }
}

/// Which points of the original picture the model saw.
fn outside(geometry: &Geometry) -> String {
    let (width, height) = (geometry.x.original, geometry.y.original);
    format!("the point lies outside what the model saw of this {width}x{height} picture")
}

impl Resolved {
    /// Whether the view shows the attention of the probe, not that of layers.
    pub fn asks_probe(&self) -> bool {
        self.queries.is_empty()
    }

    /// The maps of the picked heads in every layer of the record, or those of the probe.
    ///
    /// # Errors
    /// [`Error::Numbers`] if the record lacks a query row, or there is no probe's, which is the caller's mistake.
    pub fn maps(&self, record: &AttentionRecord, probe: Option<&ProbeAttention>, heads: &[usize]) -> Result<MapSet> {
        let lost = |whose: String, head: usize| Error::Numbers(format!("{whose}, head {head}: attention was not kept"));
        let mut maps = Vec::new();
        let mut layers = Vec::new();
        if self.asks_probe() {
            layers.push(None);
            for &head in heads {
                let row = probe.and_then(|probe| probe.row(head)).ok_or_else(|| lost("the probe".to_owned(), head))?;
                maps.push(map(&record.tokens, (None, head), &[row]));
            }
        }
        for layer in record.layers.iter().filter(|_| !self.asks_probe()) {
            layers.push(Some(layer.layer));
            for &head in heads {
                let row = |&query: &usize| {
                    let whose = || format!("token {query} in layer {}", layer.layer);
                    layer.row(head, query).ok_or_else(|| lost(whose(), head))
                };
                let rows = self.queries.iter().map(row).collect::<Result<Vec<_>>>()?;
                maps.push(map(&record.tokens, (Some(layer.layer), head), &rows));
            }
        }
        let (view, title, heads) = (self.word.clone(), self.title.clone(), heads.to_vec());
        Ok(MapSet { view, title, layers, heads, query: self.patch, maps })
    }
}

/// The mean of some rows of attention, whose last keys are the patches, as the map of a layer and head.
fn map(tokens: &TokenLayout, (layer, head): (Option<usize>, usize), rows: &[&[f32]]) -> Map {
    let mut mean = vec![0.0f64; rows.first().map_or(0, |row| row.len())];
    let mut entropy = 0.0;
    for row in rows {
        for (sum, &weight) in mean.iter_mut().zip(*row) {
            *sum += f64::from(weight) / rows.len() as f64;
        }
        entropy += row_entropy(row) / rows.len() as f64;
    }
    let prefix = mean.len().saturating_sub(tokens.patches());
    let values: Vec<f32> = mean[prefix..].iter().map(|&weight| weight as f32).collect();
    let stats = stats(&values, tokens.grid, entropy);
    Map { layer, head, rows: tokens.grid.0, cols: tokens.grid.1, values, stats }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{picture::Axis, record::LayerAttention};

    /// A model of 2 x 3 patches with or without CLS, and one layer of two heads whose rows all are `row`.
    fn record(cls: bool, row: &[f32]) -> AttentionRecord {
        let prefix = if cls { vec!["CLS".to_owned()] } else { Vec::new() };
        let tokens = TokenLayout { prefix, grid: (2, 3) };
        let count = tokens.tokens();
        let weights = row.repeat(2 * count);
        let layer = LayerAttention { layer: 4, queries: (0..count).collect(), keys: count, weights };
        AttentionRecord { tokens, layers: vec![layer] }
    }

    /// A picture of 30 x 20 pixels, of which the model sees the middle 24 columns.
    fn geometry() -> Geometry {
        let axis = |original, start, patch, patches| Axis {
            original,
            resized: original,
            start,
            seen: patch * patches,
            patch,
            patches,
        };
        Geometry { x: axis(30, 3, 8, 3), y: axis(20, 0, 10, 2) }
    }

    fn resolve(view: &str, cls: bool) -> Result<Resolved, String> {
        let record = record(cls, &[1.0]);
        view.parse::<View>()?.resolve(&record.tokens, view == "probe", &geometry()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_view_is_flat_on_uniform_attention() {
        for view in ["cls", "mean", "patch=1,2", "at=15,5"] {
            let set = resolve(view, true).unwrap().maps(&record(true, &[1.0 / 7.0; 7]), None, &[0, 1]).unwrap();
            assert_eq!((set.layers, set.heads, set.maps.len()), (vec![Some(4)], vec![0, 1], 2));
            for map in set.maps {
                assert!(map.values.iter().all(|value| (value - 1.0 / 7.0).abs() < 1e-6), "{view}: {:?}", map.values);
                assert!((map.stats.entropy - 7f32.ln()).abs() < 1e-6, "{view}: {}", map.stats.entropy);
                assert!((map.stats.patch_share - 6.0 / 7.0).abs() < 1e-6, "{view}: {}", map.stats.patch_share);
            }
        }
    }

    #[test]
    fn a_map_leaves_out_the_prefix_and_its_statistics_are_those_of_the_row() {
        let row = [0.5, 0.0, 0.1, 0.0, 0.3, 0.1, 0.0];
        let set = resolve("cls", true).unwrap().maps(&record(true, &row), None, &[1]).unwrap();
        let Map { layer, head, rows, cols, values, stats } = &set.maps[0];
        assert_eq!((*layer, *head, *rows, *cols), (Some(4), 1, 2, 3));
        assert_eq!(values, &[0.0, 0.1, 0.0, 0.3, 0.1, 0.0]);
        assert_eq!((stats.min, stats.max, stats.top), (0.0, 0.3, (1, 0)));
        let entropy = -[0.5f32, 0.1, 0.3, 0.1].map(|a| a * a.ln()).iter().sum::<f32>();
        for (found, expected) in
            [(stats.mean, 0.5 / 6.0), (stats.patch_share, 0.5), (stats.top_share, 0.6), (stats.entropy, entropy)]
        {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn without_cls_the_mean_is_the_default_and_cls_is_refused() {
        assert_eq!(View::default_for(&record(false, &[1.0]).tokens, false), View::Mean);
        assert_eq!(View::default_for(&record(true, &[1.0]).tokens, false), View::Cls);
        assert_eq!(resolve("mean", false).unwrap().queries, [0, 1, 2, 3, 4, 5]);
        assert_eq!(resolve("mean", true).unwrap().queries, [1, 2, 3, 4, 5, 6]);
        assert_eq!(resolve("cls", false).unwrap_err(), "--view cls: this model has no CLS token, so try mean");
    }

    #[test]
    fn the_probe_has_one_row_of_maps_whether_or_not_it_sees_the_prefix() {
        let view = resolve("probe", true).unwrap();
        let record = AttentionRecord { layers: Vec::new(), ..record(true, &[1.0]) };
        let patches = [0.1, 0.2, 0.0, 0.3, 0.0, 0.1];
        for (before, keys) in [(&[][..], 6), (&[0.3], 7)] {
            let second = [before, &patches].concat();
            let probe = ProbeAttention { keys, weights: [vec![0.0; keys], second].concat() };
            let set = view.maps(&record, Some(&probe), &[1]).unwrap();
            assert_eq!((set.view.as_str(), set.layers, set.heads), ("probe", vec![None], vec![1]));
            assert_eq!((set.maps[0].layer, set.maps[0].values.as_slice()), (None, &patches[..]));
        }
        let error = view.maps(&record, None, &[1]).unwrap_err().to_string();
        assert!(error.contains("the probe, head 1"), "{error}");
        let TokenLayout { prefix, grid } = record.tokens;
        for (prefix, other) in [(prefix, "cls"), (Vec::new(), "mean")] {
            let tokens = TokenLayout { prefix, grid };
            assert_eq!(View::default_for(&tokens, true), View::Probe);
            let error = View::Probe.resolve(&tokens, false, &geometry()).unwrap_err().to_string();
            assert_eq!(error, format!("--view probe: this model has no probe, so try {other}"));
        }
    }

    #[test]
    fn patches_are_found_by_place_and_by_point() {
        let settled = |view: &str| resolve(view, true).map(|view| (view.word, view.queries));
        assert_eq!(settled("patch=1,2"), Ok(("patch-1-2".to_owned(), vec![6])));
        assert_eq!(settled("at=3,0"), Ok(("at-3-0".to_owned(), vec![1])));
        assert_eq!(settled("at= 26.9996 , 19.5"), settled("at=27,19.5"));
        assert_eq!(settled("at=26.999,10"), Ok(("at-26.999-10".to_owned(), vec![6])));
        assert_eq!(settled("at=3.5,-0"), Ok(("at-3.5-0".to_owned(), vec![1])));
        for outside in ["at=2.9,0", "at=27,0", "at=10,20", "at=10,-1", "at=1e300,0"] {
            assert!(settled(outside).unwrap_err().contains("outside what the model saw of this 30x20"), "{outside}");
        }
        assert!(settled("patch=2,0").unwrap_err().contains("2 rows and 3 columns"));
    }

    #[test]
    fn words_that_are_no_views_are_refused() {
        for text in
            ["", "CLS", "patch", "patch=", "patch=1", "patch=1,2,3", "patch=-1,0", "at=1", "at=nan,0", "at=1,inf"]
        {
            assert!(text.parse::<View>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn a_row_that_was_not_kept_is_an_error_that_names_it() {
        let mut record = record(true, &[1.0 / 7.0; 7]);
        record.layers[0].queries = vec![0, 1];
        record.layers[0].weights.truncate(2 * 2 * 7);
        assert!(resolve("cls", true).unwrap().maps(&record, None, &[0]).is_ok());
        let error = resolve("patch=1,2", true).unwrap().maps(&record, None, &[0]).unwrap_err().to_string();
        assert!(error.contains("layer 4, head 0") && error.contains("token 6"), "{error}");
    }
}

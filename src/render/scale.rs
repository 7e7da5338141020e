//! Which value gets which colour: the range of values that a map is drawn in.

use std::fmt;
use std::str::FromStr;

use crate::map::{Map, MapSet};

/// Which maps share one range of values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Scale {
    /// Each map has its own range: shapes are seen best, heads cannot be compared.
    Map,
    /// The heads of a layer share a range.
    #[default]
    Layer,
    /// All maps share a range.
    All,
    /// A fixed range, the first below the second.
    Fixed(f32, f32),
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "map" => return Ok(Self::Map),
            "layer" => return Ok(Self::Layer),
            "all" => return Ok(Self::All),
            _ => {}
        }
        match pair(text) {
            Some((min, max)) if min.is_finite() && max.is_finite() && min < max => Ok(Self::Fixed(min, max)),
            _ => Err("expected map, layer, all, or two numbers MIN,MAX with MIN below MAX, such as 0,0.05".into()),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map => f.pad("map"),
            Self::Layer => f.pad("layer"),
            Self::All => f.pad("all"),
            Self::Fixed(min, max) => f.pad(&format!("{min},{max}")),
        }
    }
}

/// Percentiles of the shared values that become the ends of the range; what lies outside has the end's colour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    lo: f32,
    hi: f32,
}

impl Clip {
    /// The percentiles, low and high.
    pub fn percentiles(self) -> (f32, f32) {
        (self.lo, self.hi)
    }

    /// Whether every value lies inside.
    pub fn is_full(self) -> bool {
        self == Self::default()
    }
}

impl Default for Clip {
    fn default() -> Self {
        Self { lo: 0.0, hi: 100.0 }
    }
}

impl FromStr for Clip {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match pair(text) {
            Some((lo, hi)) if 0.0 <= lo && lo < hi && hi <= 100.0 => Ok(Self { lo, hi }),
            _ => Err("expected two percentiles LO,HI with LO below HI, both from 0 to 100, such as 1,99".into()),
        }
    }
}

impl fmt::Display for Clip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{},{}", self.lo, self.hi))
    }
}

/// Two numbers with a comma between.
fn pair(text: &str) -> Option<(f32, f32)> {
    let (first, second) = text.split_once(',')?;
    Some((first.trim().parse().ok()?, second.trim().parse().ok()?))
}

/// Values closer than this, relative to the larger, are equal but for rounding.
const SAME: f32 = 1e-5;

/// The values between which colours run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The value of the lowest colour.
    pub lo: f32,
    /// The value of the highest colour, not below `lo`.
    pub hi: f32,
    /// Whether some of the values lie below `lo`.
    pub below: bool,
    /// Whether some of the values lie above `hi`.
    pub above: bool,
}

impl Range {
    /// Whether the ends are equal but for rounding, so that no colour can tell values apart.
    pub fn is_flat(&self) -> bool {
        self.hi - self.lo <= SAME * self.lo.abs().max(self.hi.abs())
    }

    /// Where `value` lies, from 0 to 1; the middle if the range is flat, NaN for NaN.
    pub fn place(&self, value: f32) -> f32 {
        if value < self.lo {
            0.0
        } else if value > self.hi {
            1.0
        } else if self.is_flat() && !value.is_nan() {
            0.5
        } else {
            // In f64, where the difference of two f32 cannot overflow.
            let [value, lo, hi] = [value, self.lo, self.hi].map(f64::from);
            ((value - lo) / (hi - lo)) as f32
        }
    }
}

/// The range of each map, and a sentence for each thing that the pictures alone would not tell.
pub fn resolve(set: &MapSet, scale: Scale, clip: Clip) -> (Vec<Range>, Vec<String>) {
    let mut ranges = Vec::with_capacity(set.maps.len());
    let mut rest = set.maps.as_slice();
    while let Some(first) = rest.first() {
        let shared = match scale {
            Scale::Map => 1,
            Scale::Layer => rest.iter().take_while(|map| map.layer == first.layer).count(),
            Scale::All | Scale::Fixed(..) => rest.len(),
        };
        let (group, others) = rest.split_at(shared);
        let range = group_range(group, scale, clip);
        ranges.extend(std::iter::repeat_n(range, shared));
        rest = others;
    }
    let warnings = warnings(set, &ranges, scale, clip);
    (ranges, warnings)
}

/// The range that a group of maps shares.
fn group_range(group: &[Map], scale: Scale, clip: Clip) -> Range {
    let values = || group.iter().flat_map(|map| &map.values).copied().filter(|value| value.is_finite());
    let (min, max) = values().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), v| (min.min(v), max.max(v)));
    let (lo, hi) = match scale {
        Scale::Fixed(lo, hi) => (lo, hi),
        _ if min > max => (0.0, 0.0),
        _ if clip.is_full() => (min, max),
        _ => {
            let mut sorted: Vec<f32> = values().collect();
            sorted.sort_unstable_by(f32::total_cmp);
            (percentile(&sorted, clip.lo), percentile(&sorted, clip.hi))
        }
    };
    Range { lo, hi, below: min < lo, above: max > hi }
}

/// The percentile of ascending values as NumPy's method `linear` takes it; 0 for no values.
pub fn percentile(sorted: &[f32], percent: f32) -> f32 {
    let place = f64::from(percent) / 100.0 * sorted.len().saturating_sub(1) as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let at = |index: usize| sorted.get(index).or(sorted.last()).map_or(0.0, |&value| f64::from(value));
    (at(below) + (at(below + 1) - at(below)) * part) as f32
}

/// One sentence for each thing that the pictures alone would not tell.
fn warnings(set: &MapSet, ranges: &[Range], scale: Scale, clip: Clip) -> Vec<String> {
    let all = set.maps.len();
    let named = |wanted: &dyn Fn(&Map, &Range) -> bool| {
        let found = set.maps.iter().zip(ranges).filter(|(map, range)| wanted(map, range));
        found.map(|(map, _)| super::label(map)).collect::<Vec<_>>()
    };
    let mut warnings = Vec::new();
    let mut warn = |names: Vec<String>, text: &str| {
        if let Some(first) = names.first() {
            let others = if names.len() > 1 { ", ..." } else { "" };
            warnings.push(format!("{} of {all} maps {text} ({first}{others})", names.len()));
        }
    };
    let constant = named(&|map, range| is_constant(map) && range.is_flat());
    warn(constant, "are constant: drawn in the middle colour");
    let constant = named(&|map, range| is_constant(map) && !range.is_flat());
    warn(constant, "are constant: drawn in the one colour of that value");
    let clipped = named(&|map, range| !is_constant(map) && range.is_flat());
    warn(clipped, "have equal values at both ends of --clip or differ by rounding only: drawn without shades");
    let broken = named(&|map, _| map.values.iter().any(|value| !value.is_finite()));
    warn(broken, "hold values that are not finite: those that are not numbers are drawn in magenta");
    if matches!(scale, Scale::Fixed(..)) && !clip.is_full() {
        warnings.push(format!("--clip {clip} has no effect, because --scale {scale} is fixed"));
    }
    warnings
}

/// Whether all finite values of a map are equal but for rounding.
fn is_constant(map: &Map) -> bool {
    group_range(std::slice::from_ref(map), Scale::Map, Clip::default()).is_flat()
}

//! Values between patch centres.

use crate::map::Map;

/// How one patch becomes many pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upsample {
    /// Each patch is one flat square: what the model computed, and no more.
    #[default]
    Nearest,
    /// Values between patch centres are interpolated; beyond the outer centres they are held.
    Bilinear,
}

impl Upsample {
    /// Every method by name.
    pub const NAMES: &'static [(&'static str, Self)] = &[("nearest", Self::Nearest), ("bilinear", Self::Bilinear)];

    /// What a place on one axis draws on; `place` is 0 at the first patch's centre, 1 at the second's.
    pub fn tap(self, place: f32, patches: usize) -> Tap {
        let last = patches.saturating_sub(1);
        let place = place.clamp(0.0, last as f32);
        match self {
            Self::Nearest => {
                let patch = ((place + 0.5) as usize).min(last);
                Tap { first: patch, second: patch, share: 0.0 }
            }
            Self::Bilinear => {
                let first = (place as usize).min(last);
                Tap { first, second: (first + 1).min(last), share: place.fract() }
            }
        }
    }
}

super::named!(Upsample);

/// The one or two patches of an axis that a pixel draws on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tap {
    /// The patch at or before the pixel.
    pub first: usize,
    /// The patch after it, or the same.
    pub second: usize,
    /// The share of the second, 0 to below 1.
    pub share: f32,
}

impl Tap {
    /// Mixes the values at the two patches.
    fn mix(self, value: impl Fn(usize) -> f32) -> f32 {
        let first = value(self.first);
        // Not only faster: a neighbour that is not finite stays out where it has no share.
        if self.share == 0.0 { first } else { first + (value(self.second) - first) * self.share }
    }
}

/// A map's value at a pixel; NaN outside the grid.
pub fn sample(map: &Map, row: Tap, col: Tap) -> f32 {
    let value = |row: usize, col: usize| map.values.get(row * map.cols + col).copied().unwrap_or(f32::NAN);
    row.mix(|row| col.mix(|col| value(row, col)))
}

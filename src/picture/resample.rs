//! Resizing with Pillow's arithmetic, to the bit: weights of 22 binary digits, each pass rounded to 8 bits.
//!
//! Source: Pillow, `src/libImaging/Resample.c`.

use std::f64::consts::PI;

use image::RgbImage;

use super::{Axis, Filter, Geometry};

const WEIGHT_BITS: u32 = 22;

/// The pixels that make one resized pixel: `weights.len()` of them from `first` on.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// The part of the resized `source` that `geometry` keeps; no other part is computed.
pub(super) fn resample(source: &RgbImage, filter: Filter, geometry: &Geometry) -> RgbImage {
    let (cols, rows) = (taps(filter, &geometry.x), taps(filter, &geometry.y));
    let (narrower, lower) = (geometry.x.shrinks_by(), geometry.y.shrinks_by());
    // The rounding between the passes makes their order visible. Pillow goes across first; since version 13, down first
    // if that takes away more than twice as many pixels of height as of width.
    if lower > 0 && lower > 2 * narrower {
        across(&down(source, &rows), &cols)
    } else {
        down(&across(source, &cols), &rows)
    }
}

fn taps(filter: Filter, axis: &Axis) -> Vec<Taps> {
    let scale = axis.original as f64 / axis.resized as f64;
    let stretch = if filter == Filter::BilinearNoAntialias { 1.0 } else { scale.max(1.0) };
    let reach = filter.reach() * stretch;
    let taps = |at: usize| {
        let centre = (at as f64 + 0.5) * scale;
        // A negative number becomes 0.
        let first = (centre - reach + 0.5) as usize;
        let end = ((centre + reach + 0.5) as usize).min(axis.original);
        let weights: Vec<_> = (first..end).map(|i| filter.weight((i as f64 - centre + 0.5) / stretch)).collect();
        let one = f64::from(1 << WEIGHT_BITS) / weights.iter().sum::<f64>();
        Taps { first, weights: weights.iter().map(|weight| (weight * one).round() as i32).collect() }
    };
    (axis.start..axis.start + axis.seen).map(taps).collect()
}

impl Filter {
    /// The farthest pixel that counts, in pixels of the smaller picture.
    fn reach(self) -> f64 {
        match self {
            Self::Bilinear | Self::BilinearNoAntialias => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            _ if x >= self.reach() => 0.0,
            Self::Bilinear | Self::BilinearNoAntialias => 1.0 - x,
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic => -0.5 * (((x - 5.0) * x + 8.0) * x - 4.0),
            Self::Lanczos => sinc(x) * sinc(x / 3.0),
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Half of the last kept digit, so that dropping digits rounds.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

fn rounded(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// Resizes each row.
fn across(source: &RgbImage, cols: &[Taps]) -> RgbImage {
    let mut target = RgbImage::new(cols.len() as u32, source.height());
    for (to, from) in target.rows_mut().zip(source.rows()) {
        for (pixel, taps) in to.zip(cols) {
            let mut sum = [HALF; 3];
            for (source, weight) in from.clone().skip(taps.first).zip(&taps.weights) {
                for (sum, &value) in sum.iter_mut().zip(&source.0) {
                    *sum += i32::from(value) * weight;
                }
            }
            pixel.0 = sum.map(rounded);
        }
    }
    target
}

/// Resizes each column, a row at a time.
fn down(source: &RgbImage, rows: &[Taps]) -> RgbImage {
    let mut target = RgbImage::new(source.width(), rows.len() as u32);
    let length = 3 * source.width() as usize;
    for (to, taps) in target.chunks_exact_mut(length).zip(rows) {
        let mut sums = vec![HALF; length];
        for (from, weight) in source.chunks_exact(length).skip(taps.first).zip(&taps.weights) {
            for (sum, &value) in sums.iter_mut().zip(from) {
                *sum += i32::from(value) * weight;
            }
        }
        for (to, sum) in to.iter_mut().zip(sums) {
            *to = rounded(sum);
        }
    }
    target
}

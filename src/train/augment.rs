//! Batches as the model sees them, and small random changes that keep a small data set from being learnt by heart.

use std::ops::Range;

use super::data::Dataset;
use super::random::{Epoch, Random};

/// Which random changes training pictures get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Augment {
    /// How far a picture may be shifted each way, in pixels. What comes in from outside is mid-grey, 0 once normalised.
    pub crop_padding: u32,
    /// Whether every other picture, by chance, is mirrored left to right.
    pub flip: bool,
}

impl Default for Augment {
    /// What is usual for CIFAR-10 since He et al., "Deep Residual Learning for Image Recognition", section 4.2.
    fn default() -> Self {
        Self { crop_padding: 4, flip: true }
    }
}

/// Some pictures, ready for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Values from -1 to 1 as [`Recipe::book`](crate::picture::Recipe::book) normalises them, `[B, 3, rows, cols]`.
    pub pixels: Vec<f32>,
    /// Classes, `[B]`.
    pub labels: Vec<i64>,
}

/// Gathers the pictures at `indices`, as they are or changed.
///
/// What happens to a picture depends on its index and the epoch only, not on the batch that it is in.
///
/// # Panics
/// If an index is not below `data.len()`.
pub fn batch(data: &Dataset, indices: &[usize], augment: Option<(Augment, Epoch)>) -> Batch {
    let table: [f32; 256] = std::array::from_fn(|value| (value as f32 / 255.0 - 0.5) / 0.5);
    let mut pixels = vec![0.0; indices.len() * data.stride()];
    for (&index, target) in indices.iter().zip(pixels.chunks_exact_mut(data.stride().max(1))) {
        let place = augment.map_or(Place::default(), |(augment, epoch)| Place::draw(augment, epoch, index));
        place.copy(data.picture(index), target, (data.rows, data.cols), &table);
    }
    let labels = indices.iter().map(|&index| data.labels[index] as i64).collect();
    Batch { pixels, labels }
}

/// Where the pixels of a picture come from.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Added to a row to get the source's row.
    down: i64,
    /// Added to a column to get the source's column.
    right: i64,
    /// Whether the result is mirrored.
    flip: bool,
}

impl Place {
    fn draw(augment: Augment, epoch: Epoch, index: usize) -> Self {
        let mut random = Random::new(&[epoch.seed, epoch.number, index as u64]);
        let padding = i64::from(augment.crop_padding);
        let mut shift = || random.below(2 * padding as u64 + 1) as i64 - padding;
        Self { down: shift(), right: shift(), flip: augment.flip && random.below(2) == 1 }
    }

    /// Writes a picture's values over zeros, in one pass.
    fn copy(self, source: &[u8], target: &mut [f32], (rows, cols): (usize, usize), table: &[f32; 256]) {
        let ys = inside(rows, self.down);
        let xs = inside(cols, self.right);
        let first_row = ys.start.saturating_add_signed(self.down as isize);
        let left = xs.start.saturating_add_signed(self.right as isize);
        let to = if self.flip { cols - xs.end..cols - xs.start } else { xs };
        let area = (rows * cols).max(1);
        for (source, target) in source.chunks_exact(area).zip(target.chunks_exact_mut(area)) {
            let source_rows = source.chunks_exact(cols).skip(first_row);
            for (from, row) in source_rows.zip(target.chunks_exact_mut(cols).skip(ys.start)).take(ys.len()) {
                let from = from.iter().skip(left).take(to.len()).map(|&value| table[usize::from(value)]);
                let values = row[to.clone()].iter_mut();
                if self.flip {
                    values.rev().zip(from).for_each(|(value, new)| *value = new);
                } else {
                    values.zip(from).for_each(|(value, new)| *value = new);
                }
            }
        }
    }
}

/// The places on an axis that still lie in the picture once `shift` is added.
fn inside(length: usize, shift: i64) -> Range<usize> {
    let length = length as i64;
    let start = (-shift).clamp(0, length);
    start as usize..(length - shift).clamp(start, length) as usize
}

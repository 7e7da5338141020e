//! One heat map a head, with nothing in the picture but the map.

use image::RgbImage;

use super::draw::enlarge;
use super::scale::Range;
use super::upsample::{Upsample, sample};
use super::{Drawing, label, png};
use crate::error::Result;
use crate::map::{Artifact, Map};

/// A heat map's short side has at least this many pixels.
pub const SHORT_SIDE: u32 = 256;

/// A heat map that would have more pixels than this is enlarged less.
const MOST_PIXELS: u64 = 1 << 26;

/// The heat maps in the order of the set, each painted when it is asked for.
///
/// # Errors
/// [`crate::error::Error::Output`] if a picture cannot be encoded.
pub fn files<'a>(drawing: &'a Drawing<'_>) -> impl Iterator<Item = Result<Artifact>> + 'a {
    drawing.pairs().map(|(map, range)| {
        let name = format!("{}-{}.png", drawing.maps.view, label(map));
        let image = paint(drawing, map, range, factor(map.rows as u32, map.cols as u32));
        let bytes = png(&name, &image)?;
        Ok(Artifact { name, bytes })
    })
}

/// The whole factor that brings the short side of `(rows, cols)` to at least [`SHORT_SIDE`].
pub(super) fn factor(rows: u32, cols: u32) -> u32 {
    let wanted = SHORT_SIDE.div_ceil(rows.min(cols).max(1));
    let affordable = (MOST_PIXELS / (u64::from(rows) * u64::from(cols)).max(1)).isqrt();
    u64::from(wanted).min(affordable).max(1) as u32
}

/// Paints a map enlarged by a whole factor, the same for rows and columns.
pub(super) fn paint(drawing: &Drawing<'_>, map: &Map, range: Range, factor: u32) -> RgbImage {
    let colour = |value: f32| drawing.palette.colour(range.place(value)).0;
    let (rows, cols) = (map.rows as u32, map.cols as u32);
    match drawing.style.upsample {
        Upsample::Nearest => {
            let colours = map.values.iter().flat_map(|&value| colour(value)).collect();
            enlarge(&RgbImage::from_raw(cols, rows, colours).unwrap_or_default(), factor)
        }
        Upsample::Bilinear => {
            // Half-pixel centres: the first pixel's centre lies half a pixel from the grid's edge.
            let place = |pixel: u32| (pixel as f32 + 0.5) / factor as f32 - 0.5;
            let tap = |pixel: u32, patches: usize| Upsample::Bilinear.tap(place(pixel), patches);
            let across: Vec<_> = (0..cols * factor).map(|x| tap(x, map.cols)).collect();
            let mut colours = Vec::with_capacity(across.len() * (rows * factor) as usize * 3);
            for y in 0..rows * factor {
                let down = tap(y, map.rows);
                colours.extend(across.iter().flat_map(|&across| colour(sample(map, down, across))));
            }
            RgbImage::from_raw(cols * factor, rows * factor, colours).unwrap_or_default()
        }
    }
}

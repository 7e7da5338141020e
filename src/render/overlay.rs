//! A map over the original picture, at the original's size.

use image::{Rgb, RgbImage};

use super::draw::{Canvas, Rect, mix};
use super::scale::Range;
use super::upsample::{Tap, sample};
use super::{Drawing, label, png};
use crate::error::Result;
use crate::map::{Artifact, Map};
use crate::picture::{Axis, Geometry};

/// How much the map covers the picture.
const OPACITY: f32 = 0.55;

/// The overlays in the order of the set, each painted when it is asked for, because a large picture's take much memory.
///
/// # Errors
/// [`crate::error::Error::Output`] if a picture cannot be encoded.
pub fn files<'a>(
    drawing: &'a Drawing<'_>,
    original: &'a RgbImage,
    geometry: &Geometry,
) -> impl Iterator<Item = Result<Artifact>> + 'a {
    let taps = Taps::new(drawing, original, geometry);
    let query = drawing.maps.query.map(|(row, col)| {
        let (x, width) = pixels(&geometry.x, col, original.width());
        let (y, height) = pixels(&geometry.y, row, original.height());
        Rect { x, y, width, height }
    });
    drawing.pairs().map(move |(map, range)| {
        let name = format!("{}-overlay-{}.png", drawing.maps.view, label(map));
        let mut image = paint(drawing, original, &taps, (map, range));
        if let Some(query) = query {
            let mut canvas = Canvas::from(image);
            canvas.outline(query, (original.width().min(original.height()) / 400).clamp(1, 8));
            image = canvas.into_image();
        }
        let bytes = png(&name, &image)?;
        Ok(Artifact { name, bytes })
    })
}

/// The first pixel of the original that lies in a patch of an axis, and their number.
fn pixels(axis: &Axis, patch: usize, length: u32) -> (i32, u32) {
    let lies_in = |pixel: &u32| axis.grid_at(f64::from(*pixel) + 0.5).is_some_and(|place| place as usize == patch);
    let first = (0..length).find(lies_in).unwrap_or(0);
    (first as i32, (first..length).take_while(lies_in).count() as u32)
}

/// What each row and column of the original draws on; `None` where the model did not look.
struct Taps {
    rows: Vec<Option<Tap>>,
    cols: Vec<Option<Tap>>,
}

impl Taps {
    fn new(drawing: &Drawing<'_>, original: &RgbImage, geometry: &Geometry) -> Self {
        let grid = drawing.maps.maps.first().map_or((0, 0), |map| (map.rows, map.cols));
        let upsample = drawing.style.upsample;
        let taps = |axis: &Axis, pixels: u32, patches: usize| {
            // A pixel's centre is half a pixel from its edge, a patch's half a patch.
            let place = |pixel: u32| axis.grid_at(f64::from(pixel) + 0.5).map(|place| place as f32 - 0.5);
            (0..pixels).map(|pixel| Some(upsample.tap(place(pixel)?, patches))).collect()
        };
        Self { rows: taps(&geometry.y, original.height(), grid.0), cols: taps(&geometry.x, original.width(), grid.1) }
    }
}

/// Paints one map over the picture.
fn paint(drawing: &Drawing<'_>, original: &RgbImage, taps: &Taps, (map, range): (&Map, Range)) -> RgbImage {
    let mut image = original.clone();
    let stripe = stripe(original);
    for ((y, row), pixels) in taps.rows.iter().enumerate().zip(image.rows_mut()) {
        for ((x, col), pixel) in taps.cols.iter().enumerate().zip(pixels) {
            *pixel = match (row, col) {
                (Some(row), Some(col)) => {
                    let colour = drawing.palette.colour(range.place(sample(map, *row, *col)));
                    mix(*pixel, colour, OPACITY)
                }
                _ => unseen(*pixel, ((x + y) / stripe).is_multiple_of(2)),
            };
        }
    }
    image
}

/// Width of the stripes over what the model did not see, in pixels along a row.
fn stripe(original: &RgbImage) -> usize {
    (original.width().min(original.height()) as usize / 80).clamp(4, 32)
}

/// A pixel that the model did not see: gray, dark, and striped, so that it is not taken for a low weight.
fn unseen(pixel: Rgb<u8>, light: bool) -> Rgb<u8> {
    let [r, g, b] = pixel.0.map(u32::from);
    // Luma as in Rec. 601.
    let luma = (299 * r + 587 * g + 114 * b) / 1000;
    let dim = if light { 55 + luma * 2 / 5 } else { 30 + luma * 2 / 5 };
    Rgb([dim.min(255) as u8; 3])
}

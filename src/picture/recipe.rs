//! A checkpoint's way of preparing pictures: resize, crop, normalise.

use std::str::FromStr;

use image::RgbImage;

use super::resample::resample;
use super::{Axis, Geometry, Picture};
use crate::error::{Error, Result};

/// Longest side of what a model is given, in pixels.
pub const MAX_INPUT_SIDE: usize = 8_192;

/// How a checkpoint wants its pictures prepared.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Recipe {
    /// The size to resize to.
    pub resize: Resize,
    /// The resampling filter.
    pub filter: Filter,
    /// The crop from the middle of the resized picture, if any.
    pub crop: Option<Crop>,
    /// Subtracted from red, green and blue, which run from 0 to 1.
    pub mean: [f32; 3],
    /// Divides red, green and blue after the mean is subtracted; not zero.
    pub std: [f32; 3],
}

/// The size that a picture is resized to, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// To exactly this size; the picture's proportions change.
    Squash {
        /// Height.
        rows: usize,
        /// Width.
        cols: usize,
    },
    /// The shorter edge to this length and the longer one in proportion, rounded down, as torchvision does.
    ShortestEdge(usize),
    /// In proportion, so that this size is just covered, rounded to the nearest pixel, as timm does.
    Cover {
        /// Height.
        rows: usize,
        /// Width.
        cols: usize,
    },
}

/// A size in pixels, as typed: `W` for a square, or `WxH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Height.
    pub rows: usize,
    /// Width.
    pub cols: usize,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=MAX_INPUT_SIDE).contains(side));
        let (cols, rows) = text.split_once('x').unwrap_or((text, text));
        let size = side(cols).zip(side(rows)).map(|(cols, rows)| Self { rows, cols });
        size.ok_or_else(|| format!("expected W or WxH, each from 1 to {MAX_INPUT_SIDE} pixels"))
    }
}

/// A resampling filter. When shrinking, each but the last widens with the scale (antialiasing), as Pillow's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Linear interpolation between 2 x 2 pixels.
    Bilinear,
    /// Cubic interpolation with a = -0.5 between 4 x 4 pixels.
    Bicubic,
    /// A windowed sinc over 6 x 6 pixels.
    Lanczos,
    /// Linear interpolation between 2 x 2 pixels however far they shrink: TensorFlow's `tf.image.resize`.
    BilinearNoAntialias,
}

/// A crop from the middle, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Crop {
    /// Height.
    pub rows: usize,
    /// Width.
    pub cols: usize,
    /// Where the middle is when the number of spare pixels is odd.
    pub middle: Middle,
}

/// How half of an odd number of spare pixels is rounded to the crop's left and top margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Middle {
    /// Down, as transformers does.
    Down,
    /// To the nearest even number, as torchvision and timm do.
    Even,
}

/// What a model is given for one picture.
#[derive(Debug, Clone)]
pub struct ModelInput {
    /// Normalised values, `[3, rows, cols]`.
    pub pixels: Vec<f32>,
    /// Height in pixels, a multiple of the patch's.
    pub rows: usize,
    /// Width in pixels, a multiple of the patch's.
    pub cols: usize,
    /// The same pixels before they were normalised.
    pub seen: RgbImage,
    /// Where the pixels lie in the original picture.
    pub geometry: Geometry,
}

impl Recipe {
    /// The recipe of the book's models: squash to `rows` x `cols`, bilinear, values from -1 to 1.
    pub fn book(rows: usize, cols: usize) -> Self {
        Self {
            resize: Resize::Squash { rows, cols },
            filter: Filter::Bilinear,
            crop: None,
            mean: [0.5; 3],
            std: [0.5; 3],
        }
    }

    /// The size in pixels that every picture ends up with, (rows, cols); `None` if it depends on the picture.
    pub fn output(&self) -> Option<(usize, usize)> {
        match (self.crop, self.resize) {
            (Some(crop), _) => Some((crop.rows, crop.cols)),
            (None, Resize::Squash { rows, cols }) => Some((rows, cols)),
            (None, _) => None,
        }
    }

    /// The same recipe for pictures of another size, (rows, cols) in pixels: what is resized beyond a crop keeps its
    /// share.
    pub fn at(&self, (rows, cols): (usize, usize)) -> Self {
        let Some(crop) = self.crop else { return Self { resize: Resize::Squash { rows, cols }, ..self.clone() } };
        let scaled = |size: usize, from: usize, to: usize| {
            (size as f64 * to as f64 / from.max(1) as f64).round().max(to as f64) as usize
        };
        let resize = match self.resize {
            Resize::ShortestEdge(edge) if rows == cols => Resize::ShortestEdge(scaled(edge, crop.rows, rows)),
            Resize::ShortestEdge(edge) => {
                Resize::Cover { rows: scaled(edge, crop.rows, rows), cols: scaled(edge, crop.cols, cols) }
            }
            Resize::Squash { rows: r, cols: c } => {
                Resize::Squash { rows: scaled(r, crop.rows, rows), cols: scaled(c, crop.cols, cols) }
            }
            Resize::Cover { rows: r, cols: c } => {
                Resize::Cover { rows: scaled(r, crop.rows, rows), cols: scaled(c, crop.cols, cols) }
            }
        };
        Self { resize, crop: Some(Crop { rows, cols, ..crop }), ..self.clone() }
    }

    /// Prepares `picture` for a model of patches of `patch` (rows, cols) pixels.
    ///
    /// Equals Pillow's result, except that pixels right of and below the last whole patch are left out: a strided
    /// convolution never looks at them.
    ///
    /// # Errors
    /// [`Error::Picture`] if the picture, once resized, holds no whole patch, is smaller than the crop, or leaves more
    /// than [`MAX_INPUT_SIDE`] pixels a side.
    pub fn apply(&self, picture: &Picture, patch: (usize, usize)) -> Result<ModelInput> {
        let fail = |reason| Error::picture(&picture.path, reason);
        let geometry = self.geometry(picture.pixels.dimensions(), patch).map_err(fail)?;
        let seen = resample(&picture.pixels, self.filter, &geometry);
        let channel = |c: usize| {
            let (mean, std) = (self.mean[c], self.std[c]);
            seen.pixels().map(move |pixel| (f32::from(pixel.0[c]) / 255.0 - mean) / std)
        };
        let pixels = (0..3).flat_map(channel).collect();
        Ok(ModelInput { pixels, rows: seen.height() as usize, cols: seen.width() as usize, seen, geometry })
    }

    fn geometry(&self, (width, height): (u32, u32), patch: (usize, usize)) -> Result<Geometry, String> {
        let (rows, cols) = match self.resize {
            Resize::Squash { rows, cols } => (rows, cols),
            Resize::ShortestEdge(edge) => {
                let (short, long) = (width.min(height) as usize, width.max(height) as usize);
                let other = edge.saturating_mul(long) / short;
                if width < height { (other, edge) } else { (edge, other) }
            }
            Resize::Cover { rows, cols } => {
                let (height, width) = (f64::from(height), f64::from(width));
                let ratio = (height / rows.max(1) as f64).min(width / cols.max(1) as f64);
                ((height / ratio).round() as usize, (width / ratio).round() as usize)
            }
        };
        let crop = self.crop.unwrap_or(Crop { rows, cols, middle: Middle::Down });
        let refuse =
            |why| Err(format!("is {width} x {height} pixels, {cols} x {rows} when resized for this model: {why}"));
        if crop.rows > rows || crop.cols > cols {
            return refuse(format!("smaller than the crop of {} x {}", crop.cols, crop.rows));
        }
        if crop.rows.max(crop.cols) > MAX_INPUT_SIDE {
            return refuse(format!("more than {MAX_INPUT_SIDE} pixels a side"));
        }
        let y = Axis::new(height as usize, rows, crop.middle.margin(rows - crop.rows), crop.rows, patch.0);
        let x = Axis::new(width as usize, cols, crop.middle.margin(cols - crop.cols), crop.cols, patch.1);
        if y.patches == 0 || x.patches == 0 {
            return refuse(format!("smaller than one patch of {} x {}", patch.1, patch.0));
        }
        Ok(Geometry { x, y })
    }
}

impl Middle {
    /// The pixels before the crop when `spare` pixels lie around it.
    fn margin(self, spare: usize) -> usize {
        match self {
            Self::Down => spare / 2,
            Self::Even => spare / 2 + usize::from(spare % 4 == 3),
        }
    }
}

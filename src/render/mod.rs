//! Maps in, bytes out: heat maps, the contact sheet, overlays and raw numbers.
//!
//! Every output is a file of this directory: [`heatmap`], [`sheet`], [`overlay`], [`input`], [`npy`], [`tensors`],
//! [`difference`].
//! [`colormap`] and [`scale`] decide how a value becomes a colour; [`draw`], [`text`] and [`numbers`] are the pens and
//! know nothing of attention.

pub mod colormap;
pub mod difference;
pub mod draw;
pub mod heatmap;
pub mod input;
pub mod manifest;
pub mod npy;
pub mod numbers;
pub mod overlay;
pub mod scale;
pub mod sheet;
pub mod tensors;
pub mod text;
pub mod upsample;

use std::path::Path;

use image::ImageEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};

use self::colormap::{Colormap, Palette};
use self::scale::{Clip, Range, Scale};
use self::upsample::Upsample;
use crate::error::{Error, Result};
use crate::map::{Map, MapSet};

/// What a run can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Heat maps, the contact sheet and the input as PNG pictures.
    #[default]
    Png,
    /// The raw weights of a view as one NumPy array.
    Npy,
    /// Whole attention matrices, one tensor a layer.
    Safetensors,
}

impl Format {
    /// Every format by name.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("png", Self::Png), ("npy", Self::Npy), ("safetensors", Self::Safetensors)];
}

named!(Format);

/// How maps become pictures.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Style {
    /// Colours.
    pub colormap: Colormap,
    /// Which maps share a range of values.
    pub scale: Scale,
    /// Percentiles of the shared values between which the range lies.
    pub clip: Clip,
    /// How a patch becomes many pixels.
    pub upsample: Upsample,
}

/// Maps with all that is needed to paint them: checked, with a range for each and the colours looked up once.
#[derive(Debug, Clone)]
pub struct Drawing<'a> {
    maps: &'a MapSet,
    style: Style,
    ranges: Vec<Range>,
    warnings: Vec<String>,
    palette: Palette,
}

impl<'a> Drawing<'a> {
    /// Resolves `style` for `maps`.
    ///
    /// # Errors
    /// [`Error::Numbers`] if the set has no map, or a map's values do not fill its grid.
    pub fn new(maps: &'a MapSet, style: Style) -> Result<Self> {
        check(maps)?;
        let (ranges, warnings) = scale::resolve(maps, style.scale, style.clip);
        Ok(Self { maps, style, ranges, warnings, palette: Palette::new(style.colormap) })
    }

    /// What the pictures alone do not tell, one sentence each: constant maps, values that are not finite.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The range of values of each map, in the order of the set.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The maps.
    pub fn maps(&self) -> &'a MapSet {
        self.maps
    }

    /// Each map with its range.
    fn pairs(&self) -> impl Iterator<Item = (&'a Map, Range)> + '_ {
        self.maps.maps.iter().zip(self.ranges.iter().copied())
    }
}

/// A map's place in file names and messages: `L03-H00`, or `H00` for the probe; two digits, more when needed.
pub fn label(map: &Map) -> String {
    let layer = map.layer.map_or_else(String::new, |layer| format!("L{layer:02}-"));
    format!("{layer}H{:02}", map.head)
}

/// Checks that a set has `layers * heads` maps, all of one grid and full.
fn check(set: &MapSet) -> Result<()> {
    let Some(first) = set.maps.first() else {
        return Err(Error::Numbers(format!("view {} has no map to write", set.view)));
    };
    if set.maps.len() != set.layers.len() * set.heads.len() {
        let (layers, heads, found) = (set.layers.len(), set.heads.len(), set.maps.len());
        return Err(Error::Numbers(format!("view {} has {found} maps for {layers} layers of {heads} heads", set.view)));
    }
    for map in &set.maps {
        let full = map.values.len() == map.rows * map.cols && !map.values.is_empty();
        if !full || (map.rows, map.cols) != (first.rows, first.cols) {
            let (name, values) = (label(map), map.values.len());
            return Err(Error::Numbers(format!(
                "map {name} has {values} values on a grid of {} x {}; the first map's grid is {} x {}",
                map.rows, map.cols, first.rows, first.cols
            )));
        }
    }
    Ok(())
}

/// Encodes a picture as PNG.
fn png(name: &str, image: &image::RgbImage) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The fastest of the crate's ways, and for pictures like ours within a factor of two of the smallest.
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Adaptive)
        .write_image(image, image.width(), image.height(), image::ExtendedColorType::Rgb8)
        .map_err(|error| Error::output(Path::new(name), format!("cannot be encoded as PNG: {error}")))?;
    Ok(bytes)
}

/// Gives an enum with a `NAMES` table its `FromStr` and `Display`, so that flags, help and tests share one list.
macro_rules! named {
    ($type:ty) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::NAMES.iter().find(|(name, _)| *name == text);
                found.map(|(_, value)| *value).ok_or_else(|| {
                    let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
                    format!("expected one of {}", names.join(", "))
                })
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let found = Self::NAMES.iter().find(|(_, value)| value == self);
                f.pad(found.map_or("unknown", |(name, _)| name))
            }
        }
    };
}
use named;

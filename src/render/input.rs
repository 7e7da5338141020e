//! `input.png`: what the model saw.

use image::RgbImage;

use super::draw::enlarge;
use super::{heatmap, png};
use crate::error::Result;
use crate::map::Artifact;

/// What the model saw, each pixel a square, enlarged to at least [`heatmap::SHORT_SIDE`] pixels on the short side.
///
/// # Errors
/// [`crate::error::Error::Output`] if the picture cannot be encoded.
pub fn file(seen: &RgbImage) -> Result<Artifact> {
    let name = "input.png".to_owned();
    let image = enlarge(seen, heatmap::factor(seen.height(), seen.width()));
    let bytes = png(&name, &image)?;
    Ok(Artifact { name, bytes })
}

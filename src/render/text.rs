//! Words on a canvas, in a small cut of DejaVu Sans that is built in.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, PxScale, ScaleFont};
use image::Rgb;

use super::draw::Canvas;

/// The font; see `assets/font/README.md`. `None` only if the built-in file were broken, which a test rules out.
static FONT: LazyLock<Option<FontRef<'static>>> =
    LazyLock::new(|| FontRef::try_from_slice(include_bytes!("../../assets/font/DejaVuSans-subset.ttf")).ok());

/// Height of capitals and digits of DejaVu Sans, in ems.
const CAPITALS: f32 = 0.729;

/// Which end of a text its position means. Up and down, the position is always the middle of a capital letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts there.
    Left,
    /// The text's middle is there.
    Centre,
    /// The text ends there.
    Right,
}

/// How a text looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextStyle {
    /// Em size in pixels.
    pub size: f32,
    /// Ink.
    pub colour: Rgb<u8>,
    /// Which end the position means.
    pub anchor: Anchor,
}

/// The width of a text in pixels.
pub fn text_width(text: &str, size: f32) -> u32 {
    let mut width = 0.0;
    lay_out(text, size, |_, _, end| width = end);
    width.ceil() as u32
}

/// The longest start of `text` that fits, with an ellipsis if something had to go.
pub fn shorten(text: &str, size: f32, width: u32) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(text_width("…", size)) as f32;
    let mut kept = 0;
    lay_out(text, size, |_, _, end| kept += usize::from(end <= room));
    text.chars().take(kept).chain(['…']).collect()
}

impl Canvas {
    /// Writes one line of text at `(x, y)`. Characters that the font lacks are written as `?`.
    pub fn text(&mut self, (x, y): (i32, i32), text: &str, style: TextStyle) {
        let width = text_width(text, style.size) as f32;
        let left = match style.anchor {
            Anchor::Left => 0.0,
            Anchor::Centre => width / 2.0,
            Anchor::Right => width,
        };
        // Whole pixels keep the lines of a page alike.
        let origin = ab_glyph::point((x as f32 - left).round(), (y as f32 + CAPITALS * style.size / 2.0).round());
        lay_out(text, style.size, |font, mut glyph, _| {
            glyph.position += origin;
            let Some(outline) = font.outline_glyph(glyph) else { return };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, cover| {
                self.blend(corner.x as i32 + x as i32, corner.y as i32 + y as i32, style.colour, cover.min(1.0));
            });
        });
    }
}

/// Calls `place` with the font, each glyph on a line that starts at zero, and the glyph's right end.
fn lay_out(text: &str, size: f32, mut place: impl FnMut(&FontRef<'_>, ab_glyph::Glyph, f32)) {
    let Some(font) = FONT.as_ref() else { return };
    // The crate's scale is the line height, ours the em.
    let scale = PxScale::from(size * font.height_unscaled() / font.units_per_em().unwrap_or(2048.0));
    let scaled = font.as_scaled(scale);
    let known = |letter: char| if font.glyph_id(letter).0 == 0 { '?' } else { letter };
    let (mut end, mut previous) = (0.0, None);
    for id in text.chars().map(|letter| font.glyph_id(known(letter))) {
        end += previous.map_or(0.0, |previous| scaled.kern(previous, id));
        let glyph = id.with_scale_and_position(scale, ab_glyph::point(end, 0.0));
        end += scaled.h_advance(id);
        place(font, glyph, end);
        previous = Some(id);
    }
}

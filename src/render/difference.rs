//! `differences.png`: how far attention lies apart, layers down and heads across, on a logarithmic scale.

use std::path::Path;

use image::{Rgb, RgbImage};

use super::colormap::{Colormap, Palette};
use super::draw::{Canvas, EDGE, FAINT, INK, Rect};
use super::png;
use super::text::{Anchor, TextStyle, shorten, text_width};
use crate::error::{Error, Result};
use crate::map::Artifact;

/// The differences of one pair of sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Who is compared: `flex and ndarray`.
    pub title: String,
    /// Layer indices, ascending.
    pub layers: Vec<usize>,
    /// Largest absolute difference of each head, a list for each layer, all equally long.
    pub differences: Vec<Vec<f64>>,
}

const TEXT: f32 = 14.0;
const TITLE: f32 = 20.0;
const LINE: u32 = 20;
const MARGIN: u32 = 24;
const NEAR: u32 = 8;
/// Between panels.
const SPACE: u32 = 32;
/// Between cells, with room for the frames of both.
const GAP: u32 = 4;
/// Width of the colour bar.
const BAR: u32 = 16;
/// A panel's cells together are about this long if they can be of a comfortable size.
const COMFORTABLE: u32 = 420;
/// A title may be this long, or as long as its cells together.
const LONGEST_TITLE: u32 = 420;
/// Smallest and largest side of a cell.
const CELL: (u32, u32) = (8, 44);
/// Panels beside each other.
const ACROSS: usize = 3;
/// A picture of more pixels than this is refused.
const MOST_PIXELS: u64 = 1 << 27;
/// The frame of a cell beyond the tolerance: vermilion, which is in no part of the scale.
const BEYOND: Rgb<u8> = Rgb([213, 94, 0]);
const HEADLINE: &str = "Largest difference of attention weights, by layer and head";

/// Draws a panel for each pair, all on one scale. Cells beyond the tolerance are framed; equal ones are white.
///
/// # Errors
/// [`Error::Output`] if there is no panel, there are more cells than a viewer could show, or the picture cannot be
/// encoded.
pub fn file(panels: &[Panel], tolerance: Option<f64>, footer: &str) -> Result<Artifact> {
    let name = "differences.png".to_owned();
    let refuse = |reason: &str| Error::output(Path::new(&name), reason);
    let layout = Layout::new(panels, tolerance, footer).ok_or_else(|| refuse("there is nothing to draw"))?;
    if u64::from(layout.width) * u64::from(layout.height) > MOST_PIXELS {
        return Err(refuse("would be too large to show; pick fewer layers"));
    }
    let bytes = png(&name, &draw(panels, &layout))?;
    Ok(Artifact { name, bytes })
}

/// Where everything is, in pixels.
struct Layout {
    width: u32,
    height: u32,
    /// Side of a cell.
    cell: u32,
    /// The first panel's cells.
    first: Rect,
    /// From one panel's corner to the next one's, across and down.
    pitch: (u32, u32),
    bar: Rect,
    scale: Scale,
    tolerance: Option<f64>,
    footer: Vec<String>,
    footer_y: u32,
}

impl Layout {
    /// `None` without a cell.
    fn new(panels: &[Panel], tolerance: Option<f64>, footer: &str) -> Option<Self> {
        let layers = panels.iter().map(|panel| panel.layers.len()).max()? as u32;
        let heads = panels.iter().flat_map(|panel| &panel.differences).map(Vec::len).max()? as u32;
        let cell = (COMFORTABLE / layers.max(heads).max(1)).clamp(CELL.0, CELL.1);
        let labels = panels.iter().flat_map(|panel| &panel.layers).map(|layer| text_width(&row(*layer), TEXT)).max()?;
        let titles = panels.iter().map(|panel| text_width(&panel.title, TEXT)).max()?.min(LONGEST_TITLE);
        let (wide, high) = (heads * (cell + GAP) - GAP, layers * (cell + GAP) - GAP);

        let left = MARGIN + labels + NEAR;
        let top = MARGIN + LINE + SPACE / 2 + 2 * LINE + NEAR;
        let pitch = (labels + NEAR + wide.max(titles) + SPACE, 2 * LINE + NEAR + high + SPACE);
        let (across, down) = (panels.len().min(ACROSS) as u32, panels.len().div_ceil(ACROSS) as u32);
        let bar = Rect {
            x: (left + across * pitch.0 - labels - NEAR) as i32,
            y: top as i32,
            width: BAR,
            height: high.max(160),
        };
        let scale = Scale::new(panels);
        let marks = scale.marks(bar.height).iter().map(|(_, label)| text_width(label, TEXT)).max().unwrap_or(0);
        let width = (bar.right() as u32 + NEAR + marks + MARGIN).max(text_width(HEADLINE, TITLE) + 2 * MARGIN);
        let beyond = tolerance.map(|tolerance| format!("framed: beyond {tolerance:e}"));
        let footer = [Some(footer.to_owned()), Some("logarithmic scale; white: equal".to_owned()), beyond];
        let footer: Vec<String> =
            footer.into_iter().flatten().map(|line| shorten(&line, TEXT, width - 2 * MARGIN)).collect();
        let body = (top + down * pitch.1 - 2 * LINE - NEAR - SPACE).max(bar.bottom() as u32);
        let footer_y = body + SPACE / 2 + LINE / 2;
        let height = footer_y + LINE * footer.len() as u32 - LINE / 2 + MARGIN;
        let first = Rect { x: left as i32, y: top as i32, width: wide, height: high };
        Some(Self { width, height, cell, first, pitch, bar, scale, tolerance, footer, footer_y })
    }

    /// A panel's cells.
    fn panel(&self, index: usize) -> Rect {
        let (col, row) = ((index % ACROSS) as i32, (index / ACROSS) as i32);
        let (across, down) = (self.pitch.0 as i32, self.pitch.1 as i32);
        Rect { x: self.first.x + across * col, y: self.first.y + down * row, ..self.first }
    }
}

/// Whole decades between which the colours run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    /// Exponents of the ends; `None` if nothing differs by a finite number.
    decades: Option<(i32, i32)>,
}

impl Scale {
    fn new(panels: &[Panel]) -> Self {
        let all = panels.iter().flat_map(|panel| panel.differences.iter().flatten()).copied();
        let finite = all.filter(|difference| *difference > 0.0 && difference.is_finite()).map(f64::log10);
        let ends = finite.map(|log| (log, log)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let decade = |(low, high): (f64, f64)| {
            let low = low.floor() as i32;
            (low, (high.ceil() as i32).max(low + 1))
        };
        Self { decades: ends.map(decade) }
    }

    /// Where a difference lies, 0 to 1; `None` for an exact zero, NaN for NaN.
    fn place(self, difference: f64) -> Option<f32> {
        if difference == 0.0 {
            return None;
        }
        let (low, high) = self.decades.unwrap_or((0, 1));
        Some(((difference.log10() - f64::from(low)) / f64::from(high - low)) as f32)
    }

    /// Places from 0 to 1 with their labels, as many as fit a bar of some height.
    fn marks(self, height: u32) -> Vec<(f32, String)> {
        let Some((low, high)) = self.decades else { return Vec::new() };
        let every = ((high - low) as u32 * LINE).div_ceil(height.max(1)).max(1);
        let mark = |decade: i32| ((decade - low) as f32 / (high - low) as f32, format!("1e{decade}"));
        (low..=high).step_by(every as usize).map(mark).collect()
    }
}

fn row(layer: usize) -> String {
    format!("layer {layer}")
}

fn text(colour: Rgb<u8>, anchor: Anchor) -> TextStyle {
    TextStyle { size: TEXT, colour, anchor }
}

fn draw(panels: &[Panel], layout: &Layout) -> RgbImage {
    let mut canvas = Canvas::new(layout.width, layout.height);
    let palette = Palette::new(Colormap::Viridis);
    let style = TextStyle { size: TITLE, colour: INK, anchor: Anchor::Left };
    canvas.text((MARGIN as i32, (MARGIN + LINE / 2) as i32), HEADLINE, style);
    for (index, panel) in panels.iter().enumerate() {
        draw_labels(&mut canvas, layout, panel, layout.panel(index));
        draw_cells(&mut canvas, layout, (panel, &palette), layout.panel(index));
    }
    draw_bar(&mut canvas, layout, &palette);
    for (line, y) in layout.footer.iter().zip((layout.footer_y..).step_by(LINE as usize)) {
        canvas.text((MARGIN as i32, y as i32), line, text(FAINT, Anchor::Left));
    }
    canvas.into_image()
}

fn draw_labels(canvas: &mut Canvas, layout: &Layout, panel: &Panel, at: Rect) {
    let (pitch, line) = (layout.cell + GAP, LINE as i32);
    let y = at.y - (NEAR / 2) as i32 - line / 2;
    let title = shorten(&panel.title, TEXT, at.width.max(LONGEST_TITLE));
    canvas.text((at.x, y - line), &title, text(INK, Anchor::Left));
    canvas.text((at.x - NEAR as i32, y), "head", text(FAINT, Anchor::Right));
    let heads = panel.differences.first().map_or(0, Vec::len);
    // Numbers that would touch are thinned out.
    let every = (text_width(&heads.to_string(), TEXT) + NEAR / 2).div_ceil(pitch) as usize;
    let middle = (layout.cell / 2) as i32;
    for head in (0..heads).step_by(every) {
        let x = at.x + head as i32 * pitch as i32 + middle;
        canvas.text((x, y), &head.to_string(), text(INK, Anchor::Centre));
    }
    for (index, layer) in panel.layers.iter().enumerate().step_by(LINE.div_ceil(pitch) as usize) {
        let y = at.y + index as i32 * pitch as i32 + middle;
        canvas.text((at.x - NEAR as i32, y), &row(*layer), text(INK, Anchor::Right));
    }
}

fn draw_cells(canvas: &mut Canvas, layout: &Layout, (panel, palette): (&Panel, &Palette), at: Rect) {
    let pitch = (layout.cell + GAP) as i32;
    for (down, heads) in panel.differences.iter().enumerate() {
        for (across, &difference) in heads.iter().enumerate() {
            let (x, y) = (at.x + across as i32 * pitch, at.y + down as i32 * pitch);
            let cell = Rect { x, y, width: layout.cell, height: layout.cell };
            match layout.scale.place(difference) {
                Some(place) => canvas.fill_rect(cell, palette.colour(place)),
                None => canvas.frame(cell, EDGE),
            }
            if layout.tolerance.is_some_and(|tolerance| difference > tolerance || difference.is_nan()) {
                canvas.frame(cell, BEYOND);
                let around = Rect { x: x - 1, y: y - 1, width: cell.width + 2, height: cell.height + 2 };
                canvas.frame(around, BEYOND);
            }
        }
    }
}

fn draw_bar(canvas: &mut Canvas, layout: &Layout, palette: &Palette) {
    let bar = layout.bar;
    if layout.scale.decades.is_none() {
        return;
    }
    let last = bar.height.saturating_sub(1).max(1);
    for line in 0..bar.height {
        let colour = palette.colour(1.0 - line as f32 / last as f32);
        canvas.fill_rect(Rect { y: bar.y + line as i32, height: 1, ..bar }, colour);
    }
    canvas.frame(bar, EDGE);
    for (place, label) in layout.scale.marks(bar.height) {
        let y = bar.y + ((1.0 - place) * last as f32).round() as i32;
        canvas.fill_rect(Rect { x: bar.right(), y, width: 4, height: 1 }, INK);
        canvas.text((bar.right() + NEAR as i32, y), &label, text(INK, Anchor::Left));
    }
}

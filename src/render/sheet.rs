//! The contact sheet: layers down, heads across, with the input and the scale beside them.

use std::path::Path;

use image::RgbImage;

use super::draw::{Canvas, EDGE, FAINT, INK, Rect, enlarge};
use super::scale::{Range, Scale};
use super::text::{Anchor, TextStyle, shorten, text_width};
use super::{Drawing, heatmap, numbers, png};
use crate::error::{Error, Result};
use crate::map::{Artifact, Map};

/// What stands on the sheet beside the maps.
#[derive(Debug, Clone, Copy)]
pub struct Caption<'a> {
    /// What the model saw.
    pub seen: &'a RgbImage,
    /// The picture's name.
    pub picture: &'a str,
    /// The model's name.
    pub model: &'a str,
}

const TEXT: f32 = 14.0;
const SMALL: f32 = 12.0;
const TITLE: f32 = 20.0;
/// Height of a line of [`TEXT`].
const LINE: u32 = 20;
const MARGIN: u32 = 24;
/// Between neighbouring maps.
const GAP: u32 = 6;
/// Between the parts of the sheet.
const SPACE: u32 = 24;
/// Between a thing and its label.
const NEAR: u32 = 8;
/// Width of a colour bar.
const BAR: u32 = 16;
/// What the colour bars measure.
const UNIT: &str = "weight";
/// The maps together are this long in each direction if their cells can be of a comfortable size.
const COMFORTABLE: u32 = 1400;
/// The maps together are hardly ever longer than this.
const LONGEST: u32 = 3400;

/// A sheet of more pixels than this is refused.
const MOST_PIXELS: u64 = 1 << 27;

/// The contact sheet of all maps of a view, `<view>-grid.png`.
///
/// # Errors
/// [`Error::Output`] if there are so many maps that no viewer could show the sheet, or it cannot be encoded.
pub fn file(drawing: &Drawing<'_>, caption: &Caption<'_>) -> Result<Artifact> {
    let name = format!("{}-grid.png", drawing.maps.view);
    let layout = Layout::new(drawing, caption);
    let (width, height) = (layout.width, layout.height);
    if u64::from(width) * u64::from(height) > MOST_PIXELS {
        let reason = format!("would be {width} x {height} pixels large; pick fewer layers or heads");
        return Err(Error::output(Path::new(&name), reason));
    }
    let bytes = png(&name, &draw(drawing, caption, &layout))?;
    Ok(Artifact { name, bytes })
}

/// Draws the sheet.
fn draw(drawing: &Drawing<'_>, caption: &Caption<'_>, layout: &Layout) -> RgbImage {
    let mut canvas = Canvas::new(layout.width, layout.height);
    let title = shorten(&drawing.maps.title, TITLE, layout.width - 2 * MARGIN);
    let style = TextStyle { size: TITLE, colour: INK, anchor: Anchor::Left };
    canvas.text((MARGIN as i32, (MARGIN + LINE / 2) as i32), &title, style);
    draw_input(&mut canvas, layout, caption);
    draw_labels(&mut canvas, layout, drawing);
    draw_maps(&mut canvas, layout, drawing);
    for bar in bars(drawing) {
        draw_bar(&mut canvas, layout, drawing, &bar);
    }
    for (line, y) in layout.footer.iter().zip((layout.footer_y..).step_by(LINE as usize)) {
        canvas.text((MARGIN as i32, y as i32), line, text(FAINT, Anchor::Left));
    }
    canvas.into_image()
}

/// The common text style.
fn text(colour: image::Rgb<u8>, anchor: Anchor) -> TextStyle {
    TextStyle { size: TEXT, colour, anchor }
}

/// Where everything is, in pixels.
struct Layout {
    width: u32,
    height: u32,
    /// The input picture.
    input: Rect,
    /// The first map.
    first: Rect,
    /// From one map's corner to the next one's, across and down.
    pitch: (u32, u32),
    /// Whether each map's range stands under it.
    ranges_under: bool,
    /// Whether a column is wide enough for `head 3`, or only for `3`.
    heads_named: bool,
    /// Left edge of the colour bars.
    bar_x: u32,
    /// Lines of the footer, and the middle of the first.
    footer: Vec<String>,
    footer_y: u32,
}

impl Layout {
    fn new(drawing: &Drawing<'_>, caption: &Caption<'_>) -> Self {
        let set = drawing.maps;
        let (layers, heads) = (set.layers.len() as u32, set.heads.len() as u32);
        let grid = set.maps.first().map_or((1, 1), |map| (map.rows as u32, map.cols as u32));
        let cell = cell_size(grid, (layers, heads));

        let widest = drawing.ranges().iter().map(|range| text_width(&range_label(range), SMALL)).max().unwrap_or(0);
        let ranges_under = drawing.style.scale == Scale::Map && heads * (widest + GAP) <= LONGEST;
        let (column, under) = if ranges_under { (cell.0.max(widest), LINE) } else { (cell.0, 0) };
        let pitch = (column + GAP, cell.1 + under + GAP);
        let maps_height = layers * pitch.1 - GAP;
        let heads_named = set.heads.iter().all(|head| text_width(&format!("head {head}"), TEXT) <= column);

        let label_lines = if heads_named { 1 } else { 2 };
        let top = MARGIN + LINE + SPACE / 2 + label_lines * LINE + NEAR / 2;
        let input_size = input_size(caption.seen, maps_height);
        let input = Rect { x: MARGIN as i32, y: top as i32, width: input_size.0, height: input_size.1 };
        let row_labels = set.layers.iter().map(|layer| text_width(&row_label(*layer), TEXT)).max().unwrap_or(0);
        let left = MARGIN + input_size.0.max(text_width(&input_label(caption), TEXT)) + SPACE + row_labels + NEAR;
        let first = Rect { x: (left + (column - cell.0) / 2) as i32, y: top as i32, width: cell.0, height: cell.1 };

        let bar_x = left + heads * pitch.0 - GAP + SPACE;
        let marks = bars(drawing).into_iter().flat_map(|bar| bar.marks(bar.height(pitch.1, cell.1)));
        let marks = marks.map(|(_, label)| BAR + NEAR + text_width(&label, TEXT)).max().unwrap_or(0);
        let width = bar_x + marks.max(text_width(UNIT, TEXT)) + MARGIN;
        let footer = footer(drawing, caption, width - 2 * MARGIN);
        let footer_y = top + maps_height.max(input_size.1) + SPACE + LINE / 2;
        let height = footer_y + LINE * footer.len() as u32 - LINE / 2 + MARGIN - LINE / 4;
        Self { width, height, input, first, pitch, ranges_under, heads_named, bar_x, footer, footer_y }
    }

    /// The map in a row and column of the sheet.
    fn cell(&self, row: usize, col: usize) -> Rect {
        let (across, down) = self.pitch;
        Rect { x: self.first.x + across as i32 * col as i32, y: self.first.y + down as i32 * row as i32, ..self.first }
    }
}

/// The size of a map on the sheet: a whole multiple of the grid, or a whole part of it where room is short.
fn cell_size((rows, cols): (u32, u32), (layers, heads): (u32, u32)) -> (u32, u32) {
    let room = |count: u32| {
        let pitch = |total: u32| (total / count.max(1)).saturating_sub(GAP);
        // A map is never drawn larger than its heat map, nor smaller than eyes like while there is room.
        pitch(COMFORTABLE).clamp(58, heatmap::SHORT_SIDE).min(pitch(LONGEST)).max(1)
    };
    let (width, height) = (room(heads), room(layers));
    let factor = (width / cols).min(height / rows);
    if factor > 0 {
        return (cols * factor, rows * factor);
    }
    let part = cols.div_ceil(width).max(rows.div_ceil(height));
    (cols.div_ceil(part), rows.div_ceil(part))
}

/// The size of the input picture beside maps of a height.
fn input_size(seen: &RgbImage, maps_height: u32) -> (u32, u32) {
    let target = maps_height.clamp(160, heatmap::SHORT_SIDE);
    let (width, height) = (seen.width().max(1), seen.height().max(1));
    let long = width.max(height);
    let scaled = |length: u32| (length * target / long).max(1);
    (scaled(width), scaled(height))
}

fn input_label(caption: &Caption<'_>) -> String {
    format!("input, {} × {}", caption.seen.width(), caption.seen.height())
}

fn row_label(layer: Option<usize>) -> String {
    layer.map_or_else(|| "probe".to_owned(), |layer| format!("layer {layer}"))
}

fn range_label(range: &Range) -> String {
    if range.is_flat() { numbers::short(range.lo) } else { numbers::labels(&[range.lo, range.hi]).join(" – ") }
}

/// What the sheet shows and how, in lines that fit a width.
fn footer(drawing: &Drawing<'_>, caption: &Caption<'_>, width: u32) -> Vec<String> {
    let style = drawing.style;
    let scale = match style.scale {
        Scale::Map => "scale map: each map has its own range".to_owned(),
        Scale::Layer => "scale layer: one range a layer".to_owned(),
        Scale::All => "scale all: one range for all maps".to_owned(),
        Scale::Fixed(min, max) => format!("scale {min} to {max}"),
    };
    let (lo, hi) = style.clip.percentiles();
    let items = [
        caption.picture.to_owned(),
        caption.model.to_owned(),
        format!("view {}", drawing.maps.view),
        drawing.maps.query.map_or("", |_| "outlined: the patch that asks").to_owned(),
        scale,
        format!("clip {lo}–{hi} %"),
        style.colormap.to_string(),
        style.upsample.to_string(),
    ];
    let mut lines: Vec<String> = Vec::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let longer = lines.last().map(|line| format!("{line} · {item}"));
        match (longer, lines.last_mut()) {
            (Some(longer), Some(line)) if text_width(&longer, TEXT) <= width => *line = longer,
            _ => lines.push(shorten(item, TEXT, width)),
        }
    }
    lines
}

fn draw_input(canvas: &mut Canvas, layout: &Layout, caption: &Caption<'_>) {
    // Squares first, so that what the model saw as pixels stays pixels.
    let long = caption.seen.width().max(caption.seen.height()).max(1);
    let factor = layout.input.width.max(layout.input.height).div_ceil(long);
    canvas.paste_scaled(layout.input, &enlarge(caption.seen, factor));
    let y = layout.input.y - (NEAR / 2 + LINE / 2) as i32;
    canvas.text((layout.input.x, y), &input_label(caption), text(INK, Anchor::Left));
}

/// Names the columns and rows.
fn draw_labels(canvas: &mut Canvas, layout: &Layout, drawing: &Drawing<'_>) {
    let set = drawing.maps;
    let y = layout.first.y - (NEAR / 2 + LINE / 2) as i32;
    let middle = |cell: Rect| cell.x + cell.width as i32 / 2;
    // Numbers that would touch are thinned out.
    let widest = set.heads.last().map_or(0, |head| text_width(&head.to_string(), TEXT));
    let every = (widest + GAP).div_ceil(layout.pitch.0) as usize;
    for (col, head) in set.heads.iter().enumerate().step_by(every.max(1)) {
        let label = if layout.heads_named { format!("head {head}") } else { head.to_string() };
        canvas.text((middle(layout.cell(0, col)), y), &label, text(INK, Anchor::Centre));
    }
    if !layout.heads_named {
        let ends = layout.cell(0, 0).x + layout.cell(0, set.heads.len().saturating_sub(1)).right();
        canvas.text((ends / 2, y - LINE as i32), "head", text(INK, Anchor::Centre));
    }
    let every = LINE.div_ceil(layout.pitch.1) as usize;
    let right = layout.first.x - (layout.pitch.0 - GAP - layout.first.width) as i32 / 2 - NEAR as i32;
    for (row, layer) in set.layers.iter().enumerate().step_by(every.max(1)) {
        let cell = layout.cell(row, 0);
        canvas.text((right, cell.y + cell.height as i32 / 2), &row_label(*layer), text(INK, Anchor::Right));
    }
}

fn draw_maps(canvas: &mut Canvas, layout: &Layout, drawing: &Drawing<'_>) {
    let heads = drawing.maps.heads.len().max(1);
    for (index, (map, range)) in drawing.pairs().enumerate() {
        let cell = layout.cell(index / heads, index % heads);
        draw_map(canvas, cell, drawing, (map, range));
        if layout.ranges_under {
            let at = (cell.x + cell.width as i32 / 2, cell.bottom() + LINE as i32 / 2);
            let style = TextStyle { size: SMALL, colour: FAINT, anchor: Anchor::Centre };
            canvas.text(at, &range_label(&range), style);
        }
    }
}

fn draw_map(canvas: &mut Canvas, cell: Rect, drawing: &Drawing<'_>, (map, range): (&Map, Range)) {
    let factor = cell.width / map.cols.max(1) as u32;
    let image = heatmap::paint(drawing, map, range, factor.max(1));
    canvas.paste_scaled(cell, &image);
    canvas.frame(cell, EDGE);
    if let Some((row, col)) = drawing.maps.query {
        // By whole numbers that are right too where a cell is smaller than its grid.
        let part = |index: usize, all: usize, length: u32| (index * length as usize / all.max(1)) as i32;
        let (left, right) = (part(col, map.cols, cell.width), part(col + 1, map.cols, cell.width));
        let (top, bottom) = (part(row, map.rows, cell.height), part(row + 1, map.rows, cell.height));
        let (width, height) = ((right - left).max(1) as u32, (bottom - top).max(1) as u32);
        canvas.outline(Rect { x: cell.x + left, y: cell.y + top, width, height }, 1);
    }
}

/// A colour bar beside some rows of maps.
struct Bar {
    /// The first row, and how many.
    rows: (usize, usize),
    /// The range of values, or `None` if each map has its own.
    range: Option<Range>,
}

/// The bars of a sheet.
fn bars(drawing: &Drawing<'_>) -> Vec<Bar> {
    let (layers, heads) = (drawing.maps.layers.len(), drawing.maps.heads.len());
    let range = |row: usize| drawing.ranges().get(row * heads).copied();
    match drawing.style.scale {
        Scale::Map if drawing.ranges().len() > 1 => vec![Bar { rows: (0, layers), range: None }],
        Scale::Layer => (0..layers).map(|row| Bar { rows: (row, 1), range: range(row) }).collect(),
        Scale::Map | Scale::All | Scale::Fixed(..) => vec![Bar { rows: (0, layers), range: range(0) }],
    }
}

impl Bar {
    /// The bar's height where rows of maps `cell` high repeat every `pitch`.
    fn height(&self, pitch: u32, cell: u32) -> u32 {
        pitch * (self.rows.1 as u32).saturating_sub(1) + cell
    }

    /// The labels of a bar of some height: place from 0 at the low end to 1 at the high end, and text.
    fn marks(&self, height: u32) -> Vec<(f32, String)> {
        let Some(range) = self.range else {
            return vec![(0.0, "own low".into()), (1.0, "own high".into())];
        };
        if range.is_flat() {
            return vec![(0.5, numbers::short(range.lo))];
        }
        let steps = match height {
            0..70 => 1,
            70..180 => 2,
            _ => 4,
        };
        let places: Vec<f32> = (0..=steps).map(|step| step as f32 / steps as f32).collect();
        let values: Vec<f32> = places.iter().map(|place| range.lo + (range.hi - range.lo) * place).collect();
        let mut labels = numbers::labels(&values);
        if let (true, Some(label)) = (range.below, labels.first_mut()) {
            *label = format!("≤ {label}");
        }
        if let (true, Some(label)) = (range.above, labels.last_mut()) {
            *label = format!("≥ {label}");
        }
        places.into_iter().zip(labels).collect()
    }
}

fn draw_bar(canvas: &mut Canvas, layout: &Layout, drawing: &Drawing<'_>, bar: &Bar) {
    let height = bar.height(layout.pitch.1, layout.first.height);
    let rect = Rect { x: layout.bar_x as i32, width: BAR, height, ..layout.cell(bar.rows.0, 0) };
    let last = height.saturating_sub(1).max(1);
    for line in 0..height {
        let place = 1.0 - line as f32 / last as f32;
        // A flat range has one colour only.
        let place = if bar.range.is_some_and(|range| range.is_flat()) { 0.5 } else { place };
        let row = Rect { y: rect.y + line as i32, height: 1, ..rect };
        canvas.fill_rect(row, drawing.palette.colour(place));
    }
    canvas.frame(rect, EDGE);
    for (place, label) in bar.marks(height) {
        let y = rect.y + ((1.0 - place) * last as f32).round() as i32;
        canvas.fill_rect(Rect { x: rect.right(), y, width: 4, height: 1 }, INK);
        // At the ends the label stays beside the bar, so that labels of neighbouring bars do not touch.
        let inset = (TEXT / 2.0) as i32 - 1;
        let y = y.clamp(rect.y + inset, (rect.bottom() - inset - 1).max(rect.y + inset));
        canvas.text((rect.right() + NEAR as i32, y), &label, text(INK, Anchor::Left));
    }
    if bar.rows.0 == 0 {
        let y = layout.first.y - (NEAR / 2 + LINE / 2) as i32;
        canvas.text((rect.x, y), UNIT, text(INK, Anchor::Left));
    }
}

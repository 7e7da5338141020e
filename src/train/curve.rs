//! The training curve as a picture: loss on the left, accuracy on the right.

use std::io::Cursor;
use std::path::Path;

use image::{ImageFormat, Rgb};

use crate::error::{Error, Result};
use crate::render::draw::{Canvas, FAINT, INK, Rect};
use crate::render::numbers;
use crate::render::text::{Anchor, TextStyle, text_width};

/// What one epoch came to. A value that is not finite is left out of the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The number of the epoch; they ascend.
    pub epoch: usize,
    /// Mean loss over the training pictures, as the model saw them while it learnt.
    pub train_loss: f32,
    /// Mean loss over the held-out pictures after the epoch.
    pub held_out_loss: f32,
    /// Share of training pictures classified right, 0 to 1.
    pub train_accuracy: f32,
    /// Share of held-out pictures classified right, 0 to 1.
    pub held_out_accuracy: f32,
}

const WIDTH: u32 = 1240;
const HEIGHT: u32 = 440;
/// The left plot, without its labels; the right one is as large.
const PLOT: Rect = Rect { x: 64, y: 56, width: 476, height: 320 };
/// From one plot to the other.
const STRIDE: i32 = 620;
const SIZE: f32 = 14.0;
const TITLE: f32 = 18.0;
/// Height of a line of text.
const LEADING: f64 = 16.0;
const GRID: Rgb<u8> = Rgb([228, 228, 228]);
/// Training and held-out part: blue and vermilion of Okabe and Ito, which colour blindness does not mix up.
const INKS: [Rgb<u8>; 2] = [Rgb([0, 114, 178]), Rgb([213, 94, 0])];
const PEN: f32 = 2.0;
const DOT: f32 = 8.0;

/// Draws the curve as PNG; `held_out_name` is what the second part is called, such as `test`.
///
/// # Errors
/// [`Error::Output`] if the picture cannot be encoded.
pub fn png(points: &[Point], held_out_name: &str) -> Result<Vec<u8>> {
    let epochs: Vec<f64> = points.iter().map(|point| point.epoch as f64).collect();
    let series = |value: fn(&Point) -> f32| points.iter().map(|point| f64::from(value(point))).collect();
    let loss = Panel {
        title: "Loss",
        unit: "",
        series: [series(|point| point.train_loss), series(|point| point.held_out_loss)],
        better: f64::lt,
        plot: PLOT,
    };
    let accuracy = Panel {
        title: "Accuracy",
        unit: " %",
        series: [series(|point| 100.0 * point.train_accuracy), series(|point| 100.0 * point.held_out_accuracy)],
        better: f64::gt,
        plot: Rect { x: PLOT.x + STRIDE, ..PLOT },
    };
    let mut canvas = Canvas::new(WIDTH, HEIGHT);
    loss.draw(&mut canvas, &epochs, held_out_name);
    accuracy.draw(&mut canvas, &epochs, held_out_name);

    let mut bytes = Vec::new();
    canvas
        .into_image()
        .write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)
        .map_err(|error| Error::output(Path::new("curve.png"), format!("cannot be encoded as PNG: {error}")))?;
    Ok(bytes)
}

/// One of the two plots.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// A value an epoch: training and held-out part.
    series: [Vec<f64>; 2],
    /// Whether the first value is better than the second.
    better: fn(&f64, &f64) -> bool,
    plot: Rect,
}

impl Panel {
    fn draw(&self, canvas: &mut Canvas, epochs: &[f64], held_out_name: &str) {
        let x = Axis::of_epochs(epochs);
        let y = Axis::of_values(self.series.iter().flatten().copied());
        self.draw_axes(canvas, &x, &y);
        let place = |epoch: f64, value: f64| {
            let across = f64::from(self.plot.x) + x.place(epoch) * f64::from(self.plot.width);
            let down = f64::from(self.plot.bottom()) - y.place(value) * f64::from(self.plot.height);
            (across as f32, down as f32)
        };
        // A lone epoch has no line.
        let width = if epochs.len() > 1 { PEN } else { DOT };
        for (values, ink) in self.series.iter().zip(INKS) {
            let mut last = None;
            for (&epoch, &value) in epochs.iter().zip(values) {
                let here = value.is_finite().then(|| place(epoch, value));
                if let Some(here) = here {
                    canvas.line(last.unwrap_or(here), here, (width, ink));
                }
                last = here;
            }
        }
        let best = self.best(epochs);
        if let Some((epoch, value)) = best {
            let at = place(epoch, value);
            canvas.line(at, at, (DOT, INKS[1]));
        }
        self.draw_legend(canvas, held_out_name, best.map(|(epoch, value)| (epoch, self.precise(value))));
        self.draw_last(canvas, &y);
    }

    fn draw_axes(&self, canvas: &mut Canvas, x: &Axis, y: &Axis) {
        let plot = self.plot;
        let style = TextStyle { size: SIZE, colour: FAINT, anchor: Anchor::Right };
        let ticks = y.ticks();
        for (tick, label) in ticks.iter().zip(y.labels()) {
            let down = plot.bottom() - (y.place(*tick) * f64::from(plot.height)).round() as i32;
            canvas.fill_rect(Rect { x: plot.x, y: down, width: plot.width, height: 1 }, GRID);
            canvas.text((plot.x - 8, down), &format!("{label}{}", self.unit), style);
        }
        canvas.fill_rect(Rect { y: plot.bottom(), height: 1, ..plot }, FAINT);
        let style = TextStyle { anchor: Anchor::Centre, ..style };
        for tick in x.ticks() {
            let across = plot.x + (x.place(tick) * f64::from(plot.width)).round() as i32;
            canvas.fill_rect(Rect { x: across, y: plot.bottom(), width: 1, height: 5 }, FAINT);
            canvas.text((across, plot.bottom() + 16), &format!("{tick:.0}"), style);
        }
        canvas.text((plot.x + plot.width as i32 / 2, plot.bottom() + 40), "epoch", style);
        let style = TextStyle { size: TITLE, colour: INK, anchor: Anchor::Left };
        canvas.text((plot.x, plot.y - 34), self.title, style);
    }

    /// Names the lines, from right to left above the plot.
    fn draw_legend(&self, canvas: &mut Canvas, held_out_name: &str, best: Option<(f64, String)>) {
        let best = best.map(|(epoch, value)| format!(" (best {value} in epoch {epoch:.0})")).unwrap_or_default();
        let names = ["train".to_owned(), format!("{held_out_name}{best}")];
        let (mut right, y) = (self.plot.right(), self.plot.y - 34);
        for (name, ink) in names.iter().zip(INKS).rev() {
            canvas.text((right, y), name, TextStyle { size: SIZE, colour: INK, anchor: Anchor::Right });
            right -= text_width(name, SIZE) as i32 + 8;
            canvas.line(((right - 22) as f32, y as f32), (right as f32, y as f32), (PEN, ink));
            right -= 22 + 18;
        }
    }

    /// Writes each line's last value beside its end, apart from each other.
    fn draw_last(&self, canvas: &mut Canvas, y: &Axis) {
        let ends = self.series.each_ref().map(|values| values.last().copied().filter(|value| value.is_finite()));
        let down = |value: f64| f64::from(self.plot.bottom()) - y.place(value) * f64::from(self.plot.height);
        let mut places = ends.map(|end| end.map_or(f64::INFINITY, down));
        let gap = places[1] - places[0];
        if gap.abs() < LEADING {
            let push = (LEADING - gap.abs()) / 2.0;
            let push = if gap < 0.0 { -push } else { push };
            places = [places[0] - push, places[1] + push];
        }
        for ((end, place), ink) in ends.iter().zip(places).zip(INKS) {
            if let Some(value) = end {
                let style = TextStyle { size: SIZE, colour: ink, anchor: Anchor::Left };
                canvas.text((self.plot.right() + 8, place.round() as i32), &self.precise(*value), style);
            }
        }
    }

    /// The best held-out value and its epoch, the first of equals.
    fn best(&self, epochs: &[f64]) -> Option<(f64, f64)> {
        let finite = epochs.iter().copied().zip(self.series[1].iter().copied()).filter(|(_, value)| value.is_finite());
        finite.reduce(|best, next| if (self.better)(&next.1, &best.1) { next } else { best })
    }

    /// A value in words, precise enough to compare runs.
    fn precise(&self, value: f64) -> String {
        let decimals = if self.unit.is_empty() { 3 } else { 2 };
        format!("{}{}", write(value, decimals), self.unit)
    }
}

/// The values that an axis spans and where its ticks are.
struct Axis {
    lo: f64,
    hi: f64,
    step: f64,
}

impl Axis {
    /// Ends at round numbers around the finite ones of `values`.
    fn of_values(values: impl Iterator<Item = f64>) -> Self {
        let (min, max) = span(values);
        let step = round_step((max - min).max(0.01 * max.abs()));
        let (lo, hi) = ((min / step).floor() * step, (max / step).ceil() * step);
        Self { lo, hi: if hi > lo { hi } else { lo + step }, step }
    }

    /// From the first epoch to the last.
    fn of_epochs(epochs: &[f64]) -> Self {
        let (lo, hi) = span(epochs.iter().copied());
        let step = round_step(hi - lo).max(1.0);
        // A lone epoch stands in the middle.
        if hi > lo { Self { lo, hi, step } } else { Self { lo: lo - 0.5, hi: hi + 0.5, step } }
    }

    /// Where a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value - self.lo) / (self.hi - self.lo)
    }

    /// The multiples of the step on the axis.
    fn ticks(&self) -> Vec<f64> {
        let count = |value: f64| value / self.step;
        // A hair of room, because the ends are sums that rounding may have put beside a multiple.
        let (first, last) = ((count(self.lo) - 1e-6).ceil() as i64, (count(self.hi) + 1e-6).floor() as i64);
        (first..=last).map(|tick| tick as f64 * self.step).collect()
    }

    fn labels(&self) -> Vec<String> {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
        self.ticks().into_iter().map(|tick| write(tick, decimals)).collect()
    }
}

/// The least and the greatest finite value; 0 and 1 if there is none.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite()).map(|value| (value, value));
    finite.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.0, 1.0))
}

/// A step of 1, 2 or 5 times a power of ten that divides `length` into about five.
fn round_step(length: f64) -> f64 {
    let rough = length.max(1e-6) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

/// A number with fixed decimals, or shortened where that would be long.
fn write(value: f64, decimals: usize) -> String {
    if value.abs() < 1e5 { format!("{value:.decimals$}") } else { numbers::short(value as f32) }
}

//! A white canvas and the few strokes that figures need. Everything outside the canvas is cut off.

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

/// Ink for what should be read first.
pub const INK: Rgb<u8> = Rgb([32, 32, 32]);
/// Ink for what should be read second.
pub const FAINT: Rgb<u8> = Rgb([96, 96, 96]);

/// Ink for the edges of maps and bars, so that white ones do not vanish in the page.
pub const EDGE: Rgb<u8> = Rgb([200; 3]);

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// Left edge.
    pub x: i32,
    /// Top edge.
    pub y: i32,
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

impl Rect {
    /// The pixel column just right of the rectangle.
    pub fn right(self) -> i32 {
        self.x.saturating_add_unsigned(self.width)
    }

    /// The pixel row just below the rectangle.
    pub fn bottom(self) -> i32 {
        self.y.saturating_add_unsigned(self.height)
    }
}

/// A picture that is being drawn.
#[derive(Debug, Clone)]
pub struct Canvas {
    image: RgbImage,
}

impl From<RgbImage> for Canvas {
    /// Draws on a picture.
    fn from(image: RgbImage) -> Self {
        Self { image }
    }
}

impl Canvas {
    /// An empty white canvas.
    pub fn new(width: u32, height: u32) -> Self {
        Self { image: RgbImage::from_pixel(width, height, Rgb([255; 3])) }
    }

    /// The finished picture.
    pub fn into_image(self) -> RgbImage {
        self.image
    }

    /// Mixes `colour` into one pixel; `opacity` from 0 to 1.
    pub fn blend(&mut self, x: i32, y: i32, colour: Rgb<u8>, opacity: f32) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if let Some(pixel) = self.image.get_pixel_mut_checked(x, y) {
            *pixel = mix(*pixel, colour, opacity);
        }
    }

    /// Fills a rectangle.
    pub fn fill_rect(&mut self, rect: Rect, colour: Rgb<u8>) {
        let inside =
            |length: u32, low: i32, high: i32| (low.max(0) as u32).min(length)..(high.max(0) as u32).min(length);
        for y in inside(self.image.height(), rect.y, rect.bottom()) {
            for x in inside(self.image.width(), rect.x, rect.right()) {
                self.image.put_pixel(x, y, colour);
            }
        }
    }

    /// Draws a frame one pixel wide just outside a rectangle.
    pub fn frame(&mut self, rect: Rect, colour: Rgb<u8>) {
        let across = Rect { x: rect.x - 1, y: rect.y - 1, width: rect.width + 2, height: 1 };
        let down = Rect { x: rect.x - 1, y: rect.y - 1, width: 1, height: rect.height + 2 };
        self.fill_rect(across, colour);
        self.fill_rect(Rect { y: rect.bottom(), ..across }, colour);
        self.fill_rect(down, colour);
        self.fill_rect(Rect { x: rect.right(), ..down }, colour);
    }

    /// Draws a frame just outside a rectangle that shows on every colour: white, and dark around it, each `width` pixels.
    pub fn outline(&mut self, rect: Rect, width: u32) {
        for ring in 0..2 * width {
            let colour = if ring < width { Rgb([255; 3]) } else { INK };
            let shift = ring as i32;
            let inner = Rect {
                x: rect.x - shift,
                y: rect.y - shift,
                width: rect.width + 2 * ring,
                height: rect.height + 2 * ring,
            };
            self.frame(inner, colour);
        }
    }

    /// Draws a smooth straight line with round ends; whole numbers are pixel centres.
    pub fn line(&mut self, from: (f32, f32), to: (f32, f32), pen: (f32, Rgb<u8>)) {
        let (width, colour) = pen;
        let reach = width / 2.0 + 1.0;
        let (along_x, along_y) = (to.0 - from.0, to.1 - from.1);
        let square = along_x * along_x + along_y * along_y;
        let span = |a: f32, b: f32, length: u32| {
            (a.min(b) - reach).max(0.0) as u32..((a.max(b) + reach).max(0.0).ceil() as u32).min(length)
        };
        for y in span(from.1, to.1, self.image.height()) {
            for x in span(from.0, to.0, self.image.width()) {
                let (dx, dy) = (x as f32 - from.0, y as f32 - from.1);
                let part = if square > 0.0 { ((dx * along_x + dy * along_y) / square).clamp(0.0, 1.0) } else { 0.0 };
                let distance = (dx - part * along_x).hypot(dy - part * along_y);
                let cover = (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0);
                self.blend(x as i32, y as i32, colour, cover);
            }
        }
    }

    /// Copies a picture with its top left corner at `(x, y)`.
    pub fn blit(&mut self, x: i32, y: i32, image: &RgbImage) {
        imageops::replace(&mut self.image, image, x.into(), y.into());
    }

    /// Copies a picture, resized to fill a rectangle.
    pub fn paste_scaled(&mut self, rect: Rect, image: &RgbImage) {
        if image.dimensions() == (rect.width, rect.height) {
            self.blit(rect.x, rect.y, image);
        } else {
            self.blit(rect.x, rect.y, &imageops::resize(image, rect.width, rect.height, FilterType::Triangle));
        }
    }
}

/// `back` with `front` over it; `opacity` from 0 to 1.
pub fn mix(back: Rgb<u8>, front: Rgb<u8>, opacity: f32) -> Rgb<u8> {
    let channel = |index: usize| {
        let (back, front) = (f32::from(back.0[index]), f32::from(front.0[index]));
        (back + (front - back) * opacity + 0.5) as u8
    };
    Rgb([channel(0), channel(1), channel(2)])
}

/// Each pixel as a square of `factor` times `factor`.
pub fn enlarge(image: &RgbImage, factor: u32) -> RgbImage {
    let wide = (image.width() * factor) as usize * 3;
    let mut bytes = Vec::with_capacity(wide * (image.height() * factor) as usize);
    for row in image.rows() {
        let start = bytes.len();
        for pixel in row {
            for _ in 0..factor {
                bytes.extend_from_slice(&pixel.0);
            }
        }
        for _ in 1..factor {
            bytes.extend_from_within(start..start + wide);
        }
    }
    RgbImage::from_raw(image.width() * factor, image.height() * factor, bytes).unwrap_or_default()
}

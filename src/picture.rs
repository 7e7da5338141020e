//! From a file to what the model sees (decode, orient, composite, resize, crop, normalise), and the way back from a
//! point of the original picture to a patch.

use std::fs::{self, File};
use std::io::{Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{
    AnimationDecoder, ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage,
};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The picture formats that [`load`] reads, with their names. A file's content decides, not its name.
pub const FORMATS: [(ImageFormat, &str); 6] = [
    (ImageFormat::Png, "PNG"),
    (ImageFormat::Jpeg, "JPEG"),
    (ImageFormat::WebP, "WebP"),
    (ImageFormat::Gif, "GIF"),
    (ImageFormat::Bmp, "BMP"),
    (ImageFormat::Tiff, "TIFF"),
];

/// Largest file that [`load`] reads, in bytes.
pub const MAX_FILE: u64 = 512 << 20;
/// Largest picture that [`load`] decodes, in pixels: 16,384 x 8,192.
pub const MAX_PIXELS: u64 = 128 << 20;
/// Longest side of a picture that [`load`] decodes, in pixels.
pub const MAX_SIDE: u32 = 65_535;
/// Memory that a decoder may take beside the decoded picture, in bytes.
pub const MAX_ALLOC: u64 = 512 << 20;
/// Longest side of what a model is given, in pixels.
pub const MAX_INPUT_SIDE: usize = 8_192;

/// A decoded picture as a person would see it: turned upright by its EXIF orientation, without alpha.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The path as given.
    pub path: PathBuf,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
    /// The pixels, 8 bits a channel; alpha is composited on white and a colour profile is ignored, as Pillow does.
    pub pixels: RgbImage,
    /// What a person should know about the reading, one sentence each, such as that a GIF has more frames.
    pub notes: Vec<String>,
}

/// Reads and decodes the picture at `path`.
///
/// # Errors
/// [`Error::Picture`] for anything but a whole picture in one of [`FORMATS`] within [`MAX_FILE`], [`MAX_PIXELS`],
/// [`MAX_SIDE`] and [`MAX_ALLOC`].
pub fn load(path: &Path) -> Result<Picture> {
    let fail = |reason| Error::picture(path, reason);
    let bytes = read(path).map_err(fail)?;
    let (format, name) = recognise(&bytes).map_err(fail)?;
    let pixels = decode(&bytes, format, name).map_err(fail)?;

    let mut notes = Vec::new();
    if ImageFormat::from_path(path).is_ok_and(|named| named != format) {
        notes.push(format!("{} is read as {name}, which its content says it is", path.display()));
    }
    if is_animated(&bytes, format) {
        notes.push(format!("{} is animated: only its first frame is used", path.display()));
    }
    Ok(Picture { path: path.to_owned(), sha256: format!("{:x}", Sha256::digest(&bytes)), pixels, notes })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        _ => format!("cannot be read ({error})"),
    };
    // Asked before opening, because opening a FIFO waits for its writer.
    let about = fs::metadata(path).map_err(unreadable)?;
    if about.is_dir() {
        return Err("is a directory; name a picture file".into());
    }
    if !about.is_file() {
        return Err("is not a regular file; name a picture file".into());
    }
    if about.len() > MAX_FILE {
        return Err(format!("is larger than {} MiB, the most that is read", MAX_FILE >> 20));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.is_empty() { Err("is empty".into()) } else { Ok(bytes) }
}

fn recognise(bytes: &[u8]) -> Result<(ImageFormat, &'static str), String> {
    let guess = image::guess_format(bytes).ok();
    FORMATS.into_iter().find(|&(format, _)| Some(format) == guess).ok_or_else(|| {
        let names = FORMATS.map(|(_, name)| name).join(", ");
        match (guess, bytes.get(4..8)) {
            (Some(other), _) => format!("is of format {other:?}, which is not supported; convert it to one of {names}"),
            (None, Some(b"ftyp")) => format!("looks like HEIC or video, not supported; convert it to one of {names}"),
            _ => format!("is not a picture in one of the formats {names}"),
        }
    })
}

fn decode(bytes: &[u8], format: ImageFormat, name: &str) -> Result<RgbImage, String> {
    if !is_whole(bytes, format) {
        return Err("is cut short".into());
    }
    let explain = |error: ImageError| match error {
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => "is cut short".to_owned(),
        ImageError::Limits(_) => format!("takes more than {} MiB of memory to decode", MAX_ALLOC >> 20),
        ImageError::Unsupported(_) => {
            format!("is a kind of {name} that is not supported; convert it to an 8-bit PNG ({})", one_line(&error))
        }
        _ => format!("is damaged ({})", one_line(&error)),
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(explain)?;
    check_size(decoder.dimensions())?;
    if matches!(decoder.color_type(), ColorType::Rgb32F | ColorType::Rgba32F) {
        return Err(format!(
            "is a {name} of floating point samples, whose white is unknown; convert it to an 8-bit PNG"
        ));
    }
    // Broken metadata is no reason to refuse a picture.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut upright = DynamicImage::ImageRgb8(on_white(DynamicImage::from_decoder(decoder).map_err(explain)?));
    upright.apply_orientation(orientation);
    Ok(upright.into_rgb8())
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_ALLOC);
    limits
}

fn one_line(error: &ImageError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn check_size((width, height): (u32, u32)) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("has no pixels ({width} x {height})"));
    }
    if width.max(height) > MAX_SIDE || u64::from(width) * u64::from(height) > MAX_PIXELS {
        let limit = format!("{MAX_SIDE} pixels a side and {MAX_PIXELS} in all are the most that is decoded");
        return Err(format!("claims {width} x {height} pixels; {limit}"));
    }
    Ok(())
}

/// Whether the end of the file is there, for the formats whose decoders do not mind: a JPEG would be grey from where it
/// was cut, and a WebP would lose its orientation.
fn is_whole(bytes: &[u8], format: ImageFormat) -> bool {
    match (format, bytes) {
        (ImageFormat::Jpeg, _) => jpeg_has_end(bytes),
        (ImageFormat::WebP, &[_, _, _, _, a, b, c, d, ref rest @ ..]) => {
            rest.len() as u64 >= u32::from_le_bytes([a, b, c, d]).into()
        }
        _ => true,
    }
}

fn jpeg_has_end(bytes: &[u8]) -> bool {
    // 0xff starts a marker unless 0x00 (it is data) or 0xff (it is padding) follows.
    let is_marker = |pair: &[u8]| pair.first() == Some(&0xff) && !matches!(pair.last(), Some(0x00 | 0xff));
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(is_marker) {
        rest = match rest.get(at + 1..).unwrap_or_default() {
            [0xd9, ..] => return true,
            [0x01 | 0xd0..=0xd8, tail @ ..] => tail,
            [_, tail @ ..] => match tail {
                // The length counts its own two bytes. A thumbnail in a segment has an end marker too: step over it.
                [high, low, ..] => tail.get(usize::from(u16::from_be_bytes([*high, *low]))..).unwrap_or_default(),
                _ => return false,
            },
            [] => return false,
        };
    }
    false
}

/// Whether more frames follow the first.
fn is_animated(bytes: &[u8], format: ImageFormat) -> bool {
    let file = Cursor::new(bytes);
    match format {
        ImageFormat::Gif => GifDecoder::new(file).is_ok_and(|mut gif| {
            gif.set_limits(limits()).is_ok() && gif.into_frames().nth(1).is_some_and(|frame| frame.is_ok())
        }),
        ImageFormat::WebP => WebPDecoder::new(file).is_ok_and(|webp| webp.has_animation()),
        ImageFormat::Png => PngDecoder::new(file).and_then(|png| png.is_apng()).unwrap_or(false),
        _ => false,
    }
}

fn on_white(picture: DynamicImage) -> RgbImage {
    if !picture.color().has_alpha() {
        return picture.into_rgb8();
    }
    let source = picture.into_rgba8();
    let mut pixels = RgbImage::new(source.width(), source.height());
    for (pixel, &image::Rgba([r, g, b, alpha])) in pixels.pixels_mut().zip(source.pixels()) {
        let blend =
            |value: u8| ((u32::from(value) * u32::from(alpha) + 255 * u32::from(255 - alpha) + 127) / 255) as u8;
        pixel.0 = [r, g, b].map(blend);
    }
    pixels
}

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
    /// The shorter edge to this length and the longer one in proportion, rounded down, as torchvision and transformers do.
    ShortestEdge(usize),
}

/// A resampling filter. When shrinking, each widens with the scale (antialiasing), as Pillow's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Linear interpolation between 2 x 2 pixels.
    Bilinear,
    /// Cubic interpolation with a = -0.5 between 4 x 4 pixels.
    Bicubic,
    /// A windowed sinc over 6 x 6 pixels.
    Lanczos,
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
        let seen = self.filter.resample(&picture.pixels, &geometry).map_err(fail)?;
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
                let other = edge.saturating_mul(long) / short.max(1);
                if width < height { (other, edge) } else { (edge, other) }
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

impl Filter {
    /// What a model sees of `source`. Only the part that `geometry` keeps is computed; its values are those that
    /// resizing the whole picture gives.
    fn resample(self, source: &RgbImage, geometry: &Geometry) -> Result<RgbImage, String> {
        let Geometry { x, y } = geometry;
        let ((left, width), (top, height)) = (x.source(), y.source());
        let across = |source: &RgbImage| {
            self.pass(source, (x.seen as u32, source.height()), [left, 0.0, width, source.height().into()])
        };
        let down = |source: &RgbImage| {
            self.pass(source, (source.width(), y.seen as u32), [0.0, top, source.width().into(), height])
        };
        // Pillow rounds to 8 bits between the two passes, so their order shows. It goes across first; since version 13,
        // down first if that takes away more than twice as many pixels of height as of width.
        if y.shrinks_by() > 0 && y.shrinks_by() > 2 * x.shrinks_by() {
            across(&down(source)?)
        } else {
            down(&across(source)?)
        }
    }

    /// Resizes the rectangle `[left, top, width, height]` of `source` to `cols` x `rows`.
    fn pass(self, source: &RgbImage, (cols, rows): (u32, u32), area: [f64; 4]) -> Result<RgbImage, String> {
        let filter = match self {
            Self::Bilinear => FilterType::Bilinear,
            Self::Bicubic => FilterType::CatmullRom,
            Self::Lanczos => FilterType::Lanczos3,
        };
        let [left, top, width, height] = area;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).crop(left, top, width, height);
        let mut target = RgbImage::new(cols, rows);
        let from =
            ImageRef::new(source.width(), source.height(), source, PixelType::U8x3).map_err(|e| e.to_string())?;
        let mut to = Image::from_slice_u8(cols, rows, &mut target, PixelType::U8x3).map_err(|e| e.to_string())?;
        Resizer::new().resize(&from, &mut to, &options).map_err(|e| e.to_string())?;
        Ok(target)
    }
}

/// Where the patches of a model lie in the original picture: the two axes are independent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Geometry {
    /// Columns, from left to right.
    pub x: Axis,
    /// Rows, from top to bottom.
    pub y: Axis,
}

/// One axis of a [`Geometry`], in pixels unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Axis {
    /// Length of the original picture, turned upright.
    pub original: usize,
    /// Length of the resized picture.
    pub resized: usize,
    /// Where the part that the model sees begins in the resized picture.
    pub start: usize,
    /// Length of the part that the model sees: whole patches only.
    pub seen: usize,
    /// Length of a patch.
    pub patch: usize,
    /// Number of patches.
    pub patches: usize,
}

impl Axis {
    fn new(original: usize, resized: usize, start: usize, length: usize, patch: usize) -> Self {
        let patches = length.checked_div(patch).unwrap_or(0);
        Self { original, resized, start, seen: patches * patch, patch, patches }
    }

    /// Pixels that resizing takes away; negative if it adds some.
    fn shrinks_by(&self) -> i64 {
        self.original as i64 - self.resized as i64
    }

    /// The part of the original that the model sees: its start and length in original pixels.
    fn source(&self) -> (f64, f64) {
        let scale = self.original as f64 / self.resized as f64;
        let start = self.start as f64 * scale;
        (start, (self.seen as f64 * scale).min(self.original as f64 - start))
    }

    /// The place of a point on the patches: patch `i` covers `i..i + 1`. `None` where the model sees nothing.
    ///
    /// `at` is in original pixels; pixel `i` covers `i..i + 1`, so its centre is at `i + 0.5`.
    pub fn patch_at(&self, at: f64) -> Option<f64> {
        let resized = at * self.resized as f64 / self.original as f64;
        let place = (resized - self.start as f64) / self.patch as f64;
        (0.0..self.patches as f64).contains(&place).then_some(place)
    }
}

impl Geometry {
    /// The patches as (rows, cols).
    pub fn grid(&self) -> (usize, usize) {
        (self.y.patches, self.x.patches)
    }

    /// The patch (row, col) under a point of the original picture, or `None` where the model sees nothing.
    ///
    /// The point is in original pixels, as in [`Axis::patch_at`].
    pub fn patch_at(&self, x: f64, y: f64) -> Option<(usize, usize)> {
        Some((self.y.patch_at(y)? as usize, self.x.patch_at(x)? as usize))
    }
}

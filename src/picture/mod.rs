//! From a file to what the model sees (decode, orient, composite, resize, crop, normalise), and the way back from a
//! point of the original picture to a patch.

mod geometry;
mod recipe;
mod resample;

use std::error::Error as _;
use std::fs::{self, File};
use std::io::{Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use image::codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{
    AnimationDecoder, ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb,
    RgbImage,
};
use sha2::{Digest, Sha256};

pub use self::geometry::{Axis, Geometry};
pub use self::recipe::{Crop, Filter, MAX_INPUT_SIDE, Middle, ModelInput, Recipe, Resize, Size};
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
/// Memory that a decoder may take, as far as it counts it, in bytes.
pub const MAX_ALLOC: u64 = 512 << 20;

/// A decoded picture as a person would see it: turned upright by its EXIF orientation, without alpha.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The path as given.
    pub path: PathBuf,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
    /// At least one pixel, 8 bits a channel. Alpha is composited on white; colour profiles are ignored, as by Pillow.
    pub pixels: RgbImage,
    /// What a person should know about the reading, one sentence each, such as that a GIF has more frames.
    pub notes: Vec<String>,
}

impl Picture {
    /// A picture that needs no file, of (rows, cols) pixels, for measuring.
    pub fn made_up((rows, cols): (usize, usize)) -> Self {
        let pixel = |x: u32, y: u32| Rgb([x as u8, y as u8, (x ^ y) as u8]);
        let pixels = RgbImage::from_fn(cols as u32, rows as u32, pixel);
        Self { path: "made up".into(), sha256: String::new(), pixels, notes: Vec::new() }
    }
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
        let convert = |other: &str| format!("is of format {other}, not one that is supported ({names})");
        match (guess, bytes.get(4..8)) {
            (Some(other), _) => convert(&format!("{other:?}")),
            (None, Some(b"ftyp")) => convert("HEIC or a video's"),
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
            format!("is a kind of {name} that is not supported; convert it to an 8-bit PNG ({})", cause(&error))
        }
        _ => format!("is a damaged {name} ({})", cause(&error)),
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

/// What the decoder says, on one line.
fn cause(error: &ImageError) -> String {
    let words = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
    words.split_whitespace().collect::<Vec<_>>().join(" ")
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
            // A segment, which may hold a thumbnail with an end of its own. Its length counts the two bytes it takes.
            segment @ [_, high, low, ..] => {
                segment.get(1 + usize::from(u16::from_be_bytes([*high, *low]))..).unwrap_or_default()
            }
            _ => return false,
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
    for (pixel, source) in pixels.pixels_mut().zip(source.pixels()) {
        let [r, g, b, alpha] = source.0;
        let alpha = u32::from(alpha);
        pixel.0 = [r, g, b].map(|value| ((u32::from(value) * alpha + 255 * (255 - alpha) + 127) / 255) as u8);
    }
    pixels
}

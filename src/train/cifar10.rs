//! CIFAR-10's binary version (<https://www.cs.toronto.edu/~kriz/cifar.html>): records of 3073 bytes, a label and then
//! 32 x 32 red, green and blue values, row by row.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use image::RgbImage;

use super::data::{Dataset, Parts, check_classes, check_memory, name, squash};
use crate::error::{Error, Result};
use crate::picture::Picture;

/// Number of files with pictures to learn from.
const BATCHES: usize = 5;
const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const RECORD: usize = 1 + 3 * PLANE;

/// The classes where `batches.meta.txt` does not name them, as the book's code calls them.
const CLASSES: [&str; 10] = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
/// A longer list of names than this cannot be meant: labels are one byte.
const MAX_META: u64 = 64 << 10;

/// Reads the data set, or `None` if `listing`, the directory's entries, has no file of its.
pub(super) fn load(dir: &Path, listing: &[PathBuf], size: (usize, usize)) -> Result<Option<Parts>> {
    let is_train = |path: &&PathBuf| name(path).starts_with("data_batch_") && name(path).ends_with(".bin");
    let train: Vec<&Path> = listing.iter().filter(is_train).map(PathBuf::as_path).collect();
    let named = |wanted: &str| listing.iter().map(PathBuf::as_path).find(|path| name(path) == wanted);
    let test = named("test_batch.bin");
    let batches = (1..=BATCHES).map(|number| format!("data_batch_{number}.bin"));
    let missing: Vec<String> = batches.filter(|batch| named(batch).is_none()).collect();
    if train.is_empty() {
        let missing = "stands alone: the data_batch_*.bin of CIFAR-10's binary version are missing beside it";
        return test.map_or(Ok(None), |path| Err(Error::data(path, missing)));
    }

    let mut pictures = 0;
    for path in train.iter().copied().chain(test) {
        pictures += records(path)?;
    }
    check_memory(dir, pictures, size)?;
    let classes = match named("batches.meta.txt") {
        Some(path) => read_classes(path)?,
        None => CLASSES.map(str::to_owned).to_vec(),
    };
    let train = read(&train, &classes, size)?;
    check_classes(dir, train.labels.iter().copied(), &classes)?;
    let held_out = test.map(|path| read(&[path], &classes, size)).transpose()?;
    let whole = missing.is_empty();
    let note = || format!("{} is not all of CIFAR-10: {} is missing", dir.display(), missing.join(", "));
    let notes = if whole { Vec::new() } else { vec![note()] };
    Ok(Some(Parts { train, held_out: held_out.map(|set| (set, "test")), classes, notes }))
}

/// The number of records in a file, which must be whole.
fn records(path: &Path) -> Result<usize> {
    let (length, record) = (length(path)?, RECORD as u64);
    match (length / record, length % record) {
        (0, 0) => Err(Error::data(path, "is empty")),
        (count, 0) => Ok(count as usize),
        _ => Err(Error::data(
            path,
            format!(
                "has {length} bytes, not a multiple of the {RECORD} of a record (a label and 32 x 32 x 3 values): it is \
                 cut short or not from CIFAR-10's binary version"
            ),
        )),
    }
}

/// The length of a regular file in bytes. Asked before opening, because opening a FIFO waits for its writer.
fn length(path: &Path) -> Result<u64> {
    let file = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if file.is_file() { Ok(file.len()) } else { Err(Error::data(path, "is not a regular file")) }
}

fn read_classes(path: &Path) -> Result<Vec<String>> {
    length(path)?;
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(MAX_META).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    let classes: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if classes.is_empty() {
        return Err(Error::data(path, "names no class: expected one name a line"));
    }
    Ok(classes)
}

fn read(paths: &[&Path], classes: &[String], size: (usize, usize)) -> Result<Dataset> {
    let mut set = Dataset::empty(size);
    for path in paths {
        let expected = records(path)?;
        let mut bytes = Vec::with_capacity(expected * RECORD);
        File::open(path)
            .and_then(|file| file.take((expected * RECORD) as u64).read_to_end(&mut bytes))
            .map_err(|error| unreadable(path, &error))?;
        set.pixels.reserve(expected * set.stride());
        for (index, record) in bytes.chunks_exact(RECORD).enumerate() {
            let Some((&label, values)) = record.split_first() else { continue };
            let label = usize::from(label);
            if label >= classes.len() {
                let reason =
                    format!("record {index} has label {label}, and labels run from 0 to {}", classes.len() - 1);
                return Err(Error::data(path, reason));
            }
            set.labels.push(label);
            push(&mut set, values, path)?;
        }
    }
    Ok(set)
}

/// Adds the values `[3, 32, 32]` of one record, resized if the set is of another size.
fn push(set: &mut Dataset, values: &[u8], path: &Path) -> Result<()> {
    if (set.rows, set.cols) == (SIDE, SIDE) {
        set.pixels.extend_from_slice(values);
        return Ok(());
    }
    let mut pixels = RgbImage::new(SIDE as u32, SIDE as u32);
    for (channel, plane) in values.chunks_exact(PLANE).enumerate() {
        for (pixel, &value) in pixels.pixels_mut().zip(plane) {
            pixel.0[channel] = value;
        }
    }
    let picture = Picture { path: path.to_owned(), sha256: String::new(), pixels, notes: Vec::new() };
    let start = set.pixels.len();
    set.pixels.resize(start + set.stride(), 0);
    squash(&picture, (set.rows, set.cols), &mut set.pixels[start..])
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::data(path, format!("cannot be read ({error})"))
}

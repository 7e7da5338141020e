//! Labelled pictures in memory, from CIFAR-10's binary version or from one folder a class.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::random::{Epoch, shuffle};
use super::{cifar10, folders};
use crate::error::{Error, Result};
use crate::picture::{MAX_INPUT_SIDE, Picture, Recipe};

/// Most memory that the pictures of a data set may take, in bytes.
pub const MAX_BYTES: u64 = 4 << 30;

/// Pictures of one size with their classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Red, green and blue, `[n, 3, rows, cols]`.
    pub pixels: Vec<u8>,
    /// Classes as indices into [`Split::classes`], `[n]`.
    pub labels: Vec<usize>,
    /// Height of a picture in pixels.
    pub rows: usize,
    /// Width of a picture in pixels.
    pub cols: usize,
}

impl Dataset {
    /// A set without pictures.
    pub(super) fn empty((rows, cols): (usize, usize)) -> Self {
        Self { pixels: Vec::new(), labels: Vec::new(), rows, cols }
    }

    /// Number of pictures.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no picture.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Bytes of one picture.
    pub fn stride(&self) -> usize {
        3 * self.rows * self.cols
    }

    /// One picture, `[3, rows, cols]`.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub fn picture(&self, index: usize) -> &[u8] {
        &self.pixels[index * self.stride()..][..self.stride()]
    }

    /// Moves the marked pictures into a set of their own; both keep their order.
    fn take(&mut self, marked: &[bool]) -> Self {
        let mut taken = Self::empty((self.rows, self.cols));
        let (stride, mut kept) = (self.stride(), 0);
        for (index, &mark) in marked.iter().enumerate() {
            let place = index * stride..(index + 1) * stride;
            if mark {
                taken.pixels.extend_from_slice(&self.pixels[place]);
                taken.labels.push(self.labels[index]);
            } else {
                // In place, because a second copy of the set may not fit the memory.
                self.pixels.copy_within(place, kept * stride);
                self.labels[kept] = self.labels[index];
                kept += 1;
            }
        }
        self.pixels.truncate(kept * stride);
        self.labels.truncate(kept);
        taken
    }
}

/// A data set in two parts.
#[derive(Debug, Clone)]
pub struct Split {
    /// What the model learns from.
    pub train: Dataset,
    /// What it is judged by and never learns from.
    pub held_out: Dataset,
    /// What to call the second part: `test` or `validation`.
    pub held_out_name: &'static str,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// What a person should know about the reading, one sentence each, such as that files were skipped.
    pub notes: Vec<String>,
}

/// What a directory holds, before a part is held out.
pub(super) struct Parts {
    /// Pictures to learn from.
    pub train: Dataset,
    /// Pictures that the directory sets apart, with their name as in [`Split::held_out_name`].
    pub held_out: Option<(Dataset, &'static str)>,
    /// As in [`Split`].
    pub classes: Vec<String>,
    /// As in [`Split`].
    pub notes: Vec<String>,
}

/// Reads the data set in `dir`, each picture squashed to `size` (rows, cols) as
/// [`Recipe::book`](crate::picture::Recipe::book) does.
///
/// Known are CIFAR-10's binary version (`data_batch_*.bin`, `test_batch.bin`, `batches.meta.txt`) and folders of
/// pictures named after their class, either directly in `dir` or in its folders `train` and `validation` (or `val`,
/// `valid`, `test`). Where no part is set apart, `validation_share` of each class is, chosen by `seed`.
/// After each picture that had to be decoded, `progress` gets the number of those done and their total; it is called
/// from several threads.
///
/// # Errors
/// [`Error::Data`] naming the file or folder at fault; [`Error::Selection`] for a size or a share that makes no sense.
pub fn open(
    dir: &Path,
    size: (usize, usize),
    validation_share: f32,
    seed: u64,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Split> {
    if !(1..=MAX_INPUT_SIDE).contains(&size.0) || !(1..=MAX_INPUT_SIDE).contains(&size.1) {
        let valid = format!("expected from 1 to {MAX_INPUT_SIDE} pixels a side");
        return Err(Error::selection("--image-size", format!("{}x{}", size.0, size.1), valid));
    }
    let listing = entries(dir)?;
    let Parts { mut train, held_out, classes, mut notes } = match cifar10::load(dir, &listing, size)? {
        Some(parts) => parts,
        None => folders::load(dir, &listing, size, progress)?,
    };
    let (held_out, held_out_name) = match held_out {
        Some(named) => named,
        None => {
            let all = train.len();
            let held_out = hold_out(dir, &mut train, validation_share, seed)?;
            let (count, dir) = (held_out.len(), dir.display());
            notes.push(format!("{dir} has no test part: {count} of {all} pictures are held out for validation"));
            (held_out, "validation")
        }
    };
    Ok(Split { train, held_out, held_out_name, classes, notes })
}

/// Takes a share of each class out of `train`, at least one picture of each class that has two.
fn hold_out(dir: &Path, train: &mut Dataset, share: f32, seed: u64) -> Result<Dataset> {
    if !(share > 0.0 && share < 1.0) {
        let valid = "expected a share above 0 and below 1, such as 0.1";
        return Err(Error::selection("--validation-share", share.to_string(), valid));
    }
    let counts = count(&train.labels);
    let mut wanted: Vec<usize> = counts
        .iter()
        .map(|&all| if all < 2 { 0 } else { ((all as f32 * share).round() as usize).clamp(1, all - 1) })
        .collect();
    if wanted.iter().all(|&number| number == 0) {
        return Err(Error::data(
            dir,
            "has one picture a class: at least two are needed, one to learn from, one to test",
        ));
    }
    let mut marked = vec![false; train.len()];
    for index in shuffle(train.len(), Epoch { seed, number: 0 }) {
        let left = &mut wanted[train.labels[index]];
        marked[index] = *left > 0;
        *left = left.saturating_sub(1);
    }
    Ok(train.take(&marked))
}

/// Pictures of each class, up to the last class that has one.
fn count(labels: &[usize]) -> Vec<usize> {
    let mut counts = vec![0; labels.iter().max().map_or(0, |last| last + 1)];
    for &label in labels {
        counts[label] += 1;
    }
    counts
}

/// What lies in a directory, sorted by name, without hidden files.
pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::data(dir, "no such directory"),
        ErrorKind::NotADirectory => Error::data(dir, "is not a directory; name the directory that holds the pictures"),
        _ => Error::data(dir, format!("cannot be read ({error})")),
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// The last part of a path, as text.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Refuses more pictures than [`MAX_BYTES`] holds.
pub(super) fn check_memory(dir: &Path, pictures: usize, (rows, cols): (usize, usize)) -> Result<()> {
    let bytes = (3 * rows * cols) as u64;
    if (pictures as u64).saturating_mul(bytes) <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::data(
        dir,
        format!(
            "has {pictures} pictures, {} GiB at {cols} x {rows} pixels, and {} GiB is the most that is held in memory: \
             choose a smaller --image-size or fewer pictures",
            (pictures as u64).saturating_mul(bytes).div_ceil(1 << 30),
            MAX_BYTES >> 30
        ),
    ))
}

/// Refuses training pictures that are all of one class.
pub(super) fn check_classes(dir: &Path, mut labels: impl Iterator<Item = usize>, classes: &[String]) -> Result<()> {
    let Some(first) = labels.next() else {
        return Err(Error::data(dir, "holds no pictures"));
    };
    if labels.any(|label| label != first) {
        return Ok(());
    }
    let only = classes.get(first).map_or("", String::as_str);
    Err(Error::data(dir, format!("has pictures of one class only, {only}: at least two classes are needed")))
}

/// Writes what a model of `size` (rows, cols) sees of a picture into `slot`, `[3, rows, cols]`.
pub(super) fn squash(picture: &Picture, (rows, cols): (usize, usize), slot: &mut [u8]) -> Result<()> {
    let seen = Recipe::book(rows, cols).apply(picture, (1, 1))?.seen;
    for (channel, plane) in slot.chunks_exact_mut(rows * cols).take(3).enumerate() {
        for (value, pixel) in plane.iter_mut().zip(seen.pixels()) {
            *value = pixel.0[channel];
        }
    }
    Ok(())
}

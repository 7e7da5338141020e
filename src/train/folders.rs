//! Pictures in folders that are named after their class.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use image::ImageFormat;

use super::data::{Dataset, Parts, check_classes, check_memory, entries, name, squash};
use crate::error::{Error, Result};
use crate::picture::{self, FORMATS};

/// Folder names that set a part apart, best first, and what to call it. Validation comes first, because a part that
/// every epoch is judged by is no test any more.
const HELD_OUT: [(&str, &str); 4] =
    [("validation", "validation"), ("val", "validation"), ("valid", "validation"), ("test", "test")];
/// Most threads that decode pictures; each may need the memory of a very large one.
const MAX_THREADS: usize = 8;

/// Reads the data set of a directory with the entries `listing`; `progress` gets pictures done and their total.
pub(super) fn load(
    dir: &Path,
    listing: &[PathBuf],
    size: (usize, usize),
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Parts> {
    let (train_dir, held_out_dir, mut notes) = layout(dir, listing);
    let (classes, train) = list(&train_dir, &mut notes)?;
    check_classes(&train_dir, train.iter().map(|file| file.1), &classes)?;
    let held_out = match held_out_dir {
        Some((held_out_dir, part)) => Some((list_like(&held_out_dir, &classes, &mut notes)?, part)),
        None => None,
    };

    let total = train.len() + held_out.as_ref().map_or(0, |(files, _)| files.len());
    check_memory(dir, total, size)?;
    let done = AtomicUsize::new(0);
    let tick = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
    let train = decode(&train, size, &tick)?;
    let held_out = match held_out {
        Some((files, part)) => Some((decode(&files, size, &tick)?, part)),
        None => None,
    };
    Ok(Parts { train, held_out, classes, notes })
}

/// The directory of class folders to learn from, the one that is set apart with its name, and what to say about it.
fn layout(dir: &Path, listing: &[PathBuf]) -> (PathBuf, Option<(PathBuf, &'static str)>, Vec<String>) {
    let folders: Vec<String> = listing.iter().filter(|path| path.is_dir()).map(|path| name(path)).collect();
    let is_here = |wanted: &str| folders.iter().any(|folder| folder == wanted);
    let is_part = |folder: &String| folder == "train" || HELD_OUT.iter().any(|(known, _)| known == folder);
    // Beside other folders, `train` is a class: somebody tells trains from planes.
    if !is_here("train") || !folders.iter().all(is_part) {
        return (dir.to_owned(), None, Vec::new());
    }
    let mut parts = HELD_OUT.iter().filter(|(known, _)| is_here(known)).map(|&(folder, part)| (dir.join(folder), part));
    let held_out = parts.next();
    let notes = parts.map(|(unused, _)| format!("{} is not used", unused.display())).collect();
    (dir.join("train"), held_out, notes)
}

/// The picture files of a directory with their class.
type Files = Vec<(PathBuf, usize)>;

/// The classes of a directory, which are its folders, and its picture files.
fn list(dir: &Path, notes: &mut Vec<String>) -> Result<(Vec<String>, Files)> {
    let formats = FORMATS.map(|(_, name)| name).join(", ");
    let is_picture = |path: &PathBuf| {
        let format = ImageFormat::from_path(path).ok();
        FORMATS.iter().any(|&(known, _)| Some(known) == format)
    };
    let (mut classes, mut files) = (Vec::new(), Vec::new());
    let (folders, mut skipped): (Vec<_>, Vec<_>) = entries(dir)?.into_iter().partition(|path| path.is_dir());
    for folder in folders {
        let (pictures, others): (Vec<_>, Vec<_>) = entries(&folder)?.into_iter().partition(is_picture);
        if pictures.is_empty() {
            let reason = format!("this class folder holds no pictures ({formats}): fill it or remove it");
            return Err(Error::data(&folder, reason));
        }
        files.extend(pictures.into_iter().map(|path| (path, classes.len())));
        skipped.extend(others);
        classes.push(name(&folder));
    }
    if classes.is_empty() {
        let expected =
            "holds neither CIFAR-10's binary version (data_batch_*.bin) nor a folder of pictures for each class";
        return Err(Error::data(dir, expected));
    }
    if let Some(first) = skipped.first() {
        let (count, first) = (skipped.len(), first.display());
        notes.push(format!("{count} entries that are no pictures of a class were skipped, such as {first}"));
    }
    Ok((classes, files))
}

/// The picture files of a directory whose folders are among `classes`.
fn list_like(dir: &Path, classes: &[String], notes: &mut Vec<String>) -> Result<Files> {
    let (own, mut files) = list(dir, notes)?;
    let mut places = Vec::new();
    for class in &own {
        let place = classes.iter().position(|known| known == class);
        let reason = "this class has no folder among the training pictures, so it cannot be learnt";
        places.push(place.ok_or_else(|| Error::data(&dir.join(class), reason))?);
    }
    for (_, label) in &mut files {
        *label = places[*label];
    }
    Ok(files)
}

/// Decodes pictures on several threads; `tick` is called after each. The first one that fails ends it.
fn decode(files: &[(PathBuf, usize)], size: (usize, usize), tick: &(dyn Fn() + Sync)) -> Result<Dataset> {
    let mut set = Dataset::empty(size);
    set.labels = files.iter().map(|file| file.1).collect();
    let stride = set.stride();
    set.pixels = vec![0; files.len() * stride];

    let work = Mutex::new(files.iter().zip(set.pixels.chunks_exact_mut(stride)));
    let failed = AtomicBool::new(false);
    let worker = || -> Result<()> {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(((path, _), slot)) = next.filter(|_| !failed.load(Ordering::Relaxed)) else { return Ok(()) };
            decode_one(path, size, slot).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            tick();
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(set)
}

fn decode_one(path: &Path, size: (usize, usize), slot: &mut [u8]) -> Result<()> {
    let picture = picture::load(path).and_then(|picture| squash(&picture, size, slot));
    picture.map_err(|error| match error {
        Error::Picture { path, reason } => {
            Error::data(&path, format!("{reason}; repair it or take it out of the data set"))
        }
        other => other,
    })
}

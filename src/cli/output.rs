//! The one place that writes artifacts: to a temporary name first, then renamed, so that a file is whole or absent.

use std::{
    borrow::Borrow,
    fs,
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{
    error::{Error, Result},
    map::Artifact,
};

/// The file whose presence marks a directory as a finished run.
pub const MANIFEST: &str = "manifest.json";

/// Refuses an output directory that holds an earlier run, unless forced; and anything that is not a directory.
///
/// # Errors
/// [`Error::Output`] naming the directory.
pub fn check(directory: &Path, force: bool) -> Result<()> {
    if directory.exists() && !directory.is_dir() {
        return Err(Error::output(directory, "is a file, and the output needs a directory (see --out)"));
    }
    if !force && directory.join(MANIFEST).exists() {
        let reason = "holds the maps of an earlier run; write over them with --force, or choose another --out";
        return Err(Error::output(directory, reason));
    }
    Ok(())
}

/// Makes a directory and finds out whether files can be written into it.
///
/// # Errors
/// [`Error::Output`] naming the directory.
pub fn prepare(directory: &Path) -> Result<()> {
    let fail = |what| move |error| Error::output(directory, format!("{what}: {error}"));
    fs::create_dir_all(directory).map_err(fail("the directory cannot be made"))?;
    temporary(directory).map(drop).map_err(fail("no file can be written into this directory"))
}

/// Takes an earlier run away, before another is written in its place: the manifest, which is the mark of a finished run,
/// and then the files that it lists, so that none of them is taken for one of the new run.
///
/// # Errors
/// [`Error::Output`] naming the file that cannot be removed, or that is the `picture` which is shown: then all stay.
pub fn clear(directory: &Path, picture: &Path) -> Result<()> {
    let manifest = directory.join(MANIFEST);
    let mut earlier = vec![manifest.clone()];
    earlier.extend(listed(&manifest).iter().map(|name| directory.join(name)).filter(|path| path.is_file()));
    let picture = picture.canonicalize().ok();
    if let Some(file) = earlier.iter().find(|file| picture.is_some() && file.canonicalize().ok() == picture) {
        return Err(Error::output(file, "is already there as the picture to show: choose another --out"));
    }
    earlier.iter().try_for_each(|file| remove(file))
}

/// The files that a manifest of ours lists, as far as they are plain names.
fn listed(manifest: &Path) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Earlier {
        #[serde(rename = "tool_version")]
        _ours: String,
        files: Vec<String>,
    }
    let earlier = fs::read(manifest).ok().and_then(|bytes| serde_json::from_slice::<Earlier>(&bytes).ok());
    let mut files = earlier.map_or_else(Vec::new, |earlier| earlier.files);
    files.retain(|name| Path::new(name).file_name().is_some_and(|last| last == name.as_str()));
    files
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::output(file, format!("cannot be replaced: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes an artifact into a directory that was [prepared](prepare), in the place of a file of that name only if it may
/// `replace` it.
///
/// # Errors
/// [`Error::Output`] naming the file that could not be written.
pub fn write(directory: &Path, artifact: &Artifact, replace: bool) -> Result<PathBuf> {
    let path = directory.join(&artifact.name);
    let written = temporary(directory).and_then(|mut file| {
        file.write_all(&artifact.bytes)?;
        Ok(if replace { file.persist(&path)? } else { file.persist_noclobber(&path)? })
    });
    match written {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let reason = "is there already, and not from a finished run: choose another --out, or take it away";
            Err(Error::output(&path, reason))
        }
        Err(error) => Err(Error::output(&path, format!("cannot be written: {error}"))),
    }
}

/// Whether a forced run may replace files that no manifest lists: not where the picture itself lies, which may have the
/// name of one of them.
pub fn may_replace(directory: &Path, force: bool, picture: &Path) -> bool {
    let folder = picture.canonicalize().ok().and_then(|picture| picture.parent().map(Path::to_owned));
    force && folder.is_some() && folder != directory.canonicalize().ok()
}

/// Writes artifacts as [`write`] does, one after the other as they come. Where one fails, those before it are taken away
/// again.
///
/// # Errors
/// As [`write`], and whatever an artifact fails with.
pub fn write_all<A: Borrow<Artifact>>(
    directory: &Path,
    artifacts: impl Iterator<Item = Result<A>>,
    replace: bool,
) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for artifact in artifacts {
        match artifact.and_then(|artifact| write(directory, artifact.borrow(), replace)) {
            Ok(path) => paths.push(path),
            Err(error) => {
                paths.iter().for_each(|path| drop(fs::remove_file(path)));
                return Err(error);
            }
        }
    }
    Ok(paths)
}

/// A file of a name that nobody has, which is removed when it is dropped.
pub fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vit-attn-");
    // A temporary file is private by default; the finished one should be readable as the user's umask says.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory)
}

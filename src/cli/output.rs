//! The one place that writes artifacts: to a temporary name first, then renamed, so that a file is whole or absent.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

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

/// Writes artifacts into a directory, which is made if need be.
///
/// # Errors
/// [`Error::Output`] naming the file that could not be written.
pub fn write(directory: &Path, artifacts: &[Artifact]) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).map_err(|error| Error::output(directory, format!("cannot be made: {error}")))?;
    let write = |artifact: &Artifact| {
        let path = directory.join(&artifact.name);
        write_file(directory, &path, &artifact.bytes)
            .map_err(|error| Error::output(&path, format!("cannot be written: {error}")))?;
        Ok(path)
    };
    artifacts.iter().map(write).collect()
}

fn write_file(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vit-attn-");
    // A temporary file is private by default; the finished one should be readable as the user's umask says.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

//! From what `--model` names to a weights file and its `config.json`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Names that a directory's weights go by, best first.
const NAMES: [&str; 7] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
    "model_final.pt",
];

/// Endings of files that may hold weights.
const ENDINGS: [&str; 5] = ["safetensors", "pt", "pth", "bin", "npz"];

/// Endings of files that hold weights in formats that are not read, so that one alone is called what it is.
const FOREIGN: [&str; 5] = ["h5", "onnx", "gguf", "msgpack", "npy"];

/// The files of a checkpoint.
pub(super) struct Place {
    pub weights: PathBuf,
    pub config: Option<PathBuf>,
    pub processor: Option<PathBuf>,
}

/// Finds the weights in a directory, or takes the file as named; JSON files of known names beside the weights belong to
/// them.
pub(super) fn locate(path: &Path) -> Result<Place> {
    let cached = if path.exists() { None } else { in_cache(path)? };
    let path = cached.as_deref().unwrap_or(path);
    let found = fs::metadata(path).map_err(|error| Error::checkpoint(path, format!("cannot be opened: {error}")))?;
    let weights = if found.is_dir() { weights_in(path)? } else { path.to_owned() };
    let beside = |name: &str| Some(weights.with_file_name(name)).filter(|path| path.is_file());
    let config = beside("config.json").or_else(|| beside("open_clip_config.json"));
    Ok(Place { config, processor: beside("preprocessor_config.json"), weights })
}

fn weights_in(directory: &Path) -> Result<PathBuf> {
    if let Some(named) = NAMES.iter().map(|name| directory.join(name)).find(|path| path.exists()) {
        return Ok(named);
    }
    let unreadable = |error| Error::checkpoint(directory, format!("the directory cannot be read: {error}"));
    let (mut candidates, mut foreign) = (Vec::new(), None);
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let ends = |endings: &[&str]| path.extension().is_some_and(|found| endings.iter().any(|known| found == *known));
        if ends(&ENDINGS) {
            candidates.push(path);
        } else if ends(&FOREIGN) {
            foreign = Some(path);
        }
    }
    candidates.sort();
    match (candidates.as_slice(), foreign) {
        ([only], _) => Ok(only.clone()),
        ([], Some(path)) => Ok(path),
        ([], None) => {
            Err(Error::checkpoint(directory, "holds no weights: expected model.safetensors or model_final.pt in it"))
        }
        (several, _) => {
            let names: Vec<_> = several.iter().take(4).filter_map(|p| p.file_name()?.to_str()).collect();
            let more = if several.len() > names.len() { ", ..." } else { "" };
            let (count, names) = (several.len(), names.join(", "));
            let reason = format!("holds {count} weights files ({names}{more}): name the one to open");
            Err(Error::checkpoint(directory, reason))
        }
    }
}

/// The directory of a model in the local Hugging Face cache, for an id such as `facebook/dinov2-small` or, for another
/// revision than `main`, `facebook/dinov2-small@REVISION`; `None` for what is no id.
fn in_cache(path: &Path) -> Result<Option<PathBuf>> {
    let id = path.to_str().unwrap_or_default();
    let (id, revision) = id.split_once('@').unwrap_or((id, "main"));
    let name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    let Some((owner, model)) = id.split_once('/').filter(|(owner, model)| name(owner) && name(model)) else {
        return Ok(None);
    };
    let cache = cache();
    let model = cache.join(format!("models--{owner}--{model}"));
    if !name(revision) || !model.is_dir() {
        let reason =
            format!("is neither a file or directory nor a model in the Hugging Face cache {}", cache.display());
        return Err(Error::checkpoint(path, reason));
    }
    let commit = fs::read_to_string(model.join("refs").join(revision));
    let commit = commit.map_or(revision.to_owned(), |commit| commit.trim().to_owned());
    let snapshot = model.join("snapshots").join(&commit);
    if !name(&commit) || !snapshot.is_dir() {
        let reason = format!("has no revision {revision} in the Hugging Face cache {}", cache.display());
        return Err(Error::checkpoint(path, reason));
    }
    Ok(Some(snapshot))
}

/// Where transformers and its like keep downloaded models.
fn cache() -> PathBuf {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").or_else(|| variable("USERPROFILE")).unwrap_or_default();
    let shared = || variable("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("huggingface");
    variable("HF_HUB_CACHE").unwrap_or_else(|| variable("HF_HOME").unwrap_or_else(shared).join("hub"))
}

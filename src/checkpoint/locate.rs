//! From what `--model` names to a weights file and its `config.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::hub::HubModel;
use crate::error::{Error, Result};

/// Names that a directory's weights go by, best first.
pub(super) const NAMES: [&str; 7] = [
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
    let hub = if path.exists() { None } else { HubModel::parse(path) };
    let cached = hub.map(|model| model.open(path)).transpose()?;
    let path = cached.as_deref().unwrap_or(path);
    let found = fs::metadata(path).map_err(|error| Error::checkpoint(path, format!("cannot be opened: {error}")))?;
    let weights = if found.is_dir() { weights_in(path)? } else { path.to_owned() };
    let beside = |name: &str| Some(weights.with_file_name(name)).filter(|path| path.is_file());
    let config = beside("config.json").or_else(|| beside("open_clip_config.json"));
    Ok(Place { config, processor: beside("preprocessor_config.json"), weights })
}

/// The weights file in a directory.
pub(super) fn weights_in(directory: &Path) -> Result<PathBuf> {
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

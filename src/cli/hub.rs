//! Models of the Hugging Face hub that are not on this machine yet.

#[cfg(feature = "hub")]
mod download;

use std::{env, path::Path};

#[cfg(feature = "hub")]
use download::download;

use crate::{
    checkpoint::hub::HubModel,
    error::{Error, Result},
};

/// Sees to it that the cache holds the model that `path` names, if it is the id of one and no file or directory.
///
/// # Errors
/// [`Error::Checkpoint`] if it cannot be downloaded, or must not be.
pub fn fetch(path: &Path) -> Result<()> {
    let Some(model) = HubModel::parse(path).filter(|model| !path.exists() && !model.is_cached()) else { return Ok(()) };
    // As huggingface_hub understands it.
    let forbidden = env::var("HF_HUB_OFFLINE")
        .is_ok_and(|value| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str()));
    if forbidden {
        return Err(missing(path, &model, "HF_HUB_OFFLINE forbids to download it"));
    }
    download(path, &model)
}

#[cfg(not(feature = "hub"))]
fn download(path: &Path, model: &HubModel) -> Result<()> {
    let advice = format!("download it with `hf download {}`, or build with `--features hub`, which does", model.id);
    Err(missing(path, model, &advice))
}

/// A model that is not in the cache, and what to do.
fn missing(path: &Path, model: &HubModel, advice: &str) -> Error {
    match model.open(path) {
        // The error of the library ends with the cache's name.
        Err(error) => Error::checkpoint(path, format!("{}; {advice}", reason(&error))),
        Ok(folder) => Error::checkpoint(path, format!("{} holds no weights; {advice}", folder.display())),
    }
}

fn reason(error: &Error) -> String {
    match error {
        Error::Checkpoint { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

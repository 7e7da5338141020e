//! Models of the Hugging Face hub: their ids, and where the local cache keeps them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::locate::{NAMES, weights_in};
use crate::error::{Error, Result};

/// Files beside the weights that tell what a model is and how it wants its pictures.
const SETTINGS: [&str; 3] = ["config.json", "preprocessor_config.json", "open_clip_config.json"];

/// A model on the hub, by an id such as `facebook/dinov2-small` or, for another revision than `main`,
/// `facebook/dinov2-small@REVISION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// The id without the revision.
    pub id: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// The model's folder in the local cache, which need not exist; `refs`, `snapshots` and `blobs` lie in it.
    pub folder: PathBuf,
}

impl HubModel {
    /// The model that `text` names if it is no path; `None` for what is no id.
    pub fn parse(text: &Path) -> Option<Self> {
        let (id, revision) = match text.to_str()?.split_once('@') {
            Some((id, revision)) => (id, revision),
            None => (text.to_str()?, "main"),
        };
        let (owner, model) = id.split_once('/')?;
        let folder = cache().join(format!("models--{owner}--{model}"));
        let plain = is_plain(owner) && is_plain(model) && is_plain(revision);
        plain.then(|| Self { id: id.to_owned(), revision: revision.to_owned(), folder })
    }

    /// Whether the cache holds the model with its weights.
    pub fn is_cached(&self) -> bool {
        self.snapshot().is_some_and(|snapshot| weights_in(&snapshot).is_ok())
    }

    /// The directory of the model's revision in the cache; `typed` is how a person named it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the cache has no such model or revision.
    pub fn open(&self, typed: &Path) -> Result<PathBuf> {
        self.snapshot().ok_or_else(|| {
            let found = if self.folder.is_dir() {
                format!("has no revision {}", self.revision)
            } else {
                "is neither a file or directory nor a model".to_owned()
            };
            Error::checkpoint(typed, format!("{found} in the Hugging Face cache {}", cache().display()))
        })
    }

    fn snapshot(&self) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.folder.join("refs").join(&self.revision));
        let commit = commit.map_or_else(|_| self.revision.clone(), |commit| commit.trim().to_owned());
        let snapshot = self.folder.join("snapshots").join(&commit);
        (is_plain(&commit) && snapshot.is_dir()).then_some(snapshot)
    }
}

/// Which of a model's files on the hub are needed: settings, and the best of the weights or their index. `None` if there
/// are no weights of a known name.
pub fn needed<'a>(files: &[&'a str]) -> Option<Vec<&'a str>> {
    let find = |name: &&str| files.iter().find(|file| *file == name).copied();
    let weights = NAMES.iter().find_map(find)?;
    Some(SETTINGS.iter().filter_map(find).chain([weights]).collect())
}

/// Whether a name is a single plain part of a path.
pub fn is_plain(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
}

/// Where transformers and its like keep what they know of the hub, such as `hub/` and `token`.
pub fn home() -> PathBuf {
    let home = || variable("HOME").or_else(|| variable("USERPROFILE")).unwrap_or_default();
    let shared = || variable("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("huggingface");
    variable("HF_HOME").unwrap_or_else(shared)
}

/// Where they keep downloaded models.
fn cache() -> PathBuf {
    variable("HF_HUB_CACHE").unwrap_or_else(|| home().join("hub"))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

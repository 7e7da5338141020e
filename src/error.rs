//! The library's one error type. Each message is one sentence that names the file or flag, what was found and what
//! would be right.

use std::path::{Path, PathBuf};

/// Anything that can go wrong between a file on disk and an artifact in memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A picture that cannot be read or used.
    #[error("{}: {reason}", path.display())]
    Picture {
        /// The picture's path as given.
        path: PathBuf,
        /// What was found, and what would be right.
        reason: String,
    },
    /// A checkpoint that cannot be opened or does not describe a model we know.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The checkpoint file or directory.
        path: PathBuf,
        /// What was found, and what would be right.
        reason: String,
    },
    /// A checkpoint whose tensors do not fit the model its config describes.
    #[error("{}: {} of the model's tensors are missing or misshapen:\n  {}", path.display(), problems.len(), problems.join("\n  "))]
    Keys {
        /// The checkpoint file.
        path: PathBuf,
        /// One line a tensor: its key, and what was expected and found.
        problems: Vec<String>,
    },
    /// A value on the command line that does not fit this model or picture.
    #[error("{flag} {given}: {valid}")]
    Selection {
        /// The flag, such as `--layers`.
        flag: &'static str,
        /// The value as typed.
        given: String,
        /// What would be valid.
        valid: String,
    },
    /// A backend that cannot run here.
    #[error("backend {backend}: {reason}")]
    Backend {
        /// The backend's name.
        backend: String,
        /// Why, and what to install.
        reason: String,
    },
    /// A file that cannot be written.
    #[error("{}: {reason}", path.display())]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Training data that cannot be used.
    #[error("{}: {reason}", path.display())]
    Data {
        /// The file or directory.
        path: PathBuf,
        /// What was found, and what would be right.
        reason: String,
    },
    /// Attention of another program that cannot be read or does not fit the model.
    #[error("{}: {reason}", path.display())]
    Reference {
        /// The file.
        path: PathBuf,
        /// What was found, and what would be right.
        reason: String,
    },
    /// Numbers that went wrong: a loss or an attention row that is not finite.
    #[error("{0}")]
    Numbers(String),
}

/// A result of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A picture that cannot be used, with the reason.
    pub fn picture(path: &Path, reason: impl Into<String>) -> Self {
        Self::Picture { path: path.to_owned(), reason: reason.into() }
    }

    /// A checkpoint that cannot be used, with the reason.
    pub fn checkpoint(path: &Path, reason: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.to_owned(), reason: reason.into() }
    }

    /// A command-line value that does not fit, with what would be valid.
    pub fn selection(flag: &'static str, given: impl Into<String>, valid: impl Into<String>) -> Self {
        Self::Selection { flag, given: given.into(), valid: valid.into() }
    }

    /// A backend that cannot run here, with the reason.
    pub fn backend(backend: impl ToString, reason: impl Into<String>) -> Self {
        Self::Backend { backend: backend.to_string(), reason: reason.into() }
    }

    /// A file that cannot be written, with the reason.
    pub fn output(path: &Path, reason: impl Into<String>) -> Self {
        Self::Output { path: path.to_owned(), reason: reason.into() }
    }

    /// Training data that cannot be used, with the reason.
    pub fn data(path: &Path, reason: impl Into<String>) -> Self {
        Self::Data { path: path.to_owned(), reason: reason.into() }
    }

    /// A reference that cannot be used, with the reason.
    pub fn reference(path: &Path, reason: impl Into<String>) -> Self {
        Self::Reference { path: path.to_owned(), reason: reason.into() }
    }
}

//! A model's `config.json`, field by field, with errors that name the field.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::MAX_SIZE;
use crate::error::{Error, Result};

/// The largest `config.json` that is read, in bytes; real ones with a thousand labels take 70,000.
const MAX_BYTES: u64 = 16 << 20;

/// The fields of a `config.json`.
#[derive(Debug, Clone)]
pub struct Settings {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Settings {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it cannot be read or is not a JSON object.
    pub fn open(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| Error::checkpoint(path, format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::checkpoint(path, format!("is larger than {MAX_BYTES} bytes, so no model's config")));
        }
        Self::parse(path, &bytes)
    }

    /// Reads the text of a `config.json`; `path` is for error messages.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is not a JSON object.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => Ok(Self { path: path.to_owned(), fields }),
            Ok(_) => Err(Error::checkpoint(path, "is JSON, but not an object with the model's sizes")),
            Err(error) => Err(Error::checkpoint(path, format!("is not JSON: {error}"))),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A size, such as `hidden_size`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is missing or not a whole number from 1 to [`MAX_SIZE`].
    pub fn size(&self, name: &str) -> Result<usize> {
        let value = self.required(name)?;
        size(value).ok_or_else(|| self.refuse(name, value, &format!("a whole number from 1 to {MAX_SIZE}")))
    }

    /// A size in pixels: one number for a square, or `[rows, cols]`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is missing or neither.
    pub fn rows_cols(&self, name: &str) -> Result<(usize, usize)> {
        let value = self.required(name)?;
        let pair = match value.as_array().map(Vec::as_slice) {
            Some([rows, cols]) => size(rows).zip(size(cols)),
            Some(_) => None,
            None => size(value).map(|side| (side, side)),
        };
        pair.ok_or_else(|| self.refuse(name, value, &format!("a number from 1 to {MAX_SIZE}, or [rows, cols]")))
    }

    /// A choice, such as `qkv_bias`, if it is stated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is neither true nor false.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| self.refuse(name, value, "true or false"));
        self.fields.get(name).map(flag).transpose()
    }

    /// A list of words, such as `labels`, if it is stated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is not a list of strings.
    pub fn words(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.fields.get(name) else { return Ok(None) };
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let words = value.as_array().and_then(|list| list.iter().map(word).collect());
        words.map(Some).ok_or_else(|| self.refuse(name, value, "a list of strings"))
    }

    fn required(&self, name: &str) -> Result<&Value> {
        self.fields.get(name).ok_or_else(|| Error::checkpoint(&self.path, format!("has no {name}")))
    }

    fn refuse(&self, name: &str, value: &Value, valid: &str) -> Error {
        let mut found = value.to_string();
        if let Some((end, _)) = found.char_indices().nth(40) {
            found.truncate(end);
            found.push_str("...");
        }
        Error::checkpoint(&self.path, format!("{name} is {found}: expected {valid}"))
    }
}

fn size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| (1..=MAX_SIZE).contains(size))
}

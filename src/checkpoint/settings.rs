//! A model's `config.json`, field by field, with errors that name the field.

use std::{
    collections::BTreeMap,
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

    /// A size, if it is stated.
    ///
    /// # Errors
    /// As [`Settings::size`].
    pub fn size_if(&self, name: &str) -> Result<Option<usize>> {
        self.stated(name).map(|_| self.size(name)).transpose()
    }

    /// A number, such as `layer_norm_eps`, if it is stated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is no number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.refuse(name, value, "a number"));
        self.stated(name).map(number).transpose()
    }

    /// A word, such as `model_type`, if it is stated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is not a string.
    pub fn word(&self, name: &str) -> Result<Option<&str>> {
        let word = |value| Value::as_str(value).ok_or_else(|| self.refuse(name, value, "a string"));
        self.stated(name).map(word).transpose()
    }

    /// One number for each colour, such as `image_mean`, if it is stated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is not a list of three numbers.
    pub fn colours(&self, name: &str) -> Result<Option<[f32; 3]>> {
        let Some(value) = self.stated(name) else { return Ok(None) };
        let number = |value: &Value| value.as_f64().map(|number| number as f32);
        let numbers: Option<Vec<f32>> = value.as_array().and_then(|list| list.iter().map(number).collect());
        let three = numbers.and_then(|numbers| numbers.try_into().ok());
        three.map(Some).ok_or_else(|| self.refuse(name, value, "a list of three numbers"))
    }

    /// The fields of a field, such as `vision_config`, if it has any.
    pub fn section(&self, name: &str) -> Option<Self> {
        let fields = self.fields.get(name)?.as_object()?.clone();
        Some(Self { path: self.path.clone(), fields })
    }

    /// A field whose fields are all words, such as `id2label`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is missing or holds anything else.
    pub fn map_of_words(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let value = self.required(name)?;
        let pair = |(key, word): (&String, &Value)| Some((key.clone(), word.as_str()?.to_owned()));
        let pairs = value.as_object().and_then(|fields| fields.iter().map(pair).collect());
        pairs.ok_or_else(|| self.refuse(name, value, "an object of strings"))
    }

    /// The field, unless it is missing or null.
    pub fn stated(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
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

    /// An error about a field: what it is, and what would be valid.
    pub(super) fn refuse(&self, name: &str, value: &Value, valid: &str) -> Error {
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

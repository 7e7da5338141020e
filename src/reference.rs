//! Attention that another program dumped.

use std::{
    fs::File,
    io::{BufReader, Read as _, Seek as _},
    path::Path,
};

use npyz::{NpyFile, Order, TypeChar};

use crate::{
    checkpoint::Tensors,
    error::{Error, Result},
    record::{AttentionRecord, LayerAttention, TokenLayout},
};

/// The model whose attention a file should hold.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What its tokens are.
    pub tokens: TokenLayout,
    /// Number of layers.
    pub depth: usize,
    /// Heads of a layer.
    pub heads: usize,
}

/// A NumPy header is a line of text; one longer than this is none.
const MAX_NPY_HEADER: usize = 4096;

/// Reads attention from a NumPy array, or from tensors as `run --format safetensors` writes them.
///
/// `layers` are those to read, ascending; without them, all that the file holds.
///
/// # Shapes
/// - `.npy`: `[layers, heads, tokens, tokens]`, of all the model's layers, or only of those asked for
/// - `.safetensors` (or a state dict of PyTorch): `attention.<layer>`, each `[heads, tokens, tokens]`
///
/// # Errors
/// [`Error::Reference`] if the file is neither, or not of this model's shape; [`Error::Checkpoint`] if it is broken.
pub fn open(path: &Path, shape: &Shape, layers: Option<&[usize]>) -> Result<AttentionRecord> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let layers = match ending {
        "npy" => read_npy(path, shape, layers)?,
        "npz" => {
            let reason = "is a .npz archive, which is not read: save the one array with numpy.save (.npy)";
            return Err(Error::reference(path, reason));
        }
        _ => read_tensors(path, shape, layers)?,
    };
    Ok(AttentionRecord { tokens: shape.tokens.clone(), layers })
}

impl Shape {
    /// A layer of this shape.
    fn layer(&self, layer: usize, weights: Vec<f32>) -> LayerAttention {
        let tokens = self.tokens.tokens();
        LayerAttention { layer, queries: (0..tokens).collect(), keys: tokens, weights }
    }
}

fn read_tensors(path: &Path, shape: &Shape, layers: Option<&[usize]>) -> Result<Vec<LayerAttention>> {
    let tensors = Tensors::open(path)?;
    let index = |key: &str| key.strip_prefix("attention.")?.parse::<usize>().ok();
    let mut held: Vec<usize> = tensors.keys().filter_map(index).collect();
    held.sort_unstable();
    if held.is_empty() {
        return Err(Error::reference(path, "holds no attention: expected tensors named attention.0, attention.1, ..."));
    }
    let tokens = shape.tokens.tokens();
    let wanted = [shape.heads, tokens, tokens];
    let read = |&layer: &usize| {
        let key = format!("attention.{layer}");
        let missing = || Error::reference(path, format!("holds no {key}; its layers are {held:?}"));
        let found = &tensors.get(&key).ok_or_else(missing)?.shape;
        if layer >= shape.depth || *found != wanted {
            let (depth, heads) = (shape.depth, shape.heads);
            return Err(Error::reference(
                path,
                format!(
                    "its {key} is {found:?}; the model has {depth} layers of {heads} heads and {tokens} tokens, each {wanted:?}"
                ),
            ));
        }
        let mut weights = Vec::with_capacity(wanted.iter().product());
        tensors.read(&key, &mut weights)?;
        Ok(shape.layer(layer, weights))
    };
    layers.unwrap_or(&held).iter().map(read).collect()
}

fn read_npy(path: &Path, shape: &Shape, layers: Option<&[usize]>) -> Result<Vec<LayerAttention>> {
    let fail = |reason: String| Error::reference(path, reason);
    let (array, bytes) = open_npy(path).map_err(fail)?;
    let tokens = shape.tokens.tokens();
    let all: Vec<usize> = (0..shape.depth).collect();
    let wanted = layers.unwrap_or(&all);
    let found = array.shape().to_vec();
    let one = [shape.heads, tokens, tokens].map(|length| length as u64);
    // Of all layers, or only of those asked for.
    let held = match found.split_first() {
        Some((&count, rest)) if rest == one && count == all.len() as u64 => &all,
        Some((&count, rest)) if rest == one && count == wanted.len() as u64 => wanted,
        _ => {
            let (depth, heads) = (shape.depth, shape.heads);
            return Err(fail(format!(
                "is an array of {found:?}; the model has [layers, heads, tokens, tokens] = [{depth}, {heads}, {tokens}, {tokens}]"
            )));
        }
    };
    let (values, size) = (held.len() * shape.heads * tokens * tokens, array.dtype().num_bytes().unwrap_or(0));
    if bytes != (values * size) as u64 {
        return Err(fail(format!("holds {bytes} bytes of values where its header promises {values} values of {size}")));
    }
    let values = npy_values(array).map_err(fail)?;
    let layer = |(&layer, weights): (&usize, &[f32])| shape.layer(layer, weights.to_vec());
    let chunks = values.chunks(shape.heads * tokens * tokens);
    Ok(held.iter().zip(chunks).filter(|(layer, _)| wanted.contains(layer)).map(layer).collect())
}

type Npy = NpyFile<BufReader<File>>;

/// A NumPy array with its header read, and how many bytes follow it.
fn open_npy(path: &Path) -> Result<(Npy, u64), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(unreadable)?;
    // Opening a pipe would wait for its other end.
    if !about.is_file() {
        return Err("is not a regular file: expected a NumPy array".to_owned());
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut start = Vec::new();
    file.by_ref().take(MAX_NPY_HEADER as u64).read_to_end(&mut start).map_err(unreadable)?;
    let size = match start.get(..12) {
        Some(&[0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, ..]) => 10 + usize::from(u16::from_le_bytes([a, b])),
        Some(&[0x93, b'N', b'U', b'M', b'P', b'Y', _, _, a, b, c, d]) => {
            (u32::from_le_bytes([a, b, c, d]) as usize).saturating_add(12)
        }
        _ => return Err("is not a NumPy array (.npy)".to_owned()),
    };
    // The parser calls itself for each bracket, so that only a header of a few is given to it.
    let brackets = |header: &[u8]| header.iter().filter(|byte| b"([{".contains(byte)).count();
    if start.get(..size).is_none_or(|header| brackets(header) > 8) {
        return Err("has a broken NumPy header, or one of an array that is not plain numbers".to_owned());
    }
    file.rewind().map_err(unreadable)?;
    let array = NpyFile::new(BufReader::new(file)).map_err(|error| {
        // Some of its messages draw the header over several lines.
        let reason = Some(error.to_string()).filter(|reason| !reason.contains('\n'));
        format!("has a broken NumPy header{}", reason.map_or_else(String::new, |reason| format!(": {reason}")))
    })?;
    Ok((array, about.len().saturating_sub(size as u64)))
}

/// The values as f32, in C order.
fn npy_values(array: Npy) -> Result<Vec<f32>, String> {
    if array.order() == Order::Fortran {
        return Err("is in Fortran order: save numpy.ascontiguousarray(...) of it".to_owned());
    }
    let dtype = array.dtype();
    let size = match &dtype {
        npyz::DType::Plain(plain) if plain.type_char() == TypeChar::Float => plain.size_field(),
        _ => 0,
    };
    let broken = |error: std::io::Error| format!("its values cannot be read: {error}");
    match size {
        4 => array.into_vec::<f32>().map_err(broken),
        8 => Ok(array.into_vec::<f64>().map_err(broken)?.into_iter().map(|value| value as f32).collect()),
        _ => Err(format!("holds values of type {}: save them as float32", dtype.descr())),
    }
}

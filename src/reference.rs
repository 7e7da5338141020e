//! Attention that another program dumped.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use crate::{
    checkpoint::{NpyHeader, Tensors},
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

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// Reads attention from a NumPy array, or from tensors as `run --format safetensors` writes them.
///
/// `layers` are those to read, ascending; without them, all that the file holds.
///
/// # Shapes
/// - `.npy`: `[layers, heads, tokens, tokens]`, of all the model's layers, or only of those asked for
/// - `.npz`: one such array of any name, or one for each layer, named and shaped as the tensors below
/// - `.safetensors` (or a state dict of PyTorch): `attention.<layer>`, each `[heads, tokens, tokens]`
///
/// # Errors
/// [`Error::Reference`] if the file is neither, or not of this model's shape; [`Error::Checkpoint`] if it is broken.
pub fn open(path: &Path, shape: &Shape, layers: Option<&[usize]>) -> Result<AttentionRecord> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let layers = match ending {
        "npy" => read_npy(path, shape, layers)?,
        "npz" => read_npz(path, shape, layers)?,
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

    /// The layers of an array `[layers, heads, tokens, tokens]`: all of the model's, or only those asked for.
    fn held(&self, found: &[usize], asked: Option<&[usize]>) -> Result<Vec<usize>, String> {
        let (depth, heads, tokens) = (self.depth, self.heads, self.tokens.tokens());
        let all: Vec<usize> = (0..depth).collect();
        let asked = asked.unwrap_or(&all);
        match found.split_first() {
            Some((&count, rest)) if rest == [heads, tokens, tokens] && count == depth => Ok(all),
            Some((&count, rest)) if rest == [heads, tokens, tokens] && count == asked.len() => Ok(asked.to_vec()),
            _ => Err(format!(
                "is an array of {found:?}; the model has [layers, heads, tokens, tokens] = [{depth}, {heads}, {tokens}, {tokens}]"
            )),
        }
    }

    /// Those layers of such an array that are asked for.
    fn layers(&self, held: &[usize], values: &[f32], asked: Option<&[usize]>) -> Vec<LayerAttention> {
        let size = self.heads * self.tokens.tokens() * self.tokens.tokens();
        let layers = held.iter().zip(values.chunks(size.max(1)));
        let layers = layers.filter(|(layer, _)| asked.is_none_or(|asked| asked.contains(layer)));
        layers.map(|(&layer, weights)| self.layer(layer, weights.to_vec())).collect()
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
    let (header, file, bytes) = open_npy(path).map_err(fail)?;
    let held = shape.held(&header.shape, layers).map_err(fail)?;
    let values = npy_values(&header, file, bytes).map_err(fail)?;
    Ok(shape.layers(&held, &values, layers))
}

fn read_npz(path: &Path, shape: &Shape, layers: Option<&[usize]>) -> Result<Vec<LayerAttention>> {
    let fail = |reason: String| Error::reference(path, reason);
    let tensors = Tensors::open(path)?;
    let names: Vec<&str> = tensors.keys().collect();
    let [name] = names[..] else { return read_tensors(path, shape, layers) };
    if name.starts_with("attention.") {
        return read_tensors(path, shape, layers);
    }
    let found = tensors.get(name).map(|tensor| tensor.shape.clone()).unwrap_or_default();
    let held = shape.held(&found, layers).map_err(|reason| fail(format!("its {name} {reason}")))?;
    let mut values = Vec::new();
    tensors.read(name, &mut values)?;
    Ok(shape.layers(&held, &values, layers))
}

/// A NumPy array with its header read, and how many bytes follow it.
fn open_npy(path: &Path) -> Result<(NpyHeader, File, u64), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(unreadable)?;
    // Opening a pipe would wait for its other end.
    if !about.is_file() {
        return Err("is not a regular file: expected a NumPy array".to_owned());
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut start = Vec::new();
    file.by_ref().take(NpyHeader::LONGEST).read_to_end(&mut start).map_err(unreadable)?;
    let header = NpyHeader::parse(&start)?;
    file.seek(SeekFrom::Start(header.length as u64)).map_err(unreadable)?;
    let bytes = about.len().saturating_sub(header.length as u64);
    Ok((header, file, bytes))
}

/// The values as f32, in C order.
fn npy_values(header: &NpyHeader, mut file: File, bytes: u64) -> Result<Vec<f32>, String> {
    if header.fortran {
        return Err("is in Fortran order: save numpy.ascontiguousarray(...) of it".to_owned());
    }
    let size = match header.descr.as_str() {
        "<f4" => 4,
        "<f8" => 8,
        other => return Err(format!("holds values of type '{other}': save them as float32")),
    };
    let count = header.elements();
    if bytes != (count * size) as u64 {
        return Err(format!("holds {bytes} bytes of values where its header promises {count} values of {size}"));
    }
    let mut values = Vec::with_capacity(count);
    let mut chunk = vec![0; CHUNK];
    for start in (0..count).step_by(CHUNK / size) {
        let part = &mut chunk[..size * (count - start).min(CHUNK / size)];
        file.read_exact(part).map_err(|error| format!("its values cannot be read: {error}"))?;
        match size {
            4 => values.extend(part.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value))),
            _ => values.extend(part.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value) as f32)),
        }
    }
    Ok(values)
}

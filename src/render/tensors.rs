//! `attention.safetensors`: whole attention matrices, one tensor a layer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use safetensors::{Dtype, View};

use crate::error::{Error, Result};
use crate::map::Artifact;
use crate::record::{AttentionRecord, LayerAttention, ProbeAttention, TokenLayout};

/// The attention of every kept layer.
///
/// # Shapes
/// f32 `attention.<layer>`, each `[heads, tokens, tokens]`; a row is a query and sums to one. And `probe`,
/// `[heads, keys]`, if the probe was asked. The file's metadata says
/// what the tokens are: `prefix_tokens` (names with commas between), then `grid_rows` times `grid_cols` patches, row
/// by row.
///
/// # Errors
/// [`Error::Numbers`] if a layer was not kept whole; [`Error::Output`] if the file cannot be encoded.
pub fn file(record: &AttentionRecord, probe: Option<&ProbeAttention>) -> Result<Artifact> {
    let name = "attention.safetensors".to_owned();
    let tokens = record.tokens.tokens();
    let tensors =
        record.layers.iter().map(|layer| Ok((format!("attention.{}", layer.layer), Whole::new(layer, tokens)?)));
    let mut tensors = tensors.collect::<Result<Vec<_>>>()?;
    tensors.extend(probe.map(|probe| ("probe".to_owned(), Whole::probe(probe))));
    let bytes = safetensors::serialize(tensors, Some(metadata(&record.tokens)))
        .map_err(|error| Error::output(Path::new(&name), format!("cannot be encoded: {error}")))?;
    Ok(Artifact { name, bytes })
}

/// What the tokens are, in words.
fn metadata(tokens: &TokenLayout) -> HashMap<String, String> {
    let entries = [
        ("axes", "head,query,key".to_owned()),
        ("prefix_tokens", tokens.prefix.join(",")),
        ("grid_rows", tokens.grid.0.to_string()),
        ("grid_cols", tokens.grid.1.to_string()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A layer with every query's row, as a tensor.
struct Whole<'a> {
    shape: Vec<usize>,
    weights: &'a [f32],
}

impl<'a> Whole<'a> {
    /// Checks that every query of every head is there.
    fn new(layer: &'a LayerAttention, tokens: usize) -> Result<Self> {
        let LayerAttention { layer: index, queries, keys, weights } = layer;
        if !queries.iter().copied().eq(0..tokens) || *keys != tokens {
            return Err(Error::Numbers(format!(
                "attention.safetensors needs all {tokens} x {tokens} weights of a head; of layer {index}, {} x {keys} were kept",
                queries.len()
            )));
        }
        let shape = vec![layer.heads(), tokens, tokens];
        if shape.iter().product::<usize>() != weights.len() {
            let found = weights.len();
            return Err(Error::Numbers(format!("layer {index} has {found} weights, not a whole number of heads")));
        }
        Ok(Self { shape, weights })
    }

    fn probe(probe: &'a ProbeAttention) -> Self {
        Self { shape: vec![probe.weights.len() / probe.keys.max(1), probe.keys], weights: &probe.weights }
    }
}

impl View for Whole<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    fn data_len(&self) -> usize {
        size_of_val(self.weights)
    }
}

//! Runs a model on pixels and brings the attention that was asked for to the host.

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use crate::{
    device::{Backend, Opened},
    error::{Error, Result},
    model::{Forward, Queries, ViT, Weights},
    record::{AttentionRecord, LayerAttention, ProbeAttention},
};

/// What to bring back.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Layers whose attention is kept, ascending.
    pub layers: Vec<usize>,
    /// Query tokens whose rows are kept: all, or some.
    pub queries: Queries,
    /// Whether the attention of the model's probe is kept.
    pub probe: bool,
    /// Whether the final tokens are kept; without them, the last layer makes no more of them than are pooled.
    pub tokens: bool,
}

/// What a model made of a batch of pictures.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Attention, one record a picture.
    pub attention: Vec<AttentionRecord>,
    /// Class scores `[classes]`, one row a picture; `None` without a classifier.
    pub logits: Option<Vec<Vec<f32>>>,
    /// Attention of the model's probe, one a picture; `None` without a probe, or if it was not wanted.
    pub probe: Option<Vec<ProbeAttention>>,
    /// Final tokens `[tokens, width]`, one a picture; `None` unless wanted, with all layers run.
    pub tokens: Option<Vec<Vec<f32>>>,
}

/// Runs `model` on `pixels`, `[batch, channels, rows, cols]` row-major, and reads back what is wanted.
///
/// `kept_layer` is called each time a wanted layer has been read. Layers after the last wanted one run only if the model
/// has classes to score, or for the probe.
///
/// # Errors
/// [`Error::Numbers`] where the device fails to hand out its results or a row of attention does not sum to one.
pub fn inspect(
    model: &ViT,
    opened: &Opened,
    pixels: &[f32],
    wanted: &Wanted,
    mut kept_layer: impl FnMut() + Send,
) -> Result<Seen> {
    let config = model.config();
    let (rows, cols) = config.image_size;
    let batch = pixels.len() / (config.channels * rows * cols).max(1);
    let pixels =
        Tensor::from_data(TensorData::new(pixels.to_vec(), [batch, config.channels, rows, cols]), &opened.device);
    let last = wanted.layers.last().map_or(0, |layer| layer + 1);
    let queries = |layer: usize| match wanted.layers.binary_search(&layer) {
        Ok(_) => wanted.queries.clone(),
        Err(_) => Queries::None,
    };
    let forward = Forward {
        queries: &queries,
        layers: if config.classes > 0 || wanted.probe { config.depth } else { last },
        max_scores: opened.max_elements,
        block_scores: opened.block_elements.min(opened.max_elements),
        probe: wanted.probe,
        tokens: wanted.tokens,
    };
    let tokens = model.layout();
    let kept = match &wanted.queries {
        Queries::None => Vec::new(),
        Queries::All => (0..tokens.tokens()).collect(),
        Queries::Rows(rows) => rows.clone(),
    };
    let mut attention = vec![AttentionRecord { tokens, layers: Vec::new() }; batch];
    let observe = |layer, weights: Weights| {
        if !weights.0.is_empty() {
            for (record, weights) in attention.iter_mut().zip(read_back(weights)?) {
                let keys = record.tokens.tokens();
                record.layers.push(LayerAttention { layer, queries: kept.clone(), keys, weights });
            }
            kept_layer();
        }
        Ok(())
    };
    let output = match opened.backend {
        Backend::Wgpu => model.forward(pixels, &forward, observe)?,
        // From inside the pool: each parallel operation that is started outside has to wake the pool and be woken by it.
        Backend::Flex | Backend::NdArray => rayon::scope(|_| model.forward(pixels, &forward, observe))?,
    };
    for record in &attention {
        record.check()?;
    }
    let whole = forward.layers == config.depth;
    let logits = output.logits.map(|logits| split(read(logits)?, batch)).transpose()?;
    let probe = output.probe.map(|probe| probes(probe, batch)).transpose()?;
    let tokens = if whole && wanted.tokens { Some(split(read(output.tokens)?, batch)?) } else { None };
    Ok(Seen { attention, logits, probe, tokens })
}

/// The probe's weights on the host, checked.
fn probes(weights: Tensor<4>, batch: usize) -> Result<Vec<ProbeAttention>> {
    let keys = weights.dims()[3];
    let probes = split(read(weights)?, batch)?.into_iter().map(|weights| ProbeAttention { keys, weights });
    probes.map(|probe| probe.check().map(|()| probe)).collect()
}

/// Weights on the host: for each picture `[heads, queries, keys]`, its pieces joined along the queries.
fn read_back(weights: Weights) -> Result<Vec<Vec<f32>>> {
    let shape = |piece: &Tensor<4>| piece.dims();
    let Some([batch, heads, _, keys]) = weights.0.first().map(shape) else { return Ok(Vec::new()) };
    if weights.0.len() == 1 {
        let piece = weights.0.into_iter().next();
        return piece.map_or(Ok(Vec::new()), |piece| split(read(piece)?, batch));
    }
    let queries: usize = weights.0.iter().map(|piece| shape(piece)[2]).sum();
    let mut joined = vec![vec![0.0; heads * queries * keys]; batch];
    let mut first = 0;
    for piece in weights.0 {
        let rows = shape(&piece)[2] * keys;
        let values = read(piece)?;
        for (part, values) in values.chunks(rows).enumerate() {
            let start = (part % heads) * queries * keys + first;
            joined[part / heads][start..start + rows].copy_from_slice(values);
        }
        first += rows;
    }
    Ok(joined)
}

/// A tensor's values on the host, row-major.
///
/// # Errors
/// [`Error::Numbers`] if the device fails.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    let data = tensor.try_into_data().map_err(|error| Error::Numbers(format!("the backend failed: {error}")))?;
    let values = data
        .as_slice::<f32>()
        .map_err(|error| Error::Numbers(format!("the backend returned no 32-bit floats: {error:?}")))?;
    // burn would copy too, as its bytes are not aligned for floats, but on one thread.
    let mut copy = vec![0.0; values.len()];
    copy.par_chunks_mut(COPY).zip(values.par_chunks(COPY)).for_each(|(copy, values)| copy.copy_from_slice(values));
    Ok(copy)
}

/// Values that a thread copies at a time.
const COPY: usize = 1 << 16;

fn split(values: Vec<f32>, batch: usize) -> Result<Vec<Vec<f32>>> {
    if batch == 1 {
        return Ok(vec![values]);
    }
    Ok(values.chunks(values.len() / batch.max(1)).map(<[f32]>::to_vec).collect())
}

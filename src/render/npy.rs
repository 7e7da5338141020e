//! `<view>.npy`: the raw weights of a view as one NumPy array.

use std::path::Path;

use npyz::WriterBuilder;

use crate::error::{Error, Result};
use crate::map::{Artifact, MapSet};

/// The raw weights of a view.
///
/// # Shapes
/// f32 `[layers, heads, rows, cols]`, C order, neither scaled nor clipped.
///
/// # Errors
/// [`Error::Numbers`] if the set has no map or its maps do not fill one grid.
pub fn file(maps: &MapSet) -> Result<Artifact> {
    super::check(maps)?;
    let name = format!("{}.npy", maps.view);
    let bytes = encode(maps).map_err(|error| Error::output(Path::new(&name), format!("cannot be encoded: {error}")))?;
    Ok(Artifact { name, bytes })
}

/// Writes the array with NumPy's header.
fn encode(maps: &MapSet) -> std::io::Result<Vec<u8>> {
    let grid = maps.maps.first().map_or((0, 0), |map| (map.rows, map.cols));
    let shape = [maps.layers.len(), maps.heads.len(), grid.0, grid.1].map(|length| length as u64);
    let mut bytes = Vec::new();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(&mut bytes).begin_nd()?;
    writer.extend(maps.maps.iter().flat_map(|map| map.values.iter().copied()))?;
    writer.finish()?;
    Ok(bytes)
}

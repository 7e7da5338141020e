//! From named arrays of numbers to burn's parameters.

use burn::{
    module::Param,
    nn::Linear,
    tensor::{Device, Tensor, TensorData},
};

use crate::error::Result;

/// Where the numbers come from: a name and a shape in, that many values out.
pub type Source<'a> = dyn FnMut(&str, &[usize]) -> Result<Vec<f32>> + 'a;

/// Builds layers on a device from a source of named arrays.
///
/// The source is asked for a canonical name and a shape in PyTorch's order (see
/// [`ViTConfig::parameters`](super::ViTConfig::parameters)), and answers with that many values in row-major order.
pub struct Parameters<'a> {
    device: &'a Device,
    source: &'a mut Source<'a>,
}

impl<'a> Parameters<'a> {
    /// Parameters on `device` from `source`.
    pub fn new(device: &'a Device, source: &'a mut Source<'a>) -> Self {
        Self { device, source }
    }

    /// The device that layers are built on.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// The numbers themselves, for what is computed from them on the host.
    ///
    /// # Errors
    /// Whatever the source answers.
    pub fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        (self.source)(name, shape)
    }

    /// One tensor as it is.
    ///
    /// # Errors
    /// Whatever the source answers.
    pub fn tensor<const D: usize>(&mut self, name: &str, shape: [usize; D]) -> Result<Param<Tensor<D>>> {
        let values = (self.source)(name, &shape)?;
        Ok(Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), self.device)))
    }

    /// A linear layer: PyTorch stores `[outputs, inputs]`, burn `[inputs, outputs]`.
    ///
    /// # Errors
    /// Whatever the source answers.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
        let values = (self.source)(&format!("{name}.weight"), &[outputs, inputs])?;
        let data = TensorData::new(transpose(&values, outputs, inputs), [inputs, outputs]);
        let weight = Param::from_tensor(Tensor::from_data(data, self.device));
        let bias = if bias { Some(self.tensor(&format!("{name}.bias"), [outputs])?) } else { None };
        Ok(Linear { weight, bias })
    }
}

/// The transpose of a row-major `[rows, cols]` matrix.
pub fn transpose(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    // Tiles keep both the rows read and the rows written in the cache.
    const TILE: usize = 32;
    let mut out = vec![0.0; values.len()];
    for top in (0..rows).step_by(TILE) {
        for left in (0..cols).step_by(TILE) {
            for col in left..(left + TILE).min(cols) {
                for row in top..(top + TILE).min(rows) {
                    out[col * rows + row] = values[row * cols + col];
                }
            }
        }
    }
    out
}

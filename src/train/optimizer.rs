//! burn's AdamW over every parameter of the model, with its moments under the parameters' names, so that they can be
//! written to a file and read back on any device.

use std::collections::BTreeMap;

use burn::{
    module::{Module as _, ModuleMapper, ModuleVisitor, Param},
    optim::{AdamW, AdamWConfig, AdamWState, AdaptiveMomentumState, Optimizer as _},
    tensor::{Device, Gradients, Tensor, TensorData},
};

use super::host;
use crate::{
    error::Result,
    model::{ViT, parameters::transpose},
};

/// AdamW (Loshchilov and Hutter 2019) with β = (0.9, 0.999) and ε = 1e-8; biases, norms and tokens do not decay.
pub struct Optimizer {
    decaying: AdamW,
    plain: AdamW,
    states: BTreeMap<String, AdamWState<1>>,
}

/// The moments of one parameter on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Steps that went into them.
    pub time: usize,
    /// First moment, in the model's own order.
    pub first: Vec<f32>,
    /// Second moment, in the model's own order.
    pub second: Vec<f32>,
}

impl Optimizer {
    /// An optimizer without memory.
    pub fn new(weight_decay: f32) -> Self {
        let config = AdamWConfig::new().with_epsilon(1e-8);
        Self {
            decaying: config.clone().with_weight_decay(weight_decay).build(),
            plain: config.with_weight_decay(0.0).build(),
            states: BTreeMap::new(),
        }
    }

    /// The model after one step along `gradients`.
    pub fn step(&mut self, model: ViT, gradients: &mut Gradients, rate: f64) -> ViT {
        model.map(&mut Step { path: Vec::new(), optimizer: self, gradients, rate })
    }

    /// The moments by parameter name.
    ///
    /// # Errors
    /// [`Error::Numbers`](crate::error::Error::Numbers) if the device fails.
    pub fn moments(&self) -> Result<BTreeMap<String, Moments>> {
        let moments = |(name, state): (&String, &AdamWState<1>)| {
            let AdaptiveMomentumState { time, moment_1, moment_2, .. } = state.momentum.clone();
            Ok((name.clone(), Moments { time, first: host(moment_1)?, second: host(moment_2)? }))
        };
        self.states.iter().map(moments).collect()
    }

    /// Takes back what [`moments`](Self::moments) gave.
    pub fn restore(&mut self, moments: BTreeMap<String, Moments>, device: &Device) {
        let vector = |values: Vec<f32>| {
            let count = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [count]), device)
        };
        let state = |(name, moments): (String, Moments)| {
            let momentum = AdaptiveMomentumState::new(moments.time, vector(moments.first), vector(moments.second));
            (name, AdamWState::new(momentum))
        };
        self.states = moments.into_iter().map(state).collect();
    }
}

struct Step<'a> {
    path: Vec<String>,
    optimizer: &'a mut Optimizer,
    gradients: &'a mut Gradients,
    rate: f64,
}

impl ModuleMapper for Step<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(gradient) = tensor.grad_remove(self.gradients) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let name = self.path.join(".");
        let optimizer = &mut *self.optimizer;
        // Only the matrices of linear layers decay; tokens and positions have three dimensions.
        let adamw = if D == 2 { &optimizer.decaying } else { &optimizer.plain };
        let shape = tensor.dims();
        let count = shape.iter().product::<usize>();
        let (value, gradient) = (tensor.inner().reshape([count]), gradient.reshape([count]));
        let (value, state) = adamw.step(self.rate, value, gradient, optimizer.states.remove(&name));
        if let Some(state) = state {
            optimizer.states.insert(name, state);
        }
        Param::from_mapped_value(id, Tensor::from_inner(value.reshape(shape)).require_grad(), mapper)
    }
}

/// The weights of a model by canonical name, row-major in PyTorch's order.
///
/// # Errors
/// [`Error::Numbers`](crate::error::Error::Numbers) if the device fails.
pub fn weights(model: &ViT) -> Result<BTreeMap<String, Vec<f32>>> {
    let mut collect = Collect { path: Vec::new(), weights: Ok(BTreeMap::new()) };
    model.visit(&mut collect);
    collect.weights
}

struct Collect {
    path: Vec<String>,
    weights: Result<BTreeMap<String, Vec<f32>>>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let values = match tensor.dims().as_slice() {
            // A linear layer's weight: burn has it the other way round.
            &[inputs, outputs] => host(tensor).map(|values| transpose(&values, inputs, outputs)),
            _ => host(tensor),
        };
        match (values, &mut self.weights) {
            (Ok(values), Ok(weights)) => {
                weights.insert(self.path.join("."), values);
            }
            (Err(error), weights) => *weights = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
}

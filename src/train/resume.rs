//! `training.safetensors`: a run in full (weights, moments, plan, history), to go on from.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use burn::tensor::Device;

use super::{
    EpochResult, Plan, Tally, Trainer,
    optimizer::{Moments, Optimizer},
};
use crate::{
    error::{Error, Result},
    map::Artifact,
    model::{ViT, ViTConfig},
};

/// Name of the file.
pub const FILE: &str = "training.safetensors";

/// What stands in the file's header beside the tensors.
#[derive(Serialize, Deserialize)]
struct State {
    plan: Plan,
    config: ViTConfig,
    history: Vec<EpochResult>,
    step: usize,
    tally: Tally,
    times: BTreeMap<String, usize>,
}

/// The run as a file.
///
/// # Errors
/// [`Error::Numbers`] if the device fails.
pub fn save(trainer: &Trainer) -> Result<Artifact> {
    let moments = trainer.optimizer.moments()?;
    let state = State {
        plan: trainer.plan.clone(),
        config: trainer.config().clone(),
        history: trainer.history.clone(),
        step: trainer.step,
        tally: trainer.tally,
        times: moments.iter().map(|(name, moments)| (name.clone(), moments.time)).collect(),
    };
    let broken = |error: &dyn std::fmt::Display| Error::Numbers(format!("the run cannot be saved: {error}"));
    let state = serde_json::to_string(&state).map_err(|error| broken(&error))?;
    let mut tensors = Vec::new();
    for (name, values) in trainer.weights()? {
        tensors.push((format!("weight.{name}"), bytes(&values)));
    }
    for (name, moments) in moments {
        tensors.push((format!("first.{name}"), bytes(&moments.first)));
        tensors.push((format!("second.{name}"), bytes(&moments.second)));
    }
    let mut views = Vec::new();
    for (name, bytes) in &tensors {
        let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes).map_err(|error| broken(&error))?;
        views.push((name.as_str(), view));
    }
    let header = [("state".to_owned(), state)].into();
    let bytes = safetensors::serialize(views, Some(header)).map_err(|error| broken(&error))?;
    Ok(Artifact { name: FILE.to_owned(), bytes })
}

/// The run that `bytes` hold, on `device`.
///
/// # Errors
/// [`Error::Numbers`] if the bytes are no such run.
pub fn load(bytes: &[u8], device: &Device) -> Result<Trainer> {
    let broken = |error: String| Error::Numbers(format!("is not a run that can be resumed: {error}"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| broken(error.to_string()))?;
    let state = header.metadata().as_ref().and_then(|metadata| metadata.get("state"));
    let state = state.ok_or_else(|| broken("it does not say how it was trained".to_owned()))?;
    let state: State = serde_json::from_str(state).map_err(|error| broken(error.to_string()))?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| broken(error.to_string()))?;
    let values = |name: String| {
        let tensor = tensors.tensor(&name).map_err(|error| broken(error.to_string()))?;
        Ok(floats(tensor.data()))
    };
    let device = device.clone().autodiff();
    let model = ViT::new(&state.config, &device, |name, shape| {
        let values: Vec<f32> = values(format!("weight.{name}"))?;
        let expected = shape.iter().product::<usize>();
        if values.len() == expected { Ok(values) } else { Err(broken(format!("{name} has the wrong size"))) }
    })?;
    let mut moments = BTreeMap::new();
    for (name, time) in state.times {
        let (first, second) = (values(format!("first.{name}"))?, values(format!("second.{name}"))?);
        moments.insert(name, Moments { time, first, second });
    }
    let mut optimizer = Optimizer::new(state.plan.weight_decay);
    optimizer.restore(moments, &device.clone().inner());
    let State { plan, history, step, tally, .. } = state;
    Ok(Trainer { plan, history, step, tally, model, optimizer, device })
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

//! Training of the book's model: one step at a time, every random choice a function of the seed, the epoch and the
//! picture, so that a run that was interrupted goes on to the same result.

pub mod augment;
mod cifar10;
pub mod curve;
pub mod data;
mod folders;
pub mod optimizer;
pub mod random;
pub mod resume;

use burn::{
    module::Module as _,
    tensor::{Device, Tensor, TensorData, activation::log_softmax},
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    model::{Forward, Queries, ViT, ViTConfig, init},
};
use augment::{Augment, Batch, batch};
use data::Dataset;
use optimizer::Optimizer;
use random::Epoch;

/// How to train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Passes over the training pictures.
    pub epochs: usize,
    /// Pictures of a step.
    pub batch_size: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Epochs of linear warm-up; a cosine to zero follows.
    pub warmup: usize,
    /// AdamW's decoupled weight decay, for matrices only.
    pub weight_decay: f32,
    /// Share of the target that is spread over all classes.
    pub label_smoothing: f32,
    /// Random changes of the training pictures.
    pub augment: Augment,
    /// Seed of the weights, the order and the augmentation.
    pub seed: u64,
    /// Share of the pictures held out where the data has no test part.
    #[serde(default = "usual_share")]
    pub validation_share: f32,
    /// Training pictures that the run began with; 0 if it was not written down.
    #[serde(default)]
    pub pictures: usize,
}

/// The share of runs that were saved before it was written down.
fn usual_share() -> f32 {
    0.1
}

/// What one epoch came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochResult {
    /// Which epoch, from 1.
    pub epoch: usize,
    /// Mean loss of the training steps.
    pub train_loss: f32,
    /// Share of training pictures classified rightly, as they were seen, 0 to 1.
    pub train_accuracy: f32,
    /// Mean loss on the held-out pictures, without label smoothing.
    pub held_out_loss: f32,
    /// Share of held-out pictures classified rightly, 0 to 1.
    pub held_out_accuracy: f32,
    /// Learning rate of the last step.
    pub learning_rate: f64,
}

/// Sums over the steps of an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Pictures so far.
    pub pictures: usize,
    /// Their summed loss.
    pub loss: f64,
    /// How many were classified rightly.
    pub right: usize,
}

impl Tally {
    /// Mean loss.
    pub fn mean_loss(&self) -> f32 {
        (self.loss / self.pictures.max(1) as f64) as f32
    }

    /// Share classified rightly.
    pub fn accuracy(&self) -> f32 {
        self.right as f32 / self.pictures.max(1) as f32
    }

    fn add(&mut self, other: Self) {
        self.pictures += other.pictures;
        self.loss += other.loss;
        self.right += other.right;
    }
}

/// A model in training, with all that is needed to go on after an interruption.
pub struct Trainer {
    /// How it is trained.
    pub plan: Plan,
    /// Finished epochs.
    pub history: Vec<EpochResult>,
    /// Steps done in the epoch under way.
    pub step: usize,
    /// What they came to.
    pub tally: Tally,
    model: ViT,
    optimizer: Optimizer,
    device: Device,
}

impl Trainer {
    /// A new model of `config` on `device`, with random weights.
    ///
    /// # Errors
    /// None in practice.
    pub fn new(config: &ViTConfig, plan: Plan, device: &Device) -> Result<Self> {
        let device = device.clone().autodiff();
        let model = ViT::new(config, &device, init::random(plan.seed))?;
        let optimizer = Optimizer::new(plan.weight_decay);
        Ok(Self { plan, history: Vec::new(), step: 0, tally: Tally::default(), model, optimizer, device })
    }

    /// The model's sizes and choices.
    pub fn config(&self) -> &ViTConfig {
        self.model.config()
    }

    /// Steps of an epoch over `data`; what does not fill a step is left for another epoch's order.
    pub fn steps(&self, data: &Dataset) -> usize {
        (data.len() / self.plan.batch_size).max(1)
    }

    /// The order of the training pictures in the epoch under way.
    pub fn order(&self, data: &Dataset) -> Vec<usize> {
        random::shuffle(data.len(), self.epoch())
    }

    fn epoch(&self) -> Epoch {
        Epoch { seed: self.plan.seed, number: self.history.len() as u64 }
    }

    /// Linear warm-up, then half a cosine to zero.
    fn learning_rate(&self, steps: usize) -> f64 {
        let now = (self.history.len() * steps + self.step + 1) as f64;
        let (warmup, total) = ((self.plan.warmup * steps) as f64, (self.plan.epochs * steps) as f64);
        if now <= warmup {
            return self.plan.learning_rate * now / warmup;
        }
        let done = ((now - warmup) / (total - warmup).max(1.0)).min(1.0);
        self.plan.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
    }

    /// One step on the next pictures of `order`.
    ///
    /// # Errors
    /// [`Error::Numbers`] with advice, if the loss is no longer finite; the model is then of no use.
    pub fn advance(&mut self, data: &Dataset, order: &[usize]) -> Result<()> {
        let steps = self.steps(data);
        let rate = self.learning_rate(steps);
        let size = self.plan.batch_size;
        let indices = &order[(self.step * size).min(order.len())..((self.step + 1) * size).min(order.len())];
        let batch = batch(data, indices, Some((self.plan.augment, self.epoch())));
        let logits = logits(&self.model, &batch, &self.device)?;
        let loss = cross_entropy(logits.clone(), &batch.labels, self.plan.label_smoothing);
        let mut gradients = loss.backward();
        let result = tally(&logits.inner(), &loss.inner(), &batch.labels)?;
        self.check(result, "loss")?;
        self.model = self.optimizer.step(self.model.clone(), &mut gradients, rate);
        self.tally.add(result);
        self.step += 1;
        Ok(())
    }

    /// Refuses a loss that is no number, before a model of no use is saved over a good one.
    fn check(&self, result: Tally, loss: &str) -> Result<()> {
        if result.loss.is_finite() {
            return Ok(());
        }
        Err(Error::Numbers(format!(
            "the {loss} is no longer a number at epoch {}, step {}; what was saved before is kept: train again with a \
             lower --learning-rate or a longer --warmup",
            self.history.len() + 1,
            self.step + 1
        )))
    }

    /// Ends the epoch: judges the model on the held-out pictures, `progress` being called after each batch.
    ///
    /// # Errors
    /// [`Error::Numbers`] if the device fails, or with advice, if the loss is no longer finite.
    pub fn finish_epoch(&mut self, train: &Dataset, held_out: &Dataset, progress: impl FnMut()) -> Result<EpochResult> {
        self.step = self.step.saturating_sub(1);
        let learning_rate = self.learning_rate(self.steps(train));
        let judged = evaluate(&self.model.valid(), held_out, &self.device.clone().inner(), progress)?;
        self.check(judged, "loss on the held-out pictures")?;
        let result = EpochResult {
            epoch: self.history.len() + 1,
            train_loss: self.tally.mean_loss(),
            train_accuracy: self.tally.accuracy(),
            held_out_loss: judged.mean_loss(),
            held_out_accuracy: judged.accuracy(),
            learning_rate,
        };
        self.history.push(result);
        (self.step, self.tally) = (0, Tally::default());
        Ok(result)
    }

    /// The weights by canonical name, row-major in PyTorch's order.
    ///
    /// # Errors
    /// [`Error::Numbers`] if the device fails.
    pub fn weights(&self) -> Result<std::collections::BTreeMap<String, Vec<f32>>> {
        optimizer::weights(&self.model)
    }
}

/// Pictures of a batch when a model is only judged.
const JUDGED: usize = 250;

/// Most elements of a tensor of attention scores, 128 MiB: the largest that every GPU can bind.
const MAX_SCORES: usize = 1 << 25;

/// Judges a model on every picture of a data set.
///
/// # Errors
/// [`Error::Numbers`] if the device fails.
pub fn evaluate(model: &ViT, data: &Dataset, device: &Device, mut progress: impl FnMut()) -> Result<Tally> {
    let mut total = Tally::default();
    let indices: Vec<usize> = (0..data.len()).collect();
    for indices in indices.chunks(JUDGED) {
        let batch = batch(data, indices, None);
        let logits = logits(model, &batch, device)?;
        let loss = cross_entropy(logits.clone(), &batch.labels, 0.0);
        total.add(tally(&logits, &loss, &batch.labels)?);
        progress();
    }
    Ok(total)
}

/// # Shapes
/// `[batch, classes]`
fn logits(model: &ViT, batch: &Batch, device: &Device) -> Result<Tensor<2>> {
    let config = model.config();
    let (rows, cols) = config.image_size;
    let shape = [batch.labels.len(), config.channels, rows, cols];
    let pixels = Tensor::from_data(TensorData::new(batch.pixels.clone(), shape), device);
    let queries = |_| Queries::None;
    let (layers, most) = (config.depth, MAX_SCORES);
    let forward =
        Forward { queries: &queries, layers, max_scores: most, block_scores: most, probe: false, tokens: false };
    let output = model.forward(pixels, &forward, |_, _| Ok(()))?;
    output.logits.ok_or_else(|| Error::Numbers("a model without classes cannot be trained".to_owned()))
}

/// Mean cross-entropy; `smoothing` of each target is spread evenly over all classes.
///
/// # Shapes
/// logits `[batch, classes]` to `[1]`
fn cross_entropy(logits: Tensor<2>, labels: &[i64], smoothing: f32) -> Tensor<1> {
    let [batch, classes] = logits.dims();
    let mut targets = vec![smoothing / classes as f32; batch * classes];
    for (row, &label) in targets.chunks_exact_mut(classes).zip(labels) {
        row[label as usize] += 1.0 - smoothing;
    }
    let targets = Tensor::from_data(TensorData::new(targets, [batch, classes]), &logits.device());
    (log_softmax(logits, 1) * targets).sum() * (-1.0 / batch as f64)
}

fn tally(logits: &Tensor<2>, loss: &Tensor<1>, labels: &[i64]) -> Result<Tally> {
    let logits = host(logits.clone())?;
    let loss = host(loss.clone())?.first().copied().unwrap_or(f32::NAN);
    let classes = logits.len() / labels.len().max(1);
    let rows = logits.chunks_exact(classes.max(1)).zip(labels);
    let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(index, _)| index as i64);
    let right = rows.filter(|&(row, &label)| best(row) == Some(label)).count();
    Ok(Tally { pictures: labels.len(), loss: f64::from(loss) * labels.len() as f64, right })
}

/// A tensor's values on the host, row-major.
fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    crate::inspect::read(tensor)
}

//! The model's own kernels: values and gradients as burn's autodiff and as finite differences give them, on every
//! backend, and training that comes out the same each time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

mod common;

use burn::tensor::{
    Device, Tensor, TensorData,
    activation::{gelu_approximate, softmax},
};
use common::{backends, difference};
use vit_attn::{
    device::{Backend, Opened},
    model::{ViTConfig, kernels},
    train::{Plan, Trainer, augment::Augment, data::Dataset, random::Random},
};

/// Row lengths around the widths of vector registers, and those of real models.
const WIDTHS: [usize; 7] = [1, 3, 15, 16, 17, 65, 197];
/// Scale of the softmax.
const SCALE: f64 = 0.75;
/// Epsilon of the norms.
const EPS: f64 = 1e-5;

/// Numbers from -`scale` to `scale`.
fn numbers(seed: u64, count: usize, scale: f32) -> Vec<f32> {
    let mut random = Random::new(&[seed]);
    (0..count).map(|_| (random.below(2001) as f32 / 1000.0 - 1.0) * scale).collect()
}

/// What a kernel takes and what its output is weighed with to get a loss: `x` and `weigh` are `[rows, width]`.
struct Case {
    width: usize,
    x: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    weigh: Vec<f32>,
}

impl Case {
    fn new(rows: usize, width: usize) -> Self {
        let seed = (rows * 1000 + width) as u64;
        Self {
            width,
            x: numbers(seed, rows * width, 4.0),
            gamma: numbers(seed + 1, width, 1.5),
            beta: numbers(seed + 2, width, 0.5),
            weigh: numbers(seed + 3, rows * width, 1.0),
        }
    }

    /// `x` as `[2, rows / 2, width]`, which in memory is `[rows / 2, 2, width]`.
    fn strided(&self, device: &Device) -> Tensor<3> {
        let half = self.x.len() / self.width / 2;
        let row = |row: usize| &self.x[row * self.width..][..self.width];
        let swapped = (0..half).flat_map(|i| [row(i), row(half + i)]).flatten().copied().collect();
        Tensor::<3>::from_data(TensorData::new(swapped, [half, 2, self.width]), device).swap_dims(0, 1)
    }

    fn vector(values: &[f32], device: &Device) -> Tensor<1> {
        Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
    }

    /// The output of `kernel`, and the gradients of the weighed output for x, γ and β.
    fn run(&self, device: &Device, kernel: Kernel<Tensor<3>, Tensor<1>>) -> Vec<Vec<f32>> {
        let device = device.clone().autodiff();
        let x = self.strided(&device).require_grad();
        let gamma = Self::vector(&self.gamma, &device).require_grad();
        let beta = Self::vector(&self.beta, &device).require_grad();
        let y = kernel(x.clone(), gamma.clone(), beta.clone());
        let weigh = Tensor::from_data(TensorData::new(self.weigh.clone(), y.dims()), &device);
        let grads = (y.clone() * weigh).sum().backward();
        let mut results = vec![host(y.inner())];
        results.extend(x.grad(&grads).map(host));
        results.extend(gamma.grad(&grads).map(host));
        results.extend(beta.grad(&grads).map(host));
        results
    }
}

type Kernel<X, V> = fn(X, V, V) -> X;

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// A kernel on burn's tensors.
type OnTensors = Kernel<Tensor<3>, Tensor<1>>;

/// In f64, a row with its γ and β.
type Row = fn(&[f64], &[f64], &[f64]) -> Vec<f64>;

/// A kernel: ours, burn's composed from plain operations, and in f64.
const KERNELS: [(&str, OnTensors, OnTensors, Row); 3] = [
    ("softmax", |x, _, _| kernels::softmax(x, SCALE), |x, _, _| softmax(x * SCALE, 2), exact_softmax),
    ("layer norm", |x, gamma, beta| kernels::layer_norm(x, gamma, beta, EPS), composed_norm, exact_norm),
    ("tanh GELU", |x, _, _| kernels::gelu_tanh(x), |x, _, _| gelu_approximate(x), exact_gelu),
];

fn composed_norm(x: Tensor<3>, gamma: Tensor<1>, beta: Tensor<1>) -> Tensor<3> {
    let centred = x.clone() - x.mean_dim(2);
    let variance = (centred.clone() * centred.clone()).mean_dim(2);
    centred / (variance + EPS).sqrt() * gamma.reshape([1, 1, -1]) + beta.reshape([1, 1, -1])
}

fn exact_softmax(x: &[f64], _: &[f64], _: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| (SCALE * x).exp()).sum();
    x.iter().map(|x| (SCALE * x).exp() / sum).collect()
}

fn exact_norm(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let normed = x.iter().map(|x| (x - mean) / (variance + EPS).sqrt());
    normed.zip(gamma).zip(beta).map(|((x, gamma), beta)| x * gamma + beta).collect()
}

fn exact_gelu(x: &[f64], _: &[f64], _: &[f64]) -> Vec<f64> {
    let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    x.iter().map(|&x| 0.5 * x * (1.0 + inner(x).tanh())).collect()
}

/// The gradients for x, γ and β by central differences in f64.
fn finite_differences(case: &Case, row: Row) -> [Vec<f32>; 3] {
    const STEP: f64 = 1e-5;
    let wide = |values: &[f32]| -> Vec<f64> { values.iter().map(|&value| f64::from(value)).collect() };
    let (gamma, beta) = (wide(&case.gamma), wide(&case.beta));
    let mut grads = [vec![0.0; case.x.len()], vec![0.0; case.width], vec![0.0; case.width]];
    for (r, (x, weigh)) in case.x.chunks(case.width).zip(case.weigh.chunks(case.width)).enumerate() {
        let inputs = [wide(x), gamma.clone(), beta.clone()];
        for (which, grad) in grads.iter_mut().enumerate() {
            let start = if which == 0 { r * case.width } else { 0 };
            for i in 0..case.width {
                let loss = |step: f64| -> f64 {
                    let mut moved = inputs.clone();
                    moved[which][i] += step;
                    let y = row(&moved[0], &moved[1], &moved[2]);
                    y.iter().zip(weigh).map(|(y, &weigh)| y * f64::from(weigh)).sum()
                };
                grad[start + i] += ((loss(STEP) - loss(-STEP)) / (2.0 * STEP)) as f32;
            }
        }
    }
    grads
}

/// How far two gradients may lie apart: they are sums of `width` products.
fn allowed(reference: &[f32]) -> f32 {
    2e-5 * reference.iter().fold(1.0, |most: f32, value| most.max(value.abs()))
}

#[test]
fn values_are_burns_own_within_a_millionth() {
    for opened in backends() {
        for width in WIDTHS {
            let case = Case::new(6, width);
            for (name, ours, burns, _) in KERNELS {
                let (x, gamma) = (case.strided(&opened.device), Case::vector(&case.gamma, &opened.device));
                let beta = Case::vector(&case.beta, &opened.device);
                let ours = host(ours(x.clone(), gamma.clone(), beta.clone()));
                let burns = host(burns(x, gamma, beta));
                let off = difference(&ours, &burns);
                let most = 1e-6 * burns.iter().fold(1.0, |most: f32, value| most.max(value.abs()));
                assert!(off <= most, "{name} of {width} on {}: off by {off:e}", opened.backend);
            }
        }
    }
}

#[test]
fn gradients_are_those_of_burns_autodiff_on_composed_operations() {
    for opened in backends() {
        for width in WIDTHS {
            let case = Case::new(6, width);
            for (name, ours, burns, _) in KERNELS {
                let (ours, burns) = (case.run(&opened.device, ours), case.run(&opened.device, burns));
                assert_eq!(ours.len(), burns.len(), "{name} has gradients for other inputs than burn's");
                for (which, (ours, burns)) in ours.iter().zip(&burns).enumerate() {
                    let off = difference(ours, burns);
                    let most = allowed(burns);
                    assert!(off <= most, "{name} of {width} on {}, result {which}: {off:e}", opened.backend);
                }
            }
        }
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    for opened in backends() {
        for width in WIDTHS {
            let case = Case::new(4, width);
            for (name, ours, _, row) in KERNELS {
                let ours = case.run(&opened.device, ours);
                for (which, expected) in finite_differences(&case, row).iter().enumerate().take(ours.len() - 1) {
                    let off = difference(&ours[which + 1], expected);
                    let most = allowed(expected);
                    assert!(off <= most, "{name} of {width} on {}, input {which}: {off:e}", opened.backend);
                }
            }
        }
    }
}

#[test]
fn rows_that_fill_many_tasks_come_out_like_rows_by_themselves() {
    // flex hands 16,384 values to a thread: rows that fit a task many times, and one that does not fit.
    for opened in backends() {
        for (rows, width) in [(3000, 17), (2, 20_000)] {
            let case = Case::new(rows, width);
            for (name, ours, burns, _) in KERNELS {
                let (ours, burns) = (case.run(&opened.device, ours), case.run(&opened.device, burns));
                for (which, (ours, burns)) in ours.iter().zip(&burns).enumerate() {
                    let off = difference(ours, burns);
                    let most = 5.0 * allowed(burns);
                    assert!(off <= most, "{name}, {rows} x {width} on {}, {which}: {off:e}", opened.backend);
                }
            }
        }
    }
}

#[test]
fn softmax_survives_scores_of_any_size_and_hands_on_what_is_no_number() {
    for opened in backends() {
        let of = |row: [f32; 4]| {
            let x = Tensor::<2>::from_data(TensorData::new(row.to_vec(), [1, 4]), &opened.device);
            host(kernels::softmax(x, 1.0))
        };
        let context = opened.backend;
        assert!(difference(&of([3e38, -3e38, 0.0, 1.0]), &[1.0, 0.0, 0.0, 0.0]) <= 1e-6, "{context}");
        assert!(difference(&of([-1e30, -1e30, -1e30, -1e30]), &[0.25; 4]) <= 1e-6, "{context}");
        assert!(difference(&of([200.0, 199.0, -500.0, 0.0]), &[0.731_058_6, 0.268_941_4, 0.0, 0.0]) <= 1e-6);
        // Shaders may assume that there is no NaN; what they return then is checked by the sum of the row.
        if opened.backend != Backend::Wgpu {
            assert!(of([f32::NAN, 0.0, 1.0, 2.0]).iter().any(|value| value.is_nan()), "{context}");
        }
    }
}

/// Three epochs of a tiny model, and its weights.
fn train(opened: &Opened) -> Vec<(String, Vec<f32>)> {
    let config = ViTConfig {
        image_size: (8, 8),
        patch_size: (2, 2),
        width: 12,
        depth: 2,
        heads: 3,
        mlp_width: 20,
        classes: 3,
        ..ViTConfig::default()
    };
    let plan = Plan {
        epochs: 3,
        batch_size: 5,
        learning_rate: 0.01,
        warmup: 1,
        weight_decay: 0.05,
        label_smoothing: 0.1,
        augment: Augment::default(),
        seed: 7,
        validation_share: 0.1,
        pictures: 0,
    };
    let mut random = Random::new(&[1]);
    let data = Dataset {
        pixels: (0..20 * 3 * 8 * 8).map(|_| random.below(256) as u8).collect(),
        labels: (0..20).map(|index| index % 3).collect(),
        rows: 8,
        cols: 8,
    };
    let mut trainer = Trainer::new(&config, plan, &opened.device).unwrap();
    while trainer.history.len() < trainer.plan.epochs {
        let order = trainer.order(&data);
        while trainer.step < trainer.steps(&data) {
            trainer.advance(&data, &order).unwrap();
        }
        trainer.finish_epoch(&data, &data, || ()).unwrap();
    }
    trainer.weights().unwrap().into_iter().collect()
}

#[test]
fn training_twice_gives_identical_weights_that_have_learnt() {
    for opened in backends() {
        let (first, second) = (train(&opened), train(&opened));
        for ((name, first), (_, second)) in first.iter().zip(&second) {
            assert_eq!(first, second, "{name} on {}", opened.backend);
            assert!(first.iter().all(|value| value.is_finite()), "{name} on {}", opened.backend);
        }
        let bias = &first.iter().find(|(name, _)| name == "classifier.bias").unwrap().1;
        assert!(bias.iter().any(|value| value.abs() > 1e-3), "nothing was learnt on {}", opened.backend);
    }
}

//! The CPU's side of [`kernels`](super::kernels): plain loops over rows, one pass each, compiled for every
//! vector width by pulp and chosen at run time.
//!
//! Sums run in [`LANES`] partial sums, since the compiler may not reorder floating-point additions by itself. Inner loops
//! are `for` loops: what `for_each` and `sum` call may stay outside the function that is compiled for the vectors.

use burn::{
    backend::{Flex, tensor::FloatTensor},
    tensor::TensorData,
};
use burn_flex::FlexTensor;
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

use super::kernels::{CUBIC, TWO_SQRT_2_OVER_PI};

/// Values of a parallel task: enough to pay for the hand-over to another thread, few enough for the cache.
const TASK: usize = 1 << 14;
/// Partial sums of a reduction: the widest vector register.
const LANES: usize = 16;

/// A contiguous tensor's values and shape; copies only what is strided.
struct Input(FlexTensor);

impl Input {
    fn new(tensor: FloatTensor<Flex>) -> Self {
        Self(tensor.to_contiguous())
    }

    fn values(&self) -> &[f32] {
        // Every tensor of ours is f32, and this one was just made contiguous.
        self.0.as_slice().unwrap_or_default()
    }

    /// Length of the last dimension.
    fn width(&self) -> usize {
        self.0.layout().shape().last().copied().unwrap_or(1).max(1)
    }

    /// Values of a task of whole rows.
    fn task(&self) -> usize {
        self.width() * (TASK / self.width()).max(1)
    }

    /// A tensor of the same shape.
    fn like(&self, values: Vec<f32>) -> FlexTensor {
        FlexTensor::from_data(TensorData::new(values, self.0.layout().shape().clone()))
    }
}

/// Rewrites a tensor, some whole rows at a time: in place where nobody else holds it, else on a copy that is made on the
/// way. `task` gets a task's values and where they begin.
#[inline(always)]
fn rewrite(x: FloatTensor<Flex>, task: impl Fn(&mut [f32], usize) + Sync) -> FlexTensor {
    let mut x = Input::new(x);
    let size = x.task();
    let run = |index: usize, values: &mut [f32]| {
        vectorised(
            #[inline(always)]
            || task(values, index * size),
        );
    };
    if let Some(values) = x.0.try_storage_mut::<f32>() {
        values.par_chunks_mut(size).enumerate().for_each(|(index, values)| run(index, values));
        return x.0;
    }
    let mut out = vec![0.0; x.values().len()];
    out.par_chunks_mut(size).zip(x.values().par_chunks(size)).enumerate().for_each(|(index, (out, x))| {
        out.copy_from_slice(x);
        run(index, out);
    });
    x.like(out)
}

/// Runs `body` compiled for this processor's vectors.
#[inline(always)]
fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    struct Body<F>(F);
    impl<R, F: FnOnce() -> R> NullaryFnOnce for Body<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Body(body))
}

/// Σ f(a, b) over two rows.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (heads_a, heads_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (rest_a, rest_b) = (heads_a.remainder(), heads_b.remainder());
    for (a, b) in heads_a.zip(heads_b) {
        for lane in 0..LANES {
            lanes[lane] += f(a[lane], b[lane]);
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for (&a, &b) in rest_a.iter().zip(rest_b) {
        total += f(a, b);
    }
    total
}

/// e^x to about one unit in the last place (Cephes' `expf`), in a form that vectorises.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5·2²³ rounds to an integer, which then sits in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    (p * r * r + r + 1.0) * power
}

/// σ(2√(2/π) (x + 0.044715 x³)), the gate of the tanh GELU.
#[inline(always)]
fn gate(x: f32) -> f32 {
    const LINEAR: f32 = TWO_SQRT_2_OVER_PI as f32;
    const CUBE: f32 = (TWO_SQRT_2_OVER_PI * CUBIC) as f32;
    1.0 / (1.0 + exp(-x * (LINEAR + CUBE * x * x)))
}

/// The error function to about one unit in the last place of 1: the rational approximation of Eigen and XLA.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let s = x * x;
    let top = -2.726_142_3e-10;
    let top = top * s + 2.770_681_4e-8;
    let top = top * s - 2.101_024e-6;
    let top = top * s - 5.692_506_4e-5;
    let top = top * s - 7.349_906_3e-4;
    let top = top * s - 2.954_6e-3;
    let top = top * s - 1.609_603_3e-2;
    let bottom = -1.456_607_2e-5;
    let bottom = bottom * s - 2.133_740_6e-4;
    let bottom = bottom * s - 1.682_827e-3;
    let bottom = bottom * s - 7.373_329e-3;
    let bottom = bottom * s - 1.426_473_9e-2;
    x * top / bottom
}

/// Applies a function of one value everywhere.
#[inline(always)]
fn map(x: FloatTensor<Flex>, f: impl Fn(f32) -> f32 + Sync) -> FlexTensor {
    rewrite(
        x,
        #[inline(always)]
        |values, _| {
            for value in values {
                *value = f(*value);
            }
        },
    )
}

/// GELU by the error function.
pub fn gelu(x: FloatTensor<Flex>) -> FlexTensor {
    map(
        x,
        #[inline(always)]
        |x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
    )
}

/// GELU by its tanh approximation.
pub fn gelu_tanh(x: FloatTensor<Flex>) -> FlexTensor {
    map(
        x,
        #[inline(always)]
        |x| x * gate(x),
    )
}

/// The sum of two tensors of one shape.
pub fn add(x: FloatTensor<Flex>, y: FloatTensor<Flex>) -> FlexTensor {
    let y = Input::new(y);
    rewrite(
        x,
        #[inline(always)]
        |x, start| {
            for (x, &y) in x.iter_mut().zip(&y.values()[start..]) {
                *x += y;
            }
        },
    )
}

/// Adds `bias` to each row.
pub fn add_bias(x: FloatTensor<Flex>, bias: FloatTensor<Flex>) -> FlexTensor {
    let bias = Input::new(bias);
    rewrite(
        x,
        #[inline(always)]
        |rows, _| {
            for row in rows.chunks_mut(bias.width()) {
                for (value, &bias) in row.iter_mut().zip(bias.values()) {
                    *value += bias;
                }
            }
        },
    )
}

/// Heads side by side: `[batch, heads, tokens, width]` to `[batch, tokens, heads * width]`.
pub fn concatenate(x: FloatTensor<Flex>) -> FlexTensor {
    let x = Input::new(x);
    let [batch, heads, tokens, width] = x.0.layout().shape().dims();
    let mut out = vec![0.0; x.values().len()];
    out.par_chunks_mut((heads * width).max(1)).enumerate().for_each(|(token, out)| {
        let picture = token / tokens * heads * tokens;
        for (head, out) in out.chunks_mut(width).enumerate() {
            let start = (picture + head * tokens + token % tokens) * width;
            out.copy_from_slice(&x.values()[start..start + width]);
        }
    });
    FlexTensor::from_data(TensorData::new(out, [batch, tokens, heads * width]))
}

/// Layer norm over rows: `(x - mean) / √(variance + eps) γ + β`.
pub fn layer_norm(x: FloatTensor<Flex>, gamma: FloatTensor<Flex>, beta: FloatTensor<Flex>, eps: f64) -> FlexTensor {
    let (gamma, beta) = (Input::new(gamma), Input::new(beta));
    let width = gamma.width();
    rewrite(
        x,
        #[inline(always)]
        |rows, _| {
            for row in rows.chunks_mut(width) {
                norm_row(row, gamma.values(), beta.values(), eps as f32);
            }
        },
    )
}

/// A row's mean, and one over its standard deviation.
#[inline(always)]
fn moments(x: &[f32], eps: f32) -> (f32, f32) {
    let width = x.len() as f32;
    let mean = sum(x, x, |x, _| x) / width;
    let variance = sum(x, x, |x, _| (x - mean) * (x - mean)) / width;
    (mean, 1.0 / (variance + eps).sqrt())
}

#[inline(always)]
fn norm_row(row: &mut [f32], gamma: &[f32], beta: &[f32], eps: f32) {
    let (mean, inverse) = moments(row, eps);
    for ((x, &gamma), &beta) in row.iter_mut().zip(gamma).zip(beta) {
        *x = (*x - mean) * inverse * gamma + beta;
    }
}

/// The gradient of [`gelu_tanh`]: `σ(u) (1 + x (1 - σ(u)) u')`, with `u' = 2√(2/π) (1 + 3·0.044715 x²)`.
pub fn gelu_tanh_backward(x: FloatTensor<Flex>, grad: FloatTensor<Flex>) -> FlexTensor {
    const LINEAR: f32 = TWO_SQRT_2_OVER_PI as f32;
    const CUBE: f32 = (3.0 * TWO_SQRT_2_OVER_PI * CUBIC) as f32;
    let (x, grad) = (Input::new(x), Input::new(grad));
    let mut out = vec![0.0; x.values().len()];
    let inputs = x.values().par_chunks(TASK).zip(grad.values().par_chunks(TASK));
    out.par_chunks_mut(TASK).zip(inputs).for_each(|(out, (x, grad))| {
        vectorised(
            #[inline(always)]
            || {
                for ((out, &x), &grad) in out.iter_mut().zip(x).zip(grad) {
                    let gate = gate(x);
                    *out = grad * gate * (1.0 + x * (1.0 - gate) * (LINEAR + CUBE * x * x));
                }
            },
        );
    });
    x.like(out)
}

/// Softmax over rows that are multiplied by `scale` first.
pub fn softmax(x: FloatTensor<Flex>, scale: f64) -> FlexTensor {
    let width = x.layout().shape().last().copied().unwrap_or(1).max(1);
    rewrite(
        x,
        #[inline(always)]
        |rows, _| {
            for row in rows.chunks_mut(width) {
                softmax_row(row, scale as f32);
            }
        },
    )
}

#[inline(always)]
fn softmax_row(row: &mut [f32], scale: f32) {
    let max = maximum(row);
    for x in row.iter_mut() {
        *x = exp((*x - max) * scale);
    }
    let inverse = 1.0 / sum(row, row, |power, _| power);
    for x in row {
        *x *= inverse;
    }
}

#[inline(always)]
fn maximum(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    let mut most = f32::NEG_INFINITY;
    for &value in lanes.iter().chain(rest) {
        most = most.max(value);
    }
    most
}

/// The gradient of softmax over rows: `scale y (grad - Σ y grad)`.
pub fn softmax_backward(y: FloatTensor<Flex>, grad: FloatTensor<Flex>, scale: f64) -> FlexTensor {
    let (y, grad) = (Input::new(y), Input::new(grad));
    let (width, task) = (y.width(), y.task());
    let mut out = vec![0.0; y.values().len()];
    let inputs = y.values().par_chunks(task).zip(grad.values().par_chunks(task));
    out.par_chunks_mut(task).zip(inputs).for_each(|(out, (y, grad))| {
        vectorised(
            #[inline(always)]
            || {
                let rows = y.chunks(width).zip(grad.chunks(width));
                for (out, (y, grad)) in out.chunks_mut(width).zip(rows) {
                    let dot = sum(y, grad, |y, grad| y * grad);
                    for ((out, &y), &grad) in out.iter_mut().zip(y).zip(grad) {
                        *out = scale as f32 * y * (grad - dot);
                    }
                }
            },
        );
    });
    y.like(out)
}

/// The gradients of layer norm over rows for its input, scale and shift. With x̂ the normalised input and g = grad γ:
/// `dx = (g - mean(g) - x̂ mean(g x̂)) / σ`, `dγ = Σ grad x̂`, `dβ = Σ grad`.
pub fn layer_norm_backward(
    x: FloatTensor<Flex>,
    gamma: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
    eps: f64,
) -> [FlexTensor; 3] {
    let (x, gamma, grad) = (Input::new(x), Input::new(gamma), Input::new(grad));
    let (width, task) = (x.width(), x.task());
    let mut out = vec![0.0; x.values().len()];
    let inputs = x.values().par_chunks(task).zip(grad.values().par_chunks(task));
    let sums = out.par_chunks_mut(task).zip(inputs).map(|(out, (x, grad))| {
        let mut sums = vec![0.0; 2 * width];
        vectorised(
            #[inline(always)]
            || {
                let rows = x.chunks(width).zip(grad.chunks(width));
                for (out, (x, grad)) in out.chunks_mut(width).zip(rows) {
                    norm_row_backward(out, x, (grad, gamma.values()), eps as f32, &mut sums);
                }
            },
        );
        sums
    });
    // Added up in order, so that the same pictures give the same gradient however the tasks were spread.
    let sums = sums.collect::<Vec<Vec<f32>>>().into_iter().reduce(|mut total, part| {
        total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        total
    });
    let sums = sums.unwrap_or_else(|| vec![0.0; 2 * width]);
    let vector = |values: &[f32]| FlexTensor::from_data(TensorData::new(values.to_vec(), [width]));
    [x.like(out), vector(&sums[..width]), vector(&sums[width..])]
}

#[inline(always)]
fn norm_row_backward(out: &mut [f32], x: &[f32], (grad, gamma): (&[f32], &[f32]), eps: f32, sums: &mut [f32]) {
    let width = x.len() as f32;
    let (mean, inverse) = moments(x, eps);
    // `out` holds g = grad γ until both of its means are known.
    for ((out, &grad), &gamma) in out.iter_mut().zip(grad).zip(gamma) {
        *out = grad * gamma;
    }
    let mean_g = sum(out, out, |g, _| g) / width;
    let mean_gx = sum(out, x, |g, x| g * (x - mean)) * inverse / width;
    let (grad_gamma, grad_beta) = sums.split_at_mut(x.len());
    for (i, out) in out.iter_mut().enumerate() {
        let normed = (x[i] - mean) * inverse;
        *out = (*out - mean_g - normed * mean_gx) * inverse;
        grad_gamma[i] += grad[i] * normed;
        grad_beta[i] += grad[i];
    }
}

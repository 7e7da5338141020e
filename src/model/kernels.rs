//! Operations that burn composes from many passes over memory, or from slow steps, or runs on one thread, done in one
//! parallel pass on the CPU: softmax over the keys, layer norm, both kinds of GELU, linear layers and sums. But for the
//! GELU by the error function, flex has gradients of its own for the first three.
//!
//! wgpu runs burn's own operations forward and short compositions backward; so does ndarray where its numbers would have to
//! be copied for more.

#![allow(deprecated, reason = "burn prefers flex to its ndarray backend; it stays for those who compare the two")]

use burn::backend::{
    Autodiff, Backend, Cube, Dispatch, Flex, NdArray, TensorMetadata as _,
    autodiff::{
        checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
    backend_extension,
    ops::FloatTensorOps as _,
    tensor::FloatTensor,
};
use burn::{
    nn::Linear,
    tensor::{Tensor, TensorData, read_sync},
};

use super::fused;

/// √(2/π) twice: the factor in `x σ(2√(2/π) (x + 0.044715 x³))`.
pub(super) const TWO_SQRT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::SQRT_2;
/// The cubic term of the tanh approximation.
pub(super) const CUBIC: f64 = 0.044715;

/// Softmax over the last dimension of `scale x`; `scale` is positive.
pub fn softmax<const D: usize>(x: Tensor<D>, scale: f64) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as Kernels>::row_softmax(x.into_dispatch(), scale))
}

/// A linear layer on the last dimension.
pub fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    let Some(bias) = &layer.bias else { return layer.forward(x) };
    let (weight, bias) = (layer.weight.val().into_dispatch(), bias.val().into_dispatch());
    Tensor::from_dispatch(<Dispatch as Kernels>::affine(x.into_dispatch(), weight, bias))
}

/// Heads side by side again.
///
/// # Shapes
/// `[batch, heads, tokens, width]` to `[batch, tokens, heads * width]`
pub fn concatenate(heads: Tensor<4>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as Kernels>::side_by_side(heads.into_dispatch()))
}

/// The sum of two tensors of one shape.
pub fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as Kernels>::sum(x.into_dispatch(), y.into_dispatch()))
}

/// Layer norm over the last dimension, with scale and shift.
pub fn layer_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, eps: f64) -> Tensor<D> {
    let (x, gamma, beta) = (x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Kernels>::row_norm(x, gamma, beta, eps))
}

/// GELU by its tanh approximation, in the equal form `x σ(2√(2/π) (x + 0.044715 x³))`.
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as Kernels>::tanh_gelu(x.into_dispatch()))
}

/// GELU by the error function, `x/2 (1 + erf(x/√2))`.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as Kernels>::erf_gelu(x.into_dispatch()))
}

/// The operations; the defaults are burn's own.
#[backend_extension(Cube, Flex, NdArray, Autodiff)]
trait Kernels: Backend {
    fn row_softmax(x: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        let dim = last::<Self>(&x);
        Self::softmax(Self::float_mul_scalar(x, scale.into()), dim)
    }

    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::linear(x, weight, Some(bias))
    }

    fn side_by_side(heads: FloatTensor<Self>) -> FloatTensor<Self> {
        let [batch, count, tokens, width] = heads.shape().dims();
        Self::float_reshape(Self::float_swap_dims(heads, 1, 2), [batch, tokens, count * width].into())
    }

    fn sum(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_add(x, y)
    }

    fn row_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        Self::layer_norm(x, gamma, Some(beta), eps)
    }

    fn tanh_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_mul(x.clone(), composed_gate::<Self>(x))
    }

    // Its gradient is burn's own.
    fn erf_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::gelu(x)
    }
}

/// The gradients. `y` is the operation's output, `x` its input, `grad` the gradient of its output.
trait KernelGradients: Backend {
    /// `scale y (grad - Σ y grad)`
    fn row_softmax_backward(y: FloatTensor<Self>, grad: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        let dim = last::<Self>(&y);
        let dot = Self::float_sum_dim(Self::float_mul(y.clone(), grad.clone()), dim);
        Self::float_mul_scalar(Self::float_mul(y, Self::float_sub(grad, dot)), scale.into())
    }

    /// Gradients of `x`, `gamma` and `beta`.
    fn row_norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
    ) -> [FloatTensor<Self>; 3] {
        composed_norm_backward::<Self>(x, gamma, grad, eps)
    }

    /// `grad σ(u) (1 + x (1 - σ(u)) u')`, with `u' = 2√(2/π) (1 + 3·0.044715 x²)`
    fn tanh_gelu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        let gate = composed_gate::<Self>(x.clone());
        let square = Self::float_mul(x.clone(), x.clone());
        let slope = Self::float_mul_scalar(square, (3.0 * CUBIC * TWO_SQRT_2_OVER_PI).into());
        let slope = Self::float_mul(x, Self::float_add_scalar(slope, TWO_SQRT_2_OVER_PI.into()));
        let rest = Self::float_add_scalar(Self::float_neg(gate.clone()), 1.0.into());
        let factor = Self::float_add_scalar(Self::float_mul(slope, rest), 1.0.into());
        Self::float_mul(grad, Self::float_mul(gate, factor))
    }
}

fn last<B: Backend>(x: &FloatTensor<B>) -> usize {
    x.shape().num_dims() - 1
}

/// `σ(2√(2/π) (x + 0.044715 x³))`
fn composed_gate<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let inner = B::float_mul_scalar(B::float_mul(x.clone(), x.clone()), (CUBIC * TWO_SQRT_2_OVER_PI).into());
    B::sigmoid(B::float_mul(x, B::float_add_scalar(inner, TWO_SQRT_2_OVER_PI.into())))
}

/// With x̂ the normalised input and g = grad γ: `dx = (g - mean(g) - x̂ mean(g x̂)) / σ`, `dγ = Σ grad x̂`, `dβ = Σ grad`.
fn composed_norm_backward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    grad: FloatTensor<B>,
    eps: f64,
) -> [FloatTensor<B>; 3] {
    let (shape, dim) = (x.shape(), last::<B>(&x));
    let width = shape[dim];
    let rows = shape.num_elements() / width.max(1);
    let mean = B::float_mean_dim(x.clone(), dim);
    let centred = B::float_sub(x, mean);
    let variance = B::float_mean_dim(B::float_mul(centred.clone(), centred.clone()), dim);
    let deviation = B::float_sqrt(B::float_add_scalar(variance, eps.into()));
    let normed = B::float_div(centred, deviation.clone());
    let sum_rows = |t: FloatTensor<B>| {
        let flat = B::float_reshape(t, [rows, width].into());
        B::float_reshape(B::float_sum_dim(flat, 0), [width].into())
    };
    let grad_gamma = sum_rows(B::float_mul(grad.clone(), normed.clone()));
    let grad_beta = sum_rows(grad.clone());
    let mut wide = vec![1; shape.num_dims()];
    wide[dim] = width;
    let g = B::float_mul(grad, B::float_reshape(gamma, wide.into()));
    let mean_g = B::float_mean_dim(g.clone(), dim);
    let mean_gx = B::float_mean_dim(B::float_mul(g.clone(), normed.clone()), dim);
    let inner = B::float_sub(B::float_sub(g, mean_g), B::float_mul(normed, mean_gx));
    [B::float_div(inner, deviation), grad_gamma, grad_beta]
}

/// `x weight + bias` as one product over the rows of all pictures.
fn affine_rows<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    add_bias: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let (mut shape, dim) = (x.shape(), last::<B>(&x));
    let rows = shape.num_elements() / shape[dim].max(1);
    let x = B::float_reshape(x, [rows, shape[dim]].into());
    shape[dim] = weight.shape()[1];
    B::float_reshape(add_bias(B::float_matmul(x, weight)), shape)
}

impl Kernels for Cube {}
impl KernelGradients for Cube {}
impl KernelGradients for NdArray {}

/// An ndarray tensor as one of flex; its numbers move, unless somebody else holds them too.
fn to_flex(x: FloatTensor<NdArray>) -> FloatTensor<Flex> {
    let shape = x.shape();
    // They are in memory, so that this cannot fail; if it did, the check of each row's sum would find these.
    let data = read_sync(NdArray::float_into_data(x)).unwrap_or_else(|_| TensorData::full(shape, f32::NAN));
    Flex::float_from_data(data, &Default::default())
}

/// The way back.
fn from_flex(x: FloatTensor<Flex>) -> FloatTensor<NdArray> {
    NdArray::float_from_data(x.into_data(), &Default::default())
}

impl Kernels for NdArray {
    fn row_softmax(x: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        from_flex(fused::softmax(to_flex(x), scale))
    }

    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        affine_rows::<Self>(x, weight, |product| from_flex(fused::add_bias(to_flex(product), to_flex(bias))))
    }

    fn tanh_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        from_flex(fused::gelu_tanh(to_flex(x)))
    }

    fn erf_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        from_flex(fused::gelu(to_flex(x)))
    }
}

impl Kernels for Flex {
    fn row_softmax(x: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        fused::softmax(x, scale)
    }

    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        affine_rows::<Self>(x, weight, |product| fused::add_bias(product, bias))
    }

    fn side_by_side(heads: FloatTensor<Self>) -> FloatTensor<Self> {
        fused::concatenate(heads)
    }

    fn sum(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        fused::add(x, y)
    }

    fn row_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        fused::layer_norm(x, gamma, beta, eps)
    }

    fn tanh_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        fused::gelu_tanh(x)
    }

    fn erf_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        fused::gelu(x)
    }
}

impl KernelGradients for Flex {
    fn row_softmax_backward(y: FloatTensor<Self>, grad: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        fused::softmax_backward(y, grad, scale)
    }

    fn row_norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
    ) -> [FloatTensor<Self>; 3] {
        fused::layer_norm_backward(x, gamma, grad, eps)
    }

    fn tanh_gelu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        fused::gelu_tanh_backward(x, grad)
    }
}

#[derive(Debug)]
struct SoftmaxBackward;

impl<B: KernelGradients> Backward<B, 1> for SoftmaxBackward {
    type State = (FloatTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (y, scale) = ops.state;
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::row_softmax_backward(y, grad, scale));
        }
    }
}

#[derive(Debug)]
struct NormBackward;

impl<B: KernelGradients> Backward<B, 3> for NormBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (x, gamma, eps) = ops.state;
        for (parent, gradient) in ops.parents.into_iter().zip(B::row_norm_backward(x, gamma, grad, eps)) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct GeluBackward;

impl<B: KernelGradients> Backward<B, 1> for GeluBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::tanh_gelu_backward(ops.state, grad));
        }
    }
}

impl<B: Kernels + KernelGradients, C: CheckpointStrategy> Kernels for Autodiff<B, C> {
    fn row_softmax(x: FloatTensor<Self>, scale: f64) -> FloatTensor<Self> {
        match SoftmaxBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::row_softmax(x.into_primitive(), scale);
                prep.finish((y.clone(), scale), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::row_softmax(x.into_primitive(), scale)),
        }
    }

    fn row_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), gamma.node(), beta.node()];
        let (x, gamma, beta) = (x.into_primitive(), gamma.into_primitive(), beta.into_primitive());
        let y = B::row_norm(x.clone(), gamma.clone(), beta, eps);
        match NormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, gamma, eps), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn tanh_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let node = x.node();
        let x = x.into_primitive();
        let y = B::tanh_gelu(x.clone());
        match GeluBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(x, y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}

"""Autograd functions that hand a layer's inputs and output gradients to the tape, and never form a summed weight gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from engram.clipping.layers import Layer


def narrowed(x: Tensor, *others: Tensor | None) -> list[Any]:
    """What autocast would do to the inputs of a matrix product."""
    if not torch.is_autocast_enabled(x.device.type):
        return [x, *others]
    dtype = torch.get_autocast_dtype(x.device.type)
    return [t.to(dtype) if t is not None and t.dtype == torch.float32 else t for t in (x, *others)]


class Linear(Function):
    """x W^T + b, or x W + b where the matrix is stored the other way round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer, turned: bool) -> Tensor:
        x_, weight_, bias = narrowed(x, weight, bias)
        ctx.save_for_backward(x_, weight_)
        ctx.layer, ctx.turned = layer, turned
        return F.linear(x_, weight_.T if turned else weight_, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.layer.linear(x, g, ctx.turned)
        dx = g @ (weight.T if ctx.turned else weight) if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None


class Embedding(Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, layer: Layer) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.layer = layer
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        ctx.layer.embedding(ctx.saved_tensors[0], g)
        return None, None, None


class LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: Layer) -> Tensor:
        module: Any = layer.module
        if torch.is_autocast_enabled(x.device.type):
            x = x.float()
        out, mean, scale = torch.native_layer_norm(x, module.normalized_shape, weight, bias, module.eps)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.layer = layer
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight, bias, mean, scale = ctx.saved_tensors
        ctx.layer.layer_norm(x, g, mean, scale)
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        dx = torch.ops.aten.native_layer_norm_backward(
            g.contiguous(), x, ctx.layer.module.normalized_shape, mean, scale, weight, bias, [True, False, False]
        )[0]
        return dx, None, None, None


class Scale(Function):
    """x * weight + bias along one dimension: what follows any kind of normalisation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer, dimension: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.dimension = layer, dimension
        shape = _along(weight, x, dimension)
        return x * weight.view(shape) if bias is None else torch.addcmul(bias.view(shape), x, weight.view(shape))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.layer.scale(x, g, ctx.dimension)
        dx = g * weight.view(_along(weight, x, ctx.dimension)) if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None


def _along(weight: Tensor, x: Tensor, dimension: int) -> list[int]:
    shape = [1] * x.ndim
    shape[dimension : dimension + weight.ndim or None] = weight.shape
    return shape


class Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer, shape: Any) -> Tensor:
        x_, weight_, bias = narrowed(x, weight, bias)
        ctx.save_for_backward(x_, weight_)
        ctx.layer, ctx.shape = layer, shape
        return torch.convolution(x_, weight_, bias, *shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.layer.convolution(x, weight, g, ctx.shape)
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        return convolution_gradient(g, x, weight, ctx.shape, 0), None, None, None, None


def convolution_gradient(g: Tensor, x: Tensor, weight: Tensor, shape: Any, which: int) -> Tensor:
    """The gradient of the input (0) or of the weight (1)."""
    mask = [which == 0, which == 1, False]
    made: Tensor = torch.ops.aten.convolution_backward(g, x, weight, None, *shape, mask)[which]
    return made


linear: Any = Linear.apply
embedding: Any = Embedding.apply
layer_norm: Any = LayerNorm.apply
scale: Any = Scale.apply
convolution: Any = Convolution.apply

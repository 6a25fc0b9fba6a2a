"""The layers whose gradients are taken record by record, and how each hands its pieces to the tape.

A layer stays what it is: only its `forward` is replaced, and only while gradients are wanted and one of its parameters
is trainable. So parameters may be frozen and unfrozen at any time, and evaluation under `no_grad` costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn import Parameter

from engram.clipping import functions, kernels, products
from engram.clipping.pieces import Kept, Made, Outer, Piece, Rows, padded_to_zero
from engram.clipping.tape import NotPrivate, Tape

Play = Callable[["Layer", Tensor], Tensor]


class Layer:
    """One module of a private model."""

    def __init__(self, index: int, name: str, module: nn.Module, tape: Tape, play: Any) -> None:
        self.index, self.name, self.tape, self.play = index, name, tape, play
        self.module: Any = module
        self.ordinary = module.forward
        module.forward = self

    @_disable_dynamo  # a compiled model leaves its graph here and enters the next one behind it
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.active():
            return self.ordinary(*args, **kwargs)
        return self.play(self, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copied model is an ordinary one."""
        return copy.deepcopy(self.ordinary, memo)

    def __reduce__(self) -> Any:
        return self.ordinary.__reduce__()

    def active(self) -> bool:
        return (
            self.tape.watching
            and not self.tape.inside
            and torch.is_grad_enabled()
            and any(p.requires_grad for p in self.parameters())
        )

    def parameters(self) -> list[Parameter]:
        """Those it uses itself, at this moment; a parametrised module uses all that lie below it."""
        if hasattr(self.module, "parametrizations"):
            return list(self.module.parameters())
        return direct(self.module)

    def release(self) -> None:
        """Gives the module its own forward back."""
        if self.module.__dict__.get("forward") is self:
            del self.module.forward

    def batched(self, x: Tensor) -> Tensor:
        """`x` with the records first. What all records share (positions, say) is repeated for each of them."""
        records = self.tape.expected
        natural = records is None or (x.ndim > 0 and x.shape[0] == records)
        if natural and x.ndim == 1 and (self.index, 1, False) in self.tape.checked | self.tape.seen:
            natural = False  # positions, as many as there are records just now
        self.tape.note(self.index, x.ndim, natural)
        if natural:
            return x
        assert records is not None
        if x.ndim == 1 and not x.is_floating_point():
            return x.expand(records, -1)
        if x.ndim > 1 and x.shape[0] == 1:
            return x.expand(records, *x.shape[1:])
        raise NotPrivate(
            f"{self.name} must see the {records} records of the batch in its first dimension, got {tuple(x.shape)}; "
            "put the records first (batch_first=True), or freeze the layer"
        )

    # what each kind of layer leaves behind

    def linear(self, x: Tensor, g: Tensor, turned: bool) -> None:
        if not self.tape.admit(self.name, g):
            return
        x, g = _sequence(x), _sequence(g)
        weight, bias = self.module.weight, self.module.bias
        assert isinstance(weight, Parameter)
        if weight.requires_grad:
            left, right = (x, g) if turned else (g, x)
            self.take(weight, self._product(left, right, weight))
        self.take(bias, lambda: Kept(products.summed(g)))

    def _product(self, left: Tensor, right: Tensor, weight: Parameter) -> Piece:
        tape = self.tape
        route = tape.routes.of(left, right, tape.hold and not tape.many(self.index, weight))
        piece = Outer(left, right, route)
        return Kept(piece.dense(slice(None))) if route == "kept" else piece

    def embedding(self, ids: Tensor, g: Tensor) -> None:
        if not self.tape.admit(self.name, g):
            return
        ids, g = ids.flatten(1) if ids.ndim > 1 else ids[:, None], g.reshape(len(g), -1, g.shape[-1])
        padding = self.module.padding_idx
        height = self.module.num_embeddings
        self.take(self.module.weight, lambda: Rows(ids, padded_to_zero(ids, g, padding), height))

    def layer_norm(self, x: Tensor, g: Tensor, mean: Tensor, scale: Tensor) -> None:
        if not self.tape.admit(self.name, g):
            return
        weight, bias = self.module.weight, self.module.bias
        fused = x.is_cuda and weight is not None and weight.requires_grad and weight.ndim == 1
        if fused and kernels.work(x.device):
            of_weight, of_bias = kernels.layer_norm_sums(x, g, mean, scale)
            self.take(weight, lambda: Kept(of_weight))
            self.take(bias, lambda: Kept(of_bias))
            return
        self.take(weight, lambda: Kept(_over_positions(((x - mean) * scale).mul_(g), self.module.weight)))
        self.take(bias, lambda: Kept(_over_positions(g, self.module.bias)))

    def scale(self, x: Tensor, g: Tensor, dimension: int) -> None:
        if self.tape.admit(self.name, g):
            over = [d for d in range(1, g.ndim) if not 0 <= d - dimension % g.ndim < self.module.weight.ndim]
            self.take(self.module.weight, lambda: Kept((x * g).sum(over) if over else x * g))
            self.take(getattr(self.module, "bias", None), lambda: Kept(g.sum(over) if over else g))

    def convolution(self, x: Tensor, weight: Tensor, g: Tensor, shape: Any) -> None:
        if not self.tape.admit(self.name, g):
            return
        each = torch.func.vmap(lambda g, x: functions.convolution_gradient(g[None], x[None], weight, shape, 1))

        def add(total: Tensor, weights: Tensor) -> None:
            scaled = g * weights.to(g.dtype).view(-1, *[1] * (g.ndim - 1))
            total.add_(functions.convolution_gradient(scaled, x, weight, shape, 1))

        made = Made(lambda rows: each(g[rows], x[rows]), add, len(g), weight.numel())
        small = weight.numel() <= g[0].numel() + x[0].numel() and self.tape.hold
        self.take(self.module.weight, lambda: Kept(made.dense(slice(None))) if small else made)
        self.take(self.module.bias, lambda: Kept(g.flatten(2).sum(2)))

    def take(self, parameter: Any, piece: Piece | Callable[[], Piece]) -> None:
        if parameter is None or not parameter.requires_grad:
            return
        made = piece() if callable(piece) else piece
        self.tape.take(parameter, made, alone=not self.tape.many(self.index, parameter))


def direct(module: nn.Module) -> list[Parameter]:
    """The parameters that a module uses itself: its own, and those in its lists and dictionaries of parameters."""
    lists = [m for m in module.children() if isinstance(m, nn.ParameterList | nn.ParameterDict)]
    return [p for m in [module, *lists] for p in m._parameters.values() if p is not None]


def _sequence(values: Tensor) -> Tensor:
    """[record, position, number], whatever lies between."""
    return values[:, None] if values.ndim == 2 else values.flatten(1, -2)


def _over_positions(values: Tensor, parameter: Any) -> Tensor:
    """[record, *parameter]."""
    return values.flatten(1, -parameter.ndim - 1).sum(1) if values.ndim > parameter.ndim + 1 else values


# how each kind of layer runs forward


def _linear(layer: Layer, x: Tensor) -> Tensor:
    out: Tensor = functions.linear(layer.batched(x), layer.module.weight, layer.module.bias, layer, False)
    return out


def _turned(layer: Layer, x: Tensor) -> Tensor:
    out: Tensor = functions.linear(layer.batched(x), layer.module.weight, layer.module.bias, layer, True)
    return out


def _embedding(layer: Layer, ids: Tensor) -> Tensor:
    out: Tensor = functions.embedding(layer.batched(ids), layer.module.weight, layer)
    return out


def _layer_norm(layer: Layer, x: Tensor) -> Tensor:
    out: Tensor = functions.layer_norm(layer.batched(x), layer.module.weight, layer.module.bias, layer)
    return out


def _rms_norm(layer: Layer, x: Tensor) -> Tensor:
    module, x = layer.module, layer.batched(x)
    normal = F.rms_norm(x, module.normalized_shape, None, module.eps)
    return _scaled(layer, normal, -module.weight.ndim)


def _transformers_rms_norm(layer: Layer, x: Tensor) -> Tensor:
    x = layer.batched(x)
    wide = x.float()
    normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + layer.module.variance_epsilon)
    return _scaled(layer, normal.to(x.dtype), -1)


def _group_norm(layer: Layer, x: Tensor) -> Tensor:
    module = layer.module
    return _scaled(layer, F.group_norm(layer.batched(x), module.num_groups, None, None, module.eps), 1)


def _scaled(layer: Layer, normal: Tensor, dimension: int) -> Tensor:
    module = layer.module
    out: Tensor = functions.scale(normal, module.weight, getattr(module, "bias", None), layer, dimension)
    return out


def _convolution(layer: Layer, x: Tensor) -> Tensor:
    module: Any = layer.module
    dimensions = len(module.kernel_size)
    x, padding = layer.batched(x), module.padding
    if module.padding_mode != "zeros":
        x, padding = F.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode), (0,) * dimensions
    elif isinstance(padding, str):
        x, padding = F.pad(x, module._reversed_padding_repeated_twice), (0,) * dimensions
    shape = (module.stride, padding, module.dilation, False, (0,) * dimensions, module.groups)
    out: Tensor = functions.convolution(x, module.weight, module.bias, layer, shape)
    return out


PLAYS: dict[type[nn.Module], Play] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
}


def play_of(module: nn.Module) -> Play | None:
    """How to run this module, if it is one whose gradients are known; None for any other."""
    if hasattr(module, "parametrizations") or module._forward_pre_hooks:
        return None
    for kind, play in PLAYS.items():
        if type(module).forward is kind.forward and isinstance(module, kind):
            return play
    kind_of = type(module)
    if kind_of.__name__ == "Conv1D" and kind_of.__module__ == "transformers.pytorch_utils":
        return _turned
    if (
        kind_of.__name__.endswith("RMSNorm")
        and kind_of.__module__.startswith("transformers.")
        and _is_plain_rms(module)
    ):
        return _transformers_rms_norm
    return None


def _is_plain_rms(module: Any) -> bool:
    """Many models bring a root-mean-square norm of their own; some add one to the weight. Told apart by what they answer."""
    if not hasattr(module, "variance_epsilon") or list(module._parameters) != ["weight"] or module.weight.is_meta:
        return False
    x = torch.linspace(-2, 3, module.weight.numel(), device=module.weight.device)[None]
    expected = module.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon))
    with torch.no_grad():
        return torch.allclose(module.forward(x), expected.detach(), rtol=1e-5, atol=1e-6)

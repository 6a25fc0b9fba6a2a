"""One record, in closed form, layer by layer from the last to the first.

Zhu, Blaschko: R-GAP: Recursive Gradient Attack on Privacy, 2021. Equations 4 and 5: what a layer was given solves a linear
system, made of what it answered (known from the layer above, once its activation is inverted) and of its gradient.
Differs from the paper: the last layer has a bias, so its gradient gives the loss's slope without a search; dense least
squares in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.access import Gradients, Unknown
from engram.seed import Seed
from engram.types import Recovered, Track, quiet

AT_ONCE = 256  # unknowns whose columns are made together
LIMIT = 6000  # numbers of one layer's input; the least squares of more takes minutes


@dataclass(frozen=True)
class Recursive:
    """The record to rounding, without a search. Needs one record and a plain sequence of layers that can be inverted.

    Layers: linear and convolutional, with biases at the last; activations: sigmoid, tanh, leaky ReLU, identity.
    """

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Zhu, Blaschko 2021"

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:  # noqa: ARG002  draws nothing
        if target.update.batch not in (None, 1):
            raise Unknown(f"the recursion answers one record, the update is of {target.update.batch}")
        passes = _passes(target)
        told = iter([t.double() for t in reversed(target.update.gradient)])
        x, slope = _last(told)
        label = int(slope.argmin())
        slope = passes[-1].layer.weight.detach().T @ slope
        for one in track(list(reversed(passes[:-1])), "inverting layers"):
            x, slope = _given(one, x.view(one.answers), slope.view(one.answers), told)
        x = x.view(1, *target.shape)
        certificates = np.array([target.unexplained(x, torch.tensor([label], device=x.device))])
        return Recovered("record", x.cpu().numpy(), -certificates, certificates, labels=np.array([label]))


@dataclass(frozen=True, eq=False)
class _Pass:
    """A layer with weights, the activation after it, and the shapes of what it is given and answers."""

    layer: nn.Linear | nn.Conv2d
    activation: nn.Module
    inputs: tuple[int, ...]
    answers: tuple[int, ...]


INVERSES: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.Sigmoid: torch.logit,
    nn.Tanh: torch.atanh,
    nn.LeakyReLU: lambda h: h,  # by its slope, see _undone
    nn.Identity: lambda h: h,
}


def _undone(activation: nn.Module, h: Tensor) -> Tensor:
    if isinstance(activation, nn.LeakyReLU):
        return torch.where(h < 0, h / activation.negative_slope, h)
    return INVERSES[type(activation)](h)


def _passes(target: Gradients) -> list[_Pass]:
    model = target.exact()[0]
    if not isinstance(model, nn.Sequential):
        raise Unknown(f"the recursion needs a plain sequence of layers, got a {type(model).__name__}")
    h, found = torch.zeros(1, *target.shape, dtype=torch.float64, device=target.device), list[_Pass]()
    for module in model:
        before = tuple(h.shape[1:])
        h = module(h).detach()
        if type(module) in INVERSES and found:
            found[-1] = _Pass(found[-1].layer, module, found[-1].inputs, found[-1].answers)
        elif isinstance(module, nn.Linear | nn.Conv2d):
            found.append(_Pass(module, nn.Identity(), before, tuple(h.shape[1:])))
        elif not isinstance(module, nn.Flatten):
            raise Unknown(f"the recursion cannot invert a {type(module).__name__}; see the activations it knows")
    _answerable(found)
    return found


def _answerable(passes: list[_Pass]) -> None:
    if not passes or not isinstance(passes[-1].layer, nn.Linear) or passes[-1].layer.bias is None:
        raise Unknown("the recursion starts at a last linear layer with a bias, and there is none")
    widest = max(int(np.prod(one.inputs)) for one in passes[:-1] or passes)
    if widest > LIMIT:
        raise Unknown(f"a layer is given {widest} numbers; the recursion answers up to {LIMIT}")


def _last(told: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """What the last layer was given, and the slope of the loss in its answers: G_b = slope, G_W = slope x'."""
    slope, g_weight = next(told), next(told)
    if not slope.any():
        raise Unknown(
            "the gradient of the last bias is zero: the record was answered with certainty and leaves no trace"
        )
    return slope @ g_weight / slope.square().sum(), slope


def _given(one: _Pass, h: Tensor, slope: Tensor, told: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """What a layer was given and the slope of the loss there, from the same after its activation."""
    z = _undone(one.activation, h)
    if not torch.isfinite(z).all():
        raise Unknown(
            f"the gradient speaks of values that no {type(one.activation).__name__} answers: it is of another model or of "
            "several records, or it was altered"
        )
    z.requires_grad_()
    slope = torch.autograd.grad(one.activation(z), z, slope)[0]  # dL/dz
    if one.layer.bias is not None:
        next(told)
    g_weight = next(told)
    x = _solved(one, z.detach(), slope, g_weight)
    back = x[None].requires_grad_()
    return x, torch.autograd.grad(one.layer(back), back, slope[None])[0][0]


def _solved(one: _Pass, z: Tensor, slope: Tensor, g_weight: Tensor) -> Tensor:
    """The input [..] that answers z (equation 4) and leaves this gradient (equation 5); both are linear in it."""
    size = int(np.prod(one.inputs))
    offset = one.layer(torch.zeros(1, *one.inputs, dtype=z.dtype, device=z.device)).detach()
    rows = []
    for some in torch.split(torch.eye(size, dtype=z.dtype, device=z.device), AT_ONCE):
        x = some.view(-1, *one.inputs)
        answered = (one.layer(x) - offset).detach().flatten(1)
        rows.append(torch.cat([answered, _left(one.layer, x, slope)], 1))
    wanted = torch.cat([(z - offset[0]).flatten(), g_weight.flatten()])
    scale = wanted.new_ones(len(wanted))
    scale[z.numel() :] = 1 / g_weight.std().clamp_min(torch.finfo(z.dtype).tiny)  # neither kind drowns the other
    system = torch.cat(rows).T * scale[:, None]
    if len(system) < size:
        raise Unknown(f"a layer leaves {len(system)} equations for the {size} numbers it was given; they do not follow")
    solution: Tensor = torch.linalg.lstsq(system, (wanted * scale)[:, None], driver="gels").solution
    return solution.view(one.inputs)


def _left(layer: nn.Linear | nn.Conv2d, x: Tensor, slope: Tensor) -> Tensor:
    """The gradient of the layer's weights that each of these inputs would leave, [input, number]"""
    if isinstance(layer, nn.Linear):
        return (slope[None, :, None] * x[:, None]).flatten(1)
    seen = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]
    return torch.einsum("bkp,op->bok", seen, slope.flatten(1)).flatten(1)

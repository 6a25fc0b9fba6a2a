"""Models as the loop sees them: `Stack`, many of one architecture as one; and `Single`, one that is left as it is.

In a stack every parameter has a leading [model] axis. All of them lie in one flat tensor, so an optimiser step is one
kernel. Layers that we know are applied to all models at once; any other module goes through `torch.func.functional_call`
under `vmap`. The models do not depend on each other, so the gradient of the sum of their losses is the gradient of each.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

ELEMENTWISE = (
    nn.ReLU, nn.ELU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SELU, nn.SiLU, nn.Softplus, nn.LeakyReLU, nn.Identity,
    nn.Hardtanh, nn.Softsign, nn.Mish, nn.CELU, nn.ReLU6, nn.Hardswish, nn.Threshold,
)  # fmt: skip

NARROW = 64  # outputs of a layer; on a processor a wider one is faster as a product for each model

Device = torch.device | str


class Flat:
    """Trainable numbers in one tensor and their gradients in another, with a view of each for every parameter."""

    def __init__(self, shapes: dict[str, torch.Size], device: Device) -> None:
        sizes = [shape.numel() for shape in shapes.values()]
        self.values = torch.zeros(sum(sizes), device=device)
        self.values.grad = torch.zeros_like(self.values)
        cut = zip(shapes.items(), torch.split(self.values, sizes), torch.split(self.values.grad, sizes), strict=True)
        self.leaves: dict[str, Tensor] = {}
        self.gradients: list[Tensor] = []
        for (name, shape), values, gradient in cut:
            self.leaves[name] = values.view(shape).requires_grad_()
            self.gradients.append(gradient.view(shape))

    def backward(self, loss: Tensor) -> None:
        found = torch.autograd.grad(loss, list(self.leaves.values()))
        torch._foreach_copy_(self.gradients, list(found))


class Single:
    """One module, trained as it is."""

    count = 1

    def __init__(self, module: nn.Module, device: Device = "cpu") -> None:
        self.module = self.template = module.to(device)
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.flat = Flat({n: p.shape for n, p in trained.items()}, device)
        for name, p in trained.items():
            self.flat.leaves[name].data.copy_(p.data)
            p.data = self.flat.leaves[name].data
        self._parameters = list(trained.values())

    def __call__(self, x: Tensor, *, shared: bool = False) -> Tensor:
        outputs: Tensor = self.module(x if shared else x[0])
        return outputs[None]

    def backward(self, loss: Tensor) -> None:
        torch._foreach_copy_(self.flat.gradients, list(torch.autograd.grad(loss, self._parameters)))

    def train(self, mode: bool) -> None:
        self.module.train(mode)

    def weights(self) -> dict[str, Tensor]:
        return {name: w.detach()[None] for name, w in _state(self.module).items()}


@dataclass(frozen=True, eq=False)
class Taken:
    """One linear layer in a forward pass: enough to know each record's gradient of its weights."""

    name: str
    x: Tensor  # [model, record, in], or [record, in]
    y: Tensor  # [model, record, out]
    biased: bool


class Stack:
    """Models `[0, count)` of one architecture. `x` is [model, record, ...], or [record, ...] where all see the same."""

    def __init__(self, modules: Iterable[nn.Module], count: int, device: Device = "cpu") -> None:
        self.count = count
        self.taken: list[Taken] | None = None  # what went through the linear layers, while somebody asks
        modules = iter(modules)
        first = next(modules)
        held: dict[str, list[Tensor]] = {name: [w.detach()] for name, w in _state(first).items()}
        for module in modules:
            for name, w in _state(module).items():
                held[name].append(w.detach())
        self._lay_out(first, device)
        for name, each in held.items():  # one copy to the device for each name, not for each model
            self._weights[name].copy_(torch.stack(each))

    def _lay_out(self, module: nn.Module, device: Device) -> None:
        self.template = copy.deepcopy(module).to(device)
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.flat = Flat({n: torch.Size((self.count, *p.shape)) for n, p in trained.items()}, device)
        self._fixed = {
            n: torch.empty((self.count, *w.shape), dtype=w.dtype, device=device)
            for n, w in _state(module).items()
            if n not in trained
        }
        self._weights = {n: w.detach() for n, w in {**self.flat.leaves, **self._fixed}.items()}
        self._whole = len(list(module.parameters())) < sum(1 for _ in module.named_parameters(remove_duplicate=False))

    def __call__(self, x: Tensor, *, shared: bool = False) -> Tensor:
        """Outputs, [model, record, class]."""
        walk = self._mapped if self._whole else self._through  # a shared parameter is only right if seen from the top
        outputs, shared = walk(self.template, "", x, shared)
        return outputs.expand(self.count, *outputs.shape) if shared else outputs

    def backward(self, loss: Tensor) -> None:
        self.flat.backward(loss)

    def train(self, mode: bool) -> None:
        self.template.train(mode)

    def weights(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, each [model, ...]; views, not copies."""
        return self._weights

    def wearing(self, leaves: dict[str, Tensor]) -> Stack:
        """The same models with other trainable weights, [model, ...] each, which may be part of a graph."""
        other = copy.copy(self)
        other.flat = copy.copy(self.flat)
        other.flat.leaves = leaves
        return other

    def _through(self, module: nn.Module, name: str, x: Tensor, shared: bool) -> tuple[Tensor, bool]:
        """The module applied to all models, and whether the result is still the same for all of them."""
        if type(module) is nn.Sequential:
            for key, child in module.named_children():
                x, shared = self._through(child, f"{name}{key}.", x, shared)
            return x, shared
        if isinstance(module, ELEMENTWISE):
            return module(x), shared
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            return x.flatten(1 if shared else 2), shared
        if type(module) is nn.Linear and f"{name}weight" in self.flat.leaves:
            return self._linear(name, x, shared), False
        return self._mapped(module, name, x, shared)

    def _linear(self, name: str, x: Tensor, shared: bool) -> Tensor:
        weight = self.flat.leaves[f"{name}weight"]  # [model, out, in]
        bias = self.flat.leaves.get(f"{name}bias", self._fixed.get(f"{name}bias"))  # [model, out]
        flat = x.flatten(0, -2) if shared else x.flatten(1, -2)
        if shared and (weight.is_cuda or weight.shape[1] < NARROW):  # one matrix product over all models
            wide = weight.flatten(0, 1)
            y = wide @ flat.T if bias is None else torch.addmm(bias.flatten()[:, None], wide, flat.T)
            y = y.view(*weight.shape[:2], -1).mT  # [model, record, out], each unit's answers side by side
        else:
            flat = flat.expand(self.count, *flat.shape) if shared else flat
            if flat.stride(-1) == 1:
                y = torch.bmm(flat, weight.mT) if bias is None else torch.baddbmm(bias[:, None], flat, weight.mT)
            else:  # a layout is kept, since every change of it is a copy
                y = (weight @ flat.mT if bias is None else torch.baddbmm(bias[..., None], weight, flat.mT)).mT
        y = y.reshape(self.count, *(x.shape[:-1] if shared else x.shape[1:-1]), y.shape[-1])
        if self.taken is not None:
            self.taken.append(Taken(name, x.detach(), y, bias is not None))
        return y

    def _mapped(self, module: nn.Module, name: str, x: Tensor, shared: bool) -> tuple[Tensor, bool]:
        weights = {**self.flat.leaves, **self._fixed}
        own = {n.removeprefix(name): w for n, w in weights.items() if n.startswith(name)}

        def one(own: dict[str, Tensor], x: Tensor) -> Tensor:
            y: Tensor = functional_call(module, own, (x,))
            return y

        if shared and not own and not module.training:
            return module(x), True
        lanes = vmap(one, in_dims=(0, None if shared else 0), randomness="different")
        return lanes(own, x) if own else vmap(module, randomness="different")(self._spread(x, shared)), False

    def _spread(self, x: Tensor, shared: bool) -> Tensor:
        return x.expand(self.count, *x.shape) if shared else x


Models = Single | Stack


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}

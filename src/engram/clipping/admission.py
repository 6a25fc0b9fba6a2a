"""What is refused before training, by name: models and optimisers whose steps could not be made private."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from engram.clipping.layers import Layer, direct, play_of
from engram.clipping.replay import replayed
from engram.clipping.tape import NotPrivate, Tape


def layers_of(model: nn.Module, tape: Tape) -> list[Layer]:
    """Every module that uses parameters, ready to take them record by record."""
    found: list[Layer] = []
    _walk(model, "", tape, found, set())
    return found


def _walk(module: nn.Module, name: str, tape: Tape, found: list[Layer], known: set[int]) -> None:
    if id(module) in known:
        return
    known.add(id(module))
    if direct(module) or hasattr(module, "parametrizations"):
        if isinstance(module.__dict__.get("forward"), Layer):
            raise ValueError("the model is private already; call release() on the first before making another")
        found.append(Layer(len(found), name or "the model", module, tape, play_of(module) or replayed))
    for child, below in module.named_children():
        if not isinstance(below, nn.ParameterList | nn.ParameterDict):
            _walk(below, f"{name}.{child}" if name else child, tape, found, known)


def check_layers(model: nn.Module) -> None:
    """Refuses layers that cannot be handled, by name."""
    for name, module in model.named_modules():
        if reason := _reason(module):
            raise NotPrivate(f"{name or 'the model'} is a {type(module).__name__}, {reason}")


def _reason(module: nn.Module) -> str:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "which mixes the records of a batch; replace it with GroupNorm"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        return "which keeps statistics of the records without noise; set track_running_stats=False"
    if isinstance(module, nn.RNNBase):
        return "whose fused kernel gives no gradient per record; build it from LSTMCell, GRUCell or RNNCell"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return "which changes its weights in the forward pass (max_norm); set max_norm=None"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (module.sparse or module.scale_grad_by_freq):
        return "with sparse or frequency-scaled gradients; set sparse=False and scale_grad_by_freq=False"
    if any(isinstance(p, nn.UninitializedParameter) for p in module._parameters.values()):
        return "whose parameters have no shape yet; run the model once first"
    if any(type(p.data).__name__ == "DTensor" or type(p).__name__ == "DTensor" for p in _present(module)):
        return "whose parameters are split between devices (FSDP); keep them whole, or use DistributedDataParallel"
    return ""


def _present(module: nn.Module) -> list[Parameter]:
    return [p for p in module._parameters.values() if p is not None]


def check_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """The optimiser must move parameters of the model and nothing else."""
    if isinstance(optimiser, torch.optim.LBFGS):
        raise TypeError("expected an optimiser that takes one gradient a step, got LBFGS; use SGD, Adam or AdamW")
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    strangers = len(held - {id(p) for p in model.parameters()})
    if strangers:
        raise ValueError(
            f"the optimiser must hold parameters of the model only, got {strangers} of another; "
            "make it from model.parameters()"
        )


def check_device(model: nn.Module) -> torch.device:
    devices = {p.device for p in model.parameters()}
    if len(devices) != 1:
        raise ValueError(f"the model must lie on one device, got {sorted(map(str, devices)) or 'no parameters'}")
    return devices.pop()


def check_loss(loss: Tensor, records: int | None) -> Tensor:
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        raise TypeError(
            f"loss must be a tensor with one number a record, got {getattr(loss, 'dtype', type(loss).__name__)}"
        )
    if loss.ndim != 1 or (records is not None and len(loss) != records):
        wanted = "[record]" if records is None else f"({records},)"
        raise ValueError(
            f"loss must have one number a record, shape {wanted}, got {tuple(loss.shape)}; "
            "use reduction='none' and average within each record, not over the batch"
        )
    if len(loss) and not loss.requires_grad:
        raise ValueError("loss must depend on a trainable parameter, got one that needs no gradient; unfreeze one")
    return loss

"""Weights from files, without running code from them."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251  what torch.load raises when it refuses; nothing is unpickled here

import torch
from torch import Tensor

# How torch.load breaks off, by where the file is broken
BROKEN = (RuntimeError, EOFError, ValueError, TypeError, LookupError, AttributeError, AssertionError, struct.error)
CONVERT = "where you trust the file, load the model, write torch.save(model.state_dict(), 'weights.pt'), and give that"


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The named tensors of a file, on the CPU: `.safetensors`, or what torch.save wrote of a state dict.

    A checkpoint that holds the weights under "state_dict" is opened. A file that would have to run code to be read is
    refused.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected a file of weights, found none at {path}")
    if path.suffix == ".safetensors":
        return _safetensors(path)
    held = _torch(path)
    held = held["state_dict"] if isinstance(held, Mapping) and isinstance(held.get("state_dict"), Mapping) else held
    return _checked(path, held)


def strip_prefix(weights: Mapping[str, Tensor], prefix: str = "module.") -> dict[str, Tensor]:
    """The same weights without a prefix that every name has, such as the one `nn.DataParallel` leaves."""
    odd = [name for name in weights if not name.startswith(prefix)]
    if odd:
        raise ValueError(f"every name must start with {prefix!r} to strip it, but {odd[0]!r} does not")
    return {name.removeprefix(prefix): value for name, value in weights.items()}


def _torch(path: Path) -> object:
    try:
        with warnings.catch_warnings(action="ignore"):  # of an unusual pickle; what matters about it is raised
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise ValueError(f"{path} is a pickle that could run code, so it was not loaded; {CONVERT}") from None
    except BROKEN as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path} is not a file of PyTorch weights ({said}); {CONVERT}") from None


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise ImportError(f"{path} needs the safetensors package; install it with: pip install safetensors") from None
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}); {CONVERT}") from None


def _checked(path: Path, held: object) -> dict[str, Tensor]:
    if not isinstance(held, Mapping) or not held or not all(isinstance(v, Tensor) for v in held.values()):
        raise ValueError(f"{path} must hold tensors by name, found {type(held).__name__}; {CONVERT}")
    return dict(held)

"""The reference networks that papers and examples use: frozen dataclasses of knobs; calling one builds the net."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.models.bert import BERT
    from engram.models.columns import MLP, ColumnFC, TanhFC
    from engram.models.densenet import DenseNet121
    from engram.models.gpt import GPT
    from engram.models.images import VGG16BN, LabelOnlyCNN, LeNet, ReleasedCNN, SmallCNN
    from engram.models.resnet import ResNet18, ResNet20
    from engram.models.weights import load_weights, strip_prefix

_PLACES = {
    "BERT": "bert",
    "ColumnFC": "columns",
    "DenseNet121": "densenet",
    "GPT": "gpt",
    "LabelOnlyCNN": "images",
    "LeNet": "images",
    "MLP": "columns",
    "ReleasedCNN": "images",
    "ResNet18": "resnet",
    "ResNet20": "resnet",
    "SmallCNN": "images",
    "TanhFC": "columns",
    "VGG16BN": "images",
    "load_weights": "weights",
    "strip_prefix": "weights",
}

__all__ = [
    "BERT",
    "GPT",
    "MLP",
    "VGG16BN",
    "ColumnFC",
    "DenseNet121",
    "LabelOnlyCNN",
    "LeNet",
    "ReleasedCNN",
    "ResNet18",
    "ResNet20",
    "SmallCNN",
    "TanhFC",
    "load_weights",
    "strip_prefix",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"engram.models.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'engram.models' has no attribute {name!r}; it has {', '.join(__all__)}")

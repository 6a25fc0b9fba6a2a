"""Data sets from files and from installed libraries."""

from __future__ import annotations

import numpy as np

from engram.data.dataset import Dataset, dataset


def digits() -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels in 0..1, channel first. They ship inside scikit-learn: no network."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the digits come with scikit-learn; install it with: pip install 'engram[data]'") from None
    bunch = load_digits()
    pixels = (bunch.images / 16).astype(np.float32)[:, None]  # [record, 1, 8, 8]
    return dataset(pixels, bunch.target, classes=tuple("0123456789"), name="digits")

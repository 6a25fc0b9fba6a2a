"""Records: data sets, where they come from, how they are split, and what they are called."""

from engram.data.arrays import from_idx, from_npz
from engram.data.dataset import Dataset, dataset
from engram.data.fingerprints import fingerprint
from engram.data.libraries import digits, from_hugging_face, from_torchvision
from engram.data.loaders import load
from engram.data.pictures import from_folder, pixels
from engram.data.repeats import Duplicates, duplicates
from engram.data.splits import split
from engram.data.tables import from_csv, from_parquet

__all__ = [
    "Dataset",
    "Duplicates",
    "dataset",
    "digits",
    "duplicates",
    "fingerprint",
    "from_csv",
    "from_folder",
    "from_hugging_face",
    "from_idx",
    "from_npz",
    "from_parquet",
    "from_torchvision",
    "load",
    "pixels",
    "split",
]

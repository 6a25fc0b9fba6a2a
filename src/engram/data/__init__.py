"""Records: data sets, where they come from, how they are split, and what they are called."""

from engram.data.dataset import Dataset, dataset
from engram.data.fingerprints import fingerprint
from engram.data.loaders import digits
from engram.data.repeats import Duplicates, duplicates
from engram.data.splits import split

__all__ = ["Dataset", "Duplicates", "dataset", "digits", "duplicates", "fingerprint", "split"]

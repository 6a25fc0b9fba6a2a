"""How a model comes to be: the `Recipe`, and the one loop that plays it."""

from engram.train.loop import fit, fit_many
from engram.train.losses import CrossEntropy
from engram.train.optimisers import SGD, Adam, Cosine, Drops, RMSProp
from engram.train.private import Private
from engram.train.recipe import Fresh, Given, Patience, Recipe
from engram.train.sampling import Batches, FullBatch, Poisson
from engram.train.sharing import Update, shared, summed
from engram.train.stack import Stack
from engram.train.steps import Plain

__all__ = [
    "SGD",
    "Adam",
    "Batches",
    "Cosine",
    "CrossEntropy",
    "Drops",
    "Fresh",
    "FullBatch",
    "Given",
    "Patience",
    "Plain",
    "Poisson",
    "Private",
    "RMSProp",
    "Recipe",
    "Stack",
    "Update",
    "fit",
    "fit_many",
    "shared",
    "summed",
]

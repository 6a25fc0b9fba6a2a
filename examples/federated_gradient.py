"""A participant in federated learning shares one gradient of a digit classifier. What does it give away?

    engram audit examples/federated_gradient.py --report report.html

The batch is eight handwritten digits, the network untrained, as in the first round of federated learning.
"""

import torch

from engram.data import digits
from engram.models import MLP
from engram.seed import Seed
from engram.target import sharing
from engram.train import Recipe

RECORDS = 8
recipe = Recipe(MLP(inputs=64, classes=10, width=128, activation="sigmoid"))


def target():
    seed = Seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(seed.child("network").number)  # noqa: TID251  inside fork_rng: nobody outside sees it
        model = recipe.build()
    rows = seed.child("batch").numpy().choice(1797, RECORDS, replace=False)
    return sharing(recipe, model, digits().take(rows), name="eight digits, one gradient", seed=seed)

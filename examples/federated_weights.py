"""A participant trains for three local steps and sends its weights back, as a list of arrays. What do they give away?

    engram audit examples/federated_weights.py --report report.html

The lists are those that a federated-learning framework hands from client to server. Where yours come from a file, load them
with `engram.models.load_weights`, which never runs code from it.
"""

import numpy as np
import torch

from engram.access import Gradients
from engram.data import digits
from engram.models import MLP
from engram.seed import Seed
from engram.target import Target
from engram.train import Recipe, Update

RATE, STEPS, RECORDS = 0.1, 3, 4
recipe = Recipe(MLP(inputs=64, classes=10, width=128, activation="sigmoid"))


def client(model, records):
    """What a participant does: no part of this is engram's."""
    before = [p.detach().numpy().copy() for p in model.parameters()]
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.as_tensor(records.x)), torch.as_tensor(records.y)).backward()
        optimiser.step()
    return before, [p.detach().numpy().copy() for p in model.parameters()]


def target():
    seed = Seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(seed.child("network").number)  # noqa: TID251  inside fork_rng: nobody outside sees it
        model = recipe.build()
    records = digits().take(seed.child("batch").numpy().choice(1797, RECORDS, replace=False))
    before, after = client(model, records)
    with torch.no_grad():  # the server's copy: the weights before
        for p, held in zip(model.parameters(), before, strict=True):
            p.copy_(torch.as_tensor(held))
    update = Update.between(before, after, rate=RATE, steps=STEPS, batch=RECORDS)
    name = "four digits, three local steps"
    return Target(model, records, np.ones(RECORDS, bool), recipe, name, access=Gradients, update=update)

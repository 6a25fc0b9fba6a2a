"""engram audit examples/released_weights.py

Models that were let out: each was trained on the same 300 handwritten digits and on one more. Their adversary knows how
they were trained, from which weights, and on all records but that one. The report shows it beside what was reconstructed.
"""

from dataclasses import replace

import engram
from engram.access import Lab
from engram.chunks.local import Memory
from engram.seed import Seed
from engram.target import releasing
from engram.train import SGD, FullBatch, Given
from engram.train.loop import started

FIXED, SOUGHT, PUBLIC = 300, 24, 900

drawn = engram.Recipe(
    build=engram.models.MLP(inputs=64, classes=10, width=10, activation="elu"),
    epochs=60,
    optimiser=SGD(0.2, momentum=0.9),
    sampler=FullBatch(),
)
recipe = replace(drawn, start=Given(started(drawn, Seed(1)).state_dict()))  # the start is public
records = engram.data.digits().take(Seed(2).numpy().permutation(1797)[: FIXED + SOUGHT + PUBLIC])


def target():
    return releasing(
        recipe,
        records.take(range(FIXED)),
        records.take(range(FIXED, FIXED + SOUGHT)),  # one for each model that is let out
        records.take(range(FIXED + SOUGHT, FIXED + SOUGHT + PUBLIC)),  # like them, and known to everybody
        name="models of handwritten digits",
        lab=Lab(Seed(3), Memory()),
    )

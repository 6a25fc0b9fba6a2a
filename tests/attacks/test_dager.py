from __future__ import annotations

import numpy as np
import pytest
import torch
from gradients import batch, handle, seen

from engram.access import Unknown
from engram.attacks.dager import Dager, span
from engram.data import dataset
from engram.models import BERT, GPT, MLP
from engram.seed import Seed
from engram.train import Recipe, Update
from engram.train.loop import started

RECIPE = Recipe(GPT(vocabulary=300, length=6, classes=2, width=48))


def sentences(records=4, length=6, vocabulary=300, seed=0):
    stream = np.random.default_rng(seed)
    x, y = stream.integers(0, vocabulary, (records, length)), stream.integers(0, 2, records)
    return dataset(x, y, classes=("no", "yes"))


def as_set(rows):
    return {tuple(row) for row in np.asarray(rows).tolist()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_token_of_every_sentence(dtype):
    records = sentences()
    said = Dager()(seen(RECIPE, records, dtype=dtype), seed=Seed(0))
    assert said.kind == "text"
    assert as_set(said.guesses) == as_set(records.x)
    assert said.certificates.max() < 1e-4


def test_sentences_that_share_tokens_and_beginnings():
    records = sentences(3)
    records.x[1, :4] = records.x[0, :4]
    records.x[2] = records.x[0][::-1]
    assert as_set(Dager()(seen(RECIPE, records), seed=Seed(0)).guesses) == as_set(records.x)


def test_it_answers_nothing_on_the_update_of_another_model():
    records = sentences()
    told = seen(RECIPE, records)
    with pytest.raises(Unknown, match="no sentence fits"):
        Dager()(handle(RECIPE, started(RECIPE, Seed(9)), told.update, records), seed=Seed(0))


def test_noise_leaves_no_clear_rank():
    records = sentences()
    told = seen(RECIPE, records)
    stream = torch.Generator().manual_seed(0)
    noisy = tuple(
        t + 0.1 * t.std() * torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in told.update.tensors
    )
    with pytest.raises(Unknown, match="no clear rank"):
        Dager()(handle(RECIPE, told.model, Update(noisy, 4), records), seed=Seed(0))


def test_as_many_tokens_as_the_network_is_wide_are_refused_with_the_limit():
    with pytest.raises(Unknown, match="as the network is wide, 48"):
        Dager()(seen(RECIPE, sentences(20)), seed=Seed(0))


def test_layers_may_be_named():
    records = sentences()
    named = Dager(first="blocks.0.value", second="blocks.1.query")
    assert as_set(named(seen(RECIPE, records), seed=Seed(0)).guesses) == as_set(records.x)
    with pytest.raises(Unknown, match=r"meets no linear layer called 'blocks.7.query'"):
        Dager(second="blocks.7.query")(seen(RECIPE, records), seed=Seed(0))


def test_records_that_are_no_text_are_refused():
    with pytest.raises(Unknown, match="reads sentences"):
        Dager()(seen(Recipe(MLP(inputs=12, classes=5)), batch()), seed=Seed(0))


def test_the_span_ends_at_the_largest_gap():
    stream = torch.Generator().manual_seed(0)
    inside = torch.randn(5, 20, generator=stream, dtype=torch.float64)
    mixed = torch.randn(40, 5, generator=stream, dtype=torch.float64) @ inside
    found = span(mixed + 1e-8 * torch.randn(40, 20, generator=stream, dtype=torch.float64))
    assert found.basis.shape == (20, 5)
    assert 1e-6 < found.inside < 1e-2
    assert (found.distance(inside) < found.inside).all()
    assert (found.distance(torch.randn(50, 20, generator=stream, dtype=torch.float64)) > found.inside).all()


def test_an_encoder_gives_one_sentence_away():
    recipe = Recipe(BERT(vocabulary=300, length=6, masked=2, width=48))
    stream = np.random.default_rng(0)
    names = tuple(map(str, range(300)))
    records = dataset(stream.integers(0, 300, (1, 6)), stream.integers(0, 300, 1), classes=names)
    said = Dager()(seen(recipe, records), seed=Seed(0))
    assert as_set(said.guesses) == as_set(records.x)
    assert said.certificates.max() < 1e-6
    with pytest.raises(Unknown, match=r"no sentence fits|rank"):
        Dager()(handle(recipe, started(recipe, Seed(9)), seen(recipe, records).update, records), seed=Seed(0))

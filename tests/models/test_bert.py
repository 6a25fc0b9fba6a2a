from __future__ import annotations

import pytest
import torch

from engram.models import BERT


def built(**knobs):
    with torch.random.fork_rng():
        torch.manual_seed(0)  # noqa: TID251  inside fork_rng: nobody outside sees it
        return BERT(vocabulary=50, length=6, width=16, **knobs)().eval()


def test_it_looks_both_ways():
    """What stands after the mask counts as well; a decoder would not see it."""
    model, tokens = built(masked=2), torch.arange(6)[None]
    for place in (0, 1, 3, 5):
        other = tokens.clone()
        other[0, place] = 40
        assert (model(other) - model(tokens)).abs().max() > 1e-4
    assert model(tokens).shape == (1, 50)


def test_places_differ():
    model, tokens = built(), torch.arange(6)[None]
    assert (model(tokens) - model(tokens[:, [0, 2, 1, 3, 4, 5]])).abs().max() > 1e-4


def test_reading_embeddings_is_reading_tokens():
    model, tokens = built(masked=4), torch.arange(6)[None]
    torch.testing.assert_close(model.read(model.token(tokens) + model.position.weight), model(tokens))


@pytest.mark.parametrize(
    ("knobs", "told"), [({"masked": 6}, "a place of the sentence, below 6"), ({"heads": 3}, "a multiple of heads")]
)
def test_senseless_knobs_are_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        built(**knobs)

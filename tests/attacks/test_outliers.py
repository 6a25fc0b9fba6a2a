from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.targets import LEARNED_BY_HEART, lab, leaky
from torch import nn

from engram.access import Labels, Unknown
from engram.attacks.outliers import Outliers, before_last, features, isolation
from engram.data import dataset
from engram.measure import judge
from engram.models import MLP
from engram.population import Population
from engram.seed import Seed
from engram.target import trained
from engram.train import Adam, FullBatch, Recipe, fit_many


def literal(layer, neighbours):
    """For each record, the cosine distances to all others, sorted."""
    n = len(layer)
    told = []
    for r in range(n):
        unit = [v / np.linalg.norm(v) for v in layer]
        distances = sorted(1 - unit[r] @ unit[o] for o in range(n) if o != r)
        told.append(distances[neighbours - 1])
    return np.array(told)


def test_isolation_is_the_distance_to_the_last_neighbour():
    layers = [torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(m)) for m in (0, 1)]
    by_hand = np.mean([literal(layer.numpy(), 3) for layer in layers], 0)
    np.testing.assert_allclose(isolation(iter(layers), 3), by_hand)


def test_the_share_is_that_of_the_papers_count():
    """Fewer than `neighbours` within delta, where delta is such that the share are outliers: the same records."""
    layer = torch.randn(200, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    apart = isolation(iter([layer]), 10)
    said = Outliers(share=0.05).claimed(apart, np.ones(200, bool), leaky().handle(Labels, lab()))
    unit = layer / layer.norm(dim=1, keepdim=True)
    distances = (1 - unit @ unit.T).numpy() + np.eye(200) * 9
    delta = np.sort(apart)[-11] + 1e-12  # ten records are further from their tenth neighbour
    np.testing.assert_array_equal(said.claims, (distances <= delta).sum(1) < 10)
    assert said.claims.sum() == 10


def test_what_the_last_layer_is_given():
    net = MLP(inputs=12, classes=4, width=8)()
    x = torch.randn(7, 12)
    torch.testing.assert_close(before_last(net, x), torch.relu(net[1](x)))
    with pytest.raises(Unknown, match="this network has none"):
        before_last(nn.Sequential(nn.Conv2d(1, 2, 3)), torch.randn(2, 1, 4, 4))


def test_features_are_those_of_each_shadow():
    data, recipe = leaky().records, replace(LEARNED_BY_HEART, epochs=3)
    rows = np.stack([np.arange(80), np.arange(80, 160)])
    models = fit_many(recipe, data, rows, [Seed(0), Seed(1)])
    shadow = Population(np.zeros((2, 160), bool), {}, {name: w.numpy() for name, w in models.weights().items()})
    told = torch.stack(list(features(recipe, shadow, data.x)))
    w, b = models.weights()["1.weight"], models.weights()["1.bias"]
    torch.testing.assert_close(told, torch.relu(torch.as_tensor(data.x) @ w.mT + b[:, None]))


def mixed(seed=0):
    """Nine in ten records follow a rule that anybody can learn; the others lie elsewhere and follow none."""
    stream = np.random.default_rng(seed)
    y = stream.integers(0, 4, 600)
    x = np.eye(4)[y] @ (4 * np.eye(4, 12)) + 0.3 * stream.normal(size=(600, 12))
    odd = stream.random(600) < 0.1
    x[odd] = 4 * stream.normal(size=(odd.sum(), 12))
    return dataset(x.astype(np.float32), y), odd


def test_claims_on_outliers_are_right_where_those_on_everybody_are_not():
    records, odd = mixed()
    recipe = Recipe(MLP(inputs=12, classes=4, width=64), epochs=100, optimiser=Adam(0.01), sampler=FullBatch())
    target = trained(recipe, records, name="mixed", seed=Seed(0))
    said = Outliers(share=0.08)(target.handle(Labels, lab()), seed=Seed(0))
    right = said.values > 0  # what the gap attack claims
    assert odd[said.claims].mean() > 0.8
    assert target.member[said.claims].mean() > target.member[right].mean() + 0.15
    blind = replace(target, model=trained(replace(recipe, epochs=0), records, name="", seed=Seed(0)).model)
    unseen = Outliers(share=0.5)(blind.handle(Labels, lab()), seed=Seed(0))
    area = judge(unseen, target.member, seed=Seed(0))[0]
    assert area.low <= 0.5 <= area.high


def test_too_few_records_have_no_neighbours():
    target = leaky()
    few = replace(target, records=target.records.take(np.arange(10)), member=target.member[:10])
    with pytest.raises(Unknown, match="10 records have no 10 neighbours each"):
        Outliers()(few.handle(Labels, lab()), seed=Seed(0))


@pytest.mark.parametrize(("knobs", "told"), [({"share": 0.0}, "share"), ({"neighbours": 0}, "neighbours must be")])
def test_senseless_knobs_are_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        Outliers(**knobs)

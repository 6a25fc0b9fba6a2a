from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.targets import LEARNED_BY_HEART, noise
from torch import nn

import engram.train.plan
from engram.chunks.local import Local, Memory
from engram.population import Asked, Population, paired, population, stood_in
from engram.seed import Seed
from engram.signals import as_is, confidence, correct, loss, margin, released
from engram.store import Store
from engram.train.loop import fit_many

RECIPE = replace(LEARNED_BY_HEART, epochs=20)


def grown(chunks, models=6, data=None, recipe=RECIPE, **knobs):
    data = data or noise(60)
    return population(
        recipe, data, paired(models, len(data), Seed(1)), seed=Seed(0), chunks=chunks,
        asked=knobs.pop("asked", Asked((loss, margin))), **knobs,
    )  # fmt: skip


@pytest.mark.parametrize(("models", "records"), [(2, 2), (4, 7), (64, 100)])
def test_every_record_is_in_exactly_half_of_the_models(models, records):
    member = paired(models, records, Seed(0))
    assert (member.sum(0) == models // 2).all()
    assert (member[::2] == ~member[1::2]).all()
    assert set(member.sum(1)) <= {records // 2, records - records // 2}


def test_pairs_differ_and_depend_on_the_seed():
    a, b = paired(4, 50, Seed(0)), paired(4, 50, Seed(1))
    assert not np.array_equal(a[0], a[2])
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(a, paired(4, 50, Seed(0)))
    np.testing.assert_array_equal(a, paired(6, 50, Seed(0))[:4])  # more shadows keep those there are


@pytest.mark.parametrize("models", [0, 1, 3])
def test_models_that_do_not_pair_are_refused(models):
    with pytest.raises(ValueError, match="models come in pairs"):
        paired(models, 10, Seed(0))


def test_signals_are_those_of_models_trained_alone():
    data = noise(60)
    many = grown(Memory(), data=data, asked=Asked((loss, correct), weights=True))
    member = paired(6, 60, Seed(1))
    for m in (0, 3, 5):
        rows = np.flatnonzero(member[m])[None]
        alone = fit_many(RECIPE, data, rows, [Seed(0).child("model", m)], stacked=False)
        with torch.no_grad():
            p = released(alone(torch.tensor(data.x), shared=True)[0])
        np.testing.assert_allclose(many.of(loss)[m, 0], loss(p, torch.tensor(data.y)), rtol=1e-2, atol=1e-3)
        for name, w in alone.weights().items():
            np.testing.assert_allclose(many.weights[name][m], w[0], rtol=1e-2, atol=1e-3)


def test_no_score_is_ever_missing():
    many = grown(Memory(), models=2)
    assert many.of(loss).shape == (2, 1, 60)
    assert np.isfinite(many.of(margin)).all()


def test_members_are_fitted_better():
    many = grown(Memory(), models=8)
    inside = many.of(loss)[:, 0][many.member].mean()
    assert inside < 0.5 * many.of(loss)[:, 0][~many.member].mean()


def test_blocks_do_not_change_which_model_is_which(monkeypatch):
    whole = grown(Memory())
    monkeypatch.setattr(engram.train.plan, "CACHE", 2**16)
    parts = Memory()
    cut = grown(parts)
    assert len(parts._done) > 1
    np.testing.assert_allclose(cut.of(loss), whole.of(loss), rtol=1e-2, atol=1e-4)
    np.testing.assert_array_equal(cut.member, whole.member)


def test_models_of_unequal_size_keep_their_places():
    member = np.zeros((3, 60), bool)
    member[0, :30] = member[1, 30:40] = member[2, 40:] = True  # trained in the order 1, 2, 0
    many = population(RECIPE, noise(60), member, seed=Seed(0), chunks=Memory(), asked=Asked((confidence,)))
    inside = [many.of(confidence)[m, 0, member[m]].mean() for m in range(3)]
    outside = [many.of(confidence)[m, 0, ~member[m]].mean() for m in range(3)]
    assert all(i > o + 0.2 for i, o in zip(inside, outside, strict=True))


def test_views_are_asked_one_by_one():
    many = grown(Memory(), asked=Asked((loss,), (as_is, negated)))
    assert many.of(loss).shape == (6, 2, 60)
    assert not np.allclose(many.of(loss)[:, 0], many.of(loss)[:, 1])


def negated(x):
    return -x


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(12, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.cell(x[:, None])[0][:, 0])


def test_a_recipe_that_cannot_be_stacked_goes_through_the_same_call_and_the_plan_says_why(tmp_path):
    with Store(tmp_path / "engram.db") as store:
        many = grown(Local(store), models=2, recipe=replace(RECIPE, build=Recurrent, epochs=3))
        told = [plan for (plan,) in store._db.execute("SELECT plan FROM plans")]
    assert many.of(loss).shape == (2, 1, 60)
    assert len(told) == 1
    assert "cell is a GRU" in told[0]


class Interrupted(Memory):
    """Stops after a number of pieces, like a killed run; what was done is kept."""

    def __init__(self, pieces):
        super().__init__()
        self.left = pieces
        self.ran = []

    def run(self, pieces, work):
        def counted(piece):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            self.ran.append(piece.name)
            return work(piece)

        return super().run(pieces, counted)


def test_an_interrupted_population_goes_on_with_the_stored_plan(monkeypatch):
    monkeypatch.setattr(engram.train.plan, "CACHE", 2**16)
    whole = grown(Memory())
    broken = Interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        grown(broken)
    monkeypatch.setattr(engram.train.plan, "CACHE", 2**24)  # a machine with more room keeps the plan that was begun
    broken.left = 1000
    again = grown(broken)
    assert len(broken.ran) == len(set(broken.ran))
    np.testing.assert_array_equal(again.of(loss), whole.of(loss))


def test_a_plan_of_a_gpu_that_is_gone_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    class Begun(Memory):
        def agree(self, _, proposed):
            return {**proposed, "device": "cuda:0"}

    with pytest.raises(ValueError, match="begun on cuda:0, and there is none now"):
        grown(Begun())


def test_another_recipe_data_or_seed_is_another_population():
    chunks = Memory()
    grown(chunks)
    before = len(chunks._done)
    grown(chunks)
    assert len(chunks._done) == before
    grown(chunks, recipe=replace(RECIPE, epochs=21))
    grown(chunks, data=noise(60, seed=5))
    assert len(chunks._done) == 3 * before


def test_a_stand_in_is_judged_by_all_the_others():
    member = paired(4, 30, Seed(0))
    many = Population(member, {"loss": np.where(member, 1.0, 2.0)[:, None]})
    seen = []

    def score(phi, others):
        seen.append(len(others))
        return -phi[0]

    threshold = stood_in(many, score, loss)
    assert seen == [3] * 4
    assert -2.0 <= threshold < -1.0
    assert len(many.without(1)) == 3
    np.testing.assert_array_equal(many.without(1).member, member[[0, 2, 3]])


def test_kept_models_say_the_same_and_another_mask_trains_none_anew(monkeypatch):
    monkeypatch.setattr(engram.train.plan, "CACHE", 2**17)  # several blocks
    plain, chunks = grown(Memory()), Interrupted(1000)
    kept = grown(chunks, keep=True)
    np.testing.assert_array_equal(kept.of(loss), plain.of(loss))
    trained = [name for name in chunks.ran if name.startswith("weights/")]
    assert len(trained) > 1
    masked = grown(chunks, keep=True, recipe=replace(RECIPE, after=(torch.round,)), asked=Asked((correct,)))
    grown(chunks, keep=True, recipe=replace(RECIPE, epochs=21))
    again = [name for name in chunks.ran if name.startswith("weights/")]
    assert len(again) == 2 * len(trained)  # those of the other recipe, and none of the masked one
    assert masked.of(correct).shape == (6, 1, 60)
    assert set(grown(chunks, keep=True, recipe=replace(RECIPE, after=(torch.round,))).of(loss).ravel() > 100) == {
        True,
        False,
    }


def test_kept_models_that_cannot_be_stacked_say_the_same():
    recipe = replace(RECIPE, build=Recurrent, epochs=3)
    plain, kept = grown(Memory(), models=2, recipe=recipe), grown(Memory(), models=2, recipe=recipe, keep=True)
    np.testing.assert_array_equal(kept.of(loss), plain.of(loss))

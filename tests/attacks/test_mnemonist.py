from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract.targets import lab

from engram.access import Informed, Unknown
from engram.access.informed import Shadows
from engram.attacks import attack
from engram.attacks.mnemonist import School, off
from engram.data import dataset, digits
from engram.importance import at_random, explained, selected
from engram.measure.recovery import of_missing
from engram.models import MLP
from engram.reconstruction import Study
from engram.seed import Seed
from engram.target import releasing
from engram.train import SGD, FullBatch, Given, Recipe
from engram.train.loop import started

SMALL = {"shadows": 200, "width": 64, "epochs": 25}
PLAIN = Recipe(MLP(64, 10, width=8), epochs=30, optimiser=SGD(0.2, momentum=0.9), sampler=FullBatch())


def released(known: bool = True):
    records = digits().take(np.random.default_rng(0).permutation(1797))
    recipe = replace(PLAIN, start=Given(started(PLAIN, Seed(1)).state_dict())) if known else PLAIN
    fixed, missing, public = (records.take(range(*ends)) for ends in ((0, 50), (50, 80), (80, 280)))
    return releasing(recipe, fixed, missing, public, name="digits", lab=lab(1))


def said(target, **knobs):
    return attack("mnemonist", SMALL | knobs)(target.handle(Informed, lab()), seed=Seed(0))


def mse(evidence, target):
    mean = np.broadcast_to(target.others.x.mean(0), target.records.x.shape)
    return {f.metric: f for f in of_missing(evidence, target.records.x, target.records.y, mean)}


@pytest.fixture(scope="module")
def target():
    return released()


@pytest.mark.parametrize("importance", ["explained", "gates", "columns"])
def test_it_tells_the_record_from_a_part_of_the_weights(target, importance):
    guided, control = said(target, importance=importance, share=0.9)
    found = mse(guided, target)
    assert found["mse"].value < found["nearest_mse"].value  # nearest here is the mean of all that is public
    assert found["identified"].low > 1 / 30
    assert guided.variant.startswith(f"by {importance}, ")
    assert control.variant.startswith("control: ")
    assert guided.variant.split(", ")[1].split()[0] == control.variant.split()[1]  # as many parameters
    assert not np.array_equal(guided.guesses, control.guesses)


def test_it_tells_nothing_where_the_start_is_not_known():
    """The negative control: each model starts elsewhere, so no parameter holds a trace."""
    hidden = released(known=False)
    for evidence in said(hidden, share=0.9):
        found = mse(evidence, hidden)
        assert found["identified"].low < 0.05
        assert np.median(evidence.certificates) > 0.9


def test_rows_are_kept_together(target):
    guided, _ = said(target, importance="gates", rows=True, share=0.5, epochs=2)
    kept = int(guided.variant.split(", ")[1].split()[0])
    assert any((kept - 9 * more) % 65 == 0 for more in range(11))  # whole units: 65 parameters lead into one, or 9


class Nowhere:
    device = "cpu"


def noisy(n, inputs=6, dull=300, seed=0):
    """Shadows of which a few parameters follow the record, and most are noise."""
    stream = np.random.default_rng(seed)
    x = stream.uniform(size=(n, inputs)).astype(np.float32)
    weights = np.concatenate([x @ stream.normal(size=(inputs, 12)), stream.normal(size=(n, dull))], 1)
    return Shadows(weights, dataset(x, np.zeros(n, int), classes=("a", "b")))


def test_selection_drops_what_is_noise_and_a_random_choice_does_not_help():
    """The statement of the poster, where it is known which parameters hold the record."""
    both = noisy(400)
    shadow = Shadows(both.weights[:300], both.records.take(range(300)))
    school = School(shadow, Study(width=64, epochs=40, batch=32), Seed(0), Nowhere())
    unseen, truth = both.weights[300:], both.records.x[300:]

    def loss(shown=None):
        return off(school.taught(shown)(unseen), truth).mean()

    kept = selected(explained(shadow.weights, shadow.records), 0.9)
    assert kept[:12].all()
    plain, guided, control = loss(), loss(kept), loss(at_random(kept, school.moving, Seed(1)))
    assert guided < 0.85 * plain
    assert control > 0.98 * plain


def test_inputs_are_cut_off_where_the_study_says():
    shadow = noisy(200, dull=1)
    shadow.weights[7, 3] = 1e6
    for far, wanted in ((5.0, 5.0), (np.inf, 200**0.5)):
        school = School(shadow, Study(width=8, epochs=1, far=far), Seed(0), Nowhere())
        assert school.taught().standard(shadow.weights).max() == pytest.approx(wanted, rel=0.01)


def test_the_share_is_chosen_on_shadows_that_were_held_out():
    """The importance lies at the end of a list whose upper part is noise: the least share is the best."""
    shadow = noisy(300)
    school = School(shadow, Study(width=32, epochs=20, batch=32), Seed(0), Nowhere())
    misled = np.r_[np.full(12, 1.0), np.full(300, 0.02)]  # half of the importance is that of noise
    assert school.best_share(misled) == 0.5


def test_the_loss_is_that_of_the_poster():
    assert off(np.array([[0.0, 0.5]]), np.array([[0.5, 0.5]])).tolist() == [0.25 + 0.125]


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"importance": "authors"}, "no importance is called 'authors'"),
        ({"share": 1.5}, "share"),
        ({"epochs": 0}, "epochs must be at least 1"),
    ],
)
def test_a_wrong_knob_is_refused(knobs, told):
    with pytest.raises((ValueError, TypeError), match=told):
        attack("mnemonist", knobs)


def test_too_few_shadows_are_refused(target):
    with pytest.raises(Unknown, match="at least 100 shadow models, each on a public record of its own, got 99"):
        said(target, shadows=99)

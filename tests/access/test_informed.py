from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract.targets import lab

from engram.access import Gradients, Informed, Probabilities, Unknown
from engram.access.informed import flat, released
from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.target import Target, releasing
from engram.train import SGD, Batches, FullBatch, Given, Recipe, fit
from engram.train.loop import started

PLAIN = Recipe(
    MLP(inputs=6, classes=3, width=5, activation="elu"),
    epochs=20,
    optimiser=SGD(0.2, momentum=0.9),
    sampler=FullBatch(),
)
KNOWN = replace(PLAIN, start=Given(started(PLAIN, Seed(1)).state_dict()))


def records(n, seed=0):
    stream = np.random.default_rng(seed)
    return dataset(stream.uniform(size=(n, 6)).astype(np.float32), stream.integers(0, 3, n), classes=tuple("abc"))


def made(recipe=KNOWN, sought=4, seed=0):
    fixed, missing, public = records(30, 1), records(sought, 2), records(110, 3)
    return releasing(recipe, fixed, missing, public, name="released", lab=lab(seed))


def seen(target, where=None) -> Informed:
    return target.handle(Informed, where or lab())


def test_each_released_model_is_the_one_that_training_on_all_but_one_and_its_own_makes():
    target = made()
    assert target.release is not None
    for k in range(4):
        together = dataset(
            np.concatenate([target.release.fixed.x, target.records.x[k : k + 1]]),
            np.concatenate([target.release.fixed.y, target.records.y[k : k + 1]]), classes=tuple("abc"),
        )  # fmt: skip
        alone = {name: w.detach().numpy()[None] for name, w in fit(KNOWN, together, seed=Seed(9)).named_parameters()}
        np.testing.assert_allclose(seen(target).weights[k], flat(KNOWN, alone)[0], rtol=1e-4, atol=1e-5)


def test_the_truth_explains_the_weights_and_another_record_does_not():
    target = made()
    labels, left = seen(target).explained(target.records.x)
    np.testing.assert_array_equal(labels, target.records.y)
    assert left.max() < 1e-3
    _, wrong = seen(target).explained(target.records.x[::-1].copy())
    assert wrong.min() > 0.1


def test_a_training_with_an_order_of_its_own_is_said_not_to_be_repeatable():
    assert seen(made()).repeatable
    drawn = seen(made(replace(KNOWN, sampler=Batches(8))))
    assert not drawn.repeatable
    assert drawn.unrest() > 0.5
    assert not seen(made(PLAIN)).repeatable
    assert seen(made()).unrest() < 1e-3


def test_shadows_are_trained_on_one_public_record_each():
    shadow = seen(made()).shadows(5, skip=3)
    np.testing.assert_array_equal(shadow.records.x, records(110, 3).x[3:8])
    assert shadow.weights.shape == (5, 6 * 5 + 5 + 5 * 3 + 3)
    with pytest.raises(Unknown, match="111 shadow models take as many public records, and there are 110"):
        seen(made()).shadows(111)


@pytest.mark.parametrize("asked", [Probabilities, Gradients])
def test_nothing_else_is_granted(asked):
    with pytest.raises(ValueError, match="granted Informed only"):
        made().handle(asked, lab())


def test_a_release_that_cannot_be_is_refused():
    target = made()
    with pytest.raises(ValueError, match="2 of the records to be reconstructed are among the fixed ones"):
        releasing(KNOWN, records(30, 1), records(30, 1).take([4, 7]), records(9, 3), name="", lab=lab())
    other = replace(KNOWN, build=MLP(inputs=6, classes=3, width=7), start=PLAIN.start)
    with pytest.raises(ValueError, match=r"1.weight is \(7, 6\) there and \(5, 6\) here"):
        replace(target, recipe=other, model=started(other, Seed(0)))
    with pytest.raises(ValueError, match="access Informed needs the release"):
        replace(target, release=None)
    with pytest.raises(ValueError, match="lengths must agree"):
        replace(target, records=target.records.take([0]), member=np.ones(1, bool))
    with pytest.raises(ValueError, match="give the target its recipe"):
        replace(target, recipe=None)


def test_the_handle_does_not_hold_the_missing_records():
    target = made()
    handle = seen(target)
    told = [handle.fixed.x, handle.public.x, *handle.release.weights.values()]
    for record in target.records.x:
        assert not any(record.tobytes() in np.ascontiguousarray(a, np.float32).tobytes() for a in told)
    assert not isinstance(handle, Target)


def test_released_models_do_not_depend_on_each_other():
    both = released(KNOWN, records(30, 1), records(4, 2), lab())
    one = released(KNOWN, records(30, 1), records(4, 2).take([2]), lab())
    for name, w in one.weights.items():
        np.testing.assert_allclose(w[0], both.weights[name][2], rtol=1e-4, atol=1e-6)

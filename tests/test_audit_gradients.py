"""An audit of an update, from the attacks to the report."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gradients import batch

from engram.access import Gradients, Probabilities
from engram.audit import MEMBERSHIP, Plan, audit, defended, judged
from engram.data import digits
from engram.models import MLP
from engram.report import render
from engram.seed import Seed
from engram.store import Store
from engram.target import sharing
from engram.train import Recipe
from engram.train.loop import started

RECIPE = Recipe(MLP(inputs=64, classes=10, width=40, activation="sigmoid"))
PLAN = Plan(
    attacks=("bag-of-labels", "linear-layer", "deep-leakage"),
    defences=("gaussian-sharing",),
    knobs={"deep-leakage": {"steps": 250}, "gaussian-sharing": {"deviation": 0.1}},
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    target = sharing(RECIPE, started(RECIPE, Seed(0)), digits().take(np.arange(2)), name="two digits", seed=Seed(0))
    with Store(tmp_path_factory.mktemp("audit") / "engram.db") as store:
        run = audit(target, PLAN, store=store)
        yield store, run


def found(stored, metric, attack, defence=""):
    store, run = stored
    (one,) = [f for f in store.findings(run.id) if (f.metric, f.attack, f.defence) == (metric, attack, defence)]
    return one


def test_records_are_recovered_and_behind_enough_noise_they_are_not(stored):
    assert found(stored, "recovered@0.001", "deep-leakage").value == 1
    assert found(stored, "certificate", "deep-leakage").value < 1e-4
    assert found(stored, "recovered@0.001", "deep-leakage", "gaussian-sharing").value == 0
    assert found(stored, "certificate", "deep-leakage", "gaussian-sharing").value > 0.1


def test_a_defence_on_sharing_changes_the_update_and_not_the_model(tmp_path):
    target = sharing(RECIPE, started(RECIPE, Seed(0)), digits().take(np.arange(2)), name="two digits", seed=Seed(0))
    with Store(tmp_path / "engram.db") as store:
        arm = defended(target, "gaussian-sharing", PLAN, store)
    assert arm.model is target.model
    noise = torch.cat([(a - b).flatten() for a, b in zip(arm.update.tensors, target.update.tensors, strict=True)])
    assert noise.std().item() == pytest.approx(0.1, rel=0.1)


def test_an_attack_that_cannot_answer_says_why(stored):
    refused = found(stored, "recovered@0.001", "linear-layer")
    assert refused.value is None
    assert "no two units" in refused.reason


def test_stored_guesses_can_be_judged_again_without_a_model(stored):
    store, run = stored
    again = {str(f) for f in judged(store, run, Seed(0))}
    assert again <= {str(f) for f in store.findings(run.id)}
    assert any("recovered@" in f for f in again)


def test_the_report_shows_records_beside_guesses_and_redaction_hides_both(stored):
    store, run = stored
    shown, hidden = render(store, run.id), render(store, run.id, redact=True)
    assert "What the update gave away" in shown
    assert shown.count("data:image/png") == 4
    assert "Self-test: these records leave the shared update" in shown
    assert "residual of each tensor, for each attack" in shown
    assert "This update gives away records" in shown
    assert "data:image/png" not in hidden
    assert "The records and the guesses are hidden." in hidden


def test_the_default_attacks_follow_the_access():
    assert Plan().suited(Probabilities).attacks == MEMBERSHIP
    assert "deep-leakage" in Plan().suited(Gradients).attacks
    assert Plan(attacks=("gap",)).suited(Gradients).attacks == ("gap",)


def test_knobs_of_suited_attacks_are_checked_at_once():
    assert Plan(knobs={"spear": {"draws": 8}}).attacks is None
    with pytest.raises(ValueError, match="did you mean draws"):
        Plan(knobs={"spear": {"drows": 8}})
    with pytest.raises(ValueError, match="no attack or defence of this audit is called 'dragr'"):
        Plan(knobs={"dragr": {}})


def test_a_knob_of_an_attack_that_does_not_suit_is_an_error(tmp_path):
    target = sharing(
        Recipe(MLP(inputs=12, classes=5)),
        started(Recipe(MLP(inputs=12, classes=5)), Seed(0)),
        batch(),
        name="x",
        seed=Seed(0),
    )
    with Store(tmp_path / "engram.db") as store, pytest.raises(ValueError, match="no attack or defence of this audit"):
        audit(target, Plan(knobs={"lira": {"shadows": 8}}), store=store)


def test_residuals_are_kept_in_the_order_of_the_model(stored):
    store, run = stored
    (one,) = [t for t in store.told(run.id) if t.attack == "deep-leakage" and not t.defence]
    assert [name for name, _ in one.about["residuals"]] == ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert max(left for _, left in one.about["residuals"]) < 1e-3
    (noisy,) = [t for t in store.told(run.id) if t.attack == "deep-leakage" and t.defence]
    assert min(left for _, left in noisy.about["residuals"]) > 1e-2

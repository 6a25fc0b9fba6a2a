from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from contract.targets import leaky

import engram.audit
from engram.access import Labels
from engram.audit import Plan, audit, judged
from engram.report import render
from engram.seed import Seed
from engram.store import Store

SHADOWS = {name: {"shadows": 8} for name in ("confidence", "lira", "rmia")}
PLAN = Plan(attacks=("gap", "confidence", "lira"), knobs={k: SHADOWS[k] for k in ("confidence", "lira")})


@pytest.fixture(scope="module")
def target():
    return leaky()


def numbers(store, run):
    return [dataclasses.astuple(f) for f in store.findings(run)]


def test_it_keeps_evidence_findings_and_circumstances(target, tmp_path):
    with Store(tmp_path / "engram.db") as store:
        run = audit(target, PLAN, store=store, command=("engram", "audit"))
        told = store.told(run.id)
        assert run.finished
        assert [t.attack for t in told] == ["gap", "confidence", "confidence", "lira"]
        assert told[0].about["asks"] == "Labels"
        assert told[0].about["queries"] == len(target.records)
        assert "the training recipe" in told[3].about["knowledge"]
        assert {f.metric for f in store.findings(run.id)} >= {"auc", "tpr@0", "auc_shuffled", "accuracy_members"}
        assert run.about["command"] == ["engram", "audit"]
        assert run.about["environment"]["torch"]


def test_the_same_audit_gives_the_same_numbers(target, tmp_path):
    found = []
    for name in ("a.db", "b.db"):
        with Store(tmp_path / name) as store:
            found.append(numbers(store, audit(target, PLAN, store=store).id))
    assert found[0] == found[1]


def test_another_seed_gives_other_numbers(target, tmp_path):
    with Store(tmp_path / "engram.db") as store:
        first, second = (audit(target, dataclasses.replace(PLAN, seed=seed), store=store) for seed in (0, 1))
        assert numbers(store, first.id) != numbers(store, second.id)
        assert first.identity != second.identity


def test_stored_evidence_can_be_judged_again_without_a_model(target, tmp_path):
    with Store(tmp_path / "engram.db") as store:
        run = audit(target, PLAN, store=store)
        before = numbers(store, run.id)
        store.judge(run.id, judged(store, run, Seed(PLAN.seed)))
        assert sorted(map(str, numbers(store, run.id))) == sorted(map(str, before))


@pytest.mark.parametrize(("epsilon", "loud"), [(0.01, True), (50.0, False)])
def test_a_claim_that_the_measurement_contradicts_is_a_loud_finding(target, tmp_path, epsilon, loud):
    with Store(tmp_path / "engram.db") as store:
        run = audit(dataclasses.replace(target, claim=(epsilon, 1e-5)), PLAN, store=store)
        found = [f for f in store.findings(run.id) if f.metric == "broken_claim"]
        assert bool(found) == loud
        assert all("the claim is false, or" in f.reason for f in found)
        assert ("A claim does not hold" in render(store, run.id)) == loud


def test_what_is_not_granted_is_reported_not_tried(target, tmp_path):
    label_only = dataclasses.replace(target, access=Labels)
    with Store(tmp_path / "engram.db") as store:
        run = audit(label_only, PLAN, store=store)
        refused = [f for f in store.findings(run.id) if f.metric == "auc" and f.value is None]
        assert {f.attack for f in refused} == {"confidence", "lira"}
        assert all("granted Labels only" in f.reason for f in refused)


def test_a_defence_is_attacked_by_an_adversary_who_copies_it(target, tmp_path, monkeypatch):
    recipes = []
    handle = type(target).handle

    def seen(self, asks, lab):
        made = handle(self, asks, lab)
        recipes.append(made.knowledge.recipe)
        return made

    monkeypatch.setattr(type(target), "handle", seen)
    plan = dataclasses.replace(
        PLAN, attacks=("lira",), knobs={"lira": {"shadows": 8}}, defences=("l2", "rounded-outputs")
    )
    with Store(tmp_path / "engram.db") as store:
        run = audit(target, plan, store=store)
        arms = {f.defence for f in store.findings(run.id)}
    assert arms == {"", "l2", "rounded-outputs"}
    assert recipes[0] == target.recipe
    assert recipes[1].optimiser.weight_decay > 0
    assert recipes[2].after


def test_a_mask_on_the_answers_needs_no_other_model(target, tmp_path):
    plan = Plan(attacks=("gap",), defences=("rounded-outputs",))
    with Store(tmp_path / "engram.db") as store:
        arm = engram.audit.defended(target, "rounded-outputs", plan, store)
    assert arm.model is target.model


def test_a_defence_without_a_recipe_is_refused(target, tmp_path):
    plan = Plan(attacks=("gap",), defences=("l2",))
    with Store(tmp_path / "engram.db") as store, pytest.raises(ValueError, match="give it a recipe"):
        audit(dataclasses.replace(target, recipe=None), plan, store=store)


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"attacks": ("lirra",)}, "did you mean lira"),
        ({"defences": ("l3",)}, "did you mean l2"),
        ({"knobs": {"lira": {"shadow": 3}}}, "did you mean shadows"),
        ({"knobs": {"l2": {"x": 3}}}, "no attack or defence of this audit is called 'l2'"),
        ({"knobs": {"l2": {"decay": 3}}, "defences": ("l2",)}, "Known: weight_decay"),
    ],
)
def test_an_unknown_name_is_an_error_at_once(knobs, told):
    with pytest.raises(ValueError, match=told):
        Plan(**knobs)


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from contract.targets import leaky
import engram.train.plan
engram.train.plan.CACHE = 2**19  # small blocks: many pieces
import engram.store
keep = engram.store.Store.keep
def slowly(self, *args):
    keep(self, *args)
    print("kept", flush=True)
    time.sleep({pause})
engram.store.Store.keep = slowly
from engram.audit import Plan, audit
plan = Plan(attacks=("gap", "confidence", "lira"), knobs={{n: {{"shadows": 12}} for n in ("confidence", "lira")}})
with engram.store.Store({store!r}) as store:
    audit(leaky(), plan, store=store)
"""


def script(store: Path, pause: float) -> list[str]:
    return [sys.executable, "-c", SCRIPT.format(tests=str(Path(__file__).parent), store=str(store), pause=pause)]


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_run_that_was_killed_goes_on_and_ends_with_identical_numbers(tmp_path, pieces):
    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    subprocess.run(script(whole, 0), check=True, capture_output=True)
    with subprocess.Popen(script(broken, 0.2), stdout=subprocess.PIPE, text=True) as process:
        for _ in range(pieces):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    with Store(broken) as store:
        (left,) = store.runs()
        assert left.finished is None
    again = subprocess.run(script(broken, 0), check=True, capture_output=True, text=True)
    with Store(whole, write=False) as a, Store(broken, write=False) as b:
        assert len(b.runs()) == 1
        assert json.dumps(numbers(a, 1)) == json.dumps(numbers(b, 1))
        for x, y in zip(a.told(1), b.told(1), strict=True):
            np.testing.assert_array_equal(x.evidence.values, y.evidence.values)
    total = subprocess.run(script(tmp_path / "count.db", 0), check=True, capture_output=True, text=True)
    assert again.stdout.count("kept") == total.stdout.count("kept") - pieces  # nothing that was stored was done again

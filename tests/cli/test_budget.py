from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest

from engram import accounting
from engram.accounting import Composed, Gaussian, Laplace, PoissonSampled
from engram.accounting.calibration import training
from engram.cli import main


def said(capsys, *words):
    assert main(["budget", *words, "--json"]) == 0
    out = capsys.readouterr().out
    return json.loads(out)["budget"]


def complained(capsys, *words):
    try:
        code = main(["budget", *words])
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def test_epsilon_from_noise(capsys):
    budget = said(capsys, "--noise", "1.1", "--rate", "0.01", "--steps", "200", "--delta", "1e-5")
    expected = accounting.spent(training(1.1, 0.01, 200), 1e-5)
    assert budget["renyi"] == {"epsilon": expected.epsilon, "order": expected.order}
    assert (
        budget["tight"]["lower"]
        <= budget["tight"]["upper"]
        <= budget["renyi"]["epsilon"]
        <= budget["mironov"]["epsilon"]
    )
    assert budget["gdp"]["guarantee"] is False
    assert "noise" not in budget


@pytest.mark.parametrize("missing", ["noise", "rate", "steps"])
def test_what_is_missing_is_found_within_the_budget(capsys, missing):
    given = {"noise": "1.0", "rate": "0.01", "steps": "500"}
    words = [word for name, value in given.items() if name != missing for word in (f"--{name}", value)]
    budget = said(capsys, "--epsilon", "3", "--delta", "1e-5", *words)
    assert 2.9 < budget["renyi"]["epsilon"] <= 3
    assert (
        accounting.epsilon(training(budget["noise"], budget["rate"], budget["steps"]), 1e-5)
        == budget["renyi"]["epsilon"]
    )


def test_events_and_how_often(capsys):
    budget = said(
        capsys, "--event", "laplace:scale=2", "--times", "10", "--event", "gaussian:noise=30", "--delta", "1e-5"
    )
    expected = Composed((Laplace(2.0), 10), (Gaussian(30.0), 1))
    assert budget["renyi"]["epsilon"] == pytest.approx(accounting.epsilon(expected, 1e-5))
    pure = said(capsys, "--event", "laplace:scale=2", "--times", "10", "--delta", "0")
    assert pure["pure"]["epsilon"] == pure["renyi"]["epsilon"] == pytest.approx(5.0)
    assert pure["renyi"]["order"] is None


def test_every_event_can_be_written(capsys):
    for event in (
        "randomised-response:truth=0.75",
        "sampled-gaussian:rate=0.1,noise=1",
        "fixed-batch-gaussian:batch=6,records=60,noise=3",
    ):
        assert 0 < said(capsys, "--event", event, "--delta", "1e-5")["renyi"]["epsilon"] < 10


def test_groups_and_tiny_deltas_have_no_tight_answer_and_say_why(capsys):
    training_ = ("--noise", "2", "--rate", "0.01", "--steps", "10")
    group = said(capsys, *training_, "--delta", "1e-5", "--group", "3")
    assert group["renyi"]["epsilon"] == accounting.epsilon(training(2.0, 0.01, 10), 1e-5, group=3)
    assert group["tight"]["upper"] is None
    assert "groups" in group["tight"]["reason"]
    assert "Renyi accountant" in said(capsys, *training_, "--delta", "1e-12")["tight"]["reason"]


def test_no_noise_is_unbounded_and_json_says_null(capsys):
    assert said(capsys, "--noise", "0", "--rate", "0.1", "--steps", "1", "--delta", "1e-5")["renyi"]["epsilon"] is None
    assert said(capsys, "--noise", "0", "--rate", "0", "--steps", "1", "--delta", "1e-5")["renyi"]["epsilon"] == 0
    assert said(capsys, "--noise", "0", "--rate", "1", "--steps", "0", "--delta", "1e-5")["renyi"]["epsilon"] == 0


def test_the_table_rounds_against_the_user(capsys):
    assert main(["budget", "--noise", "1.1", "--rate", "0.0043", "--steps", "1406", "--delta", "1e-5"]) == 0
    out = capsys.readouterr().out
    epsilon = accounting.epsilon(training(1.1, 0.0043, 1406), 1e-5)
    shown = float(out.split("Canonne et al.")[1].split()[0])
    assert epsilon <= shown <= epsilon * 1.001
    assert "no guarantee" in out


def test_the_plot_is_a_picture_of_its_own(capsys, tmp_path):
    path = tmp_path / "budget.svg"
    said(capsys, "--noise", "1.1", "--rate", "0.01", "--steps", "100", "--delta", "1e-5", "--plot", str(path))
    root = ElementTree.fromstring(path.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    drawn = root.findall("{*}path")
    assert len(drawn) == 2
    assert drawn[0].get("d").count("L") > 30


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--noise", "1", "--rate", "0.1", "--steps", "1", "--delta", "1"), "delta must lie in [0, 1)"),
        (("--noise", "1", "--rate", "0.1", "--steps", "1", "--delta", "nan"), "delta must lie in [0, 1)"),
        (("--noise", "1", "--rate", "0.1", "--steps", "1", "--delta", "0"), "state a delta"),
        (("--noise", "-1", "--rate", "0.1", "--steps", "1", "--delta", "1e-5"), "noise_multiplier must be at least 0"),
        (("--noise", "1", "--rate", "2", "--steps", "1", "--delta", "1e-5"), "rate must lie in [0, 1]"),
        (("--noise", "1", "--rate", "0.1", "--steps", "-1", "--delta", "1e-5"), "whole number"),
        (("--noise", "1", "--delta", "1e-5"), "--rate and --steps lacks"),
        (("--delta", "1e-5"), "lacks; add it"),
        (("--epsilon", "3", "--delta", "1e-5", "--rate", "0.1"), "--epsilon finds one of"),
        (("--epsilon", "-3", "--delta", "1e-5", "--rate", "0.1", "--steps", "3"), "epsilon must be positive"),
        (("--event", "lapace:scale=2", "--delta", "1e-5"), "did you mean laplace"),
        (("--event", "laplace:size=2", "--delta", "1e-5"), "no knob of laplace is called 'size'"),
        (("--event", "laplace:scale=much", "--delta", "1e-5"), "as laplace:scale=2"),
        (("--event", "laplace", "--delta", "1e-5"), "laplace needs scale"),
        (
            ("--event", "fixed-batch-gaussian:batch=1.5,records=60,noise=3", "--delta", "1e-5"),
            "batch must be a whole number",
        ),
        (("--times", "3", "--delta", "1e-5"), "write --event first"),
        (
            ("--noise", "1", "--rate", "0.1", "--steps", "1", "--delta", "1e-5", "--group", "0"),
            "group must be a whole number",
        ),
        (
            (
                "--event",
                "sampled-gaussian:rate=0.1,noise=1",
                "--event",
                "randomised-response:truth=0.7",
                "--delta",
                "1e-5",
            ),
            "neighbouring relation",
        ),
        (("--noise", "1", "--rate", "0.1", "--steps", "1"), "required: --delta"),
    ],
)
def test_wrong_use_is_one_sentence(capsys, words, told):
    assert told in complained(capsys, *words)


def test_a_plot_needs_a_training(capsys, tmp_path):
    assert "leave --event out" in complained(
        capsys, "--event", "laplace:scale=2", "--delta", "1e-5", "--plot", str(tmp_path / "x.svg")
    )
    assert not math.isnan(accounting.epsilon(PoissonSampled(0.1, Gaussian(1.0)), 1e-5))

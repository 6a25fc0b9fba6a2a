from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import COMMAND, ENVIRONMENT, QUICK

import engram.cli
from engram.access import IMPLIES
from engram.attacks import ATTACKS
from engram.cli import COMMANDS, asking
from engram.cli.compare import apart
from engram.defences import DEFENCES
from engram.store import Store
from engram.types import Finding

PRESENT = [name for name in COMMANDS if importlib.util.find_spec(f"engram.cli.{name}")]
FINDING = {
    "metric", "value", "low", "high", "n", "non_members", "level", "method", "reason", "attack", "variant", "defence"
}  # fmt: skip


def one_object(said):
    """What stands on standard output, which must be one JSON object of standard JSON and nothing else."""
    assert said.code in (0, 1), said

    def refused(constant):
        raise AssertionError(constant)

    told = json.loads(said.out, parse_constant=refused)
    assert isinstance(told, dict)
    assert said.out == json.dumps(told, indent=2) + "\n"
    assert told.pop("engram") == engram.__version__
    return told


# Help


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in PRESENT)], ids=" ".join)
def test_help(say, words):
    said = say(*words)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("usage: engram")
    if words == ["--help"]:
        assert set(COMMANDS) <= set(said.out.split())
    else:
        assert "--json" in said.out
        assert COMMANDS[words[0]][1:20] in said.out


def test_help_and_the_version_need_no_torch(alone):
    script = (
        "import sys; from engram.cli import main\ntry: main(sys.argv[1:])\nfinally: assert 'torch' not in sys.modules"
    )
    for words in (["--help"], ["--version"], ["audit", "--help"], ["show", "--help"]):
        done = subprocess.run([sys.executable, "-c", script, *words], env=ENVIRONMENT, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), words
    assert alone("--version").stdout == f"engram {engram.__version__}\n"


# One JSON object and nothing else


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["attacks"], "attacks"),
        (["defences"], "defences"),
        (["runs", "--store", "STORE"], "runs"),
        (["show", "1", "--store", "STORE"], "show"),
        (["compare", "1", "2", "--store", "STORE"], "compare"),
        (["report", "1", "--store", "STORE"], "report"),
        (["new", "mine.py"], "new"),
    ],
)
def test_json_has_one_key_of_the_commands_name(say, stored, words, key):
    said = say(*(str(stored) if word == "STORE" else word for word in words), "--json")
    assert said.err == ""
    assert set(one_object(said)) == {key}


def test_json_of_an_audit_is_what_is_stored(say, target_file, tmp_path):
    told = one_object(say("audit", target_file, *QUICK, "--json"))
    assert set(told) == {"run", "target", "findings", "environment", "report", "held"}
    assert told["run"] == 1
    assert told["target"]["name"] == "leaky"
    assert all(set(finding) == FINDING for finding in told["findings"])
    with Store(tmp_path / "engram.db", write=False) as store:
        assert len(told["findings"]) == len(store.findings(1))
        assert [f["value"] for f in told["findings"]] == [f.value for f in store.findings(1)]
        assert store.run(1).about["command"] == ["engram", "audit", str(target_file), *QUICK, "--json"]
        assert store.run(1).about["environment"] == told["environment"]


def test_what_a_target_prints_does_not_stain_the_json(say, target_file):
    target_file.write_text(target_file.read_text() + "print('loading the model')\n")
    said = say("audit", target_file, *QUICK, "--json")
    one_object(said)
    assert said.err == "loading the model\n"
    assert say("audit", target_file, *QUICK).out.startswith("loading the model\n")


def test_what_is_unbounded_is_null_in_json():
    plain = engram.cli._plain({"a": [math.inf, np.float64(-math.inf), 1.5, True, None], "b": {"c": (math.nan,)}})
    assert plain == {"a": [None, None, 1.5, True, None], "b": {"c": [None]}}


def test_wrong_use_says_nothing_on_standard_output_even_for_json(wrong):
    wrong("audit", "none.py", "--json")


# What there is


def test_the_lists_name_everything(say):
    attacks, defences = one_object(say("attacks", "--json")), one_object(say("defences", "--json"))
    assert {a["name"] for a in attacks["attacks"]} == set(ATTACKS)
    assert {d["name"] for d in defences["defences"]} == set(DEFENCES)
    handles = {kind.__name__ for kind in IMPLIES}
    assert all(a["asks"] in handles and a["paper"] and a["what"] for a in attacks["attacks"])
    lira = next(a for a in attacks["attacks"] if a["name"] == "lira")
    assert lira["knobs"] == {"shadows": 64, "mode": "online", "variance": "record", "views": ["as is"]}
    text = say("attacks").out
    assert all(f"\n{name} " in text for name in ATTACKS)
    assert "weight_decay=0.02" in say("defences").out


# Stored runs


def test_runs_show_and_compare_read_what_an_audit_stored(say, stored):
    runs = one_object(say("runs", "--json", "--store", stored))["runs"]
    assert [(r["run"], r["target"]) for r in runs] == [(1, "leaky"), (2, "leaky")]
    shown = one_object(say("show", 2, "--json", "--store", stored))["show"]
    assert {f["defence"] for f in shown["findings"]} == {"", "l2"}
    assert set(shown) == {"run", "target", "findings", "environment"}
    pairs = one_object(say("compare", 1, 2, "--json", "--store", stored))["compare"]
    assert len(pairs) == len(shown["findings"])
    both = [p for p in pairs if p["first"] and p["first"]["metric"] != "auc_shuffled"]  # its level follows the table
    assert both
    assert all(p["first"] == p["second"] for p in both)
    assert all(p["second"]["defence"] == "l2" for p in pairs if not p["first"])
    text = say("show", 2, "--store", stored).out
    null = [f for f in shown["findings"] if f["value"] is None]
    assert null
    assert all(f["reason"] and f["reason"] in text for f in null)


def test_an_unfinished_run_is_listed_as_such(say, tmp_path):
    with Store(tmp_path / "engram.db") as store:
        store.begin("i", {"target": {"name": "half"}})
    assert "begun; the same command goes on with it" in say("runs").out


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((0.5, 0.6), (0.7, 0.8), True), ((0.7, 0.8), (0.5, 0.6), True), ((0.5, 0.7), (0.7, 0.8), False),
     ((0.7, 0.8), (0.5, 0.7), False), ((0.5, 0.9), (0.6, 0.7), False), ((0.5, None), (0.7, 0.8), None),
     ((0.5, 0.6), None, None)],
)  # fmt: skip
def test_intervals_are_apart_where_they_share_nothing(first, second, expected):
    a, b = (None if ends is None else Finding("auc", 0.5, *ends, n=9) for ends in (first, second))
    assert apart(a, b) is expected


# --fail-if


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("lira.auc>0.6", 1),
        ("lira.auc>=0.999999", 0),
        ("lira.auc < 0.6", 0),
        ("lira.auc.low>0.5", 1),
        ("lira.auc.high<=1", 1),
        ("lira.tpr@0.1>1e-3", 2),  # 80 non-members do not resolve it
        ("lira.tpr@0>=0", 1),
        ("target.accuracy_members>0.9", 1),
        ("lira.epsilon.low>=0", 1),
        ("lira.epsilon.high>0", 2),  # a lower bound has no upper end
        ("lira.tpr@0.001>0.05", 2),
        ("lira.auk>0.6", 2),
    ],
)
def test_a_rule_decides_the_exit_code(say, target_file, tmp_path, rule, code):
    said = say("audit", target_file, *QUICK, "--fail-if", rule, "--json")
    assert said.code == code, said
    if code == 2:
        assert said.out == ""
        assert said.err.count("\n") == 1
        expected = (
            "did you mean auc? Known: auc, auc_shuffled" if "auk" in rule else f"the rule '{rule}' cannot be judged: "
        )
        assert expected in said.err
    else:
        assert one_object(said)["held"] == [rule] * code
    with Store(tmp_path / "engram.db", write=False) as store:
        assert store.run(1).finished  # whatever the rule says, the run is kept


def test_a_rule_may_be_about_a_defence(say, target_file):
    for rule, code in (("l2/gap.auc>0", 1), ("l2/target.accuracy_members<0", 0)):
        assert say("audit", target_file, "--attacks", "gap", "--defences", "l2", "--fail-if", rule).code == code


def finding(value, **other):
    return Finding(**{"metric": "auc", "low": value, "high": value, "n": 9, "attack": "lira", "value": value, **other})


def test_of_several_variants_one_that_holds_is_enough_and_one_that_is_null_is_not_passed_over():
    rule = asking.rule("lira.auc>0.6")
    low, high, null = finding(0.5, variant="a"), finding(0.7, variant="b"), finding(None, variant="c", reason="too few")
    assert not rule.holds([low])
    assert rule.holds([low, high])
    assert rule.holds([null, high])
    with pytest.raises(ValueError, match="cannot be judged: too few"):
        rule.holds([low, null])
    assert not rule.holds([low, finding(0.9, defence="l2")])


# --set


def test_knobs_are_read_as_python_values_or_text(say, target_file, tmp_path):
    more = ("--set", "lira.variance=fixed", "--set", "lira.views=['as is']")
    assert say("audit", target_file, *QUICK, *more).code == 0
    with Store(tmp_path / "engram.db", write=False) as store:
        knobs = store.run(1).about["attacks"]["lira"]
    assert knobs == {"shadows": 8, "mode": "online", "variance": "fixed", "views": ["as is"]}


def test_nothing_in_a_knob_is_run():
    told = asking.knobs(["lira.views=__import__('os').getcwd()", "a-b.c=1=2", "x.y="])
    assert told == {"lira": {"views": "__import__('os').getcwd()"}, "a-b": {"c": "1=2"}, "x": {"y": ""}}


# new, report, --redact


def test_new_writes_a_template_that_compiles_and_overwrites_nothing(say, wrong, tmp_path):
    assert say("new", "mine.py").code == 0
    text = (tmp_path / "mine.py").read_text()
    compile(text, "mine.py", "exec")
    assert "engram audit mine.py" in text
    (tmp_path / "mine.py").write_text("precious")
    assert wrong("new", "mine.py") == "mine.py is there already and was left as it is; name another file"
    assert (tmp_path / "mine.py").read_text() == "precious"
    assert "a target file is a Python file, got mine.txt" in wrong("new", "mine.txt")
    assert "cannot be written (No such file or directory)" in wrong("new", "none/mine.py")


def test_a_report_again_is_the_report_of_the_audit(say, target_file, tmp_path):
    assert say("audit", target_file, *QUICK, "--report", "first.html").out.endswith("report: first.html\n")
    say("report", 1, "--to", "second.html")
    assert (tmp_path / "first.html").read_bytes() == (tmp_path / "second.html").read_bytes()
    assert (tmp_path / "second.html").stat().st_mode & 0o777 == 0o600


def test_redact_leaves_the_records_out(say, stored, tmp_path):
    say("report", 1, "--store", stored, "--to", "whole.html")
    say("report", 1, "--store", stored, "--to", "redacted.html", "--redact")
    whole, redacted = ((tmp_path / name).read_text() for name in ("whole.html", "redacted.html"))
    assert "Begins with" in whole
    assert "Begins with" not in redacted
    assert "Redacted." in redacted


def test_a_report_replaces_no_device(wrong, stored, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "a report is a file, and pipe is not one" in wrong("report", 1, "--store", stored, "--to", "pipe")
    assert not (tmp_path / "pipe").is_file()


# Readers that go, and people who stop it


@pytest.mark.parametrize(("words", "code"), [(["attacks"], 130), (["--help"], 0)])
def test_a_reader_that_has_gone_is_no_error(words, code):
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        done = subprocess.run([*COMMAND, *words], stdout=closed, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert done.stderr == b""
    assert done.returncode == code


def findings_of(path):
    with Store(path, write=False) as store:
        assert len(store.runs()) == 1
        assert store.runs()[0].finished
        return json.dumps([vars(f) for f in store.findings(1)])


SLOW = """
import engram.store, time
keep = engram.store.Store.keep
def slowly(self, *args):
    keep(self, *args)
    with open("kept", "a") as f:
        f.write("x")
    time.sleep({pause})
engram.store.Store.keep = slowly
import engram.train.plan
engram.train.plan.CACHE = 2**19
"""


def test_an_interrupted_audit_says_how_to_go_on_and_ends_with_identical_findings(alone, tmp_path, target_file):
    text = target_file.read_text()
    words = ("audit", target_file, "--attacks", "gap,lira", "--set", "lira.shadows=12")
    target_file.write_text(SLOW.format(pause=30) + text)
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], cwd=tmp_path, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may have it ignored
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        kept = tmp_path / "kept"
        while (
            not (kept.exists() and kept.read_text()) and time.monotonic() < until
        ):  # written and closed: now it sleeps
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err == "engram: stopped; what was finished is stored, and the same command goes on from there\n"
    with Store(tmp_path / "engram.db") as store:
        assert store.run(1).finished is None
        assert store._rows("SELECT count(DISTINCT name) FROM pieces") == [(1,)]
    (tmp_path / "kept").unlink()
    target_file.write_text(SLOW.format(pause=0) + text)
    assert alone(*words, cwd=tmp_path).returncode == 0
    again = len((tmp_path / "kept").read_text())
    (tmp_path / "kept").unlink()
    assert alone(*words, "--store", "whole.db", cwd=tmp_path).returncode == 0
    assert len((tmp_path / "kept").read_text()) == again + 1
    assert findings_of(tmp_path / "engram.db") == findings_of(tmp_path / "whole.db")


def test_an_audit_of_labels_alone_finds_what_leaks_also_behind_memguard(say):
    """The target that ships with the tool; masks of the confidences change nothing where there are none."""
    example = Path(__file__).parents[2] / "examples" / "label_only.py"
    few = ("yoqo.shadows=4", "yoqo.queries=4", "noise.queries=10", "noise.shadows=2", "boundary.queries=30")
    knobs = [word for knob in few for word in ("--set", knob)]
    told = one_object(
        say(
            "audit",
            example,
            "--attacks",
            "gap,yoqo,noise,boundary,confidence",
            *knobs,
            "--defences",
            "memguard",
            "--json",
        )
    )
    areas = {}
    for f in told["findings"]:
        if f["metric"] == "auc":
            areas.setdefault((f["attack"], f["variant"]), {})[f["defence"]] = (f["low"], f["value"], f["high"])
    refused = areas.pop(("confidence", ""))
    assert set(refused.values()) == {(None, None, None)}
    assert any("granted Labels only" in f["reason"] for f in told["findings"] if f["attack"] == "confidence")
    assert len(areas) == 6
    for (name, _), found in areas.items():
        assert set(found) == {"", "memguard"}
        assert found[""] == found["memguard"]
        assert found[""][0] > 0.5 or name == "gap"

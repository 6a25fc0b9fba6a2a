from __future__ import annotations

import json
import platform
from importlib.metadata import version

import pytest
import torch

import engram
import engram.environment
from engram.environment import environment


def test_it_names_what_the_numbers_were_made_with():
    told = environment()
    assert told["engram"] == engram.__version__
    assert told["python"] == platform.python_version()
    assert told["torch"].partition("+")[0] == version("torch").partition("+")[0]
    assert (told["numpy"], told["scipy"]) == (version("numpy"), version("scipy"))
    assert told["device"] == "cpu"
    assert told["cores"] >= 1
    assert told["processor"]


def test_it_can_be_stored_and_is_the_same_each_time():
    assert json.loads(json.dumps(environment("cpu"))) == environment(torch.device("cpu"))


@pytest.mark.parametrize("threads", [1, 2])
def test_it_tells_the_threads_that_are_used(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert environment()["threads"] == threads
    finally:
        torch.set_num_threads(before)


def test_it_says_nothing_of_the_machine_that_names_it():
    told = " ".join(map(str, environment().values()))
    assert platform.node() not in told.split()
    assert set(environment()) == {
        "engram", "python", "torch", "numpy", "scipy", "system", "processor", "cores", "threads", "device"
    }  # fmt: skip


@pytest.mark.parametrize("listed", [None, "", "flags : fpu\n", "model name\t: A: B\nmodel name : C\n"])
def test_a_processor_is_named_where_the_system_does_and_where_not(monkeypatch, tmp_path, listed):
    path = tmp_path / "cpuinfo"
    if listed is not None:
        path.write_text(listed)
    monkeypatch.setattr(engram.environment, "open", lambda _: path.open(), raising=False)
    expected = "A: B" if listed and "model" in listed else platform.processor() or platform.machine()
    assert environment()["processor"] == expected

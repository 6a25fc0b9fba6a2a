"""The whole reproduction at its smallest: every table has its rows, the same seed gives the same, a stop loses nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.chunks.local import Memory
from engram.reproduce import language_training, private_language
from engram.reproduce.cells import Bench
from engram.reproduce.language_settings import BLEU, SIZES
from engram.reproduce.language_table import Table
from engram.reproduce.language_training import METHODS, Tuning
from engram.seed import Seed

for package in ("transformers", "tokenizers", "sacrebleu", "rouge_score", "dp_accounting"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'engram[text,tight]'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def bench():
    return Bench("smoke", Seed(0), Memory())


@pytest.fixture(scope="module")
def cells(bench):
    return list(private_language.cells(bench))


def test_every_table_has_its_rows(cells):
    at = {(c.row, c.column): c for c in cells}
    for method in METHODS:
        assert at[method, "BLEU, epsilon 3"].published == BLEU[method][0]
        assert at[method, "ROUGE-L, no privacy"].n == 2
    for row in (
        "full - LoRA",
        "top-2 - from scratch",
        "decoder, base - small",
        "clip norm 0.1 - 10",
        "infilling - head, base",
    ):
        assert any(c.row == row and c.low <= c.ours <= c.high for c in cells)
    assert {c.row for c in cells} >= {"batch 8", "infilling, base", "RGP, base", "GPT-2", "gap to no privacy, full"}


def test_a_smoke_run_claims_nothing_but_what_accountants_say(cells):
    assert {c.row for c in cells if c.holds is not None} == {"the talk's SST-2"}
    (tight,) = (c for c in cells if c.row == "the talk's SST-2" and c.column == "tight, epsilon 3")
    assert tight.holds
    assert tight.ours == pytest.approx(2.41, abs=0.01)


def test_what_is_done_is_not_done_again(bench, cells, monkeypatch):
    monkeypatch.setattr(language_training, "clipping", None)  # nothing can be trained any more
    assert list(private_language.cells(bench)) == cells


def test_a_seed_gives_the_same_model_and_another_seed_another(bench):
    table = Table(replace(bench, chunks=Memory()), bench_size())
    public, how = table.decoder("base"), table.tuning("full", 3.0)
    first, again, other = (table.restaurants.run(public, how, Seed(k))["loss"] for k in (1, 1, 2))
    fresh = Table(replace(bench, chunks=Memory()), bench_size())
    assert first == again == fresh.restaurants.run(fresh.decoder("base"), how, Seed(1))["loss"]
    assert first != other


def bench_size():
    return SIZES["smoke"]


def test_training_learns_and_enough_noise_prevents_it(bench):
    """Without privacy a few steps lower the loss; at an epsilon near nothing they cannot, whatever the rate."""
    table = Table(bench, bench_size())
    public, task = table.decoder("base"), table.restaurants
    still, learned, drowned = (
        float(task.run(public, Tuning("full", epsilon, 32, steps, 3e-3), Seed(1))["loss"])
        for epsilon, steps in ((None, 1), (None, 40), (0.05, 40))
    )
    assert learned < still - 0.5
    assert drowned > learned + 0.5


def test_a_model_that_was_not_pretrained_begins_elsewhere(bench):
    table = Table(bench, bench_size())
    public = table.decoder("base")
    name = "net.transformer.wte.weight"
    given, scratch = (dict(public.model(Seed(1), scratch=s).state_dict()) for s in (False, True))
    np.testing.assert_array_equal(given[name].numpy(), public.weights[name])
    assert not np.array_equal(scratch[name].numpy(), public.weights[name])


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="LoRA"):
        Tuning("lora", 3.0, 8, 2, 1e-3)


def test_dialogue_that_is_not_there_says_so(bench, tmp_path):
    table = Table(replace(bench, data=tmp_path), bench_size())
    found = list(private_language.dialogues(table))
    assert len(found) == 6
    assert all(c.ours is None and "dialogue.jsonl.gz" in c.note for c in found)
    assert found[0].published == 15.90


def test_paper_scale_is_the_talks_setting():
    size = SIZES["paper"]
    assert (size.batch, size.steps, size.decoders["GPT-2 shape"]) == (1024, 411, (768, 12, 12))
    assert max(size.batches) == size.batch
    assert size.faster[-1] == 1

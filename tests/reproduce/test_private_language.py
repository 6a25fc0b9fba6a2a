"""The whole reproduction at its smallest: every table has its rows, the same seed gives the same, a stop loses nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram.chunks.local import Memory
from engram.reproduce import language_table, language_training, private_language
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


@pytest.mark.parametrize("infilling", [True, False])
def test_sentences_are_judged_by_what_was_learned(bench, infilling):
    table = Table(bench, bench_size())
    how = Tuning("full", None, 32, 40, 1e-2)
    right = table.sentences.run(table.encoder("base"), how, infilling, Seed(1))["right"]
    assert right.mean() > 0.9  # half by chance


def test_a_rate_is_chosen_on_the_part_for_tuning(bench, monkeypatch):
    table, seen = Table(bench, bench_size()), []
    monkeypatch.setitem(language_table.RATES["smoke"], "full", ((1e-4, 1e-2), (3e-3,)))

    def run(_, public, how, seed, *, tuning):  # noqa: ARG001
        seen.append((how.rate, how.epsilon, tuning))
        return {"loss": how.rate}

    monkeypatch.setattr(type(table.restaurants), "run", run)
    assert table.tuning("full", 3.0).rate == 1e-4
    assert table.tuning("full", None).rate == 3e-3
    assert seen == [(1e-4, 3.0, True), (1e-2, 3.0, True)]


def test_a_model_that_was_not_pretrained_begins_elsewhere(bench):
    table = Table(bench, bench_size())
    public = table.decoder("base")
    name = "net.transformer.wte.weight"
    given, scratch = (dict(public.model(Seed(1), scratch=s).state_dict()) for s in (False, True))
    np.testing.assert_array_equal(given[name].numpy(), public.weights[name])
    assert not np.array_equal(scratch[name].numpy(), public.weights[name])


def test_the_talks_setting_in_small_runs_the_same_way(bench, monkeypatch):
    """Scale "paper" with everything shrunk: names kept, pre-training in three pieces, all methods and tables."""
    small = SIZES["smoke"]
    size = replace(
        SIZES["paper"], seeds=1, extra_seeds=1, vocabulary=400, public=100, records=100, prompt=60, answer=40, sentence=24,
        decoders=small.decoders, encoders=small.encoders, reading=replace(small.reading, pieces=3, steps=2),
        masked=replace(small.masked, pieces=2, steps=2), batch=8, steps=1, judged_batch=8, judged_steps=1, tested=2,
        judged=8, batches=(4, 8), faster=(0.5, 1.0), clips=(0.1, 10.0),
    )  # fmt: skip
    monkeypatch.setitem(SIZES, "paper", size)
    monkeypatch.setattr(private_language, "RUNS", {})
    monkeypatch.setattr(private_language, "under", lambda *_: iter(()))
    chunks = Memory()
    found = list(private_language.cells(replace(bench, scale="paper", chunks=chunks)))
    assert {c.row for c in found} >= {*METHODS, "decoder, base - small", "clip norm 0.1 - 10", "infilling - head, base"}
    public = [name for name in chunks._done if "/public/" in name]
    assert len(public) == 3 * len(size.decoders) + 2 * len(size.encoders)
    names = [prompt for prompt, _ in Table(replace(bench, scale="paper"), size).restaurants.task.train]
    assert not any("XNAME" in prompt for prompt in names)


def test_every_piece_of_pretraining_goes_on_where_the_one_before_ended(bench, monkeypatch):
    def read(model, *_):
        with torch.no_grad():
            model.net.transformer.wte.weight += 1

    monkeypatch.setattr(language_training, "read", read)
    chunks, size = Memory(), replace(bench_size(), reading=replace(bench_size().reading, pieces=3))
    told = Table(replace(bench, chunks=chunks), size).decoder("base").weights
    first = next(arrays for name, arrays in chunks._done.items() if "/public/" in name)
    difference = told["net.transformer.wte.weight"] - first["net.transformer.wte.weight"]
    np.testing.assert_allclose(difference, 2, atol=1e-5)


def test_the_word_to_fill_in_is_read_and_never_cut_off(bench):
    task = Table(bench, bench_size()).sentences
    ids, places, labels = task._rows([("bad", 0), ("a very long sentence " * 20, 1)])
    assert (np.take_along_axis(ids, places, 1) == task.tokens.mask).all()
    assert labels.tolist() == [0, 1]
    asked = task.tokens.of([" It was<mask>."])[0]
    assert ids[1, -len(asked) :].tolist() == asked


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

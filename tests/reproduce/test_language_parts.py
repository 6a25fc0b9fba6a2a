"""What the private-language reproduction is made of: texts put together, tokens, scores, orders."""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from engram.reproduce import language_grammar, language_scores, language_tasks
from engram.reproduce.language_tokens import learned, left, paired, right, tokens
from engram.reproduce.paired import difference
from engram.seed import Seed


@pytest.mark.parametrize(
    ("stored", "whole"),
    [
        ("Prices start at £ 30 .", "Prices start at £30."),
        ("it 's child friendly , and it does n't cost £ 20 - 25", "it's child friendly, and it doesn't cost £20-25"),
        ("It 's family - friendly ( really ) .", "It's family-friendly (really)."),
        ("`` The Mill '' : good", '"The Mill": good'),
        ("in the city centre, Alimentum, that is not family-friendly.",) * 2,
    ],
)
def test_stored_tokens_are_put_together_again(stored, whole):
    assert language_tasks.detokenised(stored) == whole


def test_slots_have_one_name_in_all_parts():
    train = language_tasks.slots("name[The Mill], priceRange[more than £ 30], customerrating[5 out of 5]")
    test = language_tasks.slots("customer rating[5 out of 5], priceRange[more than £30], name[The Mill]")
    assert list(train.items()) == list(test.items())
    assert train["customer rating"] == "5 out of 5"


def test_names_are_hidden_and_come_back():
    row = {
        "mr": "name[The Mill], near[Café Rouge]",
        "ref": "The Mill is near café rouge, not The Mill.",
        "tokenized": False,
    }
    told = language_tasks.described(row, delexicalised=True)
    assert told.answers == ("XNAME is near XNEAR, not XNAME.",)
    assert "Mill" not in told.prompt + told.answers[0]
    assert language_tasks.named(told.answers[0], told.names) == "The Mill is near Café Rouge, not The Mill."
    assert language_tasks.described(row, delexicalised=False).answers == (row["ref"],)


def test_references_of_one_meaning_stand_together():
    rows = [{"mr": f"name[{name}]", "ref": f"{name} {k}", "tokenized": False} for name in ("A", "B") for k in range(2)]
    found = language_tasks.asked(language_tasks.described(row, True) for row in rows)
    assert [one.answers for one in found] == [("A 0", "A 1"), ("B 0", "B 1")]


def test_exercises_are_public_sentences_behind_their_own_words():
    public = ["The harbour of the town is near the castle. It was great for everybody there."]
    places = set(language_tasks.NAMED.values())
    told = language_tasks.exercises(public, 40, Seed(0))
    for prompt, text in told:
        shown = set(re.findall(r"\] ([^\[<]+)", prompt))
        assert all(word in text for word in shown)
        assert all(word in public[0] for word in shown - places)
        assert all((place in shown) == (place in text) for place in places)
    assert {place for place in places for prompt, _ in told if place in prompt} == places


def test_generated_public_text_holds_no_private_record():
    public = " ".join(language_grammar.public_text(2000, Seed(0)))
    texts = [text for _, text in language_grammar.restaurants(300, Seed(0), delexicalised=False).train]
    texts += [text for text, _ in language_grammar.sentences(300, Seed(0)).train]
    texts += [text for pair in language_grammar.dialogue(50, Seed(0)).train for text in pair]
    assert not [text for text in texts if text in public]


class TestTokens:
    public = ("the harbour is near the castle. it was great. caf\u00e9 £20",) * 3

    def held(self):
        pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'engram[text]'")
        return tokens(learned(self.public, 320, language_tasks.MARKERS))

    def test_texts_come_back(self):
        held = self.held()
        for text in ("Zizzi, near Café Rouge: £20-25!", "the harbour is near"):
            assert held.text([*held.of([text])[0], held.end, 5, 6]) == text

    def test_names_of_slots_are_one_token_each(self):
        held = self.held()
        assert len(held.of(["[customer rating]XNAME[near]<mask>"])[0]) == 4

    def test_answers_begin_at_one_position(self):
        held = self.held()
        rows = paired(held, [("[name] XNAME<text>", "the harbour"), ("<text>", "it was great, it was great")], 4, 6)
        assert rows.shape == (2, 10)
        assert (rows[:, 3] == held.begin).all()
        assert held.end in rows[0]
        assert (rows[1, :3] == 0).all()

    def test_filling_up(self):
        assert left([[1, 2, 3], [4]], 2).tolist() == [[2, 3], [0, 4]]
        assert right([[1, 2, 3], [4]], 2).tolist() == [[1, 2], [4, 0]]


def slow_bleu(said, references):
    """Papineni et al., equations 1 to 3, word by word; the closest reference's length."""
    logs, ours, theirs = [], 0, 0
    for n in range(1, 5):
        hit = total = 0
        for text, several in zip(said, references, strict=True):
            grams = list(zip(*(text.split()[k:] for k in range(n)), strict=False))
            most = {g: max(list(zip(*(r.split()[k:] for k in range(n)), strict=False)).count(g) for r in several)
                    for g in set(grams)}  # fmt: skip
            hit += sum(min(grams.count(g), most[g]) for g in set(grams))
            total += len(grams)
        logs.append(math.log(hit / total))
    for text, several in zip(said, references, strict=True):
        length = len(text.split())
        ours += length
        theirs += min((abs(len(r.split()) - length), len(r.split())) for r in several)[1]
    return 100 * math.exp(min(0.0, 1 - theirs / ours) + sum(logs) / 4)


SAID = ["the mill is a cheap pub near the river", "blue spice serves good french food to all"]
SEVERAL = [
    ["the mill is a cheap place near the river", "a cheap pub near the river is the mill today"],
    ["blue spice serves french food to all families here"],
]


def test_bleu_is_that_of_the_corpus_whatever_the_number_of_references():
    pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install 'engram[text]'")
    assert language_scores.bleu(SAID, SEVERAL) == pytest.approx(slow_bleu(SAID, SEVERAL), abs=1e-9)
    assert language_scores.bleu(SAID, [[text] for text in SAID]) == pytest.approx(100)
    assert language_scores.bleu(SAID, SEVERAL[::-1]) < 5


def test_rouge_takes_the_best_reference():
    pytest.importorskip("rouge_score", reason="needs rouge-score: pip install 'engram[text]'")
    found = language_scores.rouge_l(["a b c d"], [["x y", "a c e"]])
    assert found == pytest.approx(100 * 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))


def test_f1_counts_words_without_order():
    assert language_scores.f1(["b a a", "c"], [["a b", "x"], ["d"]]) == pytest.approx(50 * 0.8)


def test_scores_that_are_not_installed_say_how(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"pip install 'engram\[text\]'"):
        language_scores.bleu(SAID, SEVERAL)


@pytest.mark.parametrize(
    ("values", "within", "holds"),
    [([1.0, 1.1, 1.2], None, True), ([-1.0, -1.1, -1.2], None, False), ([-1.0, 1.0, 2.0], None, None),
     ([1.0, 1.1, 1.2], 5.0, True), ([8.0, 8.1, 8.2], 5.0, False), ([-8.0, -8.1, -8.2], 5.0, False),
     ([4.9, 5.0, 5.1], 5.0, None)],
)  # fmt: skip
def test_an_order_holds_only_where_the_interval_says_so(values, within, holds):
    assert difference("", "", np.array(values), within=within).holds is holds


@pytest.mark.data
def test_the_real_restaurants():
    folder = os.environ.get("ENGRAM_DATA")
    if not folder or not (Path(folder) / "e2e_nlg.jsonl.gz").is_file():
        pytest.skip("needs e2e_nlg.jsonl.gz in the folder named by ENGRAM_DATA")
    task = language_tasks.restaurants(Path(folder))
    assert len(task.train) == 42061
    assert len(task.test) == 630
    assert not [text for _, text in task.train if " ." in text or " ," in text or "£ " in text]
    assert sum("XNAME" in text for _, text in task.train) > 0.95 * 42061
    assert {slot for one in task.test for slot in re.findall(r"\[(.*?)\]", one.prompt)} == set(language_tasks.SLOTS)

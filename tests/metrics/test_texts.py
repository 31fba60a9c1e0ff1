"""Scores of texts, against their papers' formulas and examples."""

import math
from collections import Counter

import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import score
from t5x_lite.objectives import Predictions

SAID = ["the cat sat on the mat today", "there is a dog in the big garden", "he reads"]
MEANT = ["the cat sat on the red mat today", "there is a dog in the garden", "he reads books every day"]


def scores(said, meant, *metrics):
    return score(Predictions("texts", said, [(text,) for text in meant]), metrics)


def figure(metric, said, meant):
    return scores(said, meant, metric).figures[metric]


def ngrams(items, n):
    return Counter(tuple(items[index : index + n]) for index in range(len(items) - n + 1))


def test_bleu_is_papinenis_formula_over_the_whole_corpus():
    """Papineni et al. 2002, section 2.3: clipped counts and lengths are summed before anything is divided."""
    said, meant = [text.split() for text in SAID], [text.split() for text in MEANT]
    logs = []
    for n in range(1, 5):
        pairs = [(ngrams(s, n), ngrams(m, n)) for s, m in zip(said, meant, strict=True)]
        matched = sum(sum((s & m).values()) for s, m in pairs)
        logs.append(math.log(matched / sum(sum(s.values()) for s, _ in pairs)))
    lengths = sum(map(len, said)), sum(map(len, meant))
    assert lengths[0] < lengths[1], "the brevity penalty acts"
    expected = 100 * math.exp(1 - lengths[1] / lengths[0] + sum(logs) / 4)
    found = scores(SAID, MEANT, "bleu")
    assert found.figures["bleu"] == pytest.approx(expected)
    assert {"nrefs:1", "case:mixed", "tok:13a", "smooth:exp"} <= set(found.signatures["bleu"].split("|"))
    assert "version:" in found.signatures["bleu"]


def test_bleu_cuts_tokens_itself():
    assert figure("bleu", ["He said : hello , world !"], ["He said: hello, world!"]) == pytest.approx(100.0)


def test_chrf_is_the_f_score_of_character_ngrams():
    """Popovic 2015: recall counts twice as much (beta = 2), n from 1 to 6, white space left out; of one text."""
    said, meant = (texts[0].replace(" ", "") for texts in (SAID, MEANT))
    precisions, recalls = [], []
    for n in range(1, 7):
        ours, theirs = ngrams(said, n), ngrams(meant, n)
        matched = sum((ours & theirs).values())
        precisions.append(matched / sum(ours.values()))
        recalls.append(matched / sum(theirs.values()))
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    found = scores(SAID[:1], MEANT[:1], "chrf")
    assert found.figures["chrf"] == pytest.approx(expected)
    assert {"nc:6", "nw:0", "space:no"} <= set(found.signatures["chrf"].split("|"))


def test_rouge_on_lins_example():
    """Lin 2004, section 3.1: S2 keeps the order of three words, S3 and S4 of two, though S3 has a bigram of S1 too."""
    first, *others = (
        "police killed the gunman",
        "police kill the gunman",
        "the gunman kill police",
        "the gunman police killed",
    )
    each = [scores([other], [first], "rouge").figures for other in others]
    assert [one["rougeL"] for one in each] == [0.75, 0.5, 0.5]
    assert [one["rouge1"] for one in each] == [0.75, 0.75, 1.0]
    assert [one["rouge2"] for one in each] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    mean = scores(others, [first] * 3, "rouge").figures["rougeL"]
    assert mean == pytest.approx((0.75 + 0.5 + 0.5) / 3)


def test_precision_and_recall_are_not_mistaken_for_each_other():
    """BLEU punishes the shorter answer, chrF counts recall more."""
    short, long = ["the cat sat on"], ["the cat sat on the mat"]
    assert figure("bleu", short, long) == pytest.approx(100 * math.exp(1 - 6 / 4))
    assert figure("chrf", short, long) < figure("chrf", long, short)


def test_exact_match_counts_whole_texts():
    assert figure("exact_match", ["a cat", "A cat", "a cat."], ["a cat "] * 3) == pytest.approx(1 / 3)


def test_all_at_once():
    found = scores(SAID, MEANT, "bleu", "chrf", "rouge", "exact_match")
    assert set(found.figures) == {"bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"}
    assert set(found.signatures) == {"bleu", "chrf"}
    assert found.figures["bleu"] == figure("bleu", SAID, MEANT)
    perfect = scores(MEANT, MEANT, "bleu", "chrf", "rouge", "exact_match").figures
    assert perfect == {name: pytest.approx(100.0 if name in ("bleu", "chrf") else 1.0) for name in perfect}


@pytest.mark.parametrize(
    ("said", "meant", "message"),
    [
        (["a"], ["a", "b"], "1 predictions do not go with 2 references"),
        ([], [], "one or more"),
    ],
)
def test_what_cannot_be_scored_is_said(said, meant, message):
    with pytest.raises(InputError, match=message):
        scores(said, meant, "bleu")

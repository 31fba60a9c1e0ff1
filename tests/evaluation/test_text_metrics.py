"""Scores of texts, against their papers' formulas and examples."""

import math
from collections import Counter

import pytest

from t5x_lite.errors import InputError
from t5x_lite.evaluation.text_metrics import bleu, chrf, exact_match, rouge, score

SAID = ["the cat sat on the mat today", "there is a dog in the big garden", "he reads"]
MEANT = ["the cat sat on the red mat today", "there is a dog in the garden", "he reads books every day"]


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
    found = bleu(SAID, MEANT)
    assert found.figures["bleu"] == pytest.approx(expected)
    assert {"nrefs:1", "case:mixed", "tok:13a", "smooth:exp"} <= set(found.signatures["bleu"].split("|"))
    assert "version:" in found.signatures["bleu"]


def test_bleu_cuts_tokens_itself():
    assert bleu(["He said : hello , world !"], ["He said: hello, world!"]).figures["bleu"] == pytest.approx(100.0)


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
    found = chrf(SAID[:1], MEANT[:1])
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
    assert [rouge([other], [first]).figures["rougeL"] for other in others] == [0.75, 0.5, 0.5]
    assert [rouge([other], [first]).figures["rouge1"] for other in others] == [0.75, 0.75, 1.0]
    assert [rouge([other], [first]).figures["rouge2"] for other in others] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    mean = rouge(others, [first] * 3).figures["rougeL"]
    assert mean == pytest.approx((0.75 + 0.5 + 0.5) / 3)


def test_precision_and_recall_are_not_mistaken_for_each_other():
    """BLEU punishes the shorter answer, chrF counts recall more."""
    short, long = ["the cat sat on"], ["the cat sat on the mat"]
    assert bleu(short, long).figures["bleu"] == pytest.approx(100 * math.exp(1 - 6 / 4))
    assert chrf(short, long).figures["chrf"] < chrf(long, short).figures["chrf"]


def test_exact_match_counts_whole_texts():
    assert exact_match(["a cat", "A cat", "a cat."], ["a cat "] * 3).figures == {"exact_match": pytest.approx(1 / 3)}


def test_all_at_once():
    scores = score(SAID, MEANT, ("bleu", "chrf", "rouge", "exact_match"))
    assert set(scores.figures) == {"bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"}
    assert set(scores.signatures) == {"bleu", "chrf"}
    assert scores.figures["bleu"] == bleu(SAID, MEANT).figures["bleu"]
    perfect = score(MEANT, MEANT, ("bleu", "chrf", "rouge", "exact_match")).figures
    assert perfect == {name: pytest.approx(100.0 if name in ("bleu", "chrf") else 1.0) for name in perfect}


@pytest.mark.parametrize(
    ("said", "meant", "metrics", "message"),
    [
        (["a"], ["a", "b"], ("bleu",), "1 predictions do not go with 2 references"),
        ([], [], ("bleu",), "one or more"),
        (["a"], ["a"], ("meteor",), "metric 'meteor' is not known; choose bleu, chrf, rouge, exact_match"),
    ],
)
def test_what_cannot_be_scored_is_said(said, meant, metrics, message):
    with pytest.raises(InputError, match=message):
        score(said, meant, metrics)

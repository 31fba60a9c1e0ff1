import time
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.data import PythonDocs, split_sentences
from t5x_lite.errors import InputError

SAMPLE = Path(__file__).parents[4] / "shared" / "data" / "text_sample_bert" / "sample_text.txt"


@pytest.mark.parametrize(
    "sentences",
    [
        ["One ends.", "Another begins!", "A third?", "3 make it four."],
        ["Mr. and Mrs. Hall met Dr. No at St. Ives.", "Prof. Moriarty came too."],
        [
            "J. R. R. Tolkien, i.e. the U.S. publisher's author, read e.g. Grimm, etc. and more.",
            "He rose at 4 a.m. daily.",
        ],
        ["It isn't.", "It is hers, not the Archbishop's.", "We’ll see."],
        ["See No. 5, p. 12 and Fig. 3.", "No.", "He said it again."],
        ["Pi is 3.14, e is 2.718.", "Version 2.0.1 is out."],
        ["Wait... what?!", "Really?!", "Yes... no... perhaps.", "Well… so be it."],
        ['"Who is there?" asked she.', '"Nobody."', '"Good," he said.', "('Tis done.)", "[It is.]", "“Go!”", "‘I go.’"],
        ["1. The first of all.", "2. The second."],
        ["吾輩は猫である。", "名前はまだ無い。", "「どこで？」", "生れたか！？", "まさか。。。", "とんと見当がつかぬ"],
        ["你好!", "我是学生。", "他说：“走吧。”", "然后……走了。"],
        ["Он пришёл.", "«Кто там?»", "Никто."],
        ["Élodie arrive.", "À demain !", "Où est-il ?", "¿Quién?", "¡Nadie!"],
        ["यह एक वाक्य है।", "यह दूसरा है।"],
        ["هل جاء؟", "نعم."],
        ["it has no capital letters. not one. so it is one sentence"],
        ["A line without an end"],
    ],
    ids=lambda sentences: sentences[0],
)
def test_sentences_end_by_punctuation(sentences):
    unspaced = any("\u3040" <= character <= "\u9fff" for character in sentences[0])
    assert split_sentences("".join(sentences) if unspaced else " ".join(sentences), "punctuation") == sentences
    if not unspaced:
        wrapped = "\n".join(" ".join(sentences).split())
        assert split_sentences(f"\n {wrapped}\r\n", "punctuation") == sentences


def test_a_blank_line_ends_a_sentence_and_a_line_break_is_a_blank():
    text = "A heading\n\nThe text\nbegins  here. it\tgoes on\r\n \r\n- an item\n\n\n\nThe end"
    expected = ["A heading", "The text begins here. it goes on", "- an item", "The end"]
    assert split_sentences(text, "punctuation") == expected


def test_lines():
    text = "  One. Two.\n\n \t\nthree\r\nfour  words are\there\n"
    assert split_sentences(text, "line") == ["One. Two.", "three", "four  words are\there"]


@pytest.mark.parametrize("rule", ["punctuation", "line"])
def test_nothing_but_blanks_is_no_sentence(rule):
    assert split_sentences("", rule) == split_sentences(" \n\n \u3000\n", rule) == []


def without_blanks(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("rule", ["punctuation", "line"])
def test_sentences_joined_are_the_text(rule):
    characters = "aB9 \n\r\t\u2028\x85\u3000.!?…。！？।؟\"'”»)]}(“«-1é猫ん"
    alphabet = [*characters, "Mr.", "No.", "\n\n", "e.g.", ". A", ".” "]
    random = np.random.default_rng(0)
    counts = []
    for _ in range(2000):
        text = "".join(random.choice(alphabet, random.integers(0, 60)))
        sentences = split_sentences(text, rule)
        assert without_blanks("".join(sentences)) == without_blanks(text)
        assert all(sentence and sentence == sentence.strip() for sentence in sentences)
        counts.append(len(sentences))
    assert 3 < np.mean(counts) < 10


@pytest.mark.slow
def test_sentences_of_prose_are_as_long_as_sentences_are():
    documents = list(PythonDocs().documents())[:500]
    sentences = [sentence for document in documents for sentence in split_sentences(document, "punctuation")]
    assert 60 < np.mean([len(sentence) for sentence in sentences]) < 200


def test_most_ends_of_sentences_that_people_marked_are_found():
    if not SAMPLE.exists():
        pytest.skip("needs ../shared/data/text_sample_bert beside the checkout")
    found = wanted = both = 0
    for document in SAMPLE.read_text().split("\n\n")[1:]:
        lines = split_sentences(document, "line")
        ends = set(np.cumsum([len(without_blanks(line)) for line in lines]).tolist())
        sentences = split_sentences(document, "punctuation")
        guessed = set(np.cumsum([len(without_blanks(sentence)) for sentence in sentences]).tolist())
        found, wanted, both = found + len(guessed), wanted + len(ends), both + len(ends & guessed)
    # The lines of the sample end at some semicolons too.
    assert both / wanted > 0.85 and both / found > 0.9


@pytest.mark.parametrize("unit", [".", "。", "\n ", "Mr. ", "A. ", '"', '."', "! ", "A!", "a ", "No. 1 ", "(", ".("])
def test_no_text_takes_long(unit):
    """200,000 characters take a tenth of a second, as prose does; reading runs again from each character, a minute."""
    text = (unit * 200_000)[:200_000] + " A"
    start = time.process_time()
    split_sentences(text, "punctuation")
    assert time.process_time() - start < 5


def test_an_unknown_rule():
    with pytest.raises(InputError, match="sentences='word' is unknown; choose one of punctuation, line"):
        split_sentences("text", "word")

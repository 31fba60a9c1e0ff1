"""Which documents are held out, and held-out examples that are trained on too."""

import json

import pytest

from t5x_lite.data import (
    Bytes,
    Choices,
    ChoiceSets,
    Data,
    JsonlFiles,
    Labeled,
    LabeledTexts,
    LabelTemplate,
    Mixture,
    Part,
    Questions,
    QuestionWindows,
    Stream,
    Tagged,
    TaggedWords,
    TextFiles,
    TextPairs,
    TextToText,
)
from t5x_lite.data.splits import Documents, Overlap, overlap

from ..tiny_corpora import is_held_out

TRAIN = [
    {"text": "The cat sat.", "label": "0"},
    {"text": "A dog ran.", "label": "1"},
    {"text": "the  cat SAT.", "label": "0"},
    {"text": "It rained.", "label": "1"},
]
DEV = [
    {"text": "A bird sang.", "label": "0"},
    {"text": "the cat sat. ", "label": "0"},
    {"text": "IT RAINED.", "label": "0"},
    {"text": "It rained", "label": "1"},
]


@pytest.fixture
def records(tmp_path):
    """`records(name, records)`: examples in a file."""

    def write(name, some):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in some))
        return JsonlFiles((str(path),))

    return write


def labeled(examples):
    return LabeledTexts(examples, labels=("0", "1"))


def worded(examples):
    return TextToText(examples, LabelTemplate("say {text}", labels=("0", "1")))


@pytest.mark.parametrize(
    ("source", "layout", "unit"), [(labeled, Labeled(16), "examples"), (worded, TextPairs(32, 8), "pairs")]
)
def test_a_store_counts_and_its_remark_tells(records, word_piece, tmp_path, source, layout, unit):
    data = Data(
        source(records("train", TRAIN)), Bytes(), held_out_source=source(records("dev", DEV)), cache_dir=str(tmp_path)
    )
    expected = f"held-out: 2 of 4 {unit} stand in the training data too, 1 of them with the same answer; the first is "
    for _ in ("written", "opened again"):
        store = data.prepare(layout, tokenizer=word_piece if unit == "examples" else None)
        assert store.remarks == [f"{expected}{tmp_path}/dev.jsonl:2"]


def test_no_remark_where_there_is_nothing_to_say(records, tmp_path):
    apart = Data(
        worded(records("train", TRAIN)),
        Bytes(),
        held_out_source=worded(records("dev", DEV[:1])),
        cache_dir=str(tmp_path),
    )
    assert apart.prepare(TextPairs(32, 8)).remarks == []
    (tmp_path / "a.txt").write_text("one text\n" * 9)
    text = TextFiles((str(tmp_path / "a.txt"),))
    running = Data(text, Bytes(), held_out_source=text, cache_dir=str(tmp_path)).prepare(Stream(8))
    assert running.remarks == []


def test_the_remark_of_a_mixture_names_the_part(records, tmp_path):
    parts = (
        Part("clean", worded(records("other", TRAIN[:2])), worded(records("clean", DEV[:1]))),
        Part("leaky", worded(records("train", TRAIN)), worded(records("dev", DEV))),
    )
    _, remark = Data(Mixture(parts), Bytes(), cache_dir=str(tmp_path)).prepare(TextPairs(32, 8)).remarks
    assert remark.startswith("leaky: held-out: 2 of 4 pairs stand in the training data too")


def documents(source, layout):
    return Documents(source, layout, "punctuation")


def test_examples_of_every_kind(records):
    """Equal inputs overlap, with the same answer or another one."""
    tags = {"tokens": ["Anna", "reads"], "tags": ["B-PER", "O"]}
    question = {"id": "1", "question": "Who?", "context": "He went.", "answers": ["He"], "starts": [0]}
    choice = {"context": "It rained.", "choices": ["so", "but"], "label": "0"}
    cases = [
        (Tagged(16), lambda some: TaggedWords(some, ("O", "B-PER")), tags, tags | {"tags": ["O", "O"]}),
        (QuestionWindows(32, question_length=8), Questions, question, question | {"answers": ["went"], "starts": [3]}),
        (ChoiceSets(16, 2), Choices, choice, choice | {"label": "1"}),
    ]
    for number, (layout, source, same, other_answer) in enumerate(cases):
        train = documents(source(records(f"train{number}", [same])), layout)
        held = documents(source(records(f"dev{number}", [other_answer])), layout)
        assert held.layout.has_examples
        assert overlap([train], train) == Overlap(1, 1, 1, 1)
        assert overlap([train], held) == Overlap(1, 0, 1, 1)


def test_several_sources_are_trained_on(records):
    held = documents(worded(records("dev", DEV)), TextPairs(32, 8))
    halves = [documents(worded(records(f"half{i}", TRAIN[i::2])), TextPairs(32, 8)) for i in (0, 1)]
    assert overlap(halves, held) == Overlap(2, 1, 4, 2)
    assert overlap(halves[:1], held) == Overlap(1, 1, 4, 2)
    assert overlap([], held) == Overlap(0, 0, 4, 0)


def test_copies_of_a_document_stay_on_one_side(corpus):
    texts = corpus.texts[:200]
    repeated = [*texts, *texts[::3], *texts[:50]]
    holds_out = is_held_out(repeated, 0.1)
    held = [text for text in repeated if holds_out(text)]
    train = [text for text in repeated if not holds_out(text)]
    assert held and train and not set(held) & set(train)
    assert len(held) + len(train) == len(repeated)
    share = sum(map(len, held)) / sum(map(len, repeated))
    assert 0.1 <= share < 0.12


def test_the_split_is_by_content_not_by_place(corpus):
    forward, backward = (is_held_out(texts, 0.1) for texts in (corpus.texts, corpus.texts[::-1]))
    assert list(map(forward, corpus.texts)) == list(map(backward, corpus.texts))


@pytest.mark.parametrize("texts", [["short", "much longer document" * 50], ["much longer document" * 50, "x"]])
@pytest.mark.parametrize("held_out", [0.001, 0.49])
def test_two_documents_give_one_to_each_side(texts, held_out):
    holds_out = is_held_out(texts, held_out)
    assert [holds_out(text) for text in texts] in ([True, False], [False, True])

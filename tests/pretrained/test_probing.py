"""Probes on a model with random layers: what its embeddings tell is found, what they cannot tell is not."""

import random
from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.data import JsonlFiles, ParallelFiles, TableFiles
from t5x_lite.data.records.formats import ConllFiles
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig
from t5x_lite.pretrained import PretrainedDecoder
from t5x_lite.pretrained.probing import (
    Labeled,
    Tagged,
    fit_probe,
    format_layers,
    labeled_examples,
    probe_tags,
    probe_texts,
    score_labels,
    tagged_examples,
)

WORDS = ["green", "bottles", "hanging", "on", "the", "fall", "are"]


@pytest.fixture(scope="module")
def texts():
    """Texts that hold the word "wall", or do not."""
    source, examples = random.Random(0), []
    for _ in range(120):
        words = source.choices(WORDS, k=6)
        label = source.choice(["with", "without"])
        if label == "with":
            words[source.randrange(6)] = "wall"
        examples.append(Labeled(" ".join(words), label))
    return examples[:80], examples[80:]


@pytest.fixture(scope="module")
def sentences():
    """Sentences in which one word is an entity wherever it stands."""
    source, examples = random.Random(0), []
    for _ in range(90):
        words = source.choices(["green", "on", "the", "fall", "wall", "bottles"], k=source.randrange(3, 9))
        tags = ["B-WALL" if word == "wall" else "O" for word in words]
        examples.append(Tagged(words, tags))
    return examples[:60], examples[60:]


@pytest.mark.slow
def test_texts_by_the_layers_of_the_papers_table(bert, texts):
    message = []
    probes = probe_texts(bert, *texts, tell=message.append)
    assert [format_layers(one.layers) for one in probes.probed] == [
        "embeddings",
        "second to last",
        "last",
        "sum last 4",
        "concat last 4",
        "sum all",
    ]
    assert [one.num_features for one in probes.probed] == [12, 12, 12, 12, 48, 12]
    assert (probes.num_train, probes.num_test, probes.remarks) == (80, 40, ())
    assert probes.probed[0].figures["accuracy"] > 0.9, "the mean of embeddings tells which words there are"
    assert len(message) == 7
    concatenated = probes.probed[4]
    sides = [bert.encode([example.text for example in side], layers="concat_last_4") for side in texts]
    probe, _ = fit_probe(sides[0], [example.label for example in texts[0]])
    expected = score_labels(probe.predict(sides[1]), [example.label for example in texts[1]])
    assert (concatenated.figures, concatenated.intervals) == expected
    most = max(("with", "without"), key=[example.label for example in texts[0]].count)
    assert probes.guess == np.mean([example.label == most for example in texts[1]])


def test_words_by_their_first_pieces(bert, sentences):
    probes = probe_tags(bert, *sentences, layers=(0, "last"))
    embeddings, last = probes.probed
    assert embeddings.figures == {"f1": 1.0, "precision": 1.0, "recall": 1.0, "accuracy": 1.0}
    assert last.layers == "last"
    vectors = bert.encode_words([sentence.words for sentence in sentences[1]])
    for sentence, words in zip(sentences[1], vectors, strict=True):
        tokens = bert.encode(" ".join(sentence.words), pooling="tokens")
        firsts = np.cumsum([1, *(len(bert.tokenizer.encode(word)) for word in sentence.words[:-1])])
        np.testing.assert_allclose(words, tokens[firsts], atol=1e-5)


@pytest.mark.slow
def test_what_is_longer_than_the_model_takes_is_remarked(bert, texts, sentences):
    long = Labeled("the wall " * 60, "with")
    probes = probe_texts(bert, [*texts[0], long], texts[1], layers=("last",))
    assert probes.remarks == ("1 texts were cut to the tokens that the model takes",)
    tagged = Tagged(["wall"] * 150, ["B-WALL"] * 150)
    probes = probe_tags(bert, [*sentences[0], tagged], sentences[1], layers=("last",))
    assert probes.remarks == ("sentences of more tokens than the model takes were read in parts, 2 more",)


def test_a_shallow_model_has_fewer_choices(bert, make_encoder, texts):
    shallow = make_encoder(replace(bert.config, num_layers=2, heads=()))
    probes = probe_texts(shallow, *texts)
    assert [one.layers for one in probes.probed] == [0, "second_to_last", "last", "sum_all"]
    assert probes.remarks == ("sum_last_4, concat_last_4 are left out: the model has 2 layers",)
    with pytest.raises(InputError, match="layers='sum_last_4' needs four layers and this model has 2"):
        probe_texts(shallow, *texts, layers=("last", "sum_last_4"))
    with pytest.raises(InputError, match="layers='first' is unknown; choose one of last"):
        probe_texts(shallow, *texts, layers=("first",))


def test_what_cannot_be_probed_is_refused(bert, texts):
    config = GptConfig(vocab_size=20, embed_dim=8, num_heads=2, mlp_dim=8, num_layers=1, max_length=8)
    with pytest.raises(InputError, match="a probe reads the layers of an encoder, and this is a GptConfig; load one"):
        probe_texts(PretrainedDecoder(config, config.build(), None, None), *texts)
    with pytest.raises(InputError, match="pooling='tokens' gives no one vector a text"):
        probe_texts(bert, *texts, pooling="tokens")
    with pytest.raises(InputError, match="the test has labels that training lacks: 'perhaps' 1 times"):
        probe_texts(bert, texts[0], [*texts[1], Labeled("the wall", "perhaps")])
    with pytest.raises(InputError, match="the test has tags that training lacks: 'X' 1 times"):
        probe_tags(bert, [Tagged(["wall", "fall"], ["O", "B-W"])], [Tagged(["wall", "fall"], ["O", "X"])])


def test_examples_come_from_the_formats_of_the_house(tmp_path):
    (tmp_path / "a.tsv").write_text("first\tsecond\tlabel\na wall\ta fall\tyes\na fall\tthe wall\t-\n")
    table = TableFiles((str(tmp_path / "a.tsv"),))
    assert labeled_examples(table, texts=("first", "second"), left_out=("-",)) == [Labeled(("a wall", "a fall"), "yes")]
    assert labeled_examples(table, texts=("second",))[1] == Labeled("the wall", "-")
    (tmp_path / "a.jsonl").write_text('{"text": "a wall", "stars": 3}\n{"text": "a fall", "stars": 1}\n')
    json_lines = JsonlFiles((str(tmp_path / "a.jsonl"),))
    assert labeled_examples(json_lines, label="stars") == [Labeled("a wall", "3"), Labeled("a fall", "1")]
    for name in ("texts", "labels"):
        (tmp_path / name).write_text("a wall\nthe fall\n" if name == "texts" else "1\n2\n")
    parallel = ParallelFiles(("text", "label"), tuple(str(tmp_path / name) for name in ("texts", "labels")))
    assert labeled_examples(parallel) == [Labeled("a wall", "1"), Labeled("the fall", "2")]
    (tmp_path / "a.conll").write_text("a O\nwall B-W\n\nfall O\n")
    conll = ConllFiles((str(tmp_path / "a.conll"),))
    assert tagged_examples(conll) == [Tagged(["a", "wall"], ["O", "B-W"]), Tagged(["fall"], ["O"])]
    with pytest.raises(
        InputError, match="label='sentiment' is missing in .*a.tsv:2, which has 'first', 'second', 'lab"
    ):
        labeled_examples(table, texts=("first",), label="sentiment")
    with pytest.raises(InputError, match="texts='text' is missing"):
        labeled_examples(table)
    with pytest.raises(InputError, match=r"texts=\(\) are 0 fields; name one, or the two of a pair"):
        labeled_examples(table, texts=())

"""ELMo with heads of tasks: words of rows of characters, the mixture of layers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from t5x_lite.data import Vocabulary, WordCharacters, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import ElmoConfig
from t5x_lite.models.elmo import words_of
from t5x_lite.tokenizers.characters import PAD_CHARACTER, word_characters

from ..programs import apply
from ..slow import mostly_slow

HEADS = ("classification", "multiple_choice", "tagging", "question_answering")
CONFIG = ElmoConfig(
    character_dim=4,
    filters=((1, 3), (2, 5)),
    num_highway_layers=1,
    units=7,
    projection=6,
    max_characters=8,
    heads=HEADS,
    num_classes=5,
)
TOKENIZER = make_tokenizer(WordCharacters(), iter)
SENTENCES = (["<S>", "Née", "left", "extraordinarily", ".", "</S>"], ["<S>", "a", "</S>", "of", "it", "</S>"])


def row_of(words):
    """The ids of words, marks among them."""
    marks = {"<S>": [256], "</S>": [257]}
    return [n for word in words for n in marks.get(word) or TOKENIZER.encode(word)]


@pytest.fixture(scope="module")
def rows():
    ids = [row_of(words) for words in SENTENCES]
    filled = np.full((2, 36), PAD_CHARACTER, np.int32)
    for row, some in zip(filled, ids, strict=True):
        row[: len(some)] = some
    return jnp.asarray(filled)


@pytest.fixture(scope="module")
def elmo(make_params):
    module = CONFIG.build()
    params = make_params(module, 0, jnp.ones((1, 2, 8), jnp.int32))
    return module, params | {"mixture": {"s": jnp.array([0.5, -1.0, 0.2]), "gamma": jnp.array(1.7)}}


@pytest.fixture(scope="module")
def say(elmo):
    module, params = elmo

    def forward(m, ids):
        valid = ids != PAD_CHARACTER
        hidden = m.hidden_states(ids, inputs_valid=valid)
        return {"hidden": hidden} | {name: getattr(m, f"{name}_logits")(hidden, inputs_valid=valid) for name in HEADS}

    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, method=forward))
    return lambda ids: jax.tree.map(np.asarray, apply(jnp.asarray(ids)))


def test_words_of_a_row_are_those_of_the_text(rows):
    characters, numbers = words_of(rows, 8)
    for row, words in enumerate(SENTENCES):
        assert characters[row, : len(words)].tolist() == [word_characters(word, 8) for word in words]
        assert (characters[row, len(words) :] == PAD_CHARACTER).all()
        sizes = [len(row_of([word])) for word in words]
        padding = 36 - sum(sizes)
        assert numbers[row].tolist() == np.repeat([*range(len(words)), len(words) - 1], [*sizes, padding]).tolist()


@pytest.mark.parametrize("start", mostly_slow([0, 1, 2, 5], 2))
def test_the_rest_of_a_word_is_a_word(rows, start):
    """As in windows of a text, which begin after a mark."""
    ids = [256, 257, *row_of(["Née", "left"])[start:], 257]
    characters, _ = words_of(jnp.array([ids]), 8)
    rest = bytes(n if n < 256 else 32 for n in ids[2:-1]).split()
    found = [bytes(n for n in word if n < 256) for word in characters[0].tolist()]
    assert found[2 : 2 + len(rest)] == rest
    assert characters[0, 2 + len(rest)].tolist() == word_characters("</S>", 8)


def test_as_many_words_as_a_row_can_hold():
    ids = jnp.array([[256, *[258, 65] * 14, 257, 257]])
    characters, numbers = words_of(ids, 8)
    assert numbers[0, -1] + 1 == 17 <= characters.shape[1]
    assert (characters[0, 1:15] == jnp.array(word_characters("A", 8))[None]).all()


def test_more_words_without_characters_than_it_reads_are_left_out(say):
    said = say(np.array([[256, *[259] * 34, 257]]))
    read = (said["hidden"] != 0).any(axis=-1)[0]
    assert read.tolist() == [True] * 22 + [False] * 14
    assert all(np.isfinite(output).all() for output in said.values())


def test_heads_read_the_mixture_at_the_beginning_of_each_word(elmo, say, rows):
    """Equation 1, from the layers that `encode_words` gives."""
    module, params = elmo
    hidden, shares = say(rows)["hidden"], 1.7 * softmax([0.5, -1.0, 0.2])
    for row, words in enumerate(SENTENCES):
        spelled = jnp.array([[word_characters(word, 8) for word in words]])
        layers = np.asarray(apply(module, params, spelled))[:, 0]
        begins = np.flatnonzero(np.isin(np.asarray(rows[row]), (256, 257, 258)))
        np.testing.assert_allclose(hidden[row, begins], np.einsum("n,nwe->we", shares, layers), atol=1e-5)
        others = np.setdiff1d(np.arange(36), begins)
        assert (hidden[row, others] == 0).all()


def test_padding_changes_nothing(say, rows):
    alone = say(rows[1:, : len(row_of(SENTENCES[1]))])
    both = say(rows)
    for name, output in alone.items():
        of_text = both[name][1, : output.shape[1]] if output.ndim == 3 else both[name][1]
        np.testing.assert_allclose(output[0], of_text, atol=1e-5)


def test_an_answer_is_a_span_of_words(say, rows):
    logits = say(rows)["question_answering"]
    begins = np.isin(np.asarray(rows), (256, 257, 258))
    assert (logits[~begins] < -1e8).all()
    assert (np.abs(logits[begins]) < 1e3).all()


def test_every_part_has_a_gradient(elmo, rows):
    module, params = elmo

    def loss(params):
        def forward(m):
            hidden = m.hidden_states(rows, inputs_valid=rows != PAD_CHARACTER, deterministic=False)
            return m.classification_logits(hidden, deterministic=False)

        return (module.apply({"params": params}, method=forward, rngs={"dropout": jax.random.key(0)}) ** 2).sum()

    grads = jax.jit(jax.grad(loss))(params)
    read = [name for name in grads if name not in HEADS[1:]]
    for name in read:
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads[name])), name


def test_bad_configs_and_tokenizers():
    with pytest.raises(InputError, match=r"heads=.* leave num_words=9 without use; set num_words to 0"):
        replace(CONFIG, num_words=9)
    with pytest.raises(InputError, match=r"filters=\(\) read no character; give pairs"):
        replace(CONFIG, filters=())
    with pytest.raises(InputError, match=r"num_layers=1001 is not in \[1, 1000\]; choose a number in that range"):
        replace(CONFIG, num_layers=1001)
    CONFIG.check_vocabulary(TOKENIZER.vocabulary)
    replace(CONFIG, heads=()).check_vocabulary(Vocabulary(30))
    with pytest.raises(InputError, match=r"set data.tokenizer to WordCharacters\(\)"):
        CONFIG.check_vocabulary(Vocabulary(261, cls_id=3))

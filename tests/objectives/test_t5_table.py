"""The objectives of the T5 paper on its own example, given the paper's masks (Raffel et al. 2020, tables 3 and 5)."""

import jax
import jax.numpy as jnp
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.objectives import Deshuffling
from t5x_lite.objectives.span_corruption import replace_spans
from t5x_lite.objectives.t5_denoising import drop_tokens, mask_token_id, mask_tokens

SENTENCE = "Thank you for inviting me to your party last week ."
WORDS = [*SENTENCE.split(), "apple"]
PAD, EOS, FIRST, TOP = 0, 1, 10, 39
ROW = jnp.arange(FIRST, FIRST + 11)
VOCABULARY = Vocabulary(size=40, pad_id=PAD, eos_id=EOS, first_sentinel_id=TOP, num_sentinels=5)
SENTINELS = ("<X>", "<Y>", "<Z>")


def render(ids, mask=None):
    """The words of some ids up to EOS, which must be there, behind it nothing but padding."""
    ids = ids.tolist()
    end = ids.index(EOS)
    assert set(ids[end + 1 :]) <= {PAD}
    names = {TOP - number: name for number, name in enumerate(SENTINELS)} | ({} if mask is None else {mask: "<M>"})
    return " ".join(names.get(i) or WORDS[i - FIRST] for i in ids[:end])


def noise(words):
    return jnp.array([word in words.split() for word in SENTENCE.split()])


IID, SPANS = noise("for inviting last"), noise("for inviting me your party last")


def test_prefix_language_modeling():
    inputs, targets = drop_tokens(ROW, jnp.arange(11) >= 4, VOCABULARY, 11, 11)
    assert (render(inputs), render(targets)) == (
        "Thank you for inviting",
        "me to your party last week .",
    )


@pytest.mark.parametrize("vocabulary", [VOCABULARY, Vocabulary(40, mask_id=30)], ids=["sentinels", "mask token"])
def test_bert_style_and_mass_style(vocabulary):
    """The token <M> is the vocabulary's own mask, else the first sentinel."""
    mask = mask_token_id(vocabulary)
    assert mask == (TOP if vocabulary is VOCABULARY else 30)
    inputs, targets = mask_tokens(ROW, IID, vocabulary, jnp.full(11, mask).at[8].set(FIRST + WORDS.index("apple")))
    assert render(inputs, mask) == "Thank you <M> <M> me to your party apple week ."
    assert render(targets) == SENTENCE
    inputs, targets = mask_tokens(ROW, IID, vocabulary)
    assert render(inputs, mask) == "Thank you <M> <M> me to your party <M> week ."
    assert render(targets) == SENTENCE


def test_deshuffling():
    # The paper prints a word "fun" behind "last" that is none of the sentence's.
    shuffled = "party me for your to . last you inviting week Thank"

    class Shuffled(Deshuffling):
        def order(self, key, raw):
            return jnp.array([WORDS.index(word) for word in shuffled.split()])

    inputs, targets = Shuffled(12).for_vocabulary(VOCABULARY).sides(jax.random.key(0), ROW)
    assert (render(inputs), render(targets)) == (shuffled, SENTENCE)


@pytest.mark.parametrize("spare", [0, 4])
def test_iid_noise_replace_spans(spare):
    inputs, targets = replace_spans(ROW, IID, VOCABULARY, 11 + spare, 7 + spare)
    assert render(inputs) == "Thank you <X> me to your party <Y> week ."
    assert render(targets) == "<X> for inviting <Y> last <Z>"


@pytest.mark.parametrize("spare", [0, 4])
def test_iid_noise_drop_tokens(spare):
    inputs, targets = drop_tokens(ROW, IID, VOCABULARY, 9 + spare, 4 + spare)
    assert (render(inputs), render(targets)) == (
        "Thank you me to your party week .",
        "for inviting last",
    )


@pytest.mark.parametrize("spare", [0, 4])
def test_random_spans(spare):
    inputs, targets = replace_spans(ROW, SPANS, VOCABULARY, 8 + spare, 10 + spare)
    assert render(inputs) == "Thank you <X> to <Y> week ."
    assert render(targets) == "<X> for inviting me <Y> your party last <Z>"

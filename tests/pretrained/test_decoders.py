import itertools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from t5x_lite.data import Bytes, Data, make_tokenizer
from t5x_lite.decoding import Decoded, GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig, T5DecoderConfig
from t5x_lite.objectives import CausalLanguageModel, SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import PretrainedDecoder
from t5x_lite.training import Experiment

CONFIG = GptConfig(vocab_size=384, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=2, max_length=64)
PROMPTS = ["a", "something long", "", "b c"]


@pytest.fixture(scope="module")
def gpt(make_params) -> PretrainedDecoder:
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.tree.map(lambda x: 3.0 * x, make_params(CONFIG.build(), 0, ids))
    return PretrainedDecoder(CONFIG, CONFIG.build(), params, make_tokenizer(Bytes(), lambda: iter(())))


@pytest.fixture(scope="module")
def logits_of(gpt):
    """Logits [L V] after each of `ids`, padded to one length so that it is compiled once."""
    apply = jax.jit(lambda ids: gpt.module.apply({"params": gpt.params}, ids))
    return lambda ids: np.asarray(apply(np.pad(ids, (0, 64 - len(ids))).astype(np.int32)[None]))[0, : len(ids)]


@pytest.fixture(scope="module")
def log_probabilities(logits_of):
    """Of `ids`, each given those before it."""
    return lambda ids: log_softmax(logits_of(ids), axis=-1)[np.arange(len(ids) - 1), ids[1:]]


def test_continuations_are_greedy_whatever_prompts_stand_together(gpt, logits_of):
    encode, decode = gpt.tokenizer.encode, gpt.tokenizer.decode
    answers = gpt.generate(PROMPTS, max_length=5)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = start = encode(prompt) or [1]
        for _ in range(5):
            ids = [*ids, int(logits_of(ids)[-1].argmax())]
        ids = ids[len(start) :]
        ids = ids[: ids.index(1)] if 1 in ids else ids
        assert answer == decode(encode(prompt) + ids).removeprefix(prompt)
    assert gpt.generate(PROMPTS[1], max_length=5) == answers[1]


def test_several_answers_and_scores(gpt):
    options = {"max_length": 4, "num_beams": 2, "num_results": 2}
    (plain,) = gpt.generate(PROMPTS[:1], **options)
    first, second = gpt.generate(PROMPTS[0], scores=True, **options)
    assert [first.text, second.text] == plain
    assert first.score >= second.score


def test_sampling_depends_on_seed_and_place(gpt):
    options = {"max_length": 8, "temperature": 1.0}
    texts = ["a", "a", "a", "a"]
    first = gpt.generate(texts, **options)
    assert len(set(first)) > 1
    assert gpt.generate(texts, **options, batch_size=2) == first
    assert gpt.generate(texts, **options, seed=1) != first
    seen = []
    gpt.generate(texts, **options, batch_size=2, progress=seen.append)
    assert seen == [2, 2]


def test_examples_are_shown_before_the_prompt(gpt):
    examples = [("1", "2"), ("3", "4")]
    expected = gpt.generate("1>2;3>4;5>", max_length=5).partition(";")[0].strip()
    assert gpt.generate("5", examples=examples, template="{input}>{output};", max_length=5) == expected


def test_score_is_the_sum_over_the_answers_tokens(gpt, log_probabilities):
    encode = gpt.tokenizer.encode
    answers = [" yes", " no", " perhaps"]
    scores = gpt.score("Is it?", answers, answer_context="A:")
    for answer, score in zip(answers, scores, strict=True):
        ids = encode(answer)
        total = log_probabilities(encode("Is it?") + ids)[-len(ids) :].sum()
        alone = log_probabilities(encode("A:") + ids)[-len(ids) :].sum()
        assert score.answer == answer
        assert score.log_probability == pytest.approx(total, abs=1e-4)
        assert score.per_token == pytest.approx(total / len(ids), abs=1e-4)
        assert score.normalised == pytest.approx(total - alone, abs=1e-4)
    assert gpt.score("Is it?", answers)[0].normalised is None
    begun = gpt.score("", ["ab"])[0].log_probability
    assert begun == pytest.approx(log_probabilities([1, *encode("ab")]).sum(), abs=1e-4)
    blank = gpt.score("Is it", ["no"], examples=[("a", "b")], template="{input}? {output}\n")[0]
    assert blank.log_probability == pytest.approx(log_probabilities(encode("a? b\nIs it? no"))[-3:].sum(), abs=1e-4), (
        "the blank before an answer belongs to it"
    )


def test_logits_of_texts(gpt, log_probabilities):
    logits = gpt(["abc", "de"])
    assert logits.shape == (2, 3, 384)
    ids = gpt.tokenizer.encode("abc")
    normed = log_softmax(logits[0], axis=-1)
    np.testing.assert_allclose([normed[0, ids[1]], normed[1, ids[2]]], log_probabilities(ids), atol=1e-4)
    np.testing.assert_allclose(gpt(jnp.array([ids]))[0], logits[0], atol=1e-5)
    np.testing.assert_allclose(gpt("de")[0], logits[1, :2], atol=1e-5)


def test_the_objective_or_the_family_says_whether_prompts_are_closed(gpt):
    encode, experiment = (
        gpt.tokenizer.encode,
        Experiment(CONFIG, CausalLanguageModel(32), Data(), Adafactor(), steps=1, batch_size=8),
    )
    assert gpt._prompt_ids("ab") == encode("ab")
    assert gpt._answer_ids("ab") == encode("ab")
    assert gpt._prompt_ids("") == [1]
    run = replace(gpt, experiment=experiment)
    assert run._prompt_ids("ab") == encode("ab")
    answering = replace(gpt, experiment=replace(experiment, objective=SpanCorruption(16)))
    assert answering._prompt_ids("ab") == [*encode("ab"), 1]
    assert answering._answer_ids("ab") == [*encode("ab"), 1]
    assert replace(gpt, config=T5DecoderConfig())._prompt_ids("ab") == [*encode("ab"), 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gpt: gpt.generate(["a", "b" * 70], max_length=5), r"texts\[1\] has 70 tokens, and with max_length=5"),
        (lambda gpt: gpt.generate("b" * 60, max_length=6), "the text has 60 tokens.*choose max_length=5 or less"),
        (lambda gpt: gpt.generate("a", max_length=0), "max_length=0"),
        (lambda gpt: gpt.generate([]), r"texts=\[\] is empty"),
        (lambda gpt: gpt.generate("a", template="{input}"), "is not a template"),
        (lambda gpt: gpt.score("a", []), r"texts=\[\] is empty"),
        (lambda gpt: gpt.score("a", ["b", ""]), r"answers\[1\] holds no token"),
        (lambda gpt: gpt.score("a", ["b" * 65]), "prompt has 1 tokens, and with max_length=65"),
        (lambda gpt: gpt.score(3, ["b"]), "prompt=3 is not a text"),
        (
            lambda gpt: gpt.fill_mask("a"),
            "a GptConfig has no fill_mask; use generate, generate_ids, score and encode",
        ),
    ],
)
def test_what_a_decoder_refuses(gpt, call, message):
    with pytest.raises(InputError, match=message):
        call(gpt)


def test_calling_it_gives_the_logits_of_the_pure_function(model, t5_logits):
    inputs, targets = ["Zürich", "a"], ["ab", "c"]
    logits = model(inputs, targets)
    ids = np.array([[93, 198, 191, 117, 108, 102, 107, 1], [100, 1, 0, 0, 0, 0, 0, 0]], np.int32)
    expected = t5_logits(ids, np.array([[0, 100, 101], [0, 102, 1]], np.int32), ids != 0)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    from_ids = model(jnp.asarray(ids), jnp.array([[100, 101, 1], [102, 1, 0]]))
    np.testing.assert_array_equal(from_ids, logits)


def test_generate(model):
    one = model.generate("abc", max_length=6)
    assert isinstance(one, str)
    several = model.generate(["Something longer.", "abc"], max_length=6)
    assert several[1] == one
    ids = np.array([[100, 101, 102, 1]], np.int32)
    generated = np.asarray(model.generate_ids(jnp.asarray(ids), max_length=6))
    assert generated.shape == (1, 6)
    assert model.tokenizer.decode(generated[0].tolist()) == one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(([],), "texts=\\[\\]"), (("a", 0), "max_length=0"), (("<extra_id_100>",), "<extra_id_100>")],
)
def test_what_generate_refuses(model, arguments, message):
    with pytest.raises(InputError, match=message):
        model.generate(arguments[0], **({"max_length": arguments[1]} if len(arguments) > 1 else {}))


BLANKS = ["a<extra_id_0>b", "<extra_id_0>, <extra_id_1>c", "d <extra_id_0>"]


def test_blanks_are_filled_by_what_is_written_for_them(model, monkeypatch):
    encode, sentinel = model.tokenizer.encode, model.tokenizer.vocabulary.sentinel_id
    written = {1: encode("v<extra_id_0>yz<extra_id_1>"), 2: encode("<extra_id_0>p<extra_id_1>q<extra_id_0>r")}

    def decode(self, rows, method, max_length, seed, batch_size, progress, stop_ids, suppressed_ids):
        assert suppressed_ids == (model.tokenizer.vocabulary.unk_id,)
        count = 11 - len(stop_ids)  # the sentinels of ByT5 that are bytes of no text
        assert stop_ids == tuple(sentinel(number) for number in range(count, 11))
        return [Decoded(np.array([written[count]]), np.zeros(1)) for _ in rows]

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "_decode", decode)
        assert model.fill_blanks(BLANKS) == ["ayzb", "pr, qc", "d yz"]
        assert model.fill_blanks("über <extra_id_0>") == "über yz"


@pytest.mark.slow
def test_blanks_are_filled_by_what_generate_writes_up_to_one_that_the_text_lacks(model):
    vocabulary = model.tokenizer.vocabulary
    begins = GenerationDefaults(forced_first_id=vocabulary.sentinel_id(0), suppressed_ids=(vocabulary.unk_id,))
    model = replace(model, generation=begins)
    for text, answer in zip(BLANKS, model.fill_blanks(BLANKS, max_length=9), strict=True):
        marks = re.split(r"<extra_id_(\d+)>", model.generate(text, max_length=9))
        written = list(zip(map(int, marks[1::2]), marks[2::2], strict=True))
        own = list(itertools.takewhile(lambda one: one[0] < text.count("<extra_id_"), written))  # noqa: B023 (called here)
        assert any(said for _, said in own)
        for number in range(text.count("<extra_id_")):
            text = text.replace(f"<extra_id_{number}>", "".join(said for mark, said in own if mark == number))
        assert answer == text


@pytest.mark.slow
def test_scores_of_filled_blanks(model):
    first, second = model.fill_blanks(BLANKS[0], max_length=9, num_beams=2, num_results=2, scores=True)
    assert first.score >= second.score
    assert [first.text, second.text] == model.fill_blanks(BLANKS[0], max_length=9, num_beams=2, num_results=2)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a b", "the text has no blank; write <extra_id_0>"),
        (["<extra_id_0>", "a <extra_id_1>"], r"texts\[1\] has the blanks <extra_id_1>; number them from <extra_id_0>"),
        ("<extra_id_0> <extra_id_0>", "has the blanks <extra_id_0>, <extra_id_0>; number"),
    ],
)
def test_texts_whose_blanks_are_not_filled(model, texts, message):
    with pytest.raises(InputError, match=message):
        model.fill_blanks(texts)


@pytest.mark.parametrize("method", ["fill_mask", "encode_words", "detect_replacements"])
def test_what_an_encoder_decoder_cannot_do(model, method):
    with pytest.raises(
        InputError, match=f"a T5Config has no {method}; use generate, generate_ids, score, encode and fill_blanks"
    ):
        getattr(model, method)("a")

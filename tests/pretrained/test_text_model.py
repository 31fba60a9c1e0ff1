"""Generated texts, against Transformers and against the model without a cache."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from t5x_lite.data import ByteLevelBPE, Bytes, make_tokenizer
from t5x_lite.decoding import BeamSearch, Greedy, Sampling
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, GptConfig, T5DecoderConfig, T5EncoderConfig, TransformerConfig
from t5x_lite.pictures import drawing
from t5x_lite.pretrained import PretrainedDecoder, PretrainedEncoder, PretrainedEncoderDecoder, load
from t5x_lite.pretrained.batches import pad_rows
from t5x_lite.pretrained.text_model import DEFAULT_TEMPLATE, Prompt, choose_method, make_prompt, named_texts

from ..programs import apply
from ..slow import mostly_slow

LENGTH = 9
RANDOM = np.random.default_rng(0)
ROWS = [RANDOM.integers(4, 40, size).tolist() for size in (7, 12, 1, 5)]

THEIRS = {
    "t5": ("T5", {"d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3, "decoder_start_token_id": 0}),
    "bart": (
        "Bart",
        {"d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 17}
        | {"decoder_attention_heads": 3, "decoder_ffn_dim": 17, "max_position_embeddings": 48},
    ),
    "marian": (
        "Marian",
        {"d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 17}
        | {"decoder_attention_heads": 3, "decoder_ffn_dim": 17, "max_position_embeddings": 48}
        | {"pad_token_id": 3, "eos_token_id": 1, "decoder_start_token_id": 3, "forced_eos_token_id": 1}
        | {"activation_function": "swish", "scale_embedding": True},
    ),
    "gpt2": (
        "GPT2",
        {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 48, "bos_token_id": 1, "eos_token_id": 1},
    ),
    "openai-gpt": ("OpenAIGPT", {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 48}),
}
CLASSES = {"t5": "ForConditionalGeneration", "bart": "ForConditionalGeneration", "marian": "MTModel"}


@pytest.fixture(scope="module", params=THEIRS)
def pair(request, tmp_path_factory, torch, transformers):
    """(their model, ours with the same weights): random, and sure enough of itself to end a text now and then."""
    prefix, options = THEIRS[request.param]
    torch.manual_seed(1)
    config = getattr(transformers, f"{prefix}Config")(vocab_size=40, **options)
    theirs = getattr(transformers, prefix + CLASSES.get(request.param, "LMHeadModel"))(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.ndim > 1 and "embed_positions" not in name:
                parameter.normal_(std=0.6 if "shared" in name or "wte" in name or "tokens_embed" in name else 0.35)
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return theirs, load(folder)


def continued(theirs, row, **options):
    """(ids behind what was given, scores) of Transformers."""
    import torch

    inputs = torch.tensor([row])
    made = theirs.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=LENGTH, return_dict_in_generate=True, **options
    )
    given = 1 if theirs.config.is_encoder_decoder else len(row)
    return made.sequences[:, given:].tolist(), made.get("sequences_scores")


def ended(ids, model):
    """Up to EOS: Transformers pads with other ids than its config has."""
    eos = model.known_vocabulary.eos_id if model.generation.ends else None
    return ids[: ids.index(eos) + 1] if eos in ids else ids


def test_greedy_ids_are_those_of_transformers(pair):
    theirs, ours = pair
    together = np.asarray(ours.generate_ids(ROWS, max_length=LENGTH)).tolist()
    for row, got in zip(ROWS, together, strict=True):
        expected, _ = continued(theirs, row, do_sample=False)
        assert ended(got, ours) == ended(expected[0], ours)


@pytest.mark.parametrize("options", [{"length_penalty": 0.0}, {"length_penalty": 1.3}], ids=str)
def test_beams_and_scores_are_those_of_transformers(pair, options):
    theirs, ours = pair
    penalty = {"alpha": 0.0} if options["length_penalty"] == 0 else {"length_power": 1.3}
    searched = ours.generate_ids(ROWS, max_length=LENGTH, num_beams=4, num_results=4, scores=True, **penalty)
    ids, scores = map(np.asarray, searched)
    for row, some, values in zip(ROWS, ids.tolist(), scores, strict=True):
        expected, their_scores = continued(
            theirs, row, num_beams=4, num_return_sequences=4, output_scores=True, do_sample=False, **options
        )
        assert [ended(one, ours) for one in some] == [ended(one, ours) for one in expected]
        np.testing.assert_allclose(values, their_scores, atol=1e-4)


SIZES = {"vocab_size": 40, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17}
TWO = {"num_encoder_layers": 1, "num_decoder_layers": 2}
OURS = {
    "transformer": TransformerConfig(**SIZES, **TWO, max_length=48),
    "bart": BartConfig(**SIZES, **TWO, max_length=48, output_bias=True, tied=False),
    "gpt": GptConfig(**SIZES, num_layers=2, max_length=48, norm_first=False),
    "prefix lm": T5DecoderConfig(**SIZES, num_layers=2, head_dim=5, full_prefix=True, gated=True, tied=False),
}


@pytest.fixture(scope="module", params=mostly_slow(OURS, "bart", "gpt"))
def ours(request, make_params):
    config = OURS[request.param]
    ids = jnp.ones((1, 2), jnp.int32)
    kind = PretrainedDecoder if "num_layers" in config.__dict__ else PretrainedEncoderDecoder
    params = jax.tree.map(lambda x: 3.0 * x, make_params(config.build(), 0, ids, ids))
    return kind(config, config.build(), params, None)


@pytest.fixture(scope="module")
def searched(ours):
    """(ids, scores): three of three beams for rows of unequal length."""
    return ours.generate_ids(ROWS, max_length=LENGTH, num_beams=3, num_results=3, alpha=0.0, scores=True)


def test_scores_are_the_log_probabilities_of_the_uncached_model(ours, searched):
    pad, eos = ours._vocabulary.pad_id, ours._vocabulary.eos_id
    ids, scores = (np.asarray(x).reshape(12, -1) for x in searched)
    rows = [ours._row("", row, LENGTH) for row in ROWS for _ in range(3)]
    inputs, _, valid = pad_rows(rows, pad, 12)
    decoder_inputs = np.pad(ids[:, :-1], ((0, 0), (1, 0)))
    decoder_inputs[:, 0] = [row.start_id for row in rows]
    apply = jax.jit(lambda *args: ours.module.apply({"params": ours.params}, *args[:2], inputs_valid=args[2]))
    log_probabilities = log_softmax(apply(inputs, decoder_inputs, valid), axis=-1)
    of_each = np.take_along_axis(log_probabilities, ids[..., None], axis=-1)[..., 0]
    positions = np.arange(LENGTH)[None]
    written = positions <= np.where(ids == eos, positions, LENGTH).min(1, keepdims=True)
    np.testing.assert_allclose(np.where(written, of_each, 0).sum(1), scores[:, 0], atol=1e-4)
    assert (ids[~written] == pad).all()
    for some in ids.reshape(4, 3, -1).tolist():
        assert len(set(map(tuple, some))) == 3


@pytest.mark.parametrize("ours", ["bart", "gpt"], indirect=True)
def test_a_row_is_the_same_alone_padded_and_among_others(ours, searched):
    options = {"max_length": LENGTH, "num_beams": 3, "num_results": 3, "alpha": 0.0, "scores": True}
    alone = ours.generate_ids([ROWS[3]], **options)
    np.testing.assert_array_equal(alone[0][0], searched[0][3])
    np.testing.assert_allclose(alone[1][0], searched[1][3], rtol=1e-5)  # of sums, in which rounding adds up
    padded = np.full((4, 20), 33)
    valid = np.zeros((4, 20), bool)
    for index, row in enumerate(ROWS):
        padded[index, : len(row)], valid[index, : len(row)] = row, True
    given = ours.generate_ids(padded, inputs_valid=valid, **options)
    np.testing.assert_array_equal(given[0], searched[0])


def test_more_than_the_model_has_positions_for(ours):
    most = getattr(ours.config, "max_length", None)
    if most is None:
        assert ours.generate_ids([[5] * 60], max_length=1).shape == (1, 1)
        return
    decoder = isinstance(ours, PretrainedDecoder)
    message = "inputs\\[1\\] has 50 tokens, and with max_length=9" if decoder else "inputs\\[1\\] has 50 tokens, EOS"
    with pytest.raises(InputError, match=message):
        ours.generate_ids([[5], [5] * 50], max_length=9)
    with pytest.raises(InputError, match="max_length=49"):
        ours.generate_ids([[5, 6]], max_length=49)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([],), {}, "inputs are not rows of ids"),
        (([["a"]],), {}, "inputs are not rows of ids"),
        (([[5]],), {"max_length": 0}, "max_length=0"),
        (([[5]],), {"num_beams": 41, "max_length": 9}, "num_beams=41 is wider than the vocabulary of 40 ids"),
        (([[5]],), {"batch_size": 0, "max_length": 9}, "batch_size=0"),
    ],
)
def test_what_generate_ids_refuses(ours, arguments, options, message):
    with pytest.raises(InputError, match=message):
        ours.generate_ids(*arguments, **options)


def test_a_text_without_examples_stays_as_it_is():
    assert make_prompt(" a {input} ", [], None) == Prompt(" a {input} ")


def test_examples_come_before_the_task():
    examples = [("cat", "Katze"), ("{output}", "{input}")]
    prompt = make_prompt("dog", examples, None)
    assert DEFAULT_TEMPLATE == "{input}\n{output}\n\n"
    assert prompt == Prompt("cat\nKatze\n\n{output}\n{input}\n\ndog\n", "", "\n\n")
    prompt = make_prompt("dog", examples[:1], "Q: {input}\nA: {output}\n\n")
    assert prompt == Prompt("Q: cat\nA: Katze\n\nQ: dog\nA:", " ", "\n\n")
    assert make_prompt("dog", [], "{input} -> {output}") == Prompt("dog ->", " ", "")


@pytest.mark.parametrize(
    ("examples", "template", "message"),
    [
        ([], "{input}", "template='{input}' is not a template; write {input} once"),
        ([], "{output} {input}", "is not a template"),
        ([], "{input} {output} {output}", "is not a template"),
        (["ab"], None, "examples hold 'ab', which is not a pair"),
        ([("a", 3)], None, "which is not a pair"),
    ],
)
def test_what_is_no_template_and_no_example(examples, template, message):
    with pytest.raises(InputError, match=message.replace("{", r"\{")):
        make_prompt("a", examples, template)


def test_names_of_texts():
    assert named_texts("a") == {"the text": "a"}
    assert named_texts(["a", "b"]) == {"texts[0]": "a", "texts[1]": "b"}
    for texts, message in (([], "texts=\\[\\] is empty"), (3, "texts=3 is not a text"), (["a", 3], "texts\\[1\\]=3")):
        with pytest.raises(InputError, match=message):
            named_texts(texts)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Greedy()),
        ({"temperature": 0.0, "top_p": 0.5}, Greedy()),
        ({"num_beams": 4}, BeamSearch(4)),
        (
            {"num_beams": 3, "alpha": 1.0, "early_stopping": True, "num_results": 2, "exhaustive_eos": True},
            BeamSearch(3, 1.0, True, 2, True),
        ),
        ({"num_beams": 2, "length_power": 1.0}, BeamSearch(2, length_power=1.0)),
        ({"temperature": 0.7}, Sampling(0.7)),
        ({"top_k": 5, "num_results": 3}, Sampling(top_k=5, num_results=3)),
        ({"top_p": 0.9}, Sampling(top_p=0.9)),
    ],
)
def test_options_and_what_they_mean(options, expected):
    assert choose_method(**options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 2, "temperature": 0.7}, "num_beams=2 and temperature=0.7 exclude each other"),
        ({"num_beams": 2, "top_k": 5}, "num_beams=2 and top_k=5"),
        ({"num_beams": 2, "top_p": 0.9}, "num_beams=2 and top_p=0.9"),
        ({"num_results": 2}, "num_results=2 needs several beams or sampling; choose num_beams=2"),
        ({"num_results": 0}, "num_results=0"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_k": -1}, "top_k=-1"),
        ({"max_new_tokens": 5}, "max_new_tokens=5 is not an option; the tokens of an answer are max_length"),
        ({"num_beam": 5}, "num_beam=5 is not an option; perhaps you meant num_beams"),
        ({"colour": "red"}, "colour='red' is not an option; choose among method, num_beams"),
    ],
)
def test_what_cannot_be_meant(options, message):
    with pytest.raises(InputError, match=message):
        choose_method(**options)


@pytest.mark.slow
def test_a_method_stands_for_the_options_that_choose_it(model):
    options = {"max_length": 6, "num_beams": 2, "num_results": 2}
    searched = model.generate("alpha", **options)
    assert model.generate(["alpha"], max_length=6, method=BeamSearch(2, num_results=2)) == [searched]
    assert len(searched) == 2
    ids = model.generate_ids([[3, 4, 1]], max_length=6, method=Greedy())
    assert ids.tolist() == model.generate_ids([[3, 4, 1]], max_length=6).tolist()
    with pytest.raises(InputError, match="num_beam=2 is not an option; perhaps you meant num_beams"):
        model.generate("alpha", method=Greedy(), num_beam=2)


@pytest.mark.parametrize("name", mostly_slow(["bart", "gpt", "prefix lm"], "gpt"))
def test_vectors_of_texts(name, make_params):
    """From the encoder where there is one, and from the decoder's last layer elsewhere."""
    tokenizer = make_tokenizer(ByteLevelBPE(264), lambda: iter(["the wall"]))
    config = replace(OURS[name], vocab_size=270)
    ids = jnp.ones((1, 2), jnp.int32)
    kind = PretrainedEncoderDecoder if name == "bart" else PretrainedDecoder
    model = kind(config, config.build(), make_params(config.build(), 0, ids, ids), tokenizer)
    texts = ["a wall", "green bottles fall", "b"]
    if name == "bart":
        rows = [[0, *tokenizer.encode(text), 2] for text in texts]
    else:
        rows = [tokenizer.encode(text) for text in texts]
    method = "encode" if name == "bart" else "hidden_states"
    hidden = [apply(model.module, model.params, jnp.array([row]), method=method)[0] for row in rows]
    for ours, one in zip(model.encode(texts, pooling="tokens"), hidden, strict=True):
        np.testing.assert_allclose(ours, one, atol=1e-5)
    np.testing.assert_allclose(model.encode(texts), [one.mean(axis=0) for one in hidden], atol=1e-5)
    np.testing.assert_allclose(model.encode(texts[1], pooling="last"), hidden[1][-1], atol=1e-5)
    with pytest.raises(InputError, match="pooling='cls' is unknown; choose one of mean, last, tokens"):
        model.encode(texts, pooling="cls")
    if config.max_length:
        with pytest.raises(InputError, match="the text has [0-9]+ tokens"):
            model.encode("wall " * 40)


def test_an_encoder_of_t5_reads_texts_as_t5_does(make_params, monkeypatch):
    tokenizer = make_tokenizer(Bytes(), iter)
    config = T5EncoderConfig(**{**SIZES, "vocab_size": 384}, head_dim=5, num_layers=2)
    ids = jnp.ones((1, 2), jnp.int32)
    model = PretrainedEncoder(config, config.build(), make_params(config.build(), 0, ids, ids), tokenizer)
    assert model.abilities == ("encode",)
    rows = {"ab": [*tokenizer.encode("ab"), 1], ("ab", "c"): [*tokenizer.encode("ab"), 1, *tokenizer.encode("c"), 1]}
    for text, row in rows.items():
        hidden = apply(model.module, model.params, jnp.array([row]))["hidden"][0]
        np.testing.assert_allclose(model.encode(text, pooling="tokens"), hidden, atol=1e-5)
    (words,) = model.encode_words([["ab", "c"]])
    spaced = [*tokenizer.encode("ab c"), 1]
    hidden = apply(model.module, model.params, jnp.array([spaced]))["hidden"][0]
    np.testing.assert_allclose(words, hidden[jnp.array([0, 2])], atol=1e-5)
    (maps,) = model.attention("ab").maps
    assert np.asarray(maps.weights).shape == (2, 3, 3, 3)
    drawn = []
    monkeypatch.setattr(drawing, "draw_relative_bias", lambda stacks, title: drawn.append(stacks))
    model.plot_positions()
    ((stack, bias),) = drawn[0].items()
    assert (stack, bias.bidirectional) == ("encoder", True)
    with pytest.raises(InputError, match="classify needs the head classification"):
        model.classify("ab")

"""What models have learned of tokens and positions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.layers.positions import sinusoidal_positions
from t5x_lite.models import BartConfig, GptConfig, RobertaConfig, T5DecoderConfig, TransformerConfig
from t5x_lite.pretrained import Pretrained
from t5x_lite.tokenizers.base import format_token

SIZES = {"vocab_size": 20, "embed_dim": 6, "num_heads": 2, "mlp_dim": 5}


def plot_positions(config, params):
    return Pretrained(config, None, params, None, name="runs/a").plot_positions()


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_neighbours_are_the_nearest_by_cosine(bert):
    tokenizer = bert.tokenizer
    table = np.asarray(bert.params["embeddings"]["token"]["embedding"])
    (word,) = tokenizer.encode("bottles")
    expected = sorted(
        (token for token in range(tokenizer.vocabulary.size) if token != word),
        key=lambda token: -cosine(table[token], table[word]),
    )
    found = bert.neighbours("bottles", 4)
    assert [one.token for one in found] == [format_token(tokenizer, token) for token in expected[:4]]
    np.testing.assert_allclose(
        [one.similarity for one in found], [cosine(table[t], table[word]) for t in expected[:4]], rtol=1e-5
    )
    assert bert.neighbours("bottles", tokenizer.vocabulary.size - 1)[-1].token == format_token(tokenizer, expected[-1])


def test_five_lines_say_what_a_model_is(model, bert):
    lines = repr(model).splitlines()
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    assert lines[0] == "PretrainedEncoderDecoder: T5Config"
    assert lines[1].startswith(f"  sizes: vocab_size={model.config.vocab_size}, ")
    assert lines[2] == f"  parameters: {count:,} of float32 on {jax.devices()[0]}"
    assert lines[3] == f"  tokenizer: ByteTokenizer of {model.tokenizer.vocabulary.size} ids"
    assert lines[4] == "  methods: generate, generate_ids, score, encode, fill_blanks, export, summary"
    assert len(lines) == 5
    assert repr(replace(bert, tokenizer=None)).splitlines()[3] == "  tokenizer: none; 150 ids"


def test_a_summary_counts_every_parameter(bert, capsys):
    bert.summary()
    _, *rows, last = (line.split() for line in capsys.readouterr().out.splitlines())
    leaves = jax.tree.leaves(bert.params)
    assert len(rows) == len(leaves)
    assert [int(row[-1].replace(",", "")) for row in rows] == [leaf.size for leaf in leaves]
    assert last == ["all", f"{sum(leaf.size for leaf in leaves):,}"]


def test_methods_of_transformers_are_answered_with_ours(model):
    with pytest.raises(AttributeError, match=r"no attribute 'save_pretrained'; use export\(folder\)"):
        model.save_pretrained("folder")
    assert not hasattr(model, "to")


def test_of_several_tokens_the_mean_is_compared(model):
    table = np.asarray(model.params["token_embedding"]["embedding"])
    a, b, c = model.tokenizer.encode("abc")
    planted = table.copy()
    planted[c] = 7.0 * (planted[a] + planted[b])  # however long
    model = replace(model, params={**model.params, "token_embedding": {"embedding": jnp.asarray(planted)}})
    best = model.neighbours("ab", 1)[0]
    assert (best.token, round(best.similarity, 5)) == ("c", 1.0)
    assert not {"a", "b"} & {one.token for one in model.neighbours("ab", model.tokenizer.vocabulary.size - 2)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "text='' holds no token; give a word"),
        ((3,), "text=3 holds no token"),
        (("wall", 0), "k=0 is out of range; choose 1 to "),
        (("wall", 1000), "k=1000 is out of range"),
    ],
)
def test_words_without_neighbours(bert, arguments, message):
    with pytest.raises(InputError, match=message):
        bert.neighbours(*arguments)


FAMILIES = {
    "roberta": (RobertaConfig(**SIZES, num_layers=1, max_length=9), ("encoder", "embeddings")),
    "gpt": (GptConfig(**SIZES, num_layers=1, max_length=9), ("decoder", None)),
    "bart": (BartConfig(**SIZES, max_length=9), ("decoder", "decoder_embeddings")),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_learned_positions_begin_with_the_first_one(make_params, family):
    config, (stack, embeddings) = FAMILIES[family]
    ids = jnp.ones((1, 2), jnp.int32)
    params = make_params(config.build(), 0, ids, ids)
    table = np.asarray((params if embeddings is None else params[embeddings])["position"]["embedding"])
    picture = plot_positions(config, params)
    assert picture.get_suptitle() == f"runs/a ({type(config).__name__.removesuffix('Config')})"
    shown = {axes.get_title(): axes.images[0].get_array() for axes in picture.axes if axes.images}
    np.testing.assert_array_equal(shown[f"{stack}: vectors"], table[-9:])
    assert len(table) - 9 == {"roberta": 2, "gpt": 0, "bart": 2}[family]
    assert shown[f"{stack}: cosine of two positions"].shape == (9, 9)


def test_sinusoids_and_biases(model):
    config = TransformerConfig(**SIZES, max_length=9)
    shown = plot_positions(config, {}).axes[0]
    assert shown.get_title() == "both stacks: vectors"
    np.testing.assert_array_equal(shown.images[0].get_array(), sinusoidal_positions(9, 6))
    titles = [axes.get_title() for axes in model.plot_positions().axes if axes.lines]
    assert titles == ["encoder: bias by distance", "decoder: bias by distance"]
    for full_prefix in (True, False):
        config = T5DecoderConfig(20, embed_dim=6, num_heads=2, head_dim=3, mlp_dim=5, full_prefix=full_prefix)
        bias = np.random.default_rng(0).normal(size=(32, 2)).astype(np.float32)
        lines = plot_positions(config, {"position_bias": {"bias": bias}}).axes[0].lines
        assert (lines[0].get_xdata().max() > 0) == full_prefix, "a causal one has no bias of what follows"

"""Transformer-XL: its memory is what a longer row would have seen; Transformers' `transfo_xl` is the oracle."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from t5x_lite.decoding import BeamSearch, Greedy, decode
from t5x_lite.errors import InputError
from t5x_lite.layers.relative import empty_memory, next_memory, remembered
from t5x_lite.models import PRESETS, TransformerXLConfig, num_params
from t5x_lite.objectives.vocabulary_loss import token_loss

from ..programs import apply, like_new
from ..slow import mostly_slow

TINY = TransformerXLConfig(
    vocab_size=60,
    num_heads=3,
    head_dim=5,
    embed_dim=12,
    mlp_dim=17,
    num_layers=3,
    cutoffs=(20, 32),
    div_value=2,
    dropout_rate=0.0,
)
CASES = {
    "clusters of narrower vectors": {"untie_r": False, "clamp_len": 7},
    "of one width, biases of each layer": {"div_val": 1, "untie_r": True},
    "same length": {"same_length": True, "untie_r": True},
    "one softmax": {"cutoffs": [], "div_val": 1},
}
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 60, (2, 10)), jnp.int32)


def model_of(config):
    params, random = like_new(config), np.random.default_rng(1)
    moved = jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape), jnp.float32), params)
    return config.build(), moved


@pytest.fixture(scope="module")
def model():
    return model_of(TINY)


@jax.jit(static_argnums=(0,), static_argnames="same_length")
def segment(module, params, ids, memory, same_length=False):
    scores, memory = module.apply({"params": params}, ids, memory, same_length=same_length, method="scores_and_memory")
    return jax.nn.log_softmax(scores.dense()), memory


@pytest.mark.parametrize(("name", "count"), [("transfo-xl-base-wt103", 151_107_538), ("transfo-xl-wt103", 285_205_322)])
def test_published_counts(name, count):
    assert num_params(PRESETS[name]) == count


@pytest.mark.parametrize("cuts", mostly_slow([(0, 5, 10), (0, 1, 7, 10)], (0, 1, 7, 10)))
def test_segments_with_a_memory_are_one_long_row(model, cuts):
    module, params = model
    whole = jax.jit(module.apply)({"params": params}, IDS)
    np.testing.assert_allclose(jnp.exp(whole).sum(axis=-1), 1.0, atol=1e-5)
    memory, parts = module.empty_memory(2, 10), []
    for start, end in itertools.pairwise(cuts):
        part, memory = segment(module, params, IDS[:, start:end], memory)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)
    assert memory["length"].tolist() == [10, 10]


def test_a_memory_holds_the_last_positions_alone():
    memory = empty_memory(1, 2, 3, 4, jnp.float32)
    assert not remembered(memory).any()
    read = jnp.arange(2.0)[:, None, None, None] + jnp.arange(2.0)[None, None, :, None] * jnp.ones((2, 1, 2, 4))
    memory = next_memory(memory, read)
    assert remembered(memory).tolist() == [[False, True, True]]
    memory = next_memory(memory, read + 10)
    assert memory["hidden"][0, :, :, 0].tolist() == [[1, 10, 11], [2, 11, 12]]
    assert memory["length"].tolist() == [3]


def test_each_token_sees_as_many_with_same_length(model):
    module, params = model
    memory = segment(module, params, IDS[:, :4], module.empty_memory(2, 4))[1]

    def of_memory(hidden, query):
        scores, _ = module.apply(
            {"params": params}, IDS[:, 4:8], memory | {"hidden": hidden}, same_length=True, method="scores_and_memory"
        )
        return scores.dense()[:, query].sum()

    for query, seen in ((0, [False, True, True, True]), (2, [False, False, False, True])):
        gradient = jax.jit(jax.grad(of_memory), static_argnums=1)(memory["hidden"], query)
        # That of the first layer alone, whose keys are the memory's.
        assert (jnp.abs(gradient[:, -1]).sum(axis=(0, 2)) > 0).tolist() == seen


def test_tokens_see_those_before_alone(model):
    module, params = model
    other = IDS.at[:, 6].set((IDS[:, 6] + 1) % 60)
    one, two = (apply(module, params, ids) for ids in (IDS, other))
    np.testing.assert_array_equal(one[:, :6], two[:, :6])
    assert (jnp.abs(one - two)[:, 6:] > 1e-6).any(axis=-1).all()


def test_rows_with_padding_before_or_after_are_as_without(model):
    module, params = model
    alone = apply(module, params, IDS[:1, :6])
    for start in (0, 4):
        valid = np.zeros((1, 10), bool)
        valid[:, start : start + 6] = True
        ids = jnp.where(valid, jnp.roll(IDS[:1], start, axis=1), 0)
        padded = apply(module, params, ids, inputs_valid=jnp.asarray(valid))
        np.testing.assert_allclose(padded[:, start : start + 6], alone, atol=1e-5)


@pytest.mark.parametrize("method", [Greedy(), BeamSearch(num_beams=3)], ids=["greedy", "beam"])
def test_what_is_written_token_by_token_is_likeliest_in_whole_rows(model, method):
    module, params = model
    valid = jnp.arange(4)[None] >= jnp.array([[0], [2]])
    options = {"start_ids": IDS[:, 4], "max_length": 5, "inputs_valid": valid, "eos_id": None, "pad_id": 0}
    written = decode(module, params, IDS[:, :4], method=method, **options)
    decoder_inputs = jnp.concatenate([IDS[:, 4:5], written.ids[:, 0, :-1]], axis=1)
    logits = apply(module, params, IDS[:, :4], decoder_inputs, inputs_valid=valid)
    score = jnp.take_along_axis(logits, written.ids[:, 0, :, None], axis=-1).sum(axis=(1, 2))
    if isinstance(method, Greedy):
        np.testing.assert_array_equal(written.ids[:, 0], logits.argmax(axis=-1))
        np.testing.assert_allclose(written.scores[:, 0], score, atol=1e-4)
    else:
        length_penalty = ((5 + 5) / 6) ** method.alpha
        np.testing.assert_allclose(written.scores[:, 0], score / length_penalty, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cutoffs": (20, 20)}, r"cutoffs=\(20, 20\) do not ascend from 1 to below vocab_size=60"),
        ({"cutoffs": (20, 60)}, r"cutoffs=\(20, 60\) do not ascend"),
        ({"div_value": 4}, r"div_value=4 and 2 cutoffs leave nothing of embed_dim=12"),
        ({"head_dim": None, "num_heads": 5}, r"num_heads=5 does not divide embed_dim=12"),
    ],
)
def test_sizes_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        replace(TINY, **fields)


@pytest.fixture(scope="module")
def oracles(tmp_path_factory):
    """By case: (the oracle's config, what it found)."""
    pytest.importorskip("torch", reason="torch is the oracle")
    packages = os.environ.get("TRANSFORMERS_4_57")
    if not packages:
        pytest.skip("Transformers 4.57.6 is the oracle: set TRANSFORMERS_4_57 to a folder with it (pip --target)")
    sizes = {
        "vocab_size": 60,
        "cutoffs": [20, 32],
        "d_model": 12,
        "d_embed": 12,
        "n_head": 3,
        "d_head": 5,
        "d_inner": 17,
        "div_val": 2,
        "n_layer": 3,
        "mem_len": 6,
        "clamp_len": -1,
        "untie_r": True,
        "same_length": False,
    }
    work, folders = tmp_path_factory.mktemp("oracle"), {}
    np.save(work / "ids.npy", IDS)
    for number, (name, fields) in enumerate(CASES.items()):
        folders[name] = work / str(number)
        folders[name].mkdir()
        (folders[name] / "config.json").write_text(json.dumps(sizes | fields | {"dropout": 0.0, "dropatt": 0.0}))
    command = [sys.executable, Path(__file__).parent / "transfo_xl_oracle.py", work / "ids.npy", *folders.values()]
    subprocess.run(list(map(str, command)), check=True, env=os.environ | {"PYTHONPATH": packages})
    return {name: (sizes | CASES[name], dict(np.load(folder / "out.npz"))) for name, folder in folders.items()}


def ours_of(config, found, kind):
    """Our parameters, or their gradients, from theirs."""
    theirs = {name.partition("/")[2]: value for name, value in found.items() if name.startswith(f"{kind}/")}
    shapes = {name: found[f"parameter/{name}"].shape for name in theirs}
    theirs = {name: np.zeros(shapes[name]) if value.size == 1 else value for name, value in theirs.items()}
    size, tree = config.num_heads * 5, {}
    for name in ("content_bias", "position_bias"):
        letter = {"content_bias": "w", "position_bias": "r"}[name]
        if config.shared_biases:
            tree[f"decoder/{name}"] = theirs[f"transformer.r_{letter}_bias"]
        else:
            tree[f"decoder/layers/self_attention/{name}"] = np.stack(
                [theirs[f"transformer.layers.{n}.dec_attn.r_{letter}_bias"] for n in range(3)]
            )

    def stacked(name):
        return np.stack([theirs[f"transformer.layers.{n}.{name}"] for n in range(3)])

    attention, products = "decoder/layers/self_attention", stacked("dec_attn.qkv_net.weight")
    for n, name in enumerate(("query", "key", "value")):
        tree[f"{attention}/{name}/kernel"] = products[:, n * size : (n + 1) * size].swapaxes(1, 2)
    for ours, name in (("position", "r_net"), ("out", "o_net")):
        tree[f"{attention}/{ours}/kernel"] = stacked(f"dec_attn.{name}.weight").swapaxes(1, 2)
    for ours, name in (("self_attention", "dec_attn"), ("feed_forward", "pos_ff")):
        for leaf, of in (("scale", "weight"), ("bias", "bias")):
            tree[f"decoder/layers/{ours}_norm/{leaf}"] = stacked(f"{name}.layer_norm.{of}")
    for ours, name in (("wi", "0"), ("wo", "3")):
        tree[f"decoder/layers/feed_forward/{ours}/kernel"] = stacked(f"pos_ff.CoreNet.{name}.weight").swapaxes(1, 2)
        tree[f"decoder/layers/feed_forward/{ours}/bias"] = stacked(f"pos_ff.CoreNet.{name}.bias")
    ends = (0, *config.cutoffs, config.vocab_size)
    for n, (start, end) in enumerate(itertools.pairwise(ends)):
        if config.div_value > 1:
            tree[f"token_embedding/embedding_{n}"] = theirs[f"transformer.word_emb.emb_layers.{n}.weight"]
            tree[f"token_embedding/projection_{n}"] = theirs[f"transformer.word_emb.emb_projs.{n}"].T
            tree[f"token_embedding/bias_{n}"] = theirs[f"crit.out_layers.{n}.bias"]
        else:
            tree[f"token_embedding/embedding_{n}"] = theirs["transformer.word_emb.emb_layers.0.weight"][start:end]
            tree[f"token_embedding/bias_{n}"] = theirs["crit.out_layers.0.bias"][start:end]
    if config.div_value > 1:
        tree["token_embedding/output_projection"] = theirs["crit.out_projs.0"].T
    if config.cutoffs:
        tree["token_embedding/cluster"] = theirs["crit.cluster_weight"]
        tree["token_embedding/cluster_bias"] = theirs["crit.cluster_bias"]
    return unflatten_dict({name: jnp.asarray(value, jnp.float32) for name, value in tree.items()}, sep="/")


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_transformers(oracles, case):
    theirs, found = oracles[case]
    config = replace(
        TINY,
        cutoffs=tuple(theirs["cutoffs"]),
        div_value=theirs["div_val"],
        shared_biases=not theirs["untie_r"],
        clamp_length=theirs["clamp_len"] if theirs["clamp_len"] > 0 else None,
    )
    module, params = config.build(), ours_of(config, found, "parameter")
    # It begins with a memory of zeros, which it attends to.
    memory = module.empty_memory(2, 6) | {"length": jnp.full(2, 6)}
    same_length = theirs["same_length"]
    for number, part in enumerate((IDS[:, :5], IDS[:, 5:])):
        log_probabilities, memory = segment(module, params, part, memory, same_length=same_length)
        np.testing.assert_allclose(log_probabilities, found[f"log_probabilities_{number}"], atol=1e-4)
        np.testing.assert_allclose(memory["hidden"], found[f"memory_{number}"], atol=1e-4)

    before = {"hidden": jnp.asarray(found["memory_0"]), "length": jnp.full(2, 6)}

    def loss(params):
        scores, _ = module.apply(
            {"params": params}, IDS[:, 5:], before, same_length=same_length, method="scores_and_memory"
        )
        targets = jnp.concatenate([IDS[:, 6:], IDS[:, :1]], axis=1)
        return token_loss(scores, targets, jnp.ones((2, 5)).at[:, -1].set(0.0))[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    np.testing.assert_allclose(value, found["loss"], rtol=1e-5)
    expected = flatten_dict(ours_of(config, found, "gradient"), sep="/")
    for name, gradient in flatten_dict(gradients, sep="/").items():
        np.testing.assert_allclose(gradient, expected[name], atol=1e-4 * max(1, np.abs(expected[name]).max()))

"""Starting from a model without the ids that an objective adds."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, GptConfig, abstract_params
from t5x_lite.parallel import MeshShape, logical_axes, make_mesh
from t5x_lite.parallel.mesh import to_devices
from t5x_lite.runs.preparation import check_vocabulary
from t5x_lite.training.initialization import with_new_ids

MARKS = ("start", "delimiter", "extract")
GPT = GptConfig(vocab_size=12, embed_dim=4, num_heads=2, mlp_dim=5, num_layers=1, max_length=4, tied=False)
TABLE, KERNEL = "token_embedding/embedding", "output/kernel"


def tree(**shapes):
    """Arrays of these shapes, all values different and above zero."""
    flat, random = {}, np.random.default_rng(0)
    for path, shape in shapes.items():
        flat[path.replace("__", "/")] = random.uniform(1.0, 2.0, shape).astype(np.float32)
    return traverse_util.unflatten_dict(flat, sep="/")


def fill_in(ours, theirs, vocabulary_size, added_ids):
    """(flat parameters to begin with, the message), with theirs below zero."""
    theirs, ours = jax.tree.map(np.negative, theirs), jax.tree.map(jax.numpy.asarray, ours)
    source, message = with_new_ids(theirs, ours, GPT, vocabulary_size, added_ids)
    return traverse_util.flatten_dict(jax.device_get(source), sep="/"), message


@pytest.mark.parametrize(
    "model", [replace(GPT, vocab_size=29), BertConfig(vocab_size=29, heads=("masked_lm",), tied=False)]
)
def test_the_dimension_of_ids_is_named_vocab_in_every_parameter(model):
    """Those with as many entries as there are ids, and no others."""
    shapes = traverse_util.flatten_dict(nn.unbox(abstract_params(model)), sep="/")
    axes = traverse_util.flatten_dict(logical_axes(abstract_params(model)), sep="/")
    dimensions = {path: names.index("vocab") for path, names in axes.items() if "vocab" in names}
    assert {path: leaf.shape.index(29) for path, leaf in shapes.items() if 29 in leaf.shape} == dimensions


def test_new_ids_keep_their_values_along_either_dimension():
    ours = tree(token_embedding__embedding=(12, 4), output__kernel=(4, 12))
    theirs = tree(token_embedding__embedding=(9, 4), output__kernel=(4, 9))
    found, message = fill_in(ours, theirs, 9, MARKS)
    flat = traverse_util.flatten_dict(ours, sep="/")
    assert {f"3 ids of {path}" for path in (TABLE, KERNEL)} == set(
        message.removeprefix("; random too are ").split(", ")
    )
    np.testing.assert_array_equal(found[TABLE][:9], -theirs["token_embedding"]["embedding"])
    np.testing.assert_array_equal(found[KERNEL][:, :9], -theirs["output"]["kernel"])
    np.testing.assert_array_equal(found[TABLE][9:], flat[TABLE][9:])
    np.testing.assert_array_equal(found[KERNEL][:, 9:], flat[KERNEL][:, 9:])


def test_marks_are_new_though_there_is_room_for_them():
    """The values there have been trained as padding of the vocabulary."""
    ours, theirs = (tree(token_embedding__embedding=(12, 4)) for _ in range(2))
    found, message = fill_in(ours, theirs, 7, MARKS)
    assert message == f"; random too are 3 ids of {TABLE}"
    assert ((found[TABLE] > 0).all(axis=1) == np.isin(np.arange(12), [7, 8, 9])).all()


@pytest.mark.parametrize(
    ("shape", "added"),
    [((13, 4), MARKS), ((9, 5), MARKS), ((12,), MARKS), ((9, 4), ())],
    ids=["more ids", "another width", "no matrix", "no marks"],
)
def test_else_the_other_model_stays_as_it_is(shape, added):
    """`overlay` reports what does not fit."""
    ours, theirs = tree(token_embedding__embedding=(12, 4)), tree(token_embedding__embedding=shape)
    found, message = fill_in(ours, theirs, 9, added)
    np.testing.assert_array_equal(found[TABLE], -theirs["token_embedding"]["embedding"])
    assert message == ""


def test_on_many_devices_they_lie_where_the_model_lies():
    mesh = make_mesh(MeshShape(fsdp=2, tensor=4), jax.devices()[:8])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("tensor", "fsdp"))
    ours = {"token_embedding": {"embedding": to_devices(np.ones((12, 4), np.float32), sharding)}}
    theirs = {"token_embedding": {"embedding": -np.ones((9, 4), np.float32)}}
    source, _ = with_new_ids(theirs, ours, GPT, 9, MARKS)
    table = source["token_embedding"]["embedding"]
    assert table.sharding == sharding
    np.testing.assert_array_equal(jax.device_get(table), np.repeat([-1.0, 1.0], [9, 3])[:, None] * np.ones(4))


def test_a_model_without_room_for_the_marks():
    check_vocabulary(GPT, Vocabulary(9), MARKS)
    with pytest.raises(
        InputError,
        match=r"vocab_size=12 is smaller than the tokenizer's 10 ids and the objective's 3 new ones "
        r"\(start, delimiter, extract\); choose 13 or more",
    ):
        check_vocabulary(GPT, Vocabulary(10), MARKS)

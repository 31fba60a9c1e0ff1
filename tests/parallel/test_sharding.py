from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import AbstractMesh, PartitionSpec

from t5x_lite.errors import InputError
from t5x_lite.models import (
    PRESETS,
    AlbertConfig,
    BertConfig,
    DeiTConfig,
    DistilBertConfig,
    ElectraConfig,
    ElectraPairConfig,
    MAEConfig,
    ResNetConfig,
    RobertaConfig,
    T5Config,
    ViTConfig,
    abstract_params,
)
from t5x_lite.optim.optimizers import Adafactor, AdamW, Lamb
from t5x_lite.parallel import RULES, MeshShape, batch_sharding, logical_axes, make_mesh, shardings, use_mesh
from t5x_lite.parallel.mesh import MESH_AXES, partition_spec

CONFIG = T5Config(64, 4, embed_dim=8, head_dim=4, mlp_dim=16, num_encoder_layers=2, num_decoder_layers=2, tied=False)
SIZES = {"vocab_size": 64, "embed_dim": 8, "num_heads": 2, "mlp_dim": 16, "num_layers": 2, "max_length": 6}
BERT = BertConfig(**SIZES, heads=("masked_lm", "sentence_pair", "span_boundary"))
ELECTRA = ElectraConfig(**SIZES, token_embed_dim=4, heads=("replaced_token",))
PICTURES, LAYERS = ((16, 24), 4), {"embed_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 2}
VIT = ViTConfig(*PICTURES, **LAYERS, num_classes=6)
EVERY_FAMILY = [
    CONFIG,
    BERT,
    RobertaConfig(**SIZES, heads=("masked_lm",)),
    AlbertConfig(**SIZES, token_embed_dim=4, heads=("masked_lm", "sentence_pair")),
    DistilBertConfig(**SIZES, heads=("masked_lm",), tied=False),
    ElectraPairConfig(replace(ELECTRA, heads=("masked_lm",)), ELECTRA),
    ResNetConfig(depths=(1, 2), widths=(16, 32), stem_width=8, num_classes=6),
    replace(VIT, layer_scale=0.1, pooler=True),
    DeiTConfig(*PICTURES, **LAYERS),
    MAEConfig(*PICTURES, **LAYERS, decoder_embed_dim=8, decoder_num_heads=2, decoder_mlp_dim=16, decoder_num_layers=1),
]


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(MeshShape(2, 2, tensor=2))


def test_two_axes_on_one_mesh_axis_are_refused():
    with pytest.raises(ValueError, match="'heads' and 'mlp' both map to mesh axis 'tensor'"):
        partition_spec(("heads", "mlp"))


@pytest.mark.parametrize("config", EVERY_FAMILY, ids=lambda config: type(config).__name__)
def test_every_parameter_has_axes_of_the_table_in_its_rank(mesh, config):
    boxed = abstract_params(config)
    leaves = jax.tree.leaves(nn.unbox(boxed))
    axes = jax.tree.leaves(logical_axes(boxed), is_leaf=lambda node: isinstance(node, tuple))
    assert [len(names) for names in axes] == [leaf.ndim for leaf in leaves]
    assert {name for names in axes for name in names} <= set(RULES)
    actual = jax.tree.leaves(shardings(mesh, boxed))
    # Nothing large lies whole on every device.
    for leaf, sharding in zip(leaves, actual, strict=True):
        whole = leaf.size > 8 * 20 and leaf.shape[-1] != 200  # but for the small table of offsets in a span
        assert not (whole and sharding.is_fully_replicated)


def test_matrices_are_cut_along_fsdp_and_tensor(mesh):
    actual = shardings(mesh, abstract_params(CONFIG))
    assert actual["encoder"]["layers"]["feed_forward"]["wi"]["kernel"].spec == PartitionSpec(None, "fsdp", "tensor")
    assert actual["token_embedding"]["embedding"].spec == PartitionSpec("tensor", "fsdp")
    assert actual["encoder"]["final_norm"]["scale"].spec == PartitionSpec("fsdp")


def test_a_size_that_is_not_divided_names_parameter_axis_and_size(mesh):
    leaf = nn.LogicallyPartitioned(jax.ShapeDtypeStruct((7, 4), jnp.float32), ("embed", "mlp"))
    with pytest.raises(InputError, match=r"mesh.fsdp=2 does not divide the 7 of axis 'embed' of layer/kernel"):
        shardings(mesh, {"layer": {"kernel": leaf}})


def draw(shapes):
    """Random parameters, without compiling an initializer."""
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), nn.unbox(shapes))


def test_activations_are_sharded_where_the_model_names_their_axes(mesh):
    """Batch over data and fsdp, vocabulary over tensor: so are the logits, without a constraint at the end."""
    module = CONFIG.build()
    ids = jnp.ones((8, 4), jnp.int32)

    def logits(params, ids):
        with use_mesh(mesh):
            return module.apply({"params": params}, ids, ids)

    actual = shardings(mesh, abstract_params(CONFIG))
    out = jax.jit(logits, in_shardings=(actual, batch_sharding(mesh)))(draw(abstract_params(CONFIG)), ids)
    assert out.sharding.spec == PartitionSpec(("data", "fsdp"), None, "tensor")
    assert out.addressable_shards[0].data.shape == (2, 4, 32)


def test_an_encoder_computes_the_same_on_eight_devices(mesh):
    module = BERT.build()
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 64, size=(8, 6)))

    def answer(params, ids):
        return module.apply({"params": params}, ids, ids % 2, inputs_valid=ids != 0)

    def answer_on_mesh(params, ids):
        with use_mesh(mesh):
            return answer(params, ids)

    params, places = draw(abstract_params(BERT)), shardings(mesh, abstract_params(BERT))
    actual = jax.jit(answer_on_mesh, in_shardings=(places, batch_sharding(mesh)))(params, ids)
    assert actual["masked_lm_logits"].sharding.spec == PartitionSpec(("data", "fsdp"), None, "tensor")
    for name, expected in jax.jit(answer)(params, ids).items():
        np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-4, err_msg=name)


def bytes_per_chip(mesh, boxed, over=("fsdp",)):
    return sum(
        int(np.prod(sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf, sharding in zip(
            jax.tree.leaves(nn.unbox(boxed)), jax.tree.leaves(shardings(mesh, boxed, over)), strict=True
        )
    )


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("t5-11b", Adafactor()), ("gpt3-13b", AdamW()), ("bert-large-uncased", Lamb(first_moment="bfloat16"))],
    ids=["T5-11B", "GPT-3 13B", "BERT-large"],
)
def test_bytes_per_chip_fall_as_one_over_the_chips(model, optimizer):
    """Of parameters and optimizer, from 8 to 1,024 chips, norms and biases included: by `fsdp`, or by `data` too."""
    params = abstract_params(PRESETS[model])
    boxed = params, jax.eval_shape(optimizer.build(logical_axes(params)).init, params)
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(nn.unbox(boxed)))
    for chips in (8, 64, 512, 1024):
        # But for what 1,024 does not divide, such as the vocabulary's bias.
        assert bytes_per_chip(AbstractMesh((1, chips, 1, 1), MESH_AXES), boxed) == pytest.approx(
            total / chips, rel=0.01
        )
        copies = AbstractMesh((8, chips // 8, 1, 1), MESH_AXES)
        assert bytes_per_chip(copies, boxed, ("fsdp", "data")) == pytest.approx(total / chips, rel=0.01)


@pytest.mark.parametrize(
    ("axes", "shape", "spec"),
    [
        (("layers", "mlp"), (4, 32), (None, ("tensor", "fsdp"))),
        (("layers", "norm"), (8, 24), (None, "fsdp")),
        (("position_buckets", "position_heads"), (32, 12), ("fsdp", "tensor")),
        (("mlp",), (6,), ("tensor",)),
        (("layers", None), (8, 1), (None, None)),
        (("embed", "mlp"), (8, 6), ("fsdp", "tensor")),
    ],
)
def test_what_no_rule_cuts_along_fsdp_is_cut_along_it_where_it_can_be(axes, shape, spec):
    mesh = AbstractMesh((1, 8, 1, 2), MESH_AXES)
    leaf = nn.LogicallyPartitioned(jax.ShapeDtypeStruct(shape, jnp.float32), axes)
    assert shardings(mesh, leaf).spec == PartitionSpec(*spec)

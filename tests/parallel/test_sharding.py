import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec

from t5x_lite.errors import InputError
from t5x_lite.models import T5Config, abstract_params
from t5x_lite.parallel import RULES, MeshShape, batch_sharding, logical_axes, make_mesh, shardings, use_mesh
from t5x_lite.parallel.sharding import partition_spec

CONFIG = T5Config(64, 4, embed_dim=8, head_dim=4, mlp_dim=16, num_encoder_layers=2, num_decoder_layers=2, tied=False)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(MeshShape(2, 2, 2))


def test_two_axes_on_one_mesh_axis_are_refused():
    with pytest.raises(ValueError, match="'heads' and 'mlp' both map to mesh axis 'tensor'"):
        partition_spec(("heads", "mlp"))


def test_every_parameter_has_axes_of_the_table_in_its_rank():
    boxed = abstract_params(CONFIG)
    leaves = jax.tree.leaves(nn.unbox(boxed))
    axes = jax.tree.leaves(logical_axes(boxed), is_leaf=lambda node: isinstance(node, tuple))
    assert [len(names) for names in axes] == [leaf.ndim for leaf in leaves]
    assert {name for names in axes for name in names} <= set(RULES)


def test_matrices_are_cut_along_fsdp_and_tensor(mesh):
    placed = shardings(mesh, abstract_params(CONFIG))
    assert placed["encoder"]["layers"]["feed_forward"]["wi"]["kernel"].spec == PartitionSpec(None, "fsdp", "tensor")
    assert placed["token_embedding"]["embedding"].spec == PartitionSpec("tensor", "fsdp")
    assert placed["encoder"]["final_norm"]["scale"].spec == PartitionSpec(None)


def test_a_size_that_is_not_divided_names_parameter_axis_and_size(mesh):
    leaf = nn.LogicallyPartitioned(jax.ShapeDtypeStruct((7, 4), jnp.float32), ("embed", "mlp"))
    with pytest.raises(InputError, match=r"mesh.fsdp=2 does not divide the 7 of axis 'embed' of layer/kernel"):
        shardings(mesh, {"layer": {"kernel": leaf}})


def test_activations_are_cut_where_the_model_names_their_axes(mesh):
    """Batch over data and fsdp, vocabulary over tensor: the logits come out so without anybody asking at the end."""
    module = CONFIG.build()
    ids = jnp.ones((8, 4), jnp.int32)

    def logits(params, ids):
        with use_mesh(mesh):
            return module.apply({"params": params}, ids, ids)

    params = jax.jit(lambda: nn.unbox(module.init(jax.random.key(0), ids, ids))["params"])()
    placed = shardings(mesh, abstract_params(CONFIG))
    out = jax.jit(logits, in_shardings=(placed, batch_sharding(mesh)))(params, ids)
    assert out.sharding.spec == PartitionSpec(("data", "fsdp"), None, "tensor")
    assert out.addressable_shards[0].data.shape == (2, 4, 32)

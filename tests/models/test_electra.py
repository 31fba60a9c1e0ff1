from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import ElectraConfig, ElectraPairConfig, abstract_params

DISCRIMINATOR = ElectraConfig(
    vocab_size=30,
    embed_dim=12,
    token_embed_dim=6,
    num_heads=4,
    mlp_dim=17,
    num_layers=3,
    max_length=9,
    heads=("replaced_token",),
)
GENERATOR = replace(DISCRIMINATOR, embed_dim=6, num_heads=2, mlp_dim=11, num_layers=2, heads=("masked_lm",))
PAIR = ElectraPairConfig(GENERATOR, DISCRIMINATOR)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 30, size=(2, 7)))
SEGMENTS = jnp.asarray(np.arange(7) > 3).astype(jnp.int32)[None].repeat(2, 0)
PARTS = {"generator": "masked_lm_logits", "discriminator": "replaced_token_logits"}


@pytest.fixture(scope="module")
def params(make_params):
    return make_params(PAIR.build(), 0, IDS, SEGMENTS)


def test_the_embeddings_are_there_once(params):
    assert set(params) == {"embeddings", "generator", "discriminator"}
    assert set(params["generator"]) == {"encoder", "masked_lm"}  # as wide as the embeddings
    assert set(params["discriminator"]) == {"projection", "encoder", "replaced_token"}


@pytest.fixture(scope="module")
def gradients(params):
    """What each network says inside the pair, and the gradient of a sum of it."""

    def loss(params, part, logits):
        def forward(pair):
            return getattr(pair, part)(IDS, SEGMENTS)

        said = PAIR.build().apply({"params": params}, method=forward)
        return (said[logits] ** 2).sum(), said

    compiled = jax.jit(jax.grad(loss, has_aux=True), static_argnums=(1, 2))
    return {part: compiled(params, part, logits) for part, logits in PARTS.items()}


@pytest.mark.parametrize("part", PARTS)
def test_each_network_by_itself_says_what_it_says_in_the_pair(params, gradients, part):
    config, own = PAIR.separate(params, part)
    alone = jax.jit(config.build().apply)({"params": own}, IDS, SEGMENTS)
    for name, value in gradients[part][1].items():
        np.testing.assert_allclose(alone[name], value, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
def test_either_network_teaches_the_embeddings_and_not_the_other(gradients, part):
    gradient = gradients[part][0]
    other = next(name for name in PARTS if name != part)
    for table in ("token", "position", "segment"):
        assert jnp.abs(gradient["embeddings"][table]["embedding"]).max() > 1e-3
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient[other]))
    assert jnp.abs(gradient[part]["encoder"]["layers"]["feed_forward"]["wi"]["kernel"]).max() > 1e-3


def test_the_whole_pair_says_what_its_networks_say(params, gradients):
    said = jax.jit(PAIR.build().apply)({"params": params}, IDS, SEGMENTS)
    for part, logits in PARTS.items():
        np.testing.assert_allclose(said[part][logits], gradients[part][1][logits], atol=1e-5)


def test_sizes_that_the_rest_of_the_house_asks_for():
    assert PAIR.vocab_size == 30
    assert PAIR.num_heads == 2  # divides the heads of both
    assert hash(PAIR) == hash(ElectraPairConfig(GENERATOR, DISCRIMINATOR))


@pytest.mark.parametrize(
    ("generator", "discriminator", "message"),
    [
        ({"embed_dim": 16}, {}, "generator is larger than its discriminator: generator.embed_dim=16 .*12; choose 12"),
        ({"num_layers": 4}, {}, "generator is larger than its discriminator: generator.num_layers=4"),
        ({"embed_dim": 12, "num_heads": 6}, {}, "generator is larger than its discriminator: generator.num_heads=6"),
        ({"mlp_dim": 18}, {}, "generator is larger than its discriminator: generator.mlp_dim=18"),
        ({"vocab_size": 31}, {}, "generator.vocab_size=31 is not discriminator.vocab_size=30"),
        ({"token_embed_dim": 5}, {}, "generator.token_embed_dim=5 is not"),
        ({"max_length": 8}, {}, "generator.max_length=8 is not"),
        ({"num_segments": 1}, {}, "generator.num_segments=1 is not"),
        ({"norm_epsilon": 1e-5}, {}, "generator.norm_epsilon=1e-05 is not"),
        ({"heads": ()}, {}, "generator.heads=.* lacks masked_lm"),
        ({}, {"heads": ("masked_lm",)}, "discriminator.heads=.* lacks replaced_token"),
    ],
)
def test_networks_that_do_not_fit(generator, discriminator, message):
    with pytest.raises(InputError, match=message):
        ElectraPairConfig(replace(GENERATOR, **generator), replace(DISCRIMINATOR, **discriminator))


def test_a_generator_may_be_as_large_as_its_discriminator():
    pair = ElectraPairConfig(replace(DISCRIMINATOR, heads=("masked_lm",)), DISCRIMINATOR)
    params = abstract_params(pair)
    assert set(params["generator"]) == {"projection", "encoder", "masked_lm"}
    generator, discriminator = (nn.unbox(params[part]["encoder"]) for part in ("generator", "discriminator"))
    assert jax.tree.map(lambda leaf: leaf.shape, generator) == jax.tree.map(lambda leaf: leaf.shape, discriminator)

"""Block-sparse attention as Transformers computes it in training: with the same random blocks the same outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.big_bird import BigBird

from .test_encoders import Case, oracle

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
LENGTH = 26
CASE = Case(
    "BigBirdForMaskedLM",
    {
        "max_position_embeddings": LENGTH,
        "block_size": 2,
        "num_random_blocks": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
)


@pytest.mark.parametrize("padding", [0, 5])
def test_the_same_blocks_give_the_same_logits_loss_and_gradients(make_pair, monkeypatch, padding):
    pair = make_pair(CASE, oracle(CASE))
    assert pair.config.attention == BigBird(2, 1)
    random = np.random.default_rng(0)
    ids = random.integers(1, 47, size=(2, LENGTH)).astype(np.int32)
    valid = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - padding]])
    weights = random.normal(size=(2, LENGTH, 47)).astype(np.float32) * valid[..., None]

    tables, attention = [], transformers.models.big_bird.modeling_big_bird.BigBirdBlockSparseAttention
    draw = attention._bigbird_block_rand_mask_with_head

    def drawn(self, **options):
        tables.append(np.stack(draw(self, **options)))
        return list(tables[-1])

    monkeypatch.setattr(attention, "_bigbird_block_rand_mask_with_head", drawn)
    theirs = pair.theirs.train()
    logits = theirs(torch.from_numpy(ids).long(), attention_mask=torch.from_numpy(valid).long()).logits
    assert len(tables) == 2 and len({table.tobytes() for table in tables}) == 2

    # Theirs count all blocks, ours those between the global ones.
    blocks = jnp.asarray(np.stack(tables) - 1, jnp.int32)
    assert blocks.shape == pair.config.attention.random_blocks(2, 3, LENGTH).shape
    monkeypatch.setattr(BigBird, "random_blocks", lambda *_: blocks)
    module = pair.config.build()

    def loss(params):
        outputs = module.apply({"params": params}, jnp.asarray(ids), inputs_valid=jnp.asarray(valid))
        return (outputs["masked_lm_logits"] * weights).mean(), outputs["masked_lm_logits"]

    (value, got), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    expected = logits.detach().numpy()
    np.testing.assert_allclose(got[valid], expected[valid], atol=1e-4)
    pair.assert_same_loss(value, gradient, (logits * torch.from_numpy(weights)).mean())

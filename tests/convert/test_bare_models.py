"""Transformers' classes without a head: they open as what they are, with the same last hidden states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_lite

ENCODER = {"vocab_size": 61, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
ENCODER |= {"intermediate_size": 17, "max_position_embeddings": 32}
DECODER = {"vocab_size": 61, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32}
BOTH = {"vocab_size": 61, "d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3}
BOTH |= {"decoder_attention_heads": 3, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17, "max_position_embeddings": 32}
T5 = {"vocab_size": 61, "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("encoder", ENCODER),
    "ElectraModel": ("encoder", ENCODER | {"embedding_size": 8}),
    "GPT2Model": ("decoder", DECODER),
    "OpenAIGPTModel": ("decoder", DECODER),
    "BartModel": ("encoder-decoder", BOTH),
    "MarianModel": ("encoder-decoder", BOTH | {"pad_token_id": 3, "decoder_start_token_id": 3, "eos_token_id": 0}),
    "T5Model": ("encoder-decoder", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_are_the_same(name, tmp_path, torch, transformers):
    architecture, sizes = CASES[name]
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    theirs = kind(getattr(transformers, f"{name.removesuffix('Model')}Config")(**sizes)).eval()
    with torch.no_grad():
        for parameter_name, parameter in theirs.named_parameters():
            if parameter.ndim > 1 and "embed_positions" not in parameter_name:
                parameter.normal_(std=0.3)
    theirs.save_pretrained(tmp_path / "theirs")
    ids = np.random.default_rng(0).integers(5, 60, (2, 20))
    part = theirs.encoder if architecture == "encoder-decoder" else theirs
    with torch.no_grad():
        expected = part(input_ids=torch.tensor(ids)).last_hidden_state.numpy()
    ours = t5x_lite.load(tmp_path / "theirs")
    assert ours.config.architecture == architecture
    assert "encode" in ours.abilities
    method = "encode" if architecture == "encoder-decoder" else "hidden_states"
    hidden = ours.module.apply({"params": ours.params}, jnp.asarray(ids), method=method)
    np.testing.assert_allclose(hidden, expected, atol=1e-5)
    ours.export(tmp_path / "ours")
    again = t5x_lite.load(tmp_path / "ours")
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.models import ElectraConfig, ElectraPairConfig

DISCRIMINATOR = ElectraConfig(30, 4, 12, 17, 2, 9, token_embed_dim=6, heads=("replaced_token",))
GENERATOR = replace(DISCRIMINATOR, embed_dim=6, num_heads=2, mlp_dim=11, heads=("masked_lm",))
PAIR = ElectraPairConfig(GENERATOR, DISCRIMINATOR)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 30, size=(2, 7)))


@pytest.fixture(scope="module")
def params(params_of):
    return params_of(PAIR)


@pytest.mark.parametrize(("part", "config"), [("generator", GENERATOR), ("discriminator", DISCRIMINATOR)])
def test_each_network_of_a_pair_is_a_folder_of_its_own(tmp_path, params, part, config):
    export_folder(tmp_path, PAIR, params, None, part=part)
    imported = import_folder(tmp_path)
    assert imported.config == config
    jax.tree.map(np.testing.assert_array_equal, imported.params, {"embeddings": params["embeddings"]} | params[part])


def test_the_discriminator_is_what_is_kept(tmp_path, params):
    export_folder(tmp_path, PAIR, params, None)
    assert import_folder(tmp_path).config == DISCRIMINATOR


@pytest.mark.parametrize("part", ["generator", "discriminator"])
def test_each_folder_has_the_pairs_logits_in_transformers(tmp_path, params, part, torch, transformers):
    export_folder(tmp_path, PAIR, params, None, part=part)
    name = {"generator": "ElectraForMaskedLM", "discriminator": "ElectraForPreTraining"}[part]
    model = getattr(transformers, name).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        expected = model(torch.tensor(IDS.tolist())).logits.numpy()
    outputs = jax.jit(PAIR.build().apply)({"params": params}, IDS)[part]
    logits = outputs["masked_lm_logits" if part == "generator" else "replaced_token_logits"]
    assert expected.std() > 0.01
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)

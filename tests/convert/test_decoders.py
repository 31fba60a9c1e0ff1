"""Hugging Face's GPT and GPT-2 as the oracle: the same weights give the same logits, loss and gradients."""

import json
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig, T5DecoderConfig

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size differs from every other one.
SIZES = {"vocab_size": 43, "n_positions": 15, "n_embd": 12, "n_layer": 2, "n_head": 3}
ROWS, LENGTH = 3, 11


@dataclass(frozen=True)
class Case:
    """A class of the oracle and its config, and what we must read out of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)


CASES = {
    "gpt2": Case("GPT2", {}, {"mlp_dim": 48, "activation": "gelu_tanh", "norm_first": True, "attention_scale": None}),
    "gpt2-unscaled": Case(
        "GPT2",
        {
            "n_inner": 17,
            "activation_function": "relu",
            "scale_attn_weights": False,
            "layer_norm_epsilon": 0.01,
            "resid_pdrop": 0.2,
            "embd_pdrop": 0.3,
            "attn_pdrop": 0.4,
            "n_layer": 3,
        },
        {
            "mlp_dim": 17,
            "activation": "relu",
            "attention_scale": 1.0,
            "norm_epsilon": 0.01,
            "dropout_rate": 0.2,
            "embedding_dropout_rate": 0.3,
            "attention_dropout_rate": 0.4,
        },
    ),
    "gpt2-untied": Case("GPT2", {"tie_word_embeddings": False, "reorder_and_upcast_attn": True}, {"tied": False}),
    "openai-gpt": Case("OpenAIGPT", {}, {"mlp_dim": 48, "activation": "gelu_tanh", "norm_first": False, "tied": True}),
    "openai-gpt-silu": Case(
        "OpenAIGPT", {"afn": "swish", "n_embd": 10, "n_head": 5}, {"activation": "silu", "embed_dim": 10}
    ),
}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.name}Config")(**SIZES | case.options, attn_implementation="eager")
    model = getattr(transformers, f"{case.name}LMHeadModel")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln_" in name and "weight" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=0.4)
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Ids and where they are no padding, which stands on either side."""
    ids = np.random.default_rng(0).integers(0, SIZES["vocab_size"], size=(ROWS, LENGTH)).astype(np.int32)
    positions = np.arange(LENGTH)
    return ids, (positions >= [[0], [4], [0]]) & (positions < [[LENGTH], [LENGTH], [6]])


def theirs_of(model: Any, ids: np.ndarray, valid: np.ndarray) -> Any:
    """Their logits; like their own `generate`, this counts positions from the first id that is no padding."""
    positions = np.maximum(np.cumsum(valid, axis=1) - 1, 0)
    tensors = {"input_ids": ids, "attention_mask": valid, "position_ids": positions}
    return model(**{name: torch.from_numpy(value).long() for name, value in tensors.items()}).logits


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    assert pair.size == sum(p.numel() for p in pair.theirs.parameters())


def test_logits_loss_and_gradients_are_the_same(pair):
    module, (ids, valid) = pair.config.build(), batch()
    follows = valid[:, 1:] & valid[:, :-1]

    def loss(params):
        logits = module.apply({"params": params}, jnp.asarray(ids), inputs_valid=jnp.asarray(valid))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], jnp.asarray(ids[:, 1:]))
        return (losses * follows).sum() / follows.sum(), logits

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    theirs = theirs_of(pair.theirs, ids, valid)
    labels = torch.from_numpy(np.where(follows, ids[:, 1:], -100)).long()
    their_loss = torch.nn.functional.cross_entropy(theirs[:, :-1].flatten(0, 1), labels.flatten())
    expected = theirs.detach().numpy()[valid]
    assert expected.std() > 0.2
    np.testing.assert_allclose(np.asarray(logits)[valid], expected, rtol=0, atol=1e-4)
    pair.assert_same_loss(value, gradient, their_loss)


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    with torch.no_grad():
        expected, got = (theirs_of(model.eval(), *batch()) for model in (pair.theirs, reopened))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    for rate in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        assert getattr(reopened.config, rate) == getattr(pair.theirs.config, rate)

    pair.assert_imports_exactly(tmp_path)


def test_models_without_a_head_and_files_of_the_first_years(pair, tmp_path):
    """Early files name no `transformer.` and hold the causal masks."""
    from safetensors.numpy import load_file, save_file

    pair.theirs.transformer.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {"h.0.attn.bias": np.ones((1, 1, 15, 15)), "h.0.attn.masked_bias": np.full((), -1e4)}
    if not pair.config.tied:
        tensors["lm_head.weight"] = pair.theirs.lm_head.weight.detach().numpy()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    alone = import_folder(tmp_path)
    assert alone.config == pair.config
    jax.tree.map(np.testing.assert_array_equal, alone.params, pair.params)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("GPT2LMHeadModel", {"add_cross_attention": True}, "add_cross_attention=True in config.json is not one"),
        ("GPT2LMHeadModel", {"activation_function": "mish"}, "activation_function='mish'.*known are gelu"),
        (
            "GPT2ForTokenClassification",
            {},
            "holds a 'GPT2ForTokenClassification', which is not one of the classes that we have",
        ),
        ("GPT2Model", {"tie_word_embeddings": False}, "no lm_head.weight.*the class that has the language model's"),
    ],
)
def test_what_we_do_not_have_is_refused(tmp_path, name, options, message):
    family = "GPT2" if name.startswith("GPT2") else "OpenAIGPT"
    config = getattr(transformers, f"{family}Config")(**SIZES | options)
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)


OURS = {"vocab_size": 31, "embed_dim": 6, "num_heads": 2, "mlp_dim": 24, "num_layers": 1, "max_length": 9}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GptConfig(**OURS | {"head_dim": 4}), "head_dim=4 .* has no place in Hugging Face's GPT2"),
        (GptConfig(**OURS | {"attention_scale": 0.3}), "attention_scale=0.3 has no place"),
        (GptConfig(**OURS | {"mlp_dim": 5, "norm_first": False}), "mlp_dim=5 has no place.* takes 24"),
        (GptConfig(**OURS | {"activation": "gelu", "norm_first": False}), "activation='gelu' has no place"),
        (T5DecoderConfig(vocab_size=31, embed_dim=6, mlp_dim=5, num_layers=1), "T5DecoderConfig has no Hugging Face"),
    ],
)
def test_what_theirs_does_not_have_is_not_exported(tmp_path, config, message):
    with pytest.raises(InputError, match=message):
        export_folder(tmp_path / "new", config, {}, None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "ids", "expected"),
    [
        # 50,256, their config's default, is not an id of so few.
        ("GPT2", {}, {"has_padding": False, "ends": False}),
        (
            "GPT2",
            {"eos_token_id": 7, "bos_token_id": 7},
            {"pad_id": 7, "eos_id": 7, "has_padding": False, "ends": True},
        ),
        ("GPT2", {"eos_token_id": 7, "pad_token_id": 5}, {"pad_id": 5, "eos_id": 7, "has_padding": True, "ends": True}),
        ("OpenAIGPT", {}, {"pad_id": 0, "eos_id": 0, "unk_id": 0, "has_padding": False, "ends": False}),
    ],
)
def test_ids_are_those_of_the_config_where_there_is_no_tokenizer(tmp_path, name, ids, expected):
    config = getattr(transformers, f"{name}Config")(**SIZES | ids)
    getattr(transformers, f"{name}LMHeadModel")(config).save_pretrained(tmp_path)
    imported = import_folder(tmp_path)
    assert imported.generation.ends == expected.pop("ends")
    assert {name: getattr(imported.vocabulary, name) for name in expected} == expected
    assert imported.vocabulary.size == SIZES["vocab_size"]
    stated = {"vocabulary": imported.vocabulary, "generation": imported.generation}
    export_folder(tmp_path / "again", imported.config, imported.params, None, **stated)
    again = import_folder(tmp_path / "again")
    assert {"vocabulary": again.vocabulary, "generation": again.generation} == stated
    described = json.loads((tmp_path / "again" / "config.json").read_text())
    assert described["eos_token_id"] == ids.get("eos_token_id")
    assert described["pad_token_id"] == ids.get("pad_token_id")

"""Hugging Face's T5 as the oracle: the same weights give the same logits, loss, gradients and greedy text."""

import json
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.data import Vocabulary
from t5x_lite.decoding import Greedy, decode
from t5x_lite.objectives import SequenceToSequence

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size is odd or differs from the others; the sequences are longer than the largest distance of the buckets.
SIZES = {
    "vocab_size": 61,
    "d_model": 37,
    "num_heads": 3,
    "d_kv": 5,
    "d_ff": 23,
    "num_layers": 2,
    "num_decoder_layers": 3,
}
INPUT_LENGTH, TARGET_LENGTH = 30, 26


@dataclass(frozen=True)
class Case:
    """An architecture of the oracle."""

    family: str
    feed_forward: str
    tied: bool
    scaled: bool
    buckets: int
    max_distance: int
    epsilon: float = 1e-6


CASES = {
    "v1.0": Case("T5", "relu", True, True, 12, 20),
    "v1.1": Case("T5", "gated-gelu", False, False, 17, 19, epsilon=3e-3),
    "mT5": Case("MT5", "gated-gelu", False, False, 9, 22),
    "gated-silu": Case("T5", "gated-silu", False, False, 5, 7, epsilon=0.1),
    "gelu": Case("T5", "gelu", True, True, 32, 24, epsilon=1e-2),
    "gated-relu": Case("T5", "gated-relu", True, True, 7, 15),
}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.family}Config")(
        **SIZES,
        feed_forward_proj=case.feed_forward,
        relative_attention_num_buckets=case.buckets,
        relative_attention_max_distance=case.max_distance,
        layer_norm_epsilon=case.epsilon,
        tie_word_embeddings=case.scaled,
        decoder_start_token_id=0,
        attn_implementation="eager",
    )
    model = getattr(transformers, f"{case.family}ForConditionalGeneration")(config).eval()
    if not case.tied:  # Transformers 5 ties what it builds
        model.lm_head.weight = torch.nn.Parameter(torch.empty(SIZES["vocab_size"], SIZES["d_model"]))
        model.config.tie_word_embeddings = False
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif "relative_attention_bias" in name or "shared" in name:
                parameter.normal_()
            else:
                parameter.normal_(std=1.2 * parameter.shape[1] ** -0.5)
    return model


def batch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(inputs, whether each is valid, targets with 0 for padding)"""
    random = np.random.default_rng(0)
    inputs = random.integers(2, SIZES["vocab_size"], size=(3, INPUT_LENGTH))
    targets = random.integers(2, SIZES["vocab_size"], size=(3, TARGET_LENGTH))
    valid = np.arange(INPUT_LENGTH) < np.array([[INPUT_LENGTH], [23], [4]])
    targets[np.arange(TARGET_LENGTH) >= np.array([[TARGET_LENGTH], [2], [22]])] = 0
    return np.where(valid, inputs, 0).astype(np.int32), valid, targets.astype(np.int32)


def theirs_of(model: Any) -> Any:
    """Their logits and loss."""
    inputs, valid, targets = (torch.from_numpy(array) for array in batch())
    labels = targets.long().masked_fill(targets == 0, -100)
    return model(input_ids=inputs.long(), attention_mask=valid.long(), labels=labels, use_cache=False)


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def test_the_architecture_is_read(pair):
    assert pair.config.tied == pair.case.tied
    assert pair.config.scale_output == pair.case.scaled
    assert pair.config.norm_epsilon == pair.case.epsilon
    assert (pair.config.num_encoder_layers, pair.config.num_decoder_layers) == (2, 3)
    theirs = {id(parameter): parameter.numel() for parameter in pair.theirs.parameters()}
    assert pair.size == sum(theirs.values())


def test_logits_loss_and_gradients_are_the_same(pair):
    module = pair.config.build()
    inputs, valid, targets = map(jnp.asarray, batch())
    decoder_inputs = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
    objective = SequenceToSequence(packed=False).for_vocabulary(Vocabulary(SIZES["vocab_size"]))

    def loss(params):
        total, weight, _ = objective.loss(module, params, {"inputs": inputs, "targets": targets}, None)
        return total / weight, module.apply({"params": params}, inputs, decoder_inputs, inputs_valid=valid)

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    theirs = theirs_of(pair.theirs)
    expected = theirs.logits.detach().numpy()
    assert expected.std() > 0.3
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    pair.assert_same_loss(value, gradient, theirs.loss)


@pytest.mark.parametrize("pair", ["v1.0", "v1.1", "mT5"], indirect=True)
def test_greedy_text_is_the_same(pair):
    inputs, valid, _ = batch()

    def generate(eos):
        # With a cache theirs fails when encoder and decoder differ in depth.
        ids = pair.theirs.generate(
            input_ids=torch.from_numpy(inputs).long(),
            attention_mask=torch.from_numpy(valid).long(),
            max_new_tokens=12,
            use_cache=False,
            do_sample=False,
            num_beams=1,
            eos_token_id=eos,
            pad_token_id=0,
        )[:, 1:].numpy()
        return np.pad(ids, ((0, 0), (0, 12 - ids.shape[1])))

    # A token of theirs that is not the first one, so that at least one row ends early.
    full = generate(None)
    eos = next((int(row[s]) for s in (1, 2, 3) for row in full if row[s] not in row[:s] and row[s]), int(full[0, 0]))
    ours = decode(
        pair.config.build(),
        pair.params,
        jnp.asarray(inputs),
        method=Greedy(),
        start_ids=jnp.zeros(len(inputs), jnp.int32),
        max_length=12,
        inputs_valid=jnp.asarray(valid),
        eos_id=eos,
        pad_id=0,
    )
    np.testing.assert_array_equal(ours.ids[:, 0], generate(eos))


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    with torch.no_grad():
        expected, got = (theirs_of(model).logits for model in (pair.theirs, reopened))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)

    pair.assert_imports_exactly(tmp_path)


@pytest.mark.parametrize(("family", "feed_forward"), [("T5", "relu"), ("T5", "gated-gelu"), ("MT5", "gated-gelu")])
def test_the_encoder_alone(family, feed_forward, tmp_path):
    """Their T5EncoderModel, there and back."""
    torch.manual_seed(1)
    sizes = {name: size for name, size in SIZES.items() if name != "num_decoder_layers"}
    config = getattr(transformers, f"{family}Config")(
        **sizes,
        feed_forward_proj=feed_forward,
        relative_attention_num_buckets=9,
        relative_attention_max_distance=14,
        dropout_rate=0.2,
    )
    kind = getattr(transformers, f"{family}EncoderModel")
    theirs = kind(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.uniform_(0.5, 1.5) if "layer_norm" in name else parameter.normal_(std=0.2)
    theirs.save_pretrained(tmp_path / "theirs")
    imported = import_folder(tmp_path / "theirs")
    assert (imported.config.dropout_rate, imported.config.attention_dropout_rate) == (0.2, 0.2)
    inputs, valid, _ = batch()
    with torch.no_grad():
        options = {"attention_mask": torch.from_numpy(valid).long(), "output_hidden_states": True}
        expected = theirs(input_ids=torch.from_numpy(inputs).long(), **options)
    module, arrays = imported.config.build(), {"inputs": jnp.asarray(inputs), "inputs_valid": jnp.asarray(valid)}
    variables = {"params": jax.device_put(imported.params)}
    hidden = module.apply(variables, **arrays)["hidden"]
    np.testing.assert_allclose(hidden[valid], expected.last_hidden_state.numpy()[valid], atol=1e-4)
    layers = module.apply(variables, **arrays, method="encode_layers")
    for ours, one in zip(layers, expected.hidden_states, strict=True):
        np.testing.assert_allclose(ours[valid], one.numpy()[valid], atol=1e-4)
    export_folder(tmp_path / "ours", imported.config, imported.params, None, origin=imported.origin)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == family.lower()
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name)), name


def test_a_config_of_transformers_4_means_the_same(pair, tmp_path):
    """Before version 5 there was no scale_decoder_outputs: the tied embedding decided whether the output is scaled."""
    described = json.loads((pair.folder / "config.json").read_text())
    described.pop("scale_decoder_outputs", None)
    described["tie_word_embeddings"] = pair.case.scaled
    (tmp_path / "config.json").write_text(json.dumps(described))
    (tmp_path / "model.safetensors").symlink_to(pair.folder / "model.safetensors")
    assert import_folder(tmp_path).config == pair.config

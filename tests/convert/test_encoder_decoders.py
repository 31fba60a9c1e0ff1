"""Hugging Face's BART and Marian as the oracle: the same weights give the same logits, loss and gradients."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, BigBird, TransformerConfig
from t5x_lite.objectives.losses import shift_right

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size differs from every other one.
SIZES = {
    "vocab_size": 47,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 15,
}
MARIAN = {"pad_token_id": 46, "decoder_start_token_id": 46, "eos_token_id": 0}
ROWS, INPUTS, TARGETS = 3, 11, 9


@dataclass(frozen=True)
class Case:
    """A class of the oracle and its config, and what we must read out of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    bias: bool = False
    """Whether the bias of the logits, which no training moves there, is something else than zero."""

    @property
    def family(self) -> str:
        return next(family for family in ("Bart", "Marian", "BigBirdPegasus") if self.name.startswith(family))


UNTIED = {"tie_word_embeddings": False}
CASES = {
    "bart": Case(
        "BartForConditionalGeneration",
        expected={"tied": True, "output_bias": False, "start_id": None, "fixed_id": 1, "activation": "gelu"},
    ),
    "bart-uneven": Case(
        "BartForConditionalGeneration",
        {
            "encoder_layers": 3,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 19,
            "activation_function": "relu",
            "scale_embedding": True,
            "pad_token_id": 3,
            "decoder_start_token_id": 0,
        },
        {"num_decoder_heads": 2, "decoder_mlp_dim": 19, "scale_embedding": True, "fixed_id": 3, "start_id": 0},
        bias=True,
    ),
    "bart-untied": Case(
        "BartForConditionalGeneration",
        UNTIED | {"activation_function": "gelu_new"},
        {"tied": False, "shared_embedding": False, "activation": "gelu_tanh"},
    ),
    "marian": Case(
        "MarianMTModel",
        MARIAN | {"scale_embedding": True, "activation_function": "swish"},
        {"positions": "sinusoidal", "attention_bias": True, "start_id": None, "fixed_id": 46, "activation": "silu"},
        bias=True,
    ),
    "marian-odd": Case(
        "MarianMTModel",
        MARIAN | {"d_model": 15, "encoder_attention_heads": 5, "encoder_layers": 1, "decoder_start_token_id": 5},
        {"embed_dim": 15, "num_heads": 5, "num_decoder_heads": 3, "start_id": 5, "scale_embedding": False},
    ),
    "marian-two-embeddings": Case(
        "MarianMTModel",
        MARIAN | {"share_encoder_decoder_embeddings": False},
        {"shared_embedding": False, "tied": True},
    ),
    "big-bird-pegasus": Case(
        "BigBirdPegasusForConditionalGeneration",
        {"attention_type": "original_full", "decoder_ffn_dim": 19, "pad_token_id": 3},
        {"attention": None, "attention_bias": False, "activation": "gelu_tanh", "scale_embedding": True, "start_id": 2},
        bias=True,
    ),
    "big-bird-pegasus-blocks": Case(
        "BigBirdPegasusForConditionalGeneration",
        {"block_size": 1, "num_random_blocks": 3, "use_bias": True},
        {"attention": BigBird(1, 3), "attention_bias": True, "decoder_mlp_dim": None},
    ),
    "marian-untied": Case("MarianMTModel", MARIAN | UNTIED, {"shared_embedding": False, "tied": False}),
}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.family}Config")(**SIZES | case.options, attn_implementation="eager")
    model = getattr(transformers, case.name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                if "norm" in name and "weight" in name:
                    parameter.uniform_(0.5, 1.5)
                else:
                    parameter.normal_(std=0.3 if parameter.ndim == 1 or "embed" in name else 0.4)
        if case.bias:
            model.final_logits_bias.normal_()
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def batch(model: Any) -> dict[str, np.ndarray]:
    """Inputs with padding after two rows, and targets with padding after one."""
    random, pad_id = np.random.default_rng(0), model.config.pad_token_id
    inputs, targets = (random.integers(0, SIZES["vocab_size"], size=(ROWS, length)) for length in (INPUTS, TARGETS))
    valid, wanted = np.arange(INPUTS) < [[INPUTS], [7], [4]], np.arange(TARGETS) < [[TARGETS], [5], [TARGETS]]
    inputs, targets = np.where(valid, inputs, pad_id), np.where(wanted, targets, pad_id)
    return {"inputs": inputs.astype(np.int32), "targets": targets.astype(np.int32), "valid": valid, "wanted": wanted}


def theirs_of(model: Any, features: dict[str, np.ndarray]) -> Any:
    """Their answer, with the loss of the wanted targets."""
    labels = np.where(features["wanted"], features["targets"], -100)
    tensors = {"input_ids": features["inputs"], "attention_mask": features["valid"], "labels": labels}
    return model(**{name: torch.from_numpy(value).long() for name, value in tensors.items()})


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    sinusoids = "embed_positions" if pair.case.family == "Marian" else "none"
    theirs = {id(p): p.numel() for name, p in pair.theirs.named_parameters() if sinusoids not in name}
    if pair.case.options.get("tie_word_embeddings") is False:
        del theirs[id(pair.theirs.model.shared.weight)]  # which nothing reads
    bias = SIZES["vocab_size"] if pair.case.bias else 0
    assert pair.size == sum(theirs.values()) + bias


def test_logits_loss_and_gradients_are_the_same(pair):
    module, features = pair.config.build(), batch(pair.theirs)
    arrays = {name: jnp.asarray(value) for name, value in features.items()}
    ids = {"pad_id": pair.theirs.config.pad_token_id, "eos_id": pair.theirs.config.eos_token_id}
    start = pair.config.decoder_start_id(**ids)

    def loss(params):
        logits = module.apply(
            {"params": params}, arrays["inputs"], shift_right(arrays["targets"], start), inputs_valid=arrays["valid"]
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, arrays["targets"])
        return (losses * arrays["wanted"]).sum() / arrays["wanted"].sum(), logits

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    theirs = theirs_of(pair.theirs, features)
    expected = theirs.logits.detach().numpy()[features["wanted"]]
    assert expected.std() > 0.2
    np.testing.assert_allclose(np.asarray(logits)[features["wanted"]], expected, rtol=0, atol=1e-4)
    pair.assert_same_loss(value, gradient, theirs.loss)


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    with torch.no_grad():
        expected, got = (theirs_of(model, batch(pair.theirs)).logits for model in (pair.theirs, reopened))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)

    pair.assert_imports_exactly(tmp_path)


OURS = {
    "vocab_size": 31,
    "embed_dim": 6,
    "num_heads": 2,
    "mlp_dim": 5,
    "num_encoder_layers": 1,
    "num_decoder_layers": 2,
}


@pytest.mark.parametrize(
    ("config", "shared_embedding", "tied", "output_bias"),
    [
        (BartConfig(**OURS), True, True, False),
        (BartConfig(**OURS), True, False, True),
        (BartConfig(**OURS), False, True, False),
        (TransformerConfig(**OURS), True, True, True),
        (TransformerConfig(**OURS), True, False, False),
        (TransformerConfig(**OURS), False, True, False),
        (TransformerConfig(**OURS), False, False, False),
    ],
)
def test_what_theirs_cannot_say_survives(params_of, tmp_path, config, shared_embedding, tied, output_bias):
    """The 2017 Transformer's projections have no biases, which theirs have; nothing of ours is a padding id."""
    config = replace(config, shared_embedding=shared_embedding, tied=tied, output_bias=output_bias)
    params = params_of(config)
    export_folder(tmp_path, config, params, None)
    again = import_folder(tmp_path)
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.params, params)

    name = "BartForConditionalGeneration" if isinstance(config, BartConfig) else "MarianMTModel"
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    inputs, targets = np.array([[3, 4, 5, 6]]), np.array([[7, 8, 9]])
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(inputs), decoder_input_ids=torch.from_numpy(targets)).logits
    got = jax.jit(config.build().apply)({"params": params}, inputs.astype(np.int32), targets.astype(np.int32))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


def test_biases_that_others_trained_are_read(params_of, tmp_path):
    config = TransformerConfig(**OURS)
    export_folder(tmp_path, config, params_of(config), None)
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path)
    with torch.no_grad():
        theirs.model.decoder.layers[1].encoder_attn.q_proj.bias.fill_(0.25)
    theirs.save_pretrained(tmp_path)
    again = import_folder(tmp_path)
    assert again.config == replace(config, attention_bias=True)
    np.testing.assert_array_equal(again.params["decoder"]["layers"]["cross_attention"]["query"]["bias"][1], 0.25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": "learned"}, "positions='learned' has no place.*Marian"),
        ({"norm_first": True}, "norm_first=True has no place.*Marian"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon=1e-06 has no place.*Marian"),
    ],
)
def test_what_theirs_does_not_have_is_not_exported(params_of, tmp_path, change, message):
    config = TransformerConfig(**OURS | change)
    with pytest.raises(InputError, match=message):
        export_folder(tmp_path / "new", config, params_of(config), None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("BartForCausalLM", {}, "is_(encoder_)?decoder=.* is not one that we have"),
        ("BartForConditionalGeneration", {"activation_function": "mish"}, "activation_function='mish'"),
        (
            "MarianMTModel",
            MARIAN | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 53},
            "decoder_vocab_size=53 in config.json is not one that we have; choose .* decoder_vocab_size=47",
        ),
    ],
)
def test_what_we_do_not_have_is_refused(tmp_path, name, options, message):
    family = "Bart" if name.startswith("Bart") else "Marian"
    config = getattr(transformers, f"{family}Config")(**SIZES | options)
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)


def test_ids_are_those_of_the_config_where_there_is_no_tokenizer(tmp_path):
    transformers.MarianMTModel(transformers.MarianConfig(**SIZES | MARIAN)).save_pretrained(tmp_path)
    imported = import_folder(tmp_path)
    assert (imported.vocabulary.pad_id, imported.vocabulary.eos_id, imported.vocabulary.size) == (46, 0, 47)
    export_folder(tmp_path / "again", imported.config, imported.params, None, vocabulary=imported.vocabulary)
    described = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {name: described[name] for name in MARIAN} == MARIAN

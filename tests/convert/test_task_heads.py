"""Transformers' BARTs and GPTs with the heads of tasks as the oracle: the same logits, loss and gradients."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, GptConfig

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

BART = {
    "vocab_size": 47,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 15,
}
GPT = {"vocab_size": 47, "n_positions": 15, "n_embd": 12, "n_layer": 2, "n_head": 3, "pad_token_id": 5}
ROWS, LENGTH = 3, 11


@dataclass(frozen=True)
class Case:
    """A class of the oracle and its config, and what we must read out of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return next(family for family in ("Bart", "GPT2", "OpenAIGPT") if self.name.startswith(family))


UNTIED = {"tie_word_embeddings": False}
CLASSES, ANSWERS, CHOICES = {"heads": ("classification",)}, {"heads": ("question_answering",)}, "multiple_choice"
CASES = {
    "bart-classes": Case(
        "BartForSequenceClassification",
        {"num_labels": 5, "classifier_dropout": 0.3, "scale_embedding": True},
        CLASSES | {"num_classes": 5, "head_dropout_rate": 0.3, "tied": True, "start_id": 2, "fixed_id": 1},
    ),
    "bart-number": Case(
        "BartForSequenceClassification",
        {
            "num_labels": 1,
            "encoder_layers": 1,
            "decoder_layers": 3,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 19,
            "activation_function": "relu",
            "eos_token_id": 9,
            "pad_token_id": 3,
            "decoder_start_token_id": 0,
        },
        CLASSES | {"num_classes": 1, "start_id": 0, "fixed_id": 3, "head_dropout_rate": 0.0, "num_decoder_heads": 2},
    ),
    "bart-answers": Case(
        "BartForQuestionAnswering",
        UNTIED | {"activation_function": "gelu_new"},
        ANSWERS | {"shared_embedding": False, "tied": True},
    ),
    "gpt2-classes": Case(
        "GPT2ForSequenceClassification",
        UNTIED | {"num_labels": 4, "n_inner": 17, "activation_function": "relu"},
        CLASSES | {"num_classes": 4, "head_dropout_rate": 0.0, "tied": True, "mlp_dim": 17},
    ),
    "gpt2-choices": Case(
        "GPT2DoubleHeadsModel",
        UNTIED | {"summary_first_dropout": 0.3},
        {"heads": (CHOICES,), "head_dropout_rate": 0.3, "tied": False},
    ),
    "gpt-number": Case(
        "OpenAIGPTForSequenceClassification",
        {"num_labels": 1, "n_embd": 10, "n_head": 5, "afn": "swish"},
        CLASSES | {"num_classes": 1, "activation": "silu", "norm_first": False},
    ),
    "gpt-choices": Case("OpenAIGPTDoubleHeadsModel", {}, {"heads": (CHOICES,), "head_dropout_rate": 0.1, "tied": True}),
}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    sizes = BART if case.family == "Bart" else GPT
    config = getattr(transformers, f"{case.family}Config")(**sizes | case.options, attn_implementation="eager")
    model = getattr(transformers, case.name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("norm" in name or ".ln_" in name) and "weight" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def batch(model: Any) -> dict[str, np.ndarray]:
    """Rows closed by EOS, padding after two of them, and labels."""
    random, config = np.random.default_rng(0), model.config
    lengths = np.array([[LENGTH], [7], [4]])
    positions = np.arange(LENGTH)
    ids = random.integers(10, 47, size=(ROWS, LENGTH))
    if config.model_type == "bart":
        ids = np.where(positions == lengths - 1, config.eos_token_id, ids)
    return {
        "inputs": np.where(positions < lengths, ids, config.pad_token_id).astype(np.int32),
        "valid": positions < lengths,
        "classes": np.array([0, 2, 1]) % config.num_labels,
        "numbers": random.normal(size=ROWS).astype(np.float32),
        "ends": np.array([[1, 2], [0, 3], [2, 2]]),
    }


def theirs_of(model: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """(their logits, under our shape; their loss)."""
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    inputs = {"input_ids": tensors["inputs"].long(), "attention_mask": tensors["valid"].long()}
    if "DoubleHeads" in type(model).__name__:
        # One question, whose choices the rows are; padding is no target.
        labels = torch.where(tensors["valid"], inputs["input_ids"], -100)
        last = tensors["valid"].sum(1) - 1
        more = {"mc_token_ids": last, "mc_labels": torch.tensor([1]), "labels": labels}
        if "OpenAI" in type(model).__name__:
            del inputs["attention_mask"]  # it takes none with choices; padding comes last, where no token attends to it
        out = model(**{name: value[None] for name, value in (inputs | more).items()})
        return out.mc_logits[0], out.mc_loss + 0.5 * out.loss
    if "QuestionAnswering" in type(model).__name__:
        starts, ends = tensors["ends"].T
        out = model(**inputs, start_positions=starts, end_positions=ends)
        return torch.stack([out.start_logits, out.end_logits], dim=-1), out.loss
    out = model(**inputs, labels=tensors["numbers" if model.config.num_labels == 1 else "classes"])
    return out.logits, out.loss


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    theirs = {id(parameter): parameter.numel() for parameter in pair.theirs.parameters()}
    if pair.case.family == "Bart" and not pair.config.shared_embedding:
        del theirs[id(pair.theirs.model.shared.weight)]  # which nothing reads
    assert pair.size == sum(theirs.values())


def test_logits_loss_and_gradients_are_the_same(pair):
    module, features = pair.config.build(), batch(pair.theirs)
    (head,), arrays = pair.config.heads, {name: jnp.asarray(value) for name, value in features.items()}

    def logits_of(model):
        hidden = model.hidden_states(arrays["inputs"], inputs_valid=arrays["valid"])
        ends = {} if head == "question_answering" else {"inputs_valid": arrays["valid"]}
        tokens = model.token_scores(hidden).dense() if head == CHOICES else None
        return getattr(model, f"{head}_logits")(hidden, **ends), tokens

    def loss(params):
        logits, tokens = module.apply({"params": params}, method=logits_of)
        entropy = optax.softmax_cross_entropy_with_integer_labels
        if head == CHOICES:
            follows = arrays["valid"][:, 1:]
            language = (entropy(tokens[:, :-1], arrays["inputs"][:, 1:]) * follows).sum() / follows.sum()
            return entropy(logits, 1) + 0.5 * language, logits
        if head == "question_answering":
            return entropy(logits.swapaxes(1, 2), arrays["ends"]).mean(), logits
        if pair.config.num_classes == 1:
            return ((logits[:, 0] - arrays["numbers"]) ** 2).mean(), logits
        return entropy(logits, arrays["classes"]).mean(), logits

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    expected, their_loss = theirs_of(pair.theirs, features)
    expected = expected.detach().numpy()
    assert expected.std() > 0.05
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    pair.assert_same_loss(value, gradient, their_loss)


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    assert reopened.config.architectures == [pair.case.name]
    reopened.config.pad_token_id = pair.theirs.config.pad_token_id  # a GPT's config does not keep it
    reopened.config.eos_token_id = pair.theirs.config.eos_token_id
    with torch.no_grad():
        expected, got = (theirs_of(model.eval(), batch(pair.theirs))[0] for model in (pair.theirs, reopened))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)

    pair.assert_imports_exactly(tmp_path)


OURS = {"vocab_size": 31, "embed_dim": 6, "num_heads": 2}
SMALL_BART = BartConfig(**OURS, mlp_dim=5, num_encoder_layers=1, num_decoder_layers=1)
SMALL_GPT = GptConfig(**OURS, mlp_dim=24, num_layers=1, max_length=9)


@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL_BART, heads=("classification",), num_classes=4, head_dropout_rate=0.25),
        replace(SMALL_GPT, heads=("classification",), num_classes=4, head_dropout_rate=0.25),
        replace(SMALL_GPT, heads=("multiple_choice",), norm_first=False),
    ],
)
def test_what_theirs_cannot_say_survives(params_of, tmp_path, config):
    """Where the decoder of a BART begins by itself; dropout before a GPT's classes."""
    params = params_of(config)
    export_folder(tmp_path, config, params, None)
    again = import_folder(tmp_path)
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.params, params)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(SMALL_BART, heads=("tagging",)), r"heads=\('tagging',\) has no class among Transformers' Bart models"),
        (replace(SMALL_BART, heads=("question_answering", "classification")), "have no class in Transformers together"),
        (replace(SMALL_GPT, heads=("classification",), tied=False), "tied=False with heads=.* is an output that"),
        (replace(SMALL_GPT, heads=("classification", CHOICES)), "have no class in Transformers together"),
    ],
)
def test_what_theirs_does_not_have_is_not_exported(tmp_path, config, message):
    with pytest.raises(InputError, match=message):
        export_folder(tmp_path / "new", config, {}, None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GPT2DoubleHeadsModel", {"summary_type": "last"}, "summary_type=last in config.json is not one"),
        ("GPT2DoubleHeadsModel", {"summary_activation": "tanh"}, "summary_activation=tanh in config.json is not one"),
    ],
)
def test_heads_that_we_do_not_have_are_refused(tmp_path, name, options, message):
    getattr(transformers, name)(transformers.GPT2Config(**GPT | options)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)

"""Hugging Face's encoders as the oracle: the same weights give the same hidden states, logits, loss and gradients."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.big_bird import BigBird

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size differs from every other one.
SIZES = {
    "vocab_size": 47,
    "hidden_size": 21,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 31,
    "max_position_embeddings": 19,
}
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}
ROWS, LENGTH = 3, 11


@dataclass(frozen=True)
class Case:
    """A class of the oracle and its config, and what we must read out of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.name.split("For")[0].removesuffix("Model")


BOTH = ("masked_lm", "sentence_pair")
CASES = {
    "bert": Case("BertModel", {"hidden_act": "tanh"}, {"heads": (), "pooler": True, "activation": "tanh"}),
    "bert-mlm": Case(
        "BertForMaskedLM",
        {"hidden_act": "relu", "layer_norm_eps": 0.02, "type_vocab_size": 3},
        {"heads": ("masked_lm",), "pooler": False, "norm_epsilon": 0.02, "num_segments": 3, "tied": True},
    ),
    "bert-pretraining": Case("BertForPreTraining", {"hidden_act": "gelu_new"}, {"heads": BOTH, "pooler": True}),
    "bert-untied": Case("BertForPreTraining", {"tie_word_embeddings": False}, {"heads": BOTH, "tied": False}),
    "bert-nsp": Case(
        "BertForNextSentencePrediction",
        {"hidden_act": "swish", "num_hidden_layers": 3},
        {"heads": ("sentence_pair",), "num_layers": 3, "activation": "silu"},
    ),
    "roberta": Case("RobertaModel", {"type_vocab_size": 1}, {"heads": (), "pooler": True, "max_length": 17}),
    "roberta-mlm": Case(
        "RobertaForMaskedLM",
        {"hidden_act": "relu", "pad_token_id": 4, "type_vocab_size": 2, "layer_norm_eps": 1e-5},
        {"heads": ("masked_lm",), "pooler": False, "pad_id": 4, "max_length": 14, "activation": "relu"},
    ),
    "xlm-roberta-untied": Case("XLMRobertaForMaskedLM", {"tie_word_embeddings": False}, {"tied": False, "pad_id": 1}),
    "albert": Case(
        "AlbertModel",
        {"embedding_size": 9, "num_hidden_layers": 3},
        {"heads": (), "token_embed_dim": 9, "activation": "gelu_tanh", "num_layers": 3},
    ),
    "albert-mlm": Case(
        "AlbertForMaskedLM",
        {"embedding_size": 9, "hidden_act": "relu", "tie_word_embeddings": False},
        {"heads": ("masked_lm",), "tied": False, "pooler": False},
    ),
    "albert-pretraining": Case("AlbertForPreTraining", {"embedding_size": 21}, {"heads": BOTH, "token_embed_dim": 21}),
    "distilbert": Case("DistilBertModel", {"sinusoidal_pos_embds": True}, {"heads": (), "num_segments": 0}),
    "distilbert-mlm": Case("DistilBertForMaskedLM", {"activation": "relu"}, {"heads": ("masked_lm",), "tied": True}),
    "distilbert-untied": Case("DistilBertForMaskedLM", {"tie_word_embeddings": False}, {"tied": False}),
    "electra": Case("ElectraModel", {"embedding_size": 21, "type_vocab_size": 1}, {"projects_embeddings": False}),
    "electra-discriminator": Case(
        "ElectraForPreTraining",
        {"embedding_size": 9, "hidden_act": "relu"},
        {"heads": ("replaced_token",), "token_embed_dim": 9, "pooler": False},
    ),
    "electra-generator": Case(
        "ElectraForMaskedLM", {"embedding_size": 9, "hidden_act": "relu"}, {"heads": ("masked_lm",), "tied": True}
    ),
}
CASES |= {
    "big-bird": Case("BigBirdModel", {"block_size": 3}, {"attention": BigBird(3, 3), "activation": "gelu_tanh"}),
    "big-bird-mlm": Case(
        "BigBirdForMaskedLM", {"hidden_act": "relu", "attention_type": "original_full"}, {"attention": None}
    ),
    "big-bird-pretraining": Case("BigBirdForPreTraining", {}, {"heads": BOTH, "pooler": True}),
}
TASKS = {
    "ForSequenceClassification": "classification",
    "ForMultipleChoice": "multiple_choice",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "question_answering",
}
TASK_OPTIONS = {
    "Bert": {"hidden_act": "relu", "num_labels": 5, "classifier_dropout": 0.3},
    "Roberta": {"num_labels": 4, "hidden_dropout_prob": 0.2},
    "XLMRoberta": {"num_labels": 1},
    "Albert": {"embedding_size": 9, "num_labels": 3},
    "DistilBert": {"num_labels": 6, "seq_classif_dropout": 0.05},
    "Electra": {"embedding_size": 9, "hidden_act": "tanh", "num_labels": 3},
    "BigBird": {"num_labels": 3},
}
DROPOUT = dict.fromkeys(TASK_OPTIONS, 0.1) | {"Bert": 0.3, "Roberta": 0.2, "DistilBert": 0.05}
for _family, _options in TASK_OPTIONS.items():
    for _end, _task in TASKS.items():
        _counts = {"num_classes": _options["num_labels"]} if _task in ("classification", "tagging") else {}
        _expected = {"heads": (_task,), "head_dropout_rate": DROPOUT[_family]} | _counts
        _two = {"num_labels": 2} if _task == "question_answering" else {}
        CASES[f"{_family}-{_task}"] = Case(f"{_family}{_end}", _options | _two, _expected)
# These heads have the layers and names that BERT's have.
LIKE_BERT = {f"{family}-{task}" for family in TASK_OPTIONS for task in ("tagging", "question_answering")} & set(CASES)
LIKE_BERT -= {"Bert-tagging", "Bert-question_answering", "BigBird-question_answering"}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    names = DISTILBERT_NAMES if case.family == "DistilBert" else {}
    sizes = {names.get(name, name): value for name, value in (SIZES | case.options).items()}
    config = getattr(transformers, f"{case.family}Config")(**sizes, attn_implementation="eager")
    model = getattr(transformers, case.name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() and "weight" in name:
                parameter.uniform_(0.5, 1.5)
            elif parameter.ndim == 1:
                parameter.normal_(std=0.3)
            else:
                parameter.normal_(std=0.5 if "embeddings." in name else 1.2 * parameter.shape[1] ** -0.5)
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def batch(config: Any) -> dict[str, np.ndarray]:
    """Ids with padding at the end of two rows, and labels for every head."""
    random = np.random.default_rng(0)
    pad_id = 0 if config.pad_id is None else config.pad_id
    valid = np.arange(LENGTH) < np.array([[LENGTH], [7], [4]])
    inputs = random.integers(pad_id + 1, SIZES["vocab_size"], size=(ROWS, LENGTH))
    return {
        "inputs": np.where(valid, inputs, pad_id).astype(np.int32),
        "segments": random.integers(0, max(config.num_segments, 1), size=(ROWS, LENGTH)).astype(np.int32),
        "valid": valid,
        "tokens": random.integers(0, SIZES["vocab_size"], size=(ROWS, LENGTH)).astype(np.int32),
        "scored": (valid & (random.random((ROWS, LENGTH)) < 0.6)).astype(np.float32),
        "labels": np.array([0, 1, 1], np.int32),
        "replaced": random.integers(0, 2, size=(ROWS, LENGTH)).astype(np.float32),
        "tags": random.integers(0, config.num_classes, size=(ROWS, LENGTH)).astype(np.int32),
        "values": random.normal(size=(ROWS, 1)).astype(np.float32),
        "weights": random.normal(size=(ROWS, LENGTH, SIZES["hidden_size"])).astype(np.float32),
    }


def loss_of(outputs: dict[str, Any], arrays: dict[str, Any], log_softmax: Any, softplus: Any, one_hot: Any) -> Any:
    """The heads' losses by hand, and a weighted sum of the hidden states; the same lines for either framework."""
    valid = arrays["valid"] * 1.0
    total = (outputs["hidden"] * arrays["weights"] * valid[..., None]).sum() / valid.sum()
    if "pooled" in outputs:
        total = total + (outputs["pooled"] * arrays["weights"][:, 0]).sum()
    if "masked_lm_logits" in outputs:
        scores = (log_softmax(outputs["masked_lm_logits"]) * one_hot(arrays["tokens"], SIZES["vocab_size"])).sum(-1)
        total = total - (scores * arrays["scored"]).sum() / arrays["scored"].sum()
    if "sentence_pair_logits" in outputs:
        scores = log_softmax(outputs["sentence_pair_logits"]) * one_hot(arrays["labels"], 2)
        total = total - scores.sum() / ROWS
    if "replaced_token_logits" in outputs:
        logits = outputs["replaced_token_logits"]
        losses = softplus(logits) - logits * arrays["replaced"]
        total = total + (losses * valid).sum() / valid.sum()
    if "classification_logits" in outputs:
        logits = outputs["classification_logits"]
        if logits.shape[-1] == 1:
            total = total + ((logits - arrays["values"]) ** 2).sum() / ROWS
        else:
            total = total - (log_softmax(logits) * one_hot(arrays["tags"][:, 0], logits.shape[-1])).sum() / ROWS
    if "multiple_choice_logits" in outputs:
        total = total - log_softmax(outputs["multiple_choice_logits"])[1]
    if "tagging_logits" in outputs:
        logits = outputs["tagging_logits"]
        scores = (log_softmax(logits) * one_hot(arrays["tags"], logits.shape[-1])).sum(-1)
        total = total - (scores * arrays["scored"]).sum() / arrays["scored"].sum()
    if "question_answering_logits" in outputs:
        logits = outputs["question_answering_logits"]
        for end in (0, 1):
            total = total - (log_softmax(logits[..., end]) * one_hot(arrays["labels"] + end, LENGTH)).sum() / ROWS / 2
    return total


def their_outputs(model: Any, features: dict[str, np.ndarray], heads: tuple[str, ...]) -> dict[str, Any]:
    """The oracle's outputs, under our names."""
    tensors = {name: torch.from_numpy(value) for name, value in features.items()}
    arguments = {"input_ids": tensors["inputs"].long(), "attention_mask": tensors["valid"].long()}
    if "DistilBert" not in type(model).__name__:
        arguments["token_type_ids"] = tensors["segments"].long()
    if heads == ("multiple_choice",):  # one question, whose choices the rows are
        arguments = {name: value[None] for name, value in arguments.items()}
    if type(model).__name__ == "BigBirdForQuestionAnswering":  # else it masks the logits up to the first [SEP]
        arguments["question_lengths"] = torch.zeros((len(tensors["inputs"]), 1), dtype=torch.long)
    out = model(**arguments, output_hidden_states=True)
    outputs = {"layers": torch.stack(out.hidden_states), "hidden": out.hidden_states[-1]}
    if heads == ("masked_lm", "sentence_pair"):
        pair_logits = out.sop_logits if "Albert" in type(model).__name__ else out.seq_relationship_logits
        outputs |= {"masked_lm_logits": out.prediction_logits, "sentence_pair_logits": pair_logits}
    elif heads == ("question_answering",):
        outputs["question_answering_logits"] = torch.stack([out.start_logits, out.end_logits], dim=-1)
    elif heads:
        outputs[f"{heads[0]}_logits"] = out.logits[0] if heads == ("multiple_choice",) else out.logits
    elif getattr(out, "pooler_output", None) is not None:
        outputs["pooled"] = out.pooler_output
    return outputs


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    theirs = {id(parameter): parameter.numel() for parameter in pair.theirs.parameters()}
    if not pair.config.tied and pair.case.family != "DistilBert":
        # Their bias beside the one of an untied output, which nothing reads.
        theirs["unused"] = -SIZES["vocab_size"]
    assert pair.size == sum(theirs.values())


@pytest.mark.parametrize("pair", [name for name in CASES if name not in LIKE_BERT], indirect=True)
def test_hidden_states_logits_loss_and_gradients_are_the_same(pair):
    module, features = pair.config.build(), batch(pair.config)
    arrays = {name: jnp.asarray(value) for name, value in features.items()}

    def outputs_of(encoder):
        layers = encoder.encode_layers(arrays["inputs"], arrays["segments"], inputs_valid=arrays["valid"])
        outputs = {f"{head}_logits": getattr(encoder, f"{head}_logits")(layers[-1]) for head in pair.config.heads}
        if pair.config.pooler and not outputs:
            outputs["pooled"] = encoder.pooler(layers[-1])
        return {"layers": layers, "hidden": layers[-1]} | outputs

    def loss(params):
        outputs = module.apply({"params": params}, method=outputs_of)
        return loss_of(outputs, arrays, jax.nn.log_softmax, jax.nn.softplus, jax.nn.one_hot), outputs

    (value, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    theirs = their_outputs(pair.theirs, features, pair.config.heads)
    assert set(outputs) == set(theirs)
    for name, expected in theirs.items():
        got, expected = np.asarray(outputs[name]), expected.detach().numpy()
        if expected.ndim > 2 or name == "replaced_token_logits":  # without what it gives for padding
            axis = 1 if name == "layers" else 0
            got, expected = (np.moveaxis(x, (axis, axis + 1), (0, 1))[features["valid"]] for x in (got, expected))
        assert expected.std() > (0.2 if expected.size > 3 else 0.01)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4, err_msg=name)

    tensors = {name: torch.from_numpy(value) for name, value in features.items()}

    def one_hot(ids, size):
        return torch.nn.functional.one_hot(ids.long(), size)

    their_loss = loss_of(theirs, tensors, lambda x: torch.log_softmax(x, -1), torch.nn.functional.softplus, one_hot)
    pair.assert_same_loss(value, gradient, their_loss)


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    # Without its tokenizer or its vocabulary an XLM-R is a RoBERTa.
    name = pair.case.name.removeprefix("XLM")
    reopened = pair.export(tmp_path, getattr(transformers, name))
    assert reopened.config.architectures == [name]
    features = batch(pair.config)
    with torch.no_grad():
        expected, got = (their_outputs(model.eval(), features, pair.config.heads) for model in (pair.theirs, reopened))
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=1e-5, err_msg=name)

    pair.assert_imports_exactly(tmp_path)

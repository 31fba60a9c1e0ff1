"""Random models of every class of Transformers that we claim to read: same outputs, and facts that go out as they came.

T5X_LITE_CAMPAIGN_MINUTES=20 pytest -m slow tests/campaigns/test_transformers.py
"""

import random
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import t5x_lite
from t5x_lite.pretrained import PretrainedEncoder

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

pytestmark = pytest.mark.slow

TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
CLASSES = {
    "Bert": ("Model", "ForMaskedLM", "ForPreTraining", *TASKS),
    "Roberta": ("Model", "ForMaskedLM", *TASKS),
    "XLMRoberta": ("Model", "ForMaskedLM", *TASKS),
    "Albert": ("Model", "ForMaskedLM", "ForPreTraining", *TASKS),
    "DistilBert": ("Model", "ForMaskedLM", *TASKS),
    "Electra": ("Model", "ForMaskedLM", "ForPreTraining", *TASKS),
    "GPT2": ("LMHeadModel", "ForSequenceClassification"),
    "OpenAIGPT": ("LMHeadModel", "ForSequenceClassification"),
    "T5": ("ForConditionalGeneration",),
    "MT5": ("ForConditionalGeneration",),
    "Bart": ("ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering"),
    "Marian": ("MTModel",),
}
STACKS, GPTS = ("T5", "MT5", "Bart", "Marian"), ("GPT2", "OpenAIGPT")
OUTPUTS = {
    "ForMaskedLM": {"masked_lm_logits": "logits"},
    "ForSequenceClassification": {"classification_logits": "logits"},
    "ForTokenClassification": {"tagging_logits": "logits"},
}
LENGTH = 9


def one_of(draw: random.Random, *values: Any) -> Any:
    return draw.choice(values)


def random_config(family: str, end: str, draw: random.Random) -> Any:
    """A small configuration with odd values of what its class has fields for."""
    vocab, heads, width = draw.randrange(30, 60), draw.choice((1, 2, 3)), draw.choice((6, 12))
    mlp, layers, positions = draw.randrange(3, 20), draw.choice((1, 2)), draw.randrange(LENGTH + 8, 30)
    common: dict[str, Any] = {"vocab_size": vocab, "pad_token_id": draw.randrange(vocab)}
    common |= {f"{name}_token_id": draw.randrange(vocab) for name in ("bos", "eos") if draw.random() < 0.5}
    if draw.random() < 0.5:
        names = draw.sample(
            ["good", "bad", "so so", "Ü", "0", "a b"],
            2 if end in ("ForQuestionAnswering", "ForPreTraining") else draw.choice((1, 2, 3, 5)),
        )
        common |= {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    if draw.random() < 0.5:
        kinds = ("regression", "single_label_classification", "multi_label_classification")
        common["problem_type"] = kinds[0] if len(common.get("id2label", "ab")) == 1 else draw.choice(kinds)
    activation = one_of(draw, "gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh")
    if family in GPTS:
        fields = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions}
        if family == "GPT2":
            fields |= {"activation_function": activation, "n_inner": one_of(draw, None, mlp)}
            fields |= {"scale_attn_weights": draw.random() < 0.7, "tie_word_embeddings": draw.random() < 0.7}
        else:
            fields["afn"] = one_of(draw, "gelu", "relu", "silu")
        if end != "LMHeadModel":
            fields["tie_word_embeddings"] = True
    elif family in ("T5", "MT5"):
        fields = {"d_model": width, "d_kv": draw.randrange(2, 6), "d_ff": mlp, "num_heads": heads}
        fields |= {"num_layers": layers, "num_decoder_layers": draw.choice((1, 2, 3))}
        fields |= {"relative_attention_num_buckets": one_of(draw, 8, 32), "relative_attention_max_distance": 20}
        fields |= {"feed_forward_proj": one_of(draw, "relu", "gated-gelu", "gated-silu")}
        fields |= {"tie_word_embeddings": family == "T5" and draw.random() < 0.5}
        fields |= {"decoder_start_token_id": draw.randrange(vocab)}
    elif family in STACKS:
        fields = {"d_model": width, "max_position_embeddings": positions, "activation_function": activation}
        fields |= {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
                   (("layers", draw.choice((1, 2))), ("attention_heads", heads), ("ffn_dim", mlp))}  # fmt: skip
        fields |= {"scale_embedding": draw.random() < 0.5, "decoder_start_token_id": draw.randrange(vocab)}
        fields |= {"forced_eos_token_id": one_of(draw, None, draw.randrange(vocab))}
    elif family == "DistilBert":
        fields = {"dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": mlp, "activation": "gelu"}
        fields |= {"max_position_embeddings": positions, "sinusoidal_pos_embds": False}
    else:
        fields = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        fields |= {"intermediate_size": mlp, "hidden_act": activation, "layer_norm_eps": one_of(draw, 1e-12, 1e-5)}
        fields |= {"max_position_embeddings": positions}
        if family in ("Roberta", "XLMRoberta"):
            common["pad_token_id"] = draw.randrange(min(vocab, 6))
            fields |= {"type_vocab_size": 1}
        else:
            fields |= {"type_vocab_size": 2}
        if family in ("Albert", "Electra"):
            fields["embedding_size"] = one_of(draw, width, 5)
    return getattr(transformers, f"{family}Config")(**fields | common)


def facts(config: Any) -> dict[str, Any]:
    kept = ("id2label", "label2id", "problem_type", "model_type", "num_labels")
    return {name: value for name, value in config.to_dict().items() if name in kept or name.endswith("_token_id")}


def run(model: Any, ids: np.ndarray, valid: np.ndarray, family: str, end: str) -> dict[str, np.ndarray]:
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(valid.astype(np.int64))}
    if end == "ForMultipleChoice":
        inputs = {name: value[None] for name, value in inputs.items()}
    if family in STACKS and end in ("ForConditionalGeneration", "MTModel"):
        inputs["decoder_input_ids"] = torch.tensor(ids[:, ::-1].copy())
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    return {name: value.numpy() for name, value in outputs.items() if isinstance(value, torch.Tensor)} | (
        {"hidden": outputs["hidden_states"][-1].numpy()} if outputs.get("hidden_states") else {}
    )


def compare(ours: Any, theirs: dict[str, np.ndarray], ids: np.ndarray, valid: np.ndarray, end: str) -> None:
    """Everything that both compute, where ids are not padding."""
    if not isinstance(ours, PretrainedEncoder):
        if end == "LMHeadModel":
            np.testing.assert_allclose(ours(ids, valid=valid)[valid], theirs["logits"][valid], atol=1e-4)
        elif "logits" in theirs and theirs["logits"].ndim == 3 and end != "ForQuestionAnswering":
            rows = map(jnp.asarray, (ids, ids[:, ::-1]))
            logits = ours.module.apply({"params": ours.params}, *rows, inputs_valid=jnp.asarray(valid))
            np.testing.assert_allclose(logits, theirs["logits"], atol=1e-4)
        return
    outputs = ours(ids, valid=valid)
    np.testing.assert_allclose(np.asarray(outputs["hidden"])[valid], theirs["hidden"][valid], atol=1e-4)
    for mine, name in OUTPUTS.get(end, {}).items():
        got, expected = np.asarray(outputs[mine]), theirs[name]
        np.testing.assert_allclose(*(x[valid] if x.ndim == 3 else x for x in (got, expected)), atol=1e-4)


def test_models(tmp_path: Path, draws) -> None:
    names = [(family, end) for family, ends in CLASSES.items() for end in ends]
    for number, draw in enumerate(draws):
        family, end = names[number % len(names)]
        torch.manual_seed(number)
        config = random_config(family, end, draw)
        what = f"{family}{end} {config.to_diff_dict()}"
        cls = getattr(transformers, f"{family}{end}")
        model = cls(config).eval()
        with torch.no_grad():  # fresh ones have zeros and ones where errors would not show
            for parameter in filter(lambda one: one.requires_grad, model.parameters()):
                parameter.add_(0.1 * torch.randn_like(parameter))
        valid = np.arange(LENGTH)[None] < np.array([[LENGTH], [LENGTH - 3]])
        pad = config.pad_token_id
        texts = [token for token in range(config.vocab_size) if token not in (pad, config.eos_token_id)]
        ids = np.where(valid, [[draw.choice(texts) for _ in range(LENGTH)] for _ in range(2)], pad)
        if family == "Bart" and end == "ForSequenceClassification":  # which reads the last EOS
            if config.eos_token_id in (None, pad):
                config.eos_token_id = texts[0]
            ids = np.where(ids == config.eos_token_id, texts[1], ids)
            ids[range(2), valid.sum(axis=1) - 1] = config.eos_token_id
        theirs = run(model, ids, valid, family, end)
        folders = tmp_path / f"{number}", tmp_path / f"{number}-out"
        model.save_pretrained(folders[0])
        try:
            ours = t5x_lite.load(folders[0])
            compare(ours, theirs, ids, valid, end)
            ours.export(folders[1])
            again, report = cls.from_pretrained(folders[1], output_loading_info=True)
            assert not report["missing_keys"] and not report["unexpected_keys"]
            for name, value in run(again.eval(), ids, valid, family, end).items():
                np.testing.assert_allclose(value, theirs[name], atol=1e-5)
            assert facts(again.config) == facts(model.config)
        except Exception as error:
            raise AssertionError(what) from error

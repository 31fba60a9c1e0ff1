"""What older and other checkpoints of BERT and its descendants look like, and what none of ours can be."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import AlbertConfig, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig

SIZES = {"vocab_size": 30, "embed_dim": 6, "num_heads": 2, "mlp_dim": 11, "num_layers": 2, "max_length": 13}
CONFIGS = {
    "bert": BertConfig(**SIZES, heads=("masked_lm", "sentence_pair")),
    "roberta": RobertaConfig(**SIZES, heads=("masked_lm",)),
    "albert": AlbertConfig(**SIZES, token_embed_dim=5, heads=("masked_lm",)),
    "distilbert": DistilBertConfig(**SIZES, heads=("masked_lm",)),
    "electra": ElectraConfig(**SIZES, token_embed_dim=5, heads=("masked_lm",)),
}
# Where each family's output that scores tokens may stand a second time: kernel, bias.
REPEATED = {
    "bert": ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
    "roberta": ("lm_head.decoder.weight", "lm_head.decoder.bias"),
    "albert": ("predictions.decoder.weight", "predictions.decoder.bias"),
    "distilbert": ("vocab_projector.weight", ""),
    "electra": ("generator_lm_head.weight", ""),
}


@dataclass(frozen=True)
class Folder:
    """A folder of one family, and what import must read there."""

    family: str
    path: Path
    config: Any
    params: Any

    def change(self, change: Any) -> None:
        """Writes its tensors anew."""
        tensors = change(load_file(self.path / "model.safetensors"))
        tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        save_file(tensors, self.path / "model.safetensors")

    def describe(self, **fields: Any) -> None:
        """Changes its config.json; None takes a field away."""
        path = self.path / "config.json"
        described = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({name: value for name, value in described.items() if value is not None}))

    def assert_unchanged(self) -> None:
        imported = import_folder(self.path)
        assert imported.config == self.config
        assert jax.tree.structure(imported.params) == jax.tree.structure(self.params)
        jax.tree.map(np.testing.assert_array_equal, imported.params, self.params)


@pytest.fixture
def folder(request, tmp_path, params_of) -> Folder:
    family = getattr(request, "param", "bert")
    config = CONFIGS[family]
    params = params_of(config)
    export_folder(tmp_path / "hf", config, params, None)
    return Folder(family, tmp_path / "hf", config, params)


every_family = pytest.mark.parametrize("folder", CONFIGS, indirect=True)


def test_tensors_land_where_their_names_say(folder):
    tensors = load_file(folder.path / "model.safetensors")
    assert len(tensors) == 5 + 2 * 16 + 2 + 5 + 2
    for theirs, ours in {
        "attention.self.key.weight": folder.params["encoder"]["layers"]["self_attention"]["key"]["kernel"][1].T,
        "attention.output.LayerNorm.bias": folder.params["encoder"]["layers"]["self_attention_norm"]["bias"][1],
        "intermediate.dense.bias": folder.params["encoder"]["layers"]["feed_forward"]["wi"]["bias"][1],
        "output.LayerNorm.weight": folder.params["encoder"]["layers"]["feed_forward_norm"]["scale"][1],
    }.items():
        np.testing.assert_array_equal(tensors[f"bert.encoder.layer.1.{theirs}"], ours)


@every_family
def test_norms_may_have_their_first_names_and_constants_may_be_there(folder):
    def older(tensors):
        for ours, theirs in {"weight": "gamma", "bias": "beta"}.items():
            tensors = {name.replace(f"LayerNorm.{ours}", f"LayerNorm.{theirs}"): v for name, v in tensors.items()}
        return tensors | {
            f"{folder.family}.embeddings.position_ids": np.arange(13)[None],
            f"{folder.family}.embeddings.token_type_ids": np.zeros((1, 13), np.int64),
        }

    folder.change(older)
    if folder.family != "distilbert":
        assert any(name.endswith("LayerNorm.gamma") for name in load_file(folder.path / "model.safetensors"))
    folder.assert_unchanged()


@every_family
def test_the_tied_output_may_be_there_a_second_time(folder):
    kernel, bias = REPEATED[folder.family]

    def repeat(tensors):
        table = tensors[f"{folder.family}.embeddings.word_embeddings.weight"]
        return tensors | {kernel: table} | ({bias: tensors[bias.replace("decoder.", "")]} if bias else {})

    folder.change(repeat)
    folder.assert_unchanged()


@every_family
def test_an_output_of_its_own_means_untied(folder):
    kernel, bias = REPEATED[folder.family]
    own, own_bias = np.full((30, folder.config.token_embed_dim), 0.5, np.float32), np.arange(30, dtype=np.float32)
    folder.change(lambda tensors: tensors | {kernel: own} | ({bias: own_bias} if bias else {}))
    imported = import_folder(folder.path)
    assert not imported.config.tied
    scores = imported.params["masked_lm"]["scores"]
    np.testing.assert_array_equal(scores["kernel"], own.T)
    # Their own bias goes unread there.
    np.testing.assert_array_equal(scores["bias"], own_bias if bias else folder.params["masked_lm"]["scores"]["bias"])


@every_family
def test_an_untied_output_equal_to_the_table_stays_one_of_its_own(folder):
    kernel, _ = REPEATED[folder.family]
    table = f"{folder.family}.embeddings.word_embeddings.weight"
    folder.describe(tie_word_embeddings=False)
    with pytest.raises(InputError, match=f"{kernel} is missing"):
        import_folder(folder.path)
    folder.change(lambda tensors: tensors | {kernel: tensors[table]})
    imported = import_folder(folder.path)
    assert not imported.config.tied
    np.testing.assert_array_equal(
        imported.params["masked_lm"]["scores"]["kernel"].T, folder.params["embeddings"]["token"]["embedding"]
    )


@every_family
def test_an_encoder_alone_comes_without_prefix(folder):
    prefix = f"{folder.family}."
    folder.change(lambda tensors: {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)})
    assert "embeddings.word_embeddings.weight" in load_file(folder.path / "model.safetensors")
    imported = import_folder(folder.path)
    assert imported.config.heads == ()
    parts = {name: branch for name, branch in folder.params.items() if name not in folder.config.heads}
    jax.tree.map(np.testing.assert_array_equal, imported.params, parts)


def test_heads_and_pooler_are_read_from_the_tensors(folder):
    folder.change(lambda tensors: {n: v for n, v in tensors.items() if "seq_relationship" not in n})
    assert import_folder(folder.path).config.heads == ("masked_lm",)
    folder.change(lambda tensors: {n: v for n, v in tensors.items() if "pooler" not in n})
    assert not import_folder(folder.path).config.pooler


def test_every_tensor_that_does_not_fit_is_named(folder):
    def change(tensors):
        del tensors["bert.encoder.layer.1.attention.self.query.bias"]
        return tensors | {"classifier.weight": np.ones((2, 6)), "classifier.bias": np.ones(2)}

    folder.change(change)
    with pytest.raises(
        InputError,
        match=r"bert.encoder.layer.1.attention.self.query.bias is missing \(ours: encoder/layers/self_attention/query/"
        r"bias\); classifier.bias is not of this architecture; classifier.weight is not .*; save it without",
    ):
        import_folder(folder.path)


@pytest.mark.parametrize(
    ("folder", "change", "expected"),
    [
        ("bert", {"hidden_act": "gelu_python"}, {"activation": "gelu"}),
        ("bert", {"hidden_act": "gelu_fast"}, {"activation": "gelu_tanh"}),
        ("bert", {"hidden_act": "gelu_pytorch_tanh"}, {"activation": "gelu_tanh"}),
        ("bert", {"hidden_act": "swish"}, {"activation": "silu"}),
        ("bert", {"hidden_act": None, "layer_norm_eps": None}, {"activation": "gelu", "norm_epsilon": 1e-12}),
        ("bert", {"position_embedding_type": "absolute", "is_decoder": False}, {"max_length": 13}),
        ("albert", {"hidden_act": None, "hidden_dropout_prob": None}, {"activation": "gelu_tanh", "dropout_rate": 0.0}),
        ("albert", {"num_hidden_groups": None, "inner_group_num": None}, {"num_layers": 2}),
        ("roberta", {"model_type": "xlm-roberta"}, {"pad_id": 1, "max_length": 13}),
        ("roberta", {"pad_token_id": None}, {"pad_id": 1}),
        ("distilbert", {"dropout": None, "activation": None}, {"dropout_rate": 0.1, "activation": "gelu"}),
    ],
    indirect=["folder"],
)
def test_what_a_config_means(folder, change, expected):
    folder.describe(**change)
    config = import_folder(folder.path).config
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("folder", "change", "message"),
    [
        ("bert", {"hidden_size": None, "num_hidden_layers": None}, "lacks hidden_size, num_hidden_layers; .*'bert'"),
        ("bert", {"hidden_size": "6"}, "hidden_size='6' in config.json is not a number"),
        ("bert", {"hidden_act": "mish"}, "hidden_act='mish' in config.json is unknown; known are gelu,"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type=relative_key"),
        ("bert", {"is_decoder": True}, "is_decoder=True"),
        ("electra", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("albert", {"num_hidden_groups": 2}, "num_hidden_groups=2"),
        ("albert", {"inner_group_num": 3}, "inner_group_num=3"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings=2 .* leaves no positions"),
        ("roberta", {"pad_token_id": 40}, "leaves no positions|pad_id=40"),
        ("distilbert", {"dim": None}, "lacks dim"),
        ("electra", {"embedding_size": 7}, "embeddings.word_embeddings.weight has shape"),
    ],
    indirect=["folder"],
)
def test_configs_that_we_do_not_have(folder, change, message):
    folder.describe(**change)
    with pytest.raises(InputError, match=message):
        import_folder(folder.path)


def test_a_sentence_pair_without_a_pooler_is_refused(folder):
    folder.change(lambda tensors: {n: v for n, v in tensors.items() if "pooler" not in n})
    with pytest.raises(InputError, match="pooler"):
        import_folder(folder.path)


def test_pickled_weights_are_converted_by_the_class_that_wrote_them(folder):
    (folder.path / "model.safetensors").rename(folder.path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model.bin.*transformers.BertForPreTraining.from_pretrained\('.*'\)"):
        import_folder(folder.path)
    (folder.path / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match=r"has no model.safetensors; fetch it"):
        import_folder(folder.path)


def test_what_distilbert_has_no_field_for_is_not_exported(tmp_path):
    with pytest.raises(InputError, match="norm_epsilon=0.001 has no place"):
        export_folder(tmp_path, DistilBertConfig(**SIZES, norm_epsilon=1e-3), {}, None)


def test_the_span_boundary_head_stays_at_home(tmp_path, params_of):
    config = BertConfig(**SIZES, heads=("masked_lm", "span_boundary"))
    params = params_of(config)
    export_folder(tmp_path, config, params, None)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    imported = import_folder(tmp_path)
    assert imported.config == BertConfig(**SIZES, heads=("masked_lm",))
    del params["span_boundary"]
    jax.tree.map(np.testing.assert_array_equal, imported.params, params)


def test_an_early_config_of_berts_names_no_type(tmp_path, params_of):
    config = CONFIGS["bert"]
    folder = Folder("bert", tmp_path, config, params_of(config))
    export_folder(tmp_path, config, folder.params, None)
    folder.describe(model_type=None)
    folder.assert_unchanged()

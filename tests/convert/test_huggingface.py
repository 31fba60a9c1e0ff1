import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.flax import save_file as save_jax
from safetensors.numpy import load_file, save_file

from t5x_lite.convert import export_folder, import_folder, is_huggingface_folder
from t5x_lite.errors import InputError
from t5x_lite.models import (
    PRESETS,
    AlbertConfig,
    BertConfig,
    BigBird,
    BigBirdConfig,
    DistilBertConfig,
    ElectraConfig,
    EncoderConfig,
    Linformer,
    RobertaConfig,
    T5Config,
)
from t5x_lite.tokenizers.config import ByteTokenizer

CONFIG = T5Config(
    vocab_size=400, embed_dim=7, num_heads=2, head_dim=3, mlp_dim=11, num_encoder_layers=1, num_decoder_layers=2
)
SIZES = {"vocab_size": 30, "embed_dim": 6, "num_heads": 2, "mlp_dim": 11, "num_layers": 3, "max_length": 13}
UNTIED = replace(CONFIG, tied=False, scale_output=False, gated=True, activation="gelu_tanh")
KEY = "decoder.block.1.layer.2.DenseReluDense.wo.weight"


@pytest.fixture(scope="module")
def params(params_of):
    return params_of(CONFIG)


@pytest.fixture
def folder(tmp_path, params) -> Path:
    export_folder(tmp_path / "hf", CONFIG, params, None)
    return tmp_path / "hf"


def change_config(folder: Path, **fields) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in described.items() if value != "absent"}))


def change_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")


def assert_same(params, others) -> None:
    assert jax.tree.structure(params) == jax.tree.structure(others)
    jax.tree.map(np.testing.assert_array_equal, params, others)


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, scale_output=False, activation="gelu"),
        replace(CONFIG, gated=True, activation="tanh"),
        replace(UNTIED, scale_output=True),
        replace(UNTIED, gated=False),
        replace(UNTIED, activation="silu", relative_buckets=7, relative_max_distance=9, dropout_rate=0.0),
        BertConfig(**SIZES, pooler=False, num_segments=3, activation="relu", norm_epsilon=1e-3),
        BertConfig(**SIZES, heads=("sentence_pair",), activation="silu", dropout_rate=0.2, attention_dropout_rate=0.3),
        BertConfig(**SIZES, heads=("masked_lm", "sentence_pair"), tied=False, activation="tanh"),
        RobertaConfig(**SIZES, pad_id=7, heads=("masked_lm",), num_segments=2, pooler=False),
        RobertaConfig(**SIZES, pad_id=0, heads=("masked_lm",), tied=False),
        AlbertConfig(**SIZES, token_embed_dim=5, pooler=False, heads=("masked_lm",), dropout_rate=0.1),
        AlbertConfig(**SIZES, token_embed_dim=6, heads=("masked_lm", "sentence_pair"), tied=False),
        AlbertConfig(**SIZES, heads=("sentence_pair",)),
        DistilBertConfig(**SIZES, heads=("masked_lm",), tied=False, activation="gelu_tanh", dropout_rate=0.2),
        ElectraConfig(**SIZES, token_embed_dim=6, num_segments=1, heads=("masked_lm",)),
        ElectraConfig(**SIZES, token_embed_dim=5, heads=("masked_lm", "replaced_token"), tied=False),
    ],
)
def test_import_undoes_export(tmp_path, params_of, config):
    params = params_of(config, 1)
    export_folder(tmp_path, config, params, None)
    assert is_huggingface_folder(tmp_path)
    imported = import_folder(tmp_path)
    assert imported.config == config
    assert_same(imported.params, params)


def test_every_tensor_lands_where_its_name_says(folder, params):
    tensors = load_file(folder / "model.safetensors")
    assert len(tensors) == 3 + 2 + 1 * 8 + 2 * 13
    np.testing.assert_array_equal(tensors[KEY], params["decoder"]["layers"]["feed_forward"]["wo"]["kernel"][1].T)
    np.testing.assert_array_equal(
        tensors["decoder.block.0.layer.1.EncDecAttention.k.weight"],
        params["decoder"]["layers"]["cross_attention"]["key"]["kernel"][0].T,
    )


def test_models_without_a_counterpart_are_not_exported(tmp_path, params):
    with pytest.raises(
        InputError,
        match="EncoderConfig has no .* counterpart; .*T5Config, T5EncoderConfig, BartConfig, TransformerConfig",
    ):
        export_folder(tmp_path, EncoderConfig(), params, None)


def test_what_has_no_name_there_is_not_exported(tmp_path, params):
    with pytest.raises(InputError, match="stacks_share_parameters=True has no place"):
        export_folder(tmp_path, T5Config(stacks_share_parameters=True), params, None)
    with pytest.raises(InputError, match="activation='gelu' with gated=True"):
        export_folder(tmp_path, replace(UNTIED, activation="gelu"), params, None)
    for encoder in (BertConfig, RobertaConfig, AlbertConfig, ElectraConfig, DistilBertConfig):
        with pytest.raises(InputError, match=r"attention=Linformer\(.* has no place in Hugging Face's"):
            export_folder(tmp_path, encoder(attention=Linformer()), params, None)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("attention_type", "sliding", "attention_type='sliding' in config.json is unknown; known are block_sparse and"),
        ("block_size", 2.5, "config.json gives block_size the value 2.5; it is damaged"),
        ("block_size", True, "block_size=True in config.json is not a number; the file is damaged"),
        ("num_random_blocks", -1, "num_random_blocks=-1"),
    ],
)
def test_blocks_that_are_none_are_refused(tmp_path, params_of, field, value, message):
    config = BigBirdConfig(20, 2, 4, 6, 1, 8, attention=BigBird(2, 1))
    export_folder(tmp_path, config, params_of(config), None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)


def test_parameters_that_do_not_fit_their_config_are_not_exported(tmp_path, params):
    layers = params["encoder"]["layers"]
    without = params | {"encoder": params["encoder"] | {"layers": layers | {"feed_forward_norm": {}}}}
    path = "encoder/layers/feed_forward_norm/scale"
    with pytest.raises(InputError, match=rf"do not fit their config: {path} is missing; export"):
        export_folder(tmp_path, CONFIG, without, None)
    with pytest.raises(InputError, match="config: extra is not of this architecture; export"):
        export_folder(tmp_path, CONFIG, params | {"extra": np.ones(3)}, None)
    with pytest.raises(InputError, match=r"feed_forward/wo/kernel has shape \(2, 11, 7\), not \(3, 11, 7\)"):
        export_folder(tmp_path, replace(CONFIG, num_decoder_layers=3), params, None)
    assert not [*tmp_path.iterdir()]


def test_mt5_is_told_by_its_vocabulary(tmp_path, params_of):
    config = replace(UNTIED, vocab_size=PRESETS["mt5-small"].vocab_size, embed_dim=1)
    export_folder(tmp_path, config, params_of(config), None)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "mt5"
    assert import_folder(tmp_path).config == config


def test_bfloat16_and_several_files(folder, params):
    tensors = {
        name: jnp.asarray(value, jnp.bfloat16) for name, value in load_file(folder / "model.safetensors").items()
    }
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, own in parts.items():
        save_jax({name: tensors[name] for name in own}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, own in parts.items() for name in own}}))
    expected = jax.tree.map(lambda leaf: np.asarray(leaf.astype(jnp.bfloat16), np.float32), params)
    imported = import_folder(folder).params
    assert {leaf.dtype for leaf in jax.tree.leaves(imported)} == {np.dtype(np.float32)}
    assert_same(imported, expected)

    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="model-00002-of-00002.safetensors cannot be read"):
        import_folder(folder)
    index.write_text("{}")
    with pytest.raises(InputError, match=r"index\.json has no weight_map"):
        import_folder(folder)


def test_repeated_and_unused_tensors_are_ignored(folder, params):
    def add(tensors):
        for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = tensors["shared.weight"]
        tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.ones((32, 2), np.float32)

    change_tensors(folder, add)
    imported = import_folder(folder)
    assert imported.config.tied
    assert_same(imported.params, params)


def test_the_embedding_may_have_the_encoders_name_alone(folder, params):
    def rename(tensors):
        tensors["encoder.embed_tokens.weight"] = tensors.pop("shared.weight")

    change_tensors(folder, rename)
    assert_same(import_folder(folder).params, params)


def test_a_head_of_its_own_means_untied(folder):
    change_tensors(folder, lambda t: t.update({"lm_head.weight": 2 * t["shared.weight"]}))
    imported = import_folder(folder)
    assert not imported.config.tied
    np.testing.assert_array_equal(
        imported.params["output"]["kernel"].T, 2 * imported.params["token_embedding"]["embedding"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(KEY), f"{KEY} is missing"),
        (lambda t: t.update({KEY: t[KEY][:, :-1]}), rf"{KEY} has shape \(10, 7\), not \(11, 7\)"),
        (lambda t: t.update({KEY: t[KEY].T}), rf"{KEY} has shape \(7, 11\), not \(11, 7\)"),
        (lambda t: t.update(adapter=np.ones(2, np.float32)), "adapter is not of this architecture"),
        (lambda t: t.pop("shared.weight"), "shared.weight is missing"),
        (lambda t: (t.pop(KEY), t.update(adapter=np.ones(2, np.float32))), f"{KEY} is missing.*adapter is not"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, change, message):
    change_tensors(folder, change)
    with pytest.raises(InputError, match=message):
        import_folder(folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tie_word_embeddings": False, "scale_decoder_outputs": "absent"}, {"scale_output": False}),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": "absent"}, {"scale_output": True}),
        ({"tie_word_embeddings": "absent", "scale_decoder_outputs": "absent"}, {"scale_output": True}),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, {"scale_output": False}),
        ({"model_type": "mt5"}, {"scale_output": False}),
        ({"feed_forward_proj": "absent"}, {"activation": "relu", "gated": False}),
        ({"feed_forward_proj": "gelu_new"}, {"activation": "gelu_tanh"}),
        ({"dropout_rate": "absent", "layer_norm_epsilon": "absent"}, {"dropout_rate": 0.1, "norm_epsilon": 1e-6}),
        ({"relative_attention_max_distance": "absent"}, {"relative_max_distance": 128}),
    ],
)
def test_what_a_config_means(folder, change, expected):
    change_config(folder, **change)
    config = import_folder(folder).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_silent_config_means_as_many_layers_on_either_side(tmp_path, params_of):
    config = replace(CONFIG, num_encoder_layers=2)
    params = params_of(config)
    export_folder(tmp_path, config, params, None)
    change_config(tmp_path, num_decoder_layers="absent")
    assert_same(import_folder(tmp_path).params, params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "pegasus"}, "model_type='pegasus'.* t5, mt5, bart, marian, bigbird_pegasus, gpt2, "),
        ({"model_type": "absent"}, "model_type=None"),
        ({"d_model": "absent", "d_kv": None}, "lacks d_model, d_kv"),
        ({"feed_forward_proj": "gated-swiglu"}, "feed_forward_proj='gated-swiglu'"),
        ({"feed_forward_proj": ["relu"]}, r"feed_forward_proj=\['relu'\]"),
        ({"num_layers": 0}, "num_encoder_layers=0"),
    ],
)
def test_configs_that_we_do_not_have(folder, change, message):
    change_config(folder, **change)
    with pytest.raises(InputError, match=message):
        import_folder(folder)


def test_a_truncated_config(folder):
    content = (folder / "config.json").read_text()
    for broken in (content[: len(content) // 2], "", "[]"):
        (folder / "config.json").write_text(broken)
        with pytest.raises(InputError, match=r"config\.json"):
            import_folder(folder)
    (folder / "config.json").unlink()
    assert not is_huggingface_folder(folder)


@pytest.mark.parametrize("keep", [0, 4, 200, -1])
def test_truncated_weights(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read"):
        import_folder(folder)


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_eight_bits_are_not_read(folder, dtype):
    tensors = {name: jax.device_put(value) for name, value in load_file(folder / "model.safetensors").items()}
    tensors["shared.weight"] = tensors["shared.weight"].astype(dtype)
    save_jax(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors has shared\.weight in F8_E.*; save it in BF16 or F32$"):
        import_folder(folder)


def test_pickled_weights_are_not_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"it has pytorch_model\.bin.*\.T5ForConditionalGeneration\.from_pre"):
        import_folder(folder)


def test_the_tokenizer_travels(tmp_path, params, spiece_tokenizer):
    for number, tokenizer in enumerate([spiece_tokenizer, ByteTokenizer(extra_ids=0)]):
        folder = tmp_path / str(number)
        export_folder(folder, CONFIG, params, tokenizer)
        imported = import_folder(folder).tokenizer
        assert imported.vocabulary == tokenizer.vocabulary
        assert imported.fingerprint == tokenizer.fingerprint


def test_a_tokenizer_larger_than_the_model(tmp_path, params_of, spiece_tokenizer):
    config = replace(CONFIG, vocab_size=20)
    export_folder(tmp_path, config, params_of(config), spiece_tokenizer)
    with pytest.raises(InputError, match="60 ids, the model only 20"):
        import_folder(tmp_path)


@pytest.fixture(scope="module")
def spiece_tokenizer():
    from t5x_lite.data import SentencePiece, make_tokenizer

    texts = [f"{i} the model reads a row of ids and writes another one {i * i}" for i in range(50)]
    config = SentencePiece(vocab_size=50, extra_ids=10, character_coverage=1.0)
    return make_tokenizer(config, lambda: iter(texts))


def test_sentinels_above_the_bytes_survive_the_journey(tmp_path, params_of):
    config = T5Config(384, 2, embed_dim=4, head_dim=2, mlp_dim=4, num_encoder_layers=1, num_decoder_layers=1)
    export_folder(tmp_path, config, params_of(config), ByteTokenizer(extra_ids=20))
    assert import_folder(tmp_path).tokenizer.vocabulary == ByteTokenizer(extra_ids=20).vocabulary

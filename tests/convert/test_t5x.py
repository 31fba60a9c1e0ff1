"""T5X's checkpoints: every layout gives the same parameters, and they give Transformers' logits."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.convert import import_t5x
from t5x_lite.convert.t5x import find_t5x_checkpoint
from t5x_lite.data import SentencePiece
from t5x_lite.errors import InputError
from t5x_lite.models import T5Config
from t5x_lite.parallel import MeshShape
from t5x_lite.tokenizers.training import train_sentencepiece

from ..t5x_checkpoints import BUCKETS, LAYERS, WRITERS, D, F, H, K, V, tree, write_file, write_folder

SHARED = Path(__file__).parents[3] / "shared" / "data" / "t5x_tiny" / "test_t5_tiny.checkpoint_0"


@pytest.fixture(scope="module", params=[True, False], ids=["v1.1", "v1.0"])
def arrays(request) -> dict[str, np.ndarray]:
    return tree(request.param)


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_gives_the_same(layout, arrays, tmp_path):
    WRITERS[layout](tmp_path / "checkpoint_3", arrays)
    imported = import_t5x(tmp_path / "checkpoint_3")
    gated = "decoder/logits_dense/kernel" in arrays
    assert imported.config == T5Config(
        vocab_size=V,
        embed_dim=D,
        num_heads=H,
        head_dim=K,
        mlp_dim=F,
        num_encoder_layers=2,
        num_decoder_layers=3,
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        tied=not gated,
        scale_output=not gated,
        relative_buckets=BUCKETS,
    )
    params = traverse_util.flatten_dict(imported.params, sep="/")
    assert sum(value.size for value in params.values()) == sum(value.size for value in arrays.values())
    layer = "decoder/layers_1"
    for ours, theirs in {
        "decoder/layers/cross_attention/key/kernel": f"{layer}/encoder_decoder_attention/key/kernel",
        "decoder/layers/self_attention/out/kernel": f"{layer}/self_attention/out/kernel",
        "decoder/layers/cross_attention_norm/scale": f"{layer}/pre_cross_attention_layer_norm/scale",
        "decoder/layers/feed_forward/wi/kernel": f"{layer}/mlp/{'wi_1' if gated else 'wi'}/kernel",
    }.items():
        np.testing.assert_array_equal(params[ours][1], arrays[theirs])
    np.testing.assert_array_equal(params["decoder_position_bias/bias"].T, arrays["decoder/relpos_bias/rel_embedding"])


def test_bfloat16_and_files_that_begin_with_a_dot(arrays, tmp_path):
    write_folder(tmp_path / "rounded", arrays, "bfloat16")
    for file in (tmp_path / "rounded").glob("*/.zarray"):
        file.unlink()
    table = import_t5x(tmp_path / "rounded").params["token_embedding"]["embedding"]
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, arrays["token_embedder/embedding"].astype(jnp.bfloat16).astype(np.float32))


def test_the_latest_is_taken(arrays, tmp_path):
    write_file(tmp_path / "checkpoint_900", arrays)
    write_folder(tmp_path / "checkpoint_1000", arrays)
    (tmp_path / "checkpoint_2000").mkdir()  # not complete
    assert find_t5x_checkpoint(tmp_path) == tmp_path / "checkpoint_1000"
    assert find_t5x_checkpoint(tmp_path / "checkpoint_2000") is None


def test_load(arrays, tmp_path, tmp_path_factory):
    """On a mesh, in bfloat16, with the tokenizer that one names, and out to Hugging Face and back."""
    write_file(tmp_path / "checkpoint_0", arrays)
    model = t5x_lite.load(tmp_path)
    assert model.generate_ids([[5, 6, 1]], max_length=4).shape == (1, 4)
    model.export(tmp_path / "exported")
    jax.tree.map(np.testing.assert_array_equal, t5x_lite.load(tmp_path / "exported").params, model.params)
    sharded = t5x_lite.load(tmp_path, device=MeshShape(fsdp=4), dtype="bfloat16")
    embedding = sharded.params["token_embedding"]["embedding"]
    assert embedding.dtype == jnp.bfloat16
    assert embedding.addressable_shards[0].data.size < embedding.size
    with pytest.raises(InputError, match="is one to be trained"):
        t5x_lite.load(tmp_path, tokenizer=SentencePiece())


@pytest.mark.slow
def test_tokenizers(tmp_path):
    """ByT5's is known by its vocabulary; of others a file is named, which may have too many ids."""
    write_file(tmp_path / "byt5", tree(True, vocab_size=384))
    byt5 = t5x_lite.load(tmp_path / "byt5")
    assert byt5.tokenizer.encode("a") == [ord("a") + 3]
    with pytest.raises(InputError, match="has its own tokenizer"):
        t5x_lite.load(tmp_path / "byt5", tokenizer="spiece.model")
    words = ("".join(letters) for letters in itertools.product("abcdef", repeat=3))
    (tmp_path / "spiece.model").write_bytes(
        train_sentencepiece(words, vocab_size=20, character_coverage=1.0, algorithm="unigram")
    )
    write_file(tmp_path / "t5", tree(True, vocab_size=160))
    model = t5x_lite.load(tmp_path / "t5", tokenizer=tmp_path / "spiece.model")
    assert model.tokenizer.vocabulary.size == 120
    assert isinstance(model.generate("abc def", max_length=3), str)
    write_file(tmp_path / "small", tree(True))
    with pytest.raises(InputError, match="has 120 ids, the model only 61"):
        t5x_lite.load(tmp_path / "small", tokenizer=tmp_path / "spiece.model")


@pytest.mark.parametrize("damage", ["missing chunk", "flipped byte", "missing folder", "missing name", "cut", "shape"])
def test_damage_is_named(damage, arrays, tmp_path):
    folder = tmp_path / "checkpoint_1"
    if damage == "cut":
        write_file(folder, arrays)
        folder.write_bytes(folder.read_bytes()[:-300])
    elif damage == "missing name":
        write_file(folder, {name: value for name, value in arrays.items() if "layers_1/mlp/wo" not in name})
    else:
        write_folder(folder, arrays)
        array = folder / "target.decoder.layers_1.mlp.wo.kernel"
        if damage == "missing folder":
            shutil.rmtree(array)
        elif damage == "missing chunk":
            (array / "1.0").unlink()
        elif damage == "shape":
            description = (folder / "target.token_embedder.embedding" / ".zarray").read_text()
            description = description.replace(f"[{V},{D}]", f"[{10**12},{D}]")
            (folder / "target.token_embedder.embedding" / ".zarray").write_text(description)
        else:
            content = bytearray((array / "1.0").read_bytes())
            content[len(content) // 2] ^= 4
            (array / "1.0").write_bytes(content)
    expected = {
        "missing chunk": "cannot be read .* fetch the checkpoint again",
        "flipped byte": "cannot be read .* fetch the checkpoint again",
        "missing folder": "lacks the folder 'target.decoder.layers_1.mlp.wo.kernel'",
        "missing name": "coder/layers_1/mlp/wo/kernel is missing",
        "cut": "cannot be read as a checkpoint of T5X",
        "shape": "bytes for the shape",
    }
    with pytest.raises(InputError, match=expected[damage]):
        import_t5x(folder)


@pytest.mark.parametrize("content", [{"version": 3}, {"optimizer": {"target": {}}}, {"optimizer": 3}, [], b"no"])
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "file").write_bytes(
        content if isinstance(content, bytes) else flax.serialization.msgpack_serialize(content)
    )
    with pytest.raises(InputError, match="cannot be read as a checkpoint of T5X"):
        t5x_lite.load(tmp_path / "file")


def test_one_file_of_a_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=f"model.safetensors is one file of a model; name its folder, {tmp_path}"):
        t5x_lite.load(tmp_path / "model.safetensors")


def test_other_models_are_named(tmp_path):
    write_file(tmp_path / "file", {"Dense_0/kernel": np.ones((3, 3), np.float32)})
    with pytest.raises(InputError, match="has no token_embedder/embedding"):
        t5x_lite.load(tmp_path / "file")


def torch_model(arrays: dict[str, np.ndarray]) -> Any:
    """Transformers' T5 with these weights, put there name by name."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    gated = "decoder/logits_dense/kernel" in arrays
    (vocab_size, embed_dim), (heads, buckets) = (
        arrays[name].shape for name in ("token_embedder/embedding", "encoder/relpos_bias/rel_embedding")
    )
    depths = [len({name.split("/")[1] for name in arrays if name.startswith(f"{one}/layers_")}) for one in LAYERS]
    config = transformers.T5Config(
        vocab_size=vocab_size,
        d_model=embed_dim,
        num_heads=heads,
        d_kv=arrays["encoder/layers_0/attention/query/kernel"].shape[1] // heads,
        d_ff=arrays["encoder/layers_0/mlp/wo/kernel"].shape[0],
        num_layers=depths[0],
        num_decoder_layers=depths[1],
        relative_attention_num_buckets=buckets,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    weights = {"shared.weight": arrays["token_embedder/embedding"]}
    if gated:
        weights["lm_head.weight"] = arrays["decoder/logits_dense/kernel"].T
    for stack, depth in zip(LAYERS, depths, strict=True):
        weights[f"{stack}.final_layer_norm.weight"] = arrays[f"{stack}/{stack}_norm/scale"]
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights[bias] = arrays[f"{stack}/relpos_bias/rel_embedding"].T
        blocks = [("attention", "SelfAttention", "pre_attention_layer_norm")]
        if stack == "decoder":
            blocks = [
                ("self_attention", "SelfAttention", "pre_self_attention_layer_norm"),
                ("encoder_decoder_attention", "EncDecAttention", "pre_cross_attention_layer_norm"),
            ]
        for number in range(depth):
            theirs, ours = f"{stack}/layers_{number}", f"{stack}.block.{number}.layer"
            for index, (attention, name, norm) in enumerate(blocks):
                weights[f"{ours}.{index}.layer_norm.weight"] = arrays[f"{theirs}/{norm}/scale"]
                for one, two in {"query": "q", "key": "k", "value": "v", "out": "o"}.items():
                    weights[f"{ours}.{index}.{name}.{two}.weight"] = arrays[f"{theirs}/{attention}/{one}/kernel"].T
            last = f"{ours}.{len(blocks)}"
            weights[f"{last}.layer_norm.weight"] = arrays[f"{theirs}/pre_mlp_layer_norm/scale"]
            for kernel in ("wi_0", "wi_1", "wo") if gated else ("wi", "wo"):
                weights[f"{last}.DenseReluDense.{kernel}.weight"] = arrays[f"{theirs}/mlp/{kernel}/kernel"].T
    # Of fresh models Transformers ties the two even where the config says not to.
    if gated:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(vocab_size, embed_dim))
    state = model.state_dict()
    with torch.no_grad():
        for name, value in weights.items():
            state[name].copy_(torch.tensor(np.ascontiguousarray(value)))
    return model


def assert_same_logits(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Against Transformers in float64: in float32 its own logits, up to 4, are off by as much as 2e-5."""
    theirs, ours = torch_model(arrays).double(), t5x_lite.load(path)
    import torch

    random, size = np.random.default_rng(1), ours.config.vocab_size
    inputs, targets = (random.integers(3, size, shape) for shape in ((2, 30), (2, 20)))
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(inputs), labels=torch.tensor(targets)).logits.numpy()
    np.testing.assert_allclose(ours(inputs, targets), expected, atol=1e-5 * np.abs(expected).max())


def test_logits_are_those_of_transformers(arrays, tmp_path, torch, transformers):
    write_file(tmp_path / "file", arrays)
    assert_same_logits(tmp_path / "file", arrays)


def test_t5x_own_checkpoint(torch, transformers):
    if not SHARED.exists():
        pytest.skip("needs ../shared/data/t5x_tiny beside the checkout")
    target = flax.serialization.msgpack_restore(SHARED.read_bytes())["optimizer"]["target"]
    assert_same_logits(SHARED, traverse_util.flatten_dict(target, sep="/"))

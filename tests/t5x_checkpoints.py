"""Small checkpoints as T5X writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

V, D, H, K, F, BUCKETS = 61, 40, 3, 5, 23, 12
LAYERS = {"encoder": 2, "decoder": 3}


def tree(gated: bool, vocab_size: int = V) -> dict[str, np.ndarray]:
    """The parameters of T5X's T5 by their names there, layer by layer."""
    random = np.random.default_rng(0)

    def kernel(*shape: int) -> np.ndarray:
        return random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)

    def scale() -> np.ndarray:
        return random.normal(1, 0.2, D).astype(np.float32)

    arrays = {"token_embedder/embedding": kernel(vocab_size, D)}
    if gated:
        arrays["decoder/logits_dense/kernel"] = kernel(D, vocab_size)
    for stack, depth in LAYERS.items():
        arrays[f"{stack}/{stack}_norm/scale"] = scale()
        arrays[f"{stack}/relpos_bias/rel_embedding"] = kernel(H, BUCKETS)
        attentions = {"attention": "pre_attention_layer_norm"}
        if stack == "decoder":
            attentions = {
                "self_attention": "pre_self_attention_layer_norm",
                "encoder_decoder_attention": "pre_cross_attention_layer_norm",
            }
        for layer in (f"{stack}/layers_{number}" for number in range(depth)):
            for attention, norm in attentions.items():
                arrays[f"{layer}/{norm}/scale"] = scale()
                arrays |= {f"{layer}/{attention}/{name}/kernel": kernel(D, H * K) for name in ("query", "key", "value")}
                arrays[f"{layer}/{attention}/out/kernel"] = kernel(H * K, D)
            arrays[f"{layer}/pre_mlp_layer_norm/scale"] = scale()
            arrays |= {f"{layer}/mlp/{name}/kernel": kernel(D, F) for name in (("wi_0", "wi_1") if gated else ("wi",))}
            arrays[f"{layer}/mlp/wo/kernel"] = kernel(F, D)
    return arrays


def scanned(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As a model with `scan_layers` has them: layers along the second axis, heads with an axis of their own."""
    stacked: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        stack, layer, *rest = name.split("/")
        if not layer.startswith("layers_"):
            stacked[name] = value
        elif layer == "layers_0":
            layers = [arrays["/".join((stack, f"layers_{number}", *rest))] for number in range(LAYERS[stack])]
            if rest[-2] in ("query", "key", "value"):
                layers = [layer.reshape(D, H, K) for layer in layers]
            elif rest[-2] == "out":
                layers = [layer.reshape(H, K, D) for layer in layers]
            stacked["/".join((stack, stack, *rest))] = np.stack(layers, axis=1)
    return stacked


def write_file(path: Path, arrays: dict[str, np.ndarray]) -> None:
    target = traverse_util.unflatten_dict(arrays, sep="/")
    state = {"step": np.int32(3), "param_states": {"embedding": {"v": np.zeros((4, 4), np.float32)}}}
    content = {"version": 3, "optimizer": {"state": state, "target": target}}
    path.write_bytes(flax.serialization.msgpack_serialize(content))


def write_folder(folder: Path, arrays: dict[str, np.ndarray], dtype: str = "float32", orbax: bool = False) -> None:
    import tensorstore

    folder.mkdir()
    leaves: dict[str, Any] = {}
    for name, value in arrays.items():
        directory = f"{'_optimizer.' if orbax else ''}target.{name.replace('/', '.')}"
        spec = {
            "driver": "zarr",
            "dtype": dtype,
            "metadata": {
                "chunks": [-(-size // 2) for size in value.shape],
                "compressor": {"id": "gzip", "level": 1},
                "shape": list(value.shape),
            },
        }
        store = {"driver": "file", "path": f"{folder / directory}/"}
        opened = tensorstore.open(spec | {"kvstore": store, "create": True}).result()
        opened.write(value.astype(jnp.dtype(dtype))).result()
        # Where it was written, which is somewhere else.
        leaves[name] = spec | {"kvstore": {"driver": "gfile", "path": f"/cns/home/t5/{directory}/"}}
        if orbax:
            leaves[name] = f"PLACEHOLDER://{directory}"
    target = traverse_util.unflatten_dict(leaves, sep="/")
    content = {"_optimizer" if orbax else "optimizer": {"target": target, "state": {"step": 3}}}
    (folder / "checkpoint").write_bytes(flax.serialization.msgpack_serialize(content))


WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], None]] = {
    "file": write_file,
    "folder": write_folder,
    "orbax": lambda path, arrays: write_folder(path, arrays, orbax=True),
    "scanned": lambda path, arrays: write_folder(path, scanned(arrays)),
}

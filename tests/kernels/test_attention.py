"""What goes to cuDNN on a GPU, by the program that is lowered for the platform `cuda`, and what does not."""

import re
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo

from t5x_lite.kernels import attention
from t5x_lite.kernels.attention import gpu_attention
from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.kernels.masks import AttentionInputs, DistanceBias, Mask
from t5x_lite.layers.attention import dot_product_attention
from t5x_lite.parallel import MeshShape, make_mesh, use_mesh

B, L, M, H, K = 2, 8, 6, 4, 16
NAMES = [f"__cudnn$fmha{bias}Softmax{way}" for bias in ("", "ScaleBias") for way in ("", "Backward")]
VALID = {"valid": jnp.array([[True] * M, [True, False] * (M // 2)])}


@pytest.fixture(autouse=True)
def _version(monkeypatch):
    """Of cuDNN, which jax checks before it lowers; nothing of it runs here."""
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91_000)


def operands(dtype=jnp.bfloat16, *, length=L, head_dim=K, bias=False):
    random = np.random.default_rng(0)
    shapes = {"query": (B, length, H, head_dim), "key": (B, M, H, head_dim), "value": (B, M, H, head_dim)}
    arrays = {name: jnp.asarray(random.normal(size=shape), dtype) for name, shape in shapes.items()}
    return arrays | ({"bias": jnp.asarray(random.normal(size=(H, length + M - 1)), jnp.float32)} if bias else {})


def attend(kernel, query, key, value, *, bias=None, dropout_rate=0.0, dropout_key=None, **mask):
    bias = None if bias is None else DistanceBias(bias)
    dropout = {"dropout_rate": dropout_rate, "dropout_key": dropout_key}
    return kernel(AttentionInputs(query, key, value, 0.3, bias, Mask(**mask), **dropout))


def cudnn_calls(function, arrays):
    """The custom calls of cuDNN in the function and its gradients for the platform `cuda`, in order."""

    def loss(arrays):
        return function(**arrays).astype(jnp.float32).sum()

    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in NAMES]
    exported = jax.export.export(jax.jit(jax.grad(loss)), platforms=["cuda"], disabled_checks=checks)(arrays)
    return re.findall(r"custom_call @(__cudnn\S+?)\(", exported.mlir_module())


@pytest.mark.parametrize(
    ("bias", "options", "names"),
    [
        (False, {}, NAMES[:2]),
        (False, {"causal": True}, NAMES[:2]),
        (False, VALID, NAMES[2:]),
        (True, {}, NAMES[2:]),
        (True, {"causal": True}, NAMES[2:]),
        (True, VALID | {"query_segments": jnp.zeros((B, L), int), "key_segments": jnp.ones((B, M), int)}, NAMES[2:]),
        (False, {"causal": True, "prefix": 3, "dropout_rate": 0.1}, NAMES[2:]),
    ],
)
def test_cudnn_computes_attention_and_its_gradients(bias, options, names):
    assert cudnn_calls(partial(attend, gpu_attention, **options), operands(bias=bias)) == names


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ({"dtype": jnp.float32}, {}),
        ({"head_dim": 12}, {}),
        ({"head_dim": 136}, {}),
        ({"length": 7, "bias": True}, {}),
        ({"length": 7}, VALID),
        ({}, {"dropout_rate": 0.1, "dropout_key": jax.random.key(0)}),
    ],
)
def test_what_cudnn_cannot_do_is_dense(shape, options):
    assert not cudnn_calls(partial(attend, gpu_attention, **options), operands(**shape))


def test_an_older_gpu_has_no_cudnn_attention(monkeypatch):
    for capability, calls in (("7.5", []), ("gfx90a", []), ("9.0", NAMES[:2])):
        device = type("Device", (), {"compute_capability": capability})
        monkeypatch.setattr(attention.jax, "local_devices", lambda device=device: [device])
        assert cudnn_calls(partial(attend, gpu_attention), operands()) == calls


@pytest.mark.parametrize("shape", [None, MeshShape(2, 2, tensor=2)])
def test_layers_attend_by_cudnn_on_a_gpu_and_on_a_mesh_of_gpus(monkeypatch, shape):
    monkeypatch.setattr(attention, "platform", lambda: "gpu")
    arrays = {name: jnp.repeat(x, 4, axis=0) if name != "bias" else x for name, x in operands(bias=True).items()}

    def on_one(query, key, value, bias):
        mask = Mask(jnp.repeat(VALID["valid"], 4, axis=0))
        return dot_product_attention(query, key, value, bias=DistanceBias(bias), mask=mask)

    def on_mesh(**arrays):
        with use_mesh(make_mesh(shape)):
            return on_one(**arrays)

    assert cudnn_calls(on_mesh if shape else on_one, arrays) == NAMES[2:]


@pytest.mark.parametrize("options", [{}, {"causal": True}, VALID, VALID | {"causal": True, "prefix": 2}], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_cudnn_is_given_what_the_dense_attention_computes(monkeypatch, bias, options):
    """By jax's own implementation of the interface, which computes the same anywhere."""
    by_jax = partial(jax.nn.dot_product_attention)
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *args, **kw: by_jax(*args, **kw | {"implementation": "xla"})
    )
    arrays = operands(bias=bias)
    got, expected = (attend(kernel, **arrays, **options) for kernel in (gpu_attention, dense_attention))
    np.testing.assert_allclose(got.astype(jnp.float32), expected.astype(jnp.float32), atol=0.05)

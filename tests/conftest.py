"""How all tests run: on eight CPU devices, with JAX's guards on, and shapes checked by each room's own tests."""

# ruff: noqa: E402 (the environment comes before jax, the hook before the package)
import gc
import importlib.metadata
import os

os.environ["JAX_PLATFORMS"] = "cpu"
# Tests compile much and compute little: without LLVM's optimizations they compile in half the time, without XLA's
# fusions by MLIR in two thirds of that, and as one module of LLVM in four fifths of the rest. XLA ends a process for a
# flag that it does not know, as a later one may not.
QUICK_COMPILER = "--xla_backend_optimization_level=0"
KNOWN_JAX = importlib.metadata.version("jaxlib").startswith("0.10.")
if KNOWN_JAX:
    QUICK_COMPILER += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_FLAGS = f"--xla_force_host_platform_device_count=8 {QUICK_COMPILER}"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip()

# A second thread for products of small matrices waits, spinning, for the core that the other process of tests has.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from t5x_lite.cli.processes import collect_garbage_rarely, keep_memory

keep_memory()  # a third of the tests' time would go into page faults
collect_garbage_rarely()  # and a fifth of it went into full collections

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception
from jax._src.interpreters import mlir
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

jax.config.update("jax_platforms", "cpu")
# Some tests start whole runs of one experiment, and README's tests and the slow ones of a file run one after the other:
# they compile the same programs. Writing one takes as long as compiling a small one, and few small ones come back.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Where in the source an operation stands is part of no test, and takes time to write down.
jax.config.update("jax_traceback_in_locations_limit", 0)
# A context of MLIR takes as long to make as two operations to lower, and a test lowers hundreds one by one.
if KNOWN_JAX:
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)


def checked(function: Callable) -> Callable:
    """`function` with its annotations checked at every call; an int may stand for a float.

    A function inside another one is made anew by every call, and decorating it takes longer than tracing it.
    """
    if "<locals>" in function.__qualname__:
        return function
    try:
        return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)
    except BeartypeDecorHintPep673Exception:
        return function  # beartype knows what Self is in a decorated class, not in a decorated method


# The hook takes an expression that begins with a module: this one, which has no name that can be imported.
# Checked are the rooms of arrays; elsewhere the annotations of dataclasses would answer before their own sentences do.
ROOMS = (
    "layers",
    "models",
    "objectives",
    "images.colors",
    "images.geometry",
    "decoding",
    "images.decoding",
    "pictures",
    "parallel.partitioning",
    "training.step",
    "optim.schedules",
    "evaluation.predictions",
)
install_import_hook([f"t5x_lite.{room}" for room in ROOMS], f"sys.modules[{__name__!r}].checked")

from flax import linen as nn

from t5x_lite.models import T5Config

from .tiny_corpora import *  # noqa: F403 (fixtures)
from .tiny_runs import *  # noqa: F403 (fixtures)

collect_ignore_glob = ["*_oracle.py"]  # scripts, run with another Transformers, and with torch
ORACLES = {"torch", "transformers"}
LONG = ("tests/notebooks", "tests/runs", "tests/scaling", "tests/training")
"""What begins first: a long file at the end would keep one process alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is long comes first; what needs an oracle is marked, so that `-m oracle` runs it alone."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    for item in items:
        if ORACLES & {*item.fixturenames, *vars(item.getparent(pytest.Module).obj)}:
            item.add_marker("oracle")


def pytest_sessionfinish() -> None:
    """At its end pytest collects five times, over all that jax keeps; xdist interrupts a process that takes long."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def check_shapes(request: pytest.FixtureRequest) -> None:
    """Annotations are checked where a room has its own tests: it takes a quarter of a test's time.

    Runs, commands and conversions call the same functions with the same kinds of arrays.
    """
    folder = request.path.relative_to(request.config.rootpath).parts[1]
    jaxtyping_config.update("jaxtyping_disable", folder not in {room.partition(".")[0] for room in ROOMS})


@pytest.fixture(scope="module", autouse=True)
def check_key_reuse(request: pytest.FixtureRequest) -> Iterator[None]:
    """JAX's check of key reuse where texts are sampled: it takes a fifth of a test's time.

    What a train step draws has a test of its own: training/test_keys.py.
    """
    with jax.debug_key_reuse(request.path.parent.name == "decoding"):
        yield


# Every size differs from every other one, so that no two axes can be mistaken for each other.
TINY = T5Config(
    vocab_size=384,
    embed_dim=12,
    num_heads=3,
    head_dim=5,
    mlp_dim=17,
    num_encoder_layers=2,
    num_decoder_layers=4,
    relative_buckets=9,
    relative_max_distance=13,
)


@pytest.fixture(scope="session")
def quick_compiler() -> str:
    """XLA_FLAGS for processes of their own, on one device: tests compile much and compute little."""
    return QUICK_COMPILER


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, where it is installed; else the test is skipped."""
    return pytest.importorskip("torch", reason="torch is the oracle; pip install '.[oracle]'")


@pytest.fixture(scope="session")
def transformers() -> Any:
    """Transformers, where it is installed; else the test is skipped."""
    return pytest.importorskip("transformers", reason="transformers is the oracle; pip install '.[oracle]'")


def random_like(shapes: Any, seed: int) -> Any:
    """Parameters of these shapes, none of them 0 or 1: matrices keep the size of what they multiply, norms scale by 0.5
    to 1.5, and biases are of order one."""
    random = np.random.default_rng(seed)

    def leaf(path: tuple, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if "scale" in name:
            value = random.uniform(0.5, 1.5, leaf.shape)
        else:
            # Small embeddings, or a tied model says again what it hears.
            size = leaf.shape[-2] ** -0.5 if "kernel" in name else 0.1 if "embedding" in name else 1.0
            value = size * random.normal(size=leaf.shape)
        return jax.device_put(np.float32(value))

    return jax.tree_util.tree_map_with_path(leaf, nn.unbox(shapes))


@pytest.fixture(scope="session")
def make_params() -> Callable[..., Any]:
    """`make_params(module, seed, *args)`: random parameters of a module that is called with `args`."""

    def shapes(module: nn.Module, *args: Any) -> Any:
        return jax.eval_shape(lambda: module.init(jax.random.key(0), *args))["params"]

    @functools.cache  # tracing a model takes longer than most of what is tested about it
    def shapes_of_arrays(module: nn.Module, arguments: tuple[jax.ShapeDtypeStruct, ...]) -> Any:
        return shapes(module, *(jnp.zeros(one.shape, one.dtype) for one in arguments))

    def make(module: nn.Module, seed: int, *args: Any) -> Any:
        if not all(isinstance(arg, jax.Array) for arg in args):
            return random_like(shapes(module, *args), seed)
        arguments = tuple(jax.ShapeDtypeStruct(arg.shape, arg.dtype) for arg in args)
        return random_like(shapes_of_arrays(module, arguments), seed)

    return make


@pytest.fixture(scope="session")
def t5(make_params: Callable) -> tuple[nn.Module, Any]:
    """A tiny T5 and random parameters of it."""
    ids = jnp.ones((1, 2), jnp.int32)
    return TINY.build(), make_params(TINY.build(), 0, ids, ids)


@pytest.fixture(scope="session")
def t5_logits(t5: tuple[nn.Module, Any]) -> Callable[..., jax.Array]:
    """The compiled forward pass of `t5`: `(inputs, decoder_inputs, inputs_valid)` to logits."""
    module, params = t5
    apply = jax.jit(lambda *args: module.apply({"params": params}, *args[:2], inputs_valid=args[2]))
    return lambda *args: apply(*map(jnp.asarray, args))


@pytest.fixture(scope="session")
def write_dataset() -> Callable[..., None]:
    """`write_dataset(folder / name / "1.0.0", features, train=[...])`: a dataset of TFDS as others leave it on disk; of
    a `config` in `folder / name / config / "1.0.0"`."""

    def write(path: Path, features: Any, config: str | None = None, **splits: list[dict[str, Any]]) -> None:
        import tensorflow_datasets as tfds

        path.mkdir(parents=True)
        identity = tfds.core.DatasetIdentity(
            name=path.parents[1 if config else 0].name,
            version=tfds.core.Version(path.name),
            data_dir=str(path),
            module_name="",
            config_name=config,
        )
        info = tfds.core.DatasetInfo(builder=identity, features=features)
        writer = tfds.core.SequentialWriter(info, max_examples_per_shard=3, file_format="array_record")
        writer.initialize_splits(list(splits))
        writer.add_examples(splits)
        writer.close_all()

    return write

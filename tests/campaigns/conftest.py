"""Campaigns: random damage, again and again until a budget of time is spent.

T5X_LITE_CAMPAIGN_SEED chooses the draws, T5X_LITE_CAMPAIGN_MINUTES how long each campaign goes on. Those of kills,
disks, starts and endurance run where it is set alone:

    T5X_LITE_CAMPAIGN_SEED=7 T5X_LITE_CAMPAIGN_MINUTES=20 pytest -m slow tests/campaigns
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_MINUTES = 0.05
_LEAST = 10  # tries, however little time there is
_MOST_SECONDS = 30  # that reading a small file may take


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Campaigns whose tries start processes, or take minutes, wait for somebody to give them time."""
    if "T5X_LITE_CAMPAIGN_MINUTES" not in os.environ:
        skip = pytest.mark.skip(reason="its tries take long; set T5X_LITE_CAMPAIGN_MINUTES")
        for item in items:
            if item.get_closest_marker("least"):
                item.add_marker(skip)


@pytest.fixture
def draws(request) -> Iterator[random.Random]:
    """Random numbers of one try after another until the budget is spent: of `_LEAST` tries, or `least(n)`, or more."""
    mark = request.node.get_closest_marker("least")
    least = mark.args[0] if mark else _LEAST
    seed = int(os.environ.get("T5X_LITE_CAMPAIGN_SEED", "0"))
    end = time.monotonic() + 60 * float(os.environ.get("T5X_LITE_CAMPAIGN_MINUTES", _MINUTES))

    def generate() -> Iterator[random.Random]:
        number = 0
        while number < least or time.monotonic() < end:
            yield random.Random(f"{seed} {number}")
            number += 1

    return generate()


@pytest.fixture
def within_time() -> Callable:
    """A context that fails a test which reads for longer than `_MOST_SECONDS`, as a pipe or a bomb would make it."""

    @contextmanager
    def limit() -> Iterator[None]:
        def stop(*_: Any) -> None:
            pytest.fail(f"it took more than {_MOST_SECONDS} s")

        before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(_MOST_SECONDS)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return limit


CONFIG = """
from t5x_lite.data import Data, SentencePiece, TableFiles, TextToText
from t5x_lite.models import T5Config
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging

pairs = TextToText(TableFiles(({pairs!r},), columns=("source", "target")))
experiment = Experiment(
    model=T5Config(vocab_size=160, embed_dim=8, num_heads=2, head_dim=4, mlp_dim=12, num_encoder_layers=1,
                   num_decoder_layers=1, dropout_rate=0.1),
    objective=SequenceToSequence(64, 32, too_long="skip"),
    data=Data(pairs, SentencePiece(vocab_size=45, character_coverage=1.0), held_out=0.1),
    optimizer=AdamW(Constant(3e-3)),
    steps=8,
    batch_size=8,
    evaluation=Evaluation(every=4, rows=10),
    checkpoints=Checkpointing(every=2, keep_last=20, keep_best=0),
    logging=Logging(every=1),
)
"""


@pytest.fixture
def write_pairs(tmp_path) -> Callable[[random.Random], Path]:
    """`write_pairs(draw)`: the config of a small run on pairs of texts, some of which are left out."""

    def write(draw: random.Random) -> Path:
        words = ["beta", "gam", "del", "iokap", "ta", "the", "alal", "zeta"]
        lines = []
        for number in range(200):
            source = draw.choices(words, k=80 if number % 17 == 5 else draw.randint(2, 9))
            lines.append(f"{' '.join(source)} {number}\t{' '.join(draw.choices(words, k=3))}\n")
        pairs = tmp_path / f"{draw.getrandbits(64):x}.tsv"
        pairs.write_text("".join(lines))
        config = pairs.with_suffix(".py")
        config.write_text(CONFIG.format(pairs=str(pairs)))
        return config

    return write


@pytest.fixture(scope="session")
def start(quick_compiler, tmp_path_factory) -> Callable[..., subprocess.Popen]:
    """`start(*arguments, cache=folder)`: the process of a command; compiled programs are kept for all of them."""
    compiled = tmp_path_factory.mktemp("compiled")

    def begin(*arguments: object, cache: Path, **environment: str) -> subprocess.Popen:
        variables = {"XLA_FLAGS": quick_compiler, "JAX_PLATFORMS": "cpu", "T5X_LITE_CACHE": str(cache)}
        variables |= {"JAX_COMPILATION_CACHE_DIR": str(compiled), "PYTHONFAULTHANDLER": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "t5x_lite", *map(str, arguments)],
            env=os.environ | variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.fixture
def preload(tmp_path) -> Callable[[str], dict[str, str]]:
    """`preload(name)`: the environment in which a process runs with `name.c`, a file beside this one."""

    def compile_library(name: str) -> dict[str, str]:
        library, source = tmp_path / f"{name}.so", Path(__file__).with_name(f"{name}.c")
        if not (compiler := shutil.which("cc")):
            pytest.skip("needs a compiler of C")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        return {"LD_PRELOAD": str(library)}

    return compile_library

"""Campaigns: random damage, again and again until a budget of time is spent.

T5X_LITE_CAMPAIGN_SEED chooses the draws, T5X_LITE_CAMPAIGN_MINUTES how long each campaign goes on:

    T5X_LITE_CAMPAIGN_SEED=7 T5X_LITE_CAMPAIGN_MINUTES=20 pytest -m slow tests/campaigns
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_MINUTES = 0.15
_MOST_SECONDS = 30  # that reading a small file may take


@pytest.fixture
def draws() -> Iterator[random.Random]:
    """Random numbers of one try after another, until the budget is spent."""
    seed = int(os.environ.get("T5X_LITE_CAMPAIGN_SEED", "0"))
    end = time.monotonic() + 60 * float(os.environ.get("T5X_LITE_CAMPAIGN_MINUTES", _MINUTES))

    def generate() -> Iterator[random.Random]:
        number = 0
        while number < 10 or time.monotonic() < end:
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

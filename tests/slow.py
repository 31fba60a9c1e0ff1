"""Parametrizations of which some cases stand for all in README's `pytest`, and what only campaigns try."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases for a parametrization, of which all but `quick` are slow."""
    cases = list(cases)
    missing = [case for case in quick if case not in cases]
    assert not missing, missing
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


in_campaigns = pytest.mark.skipif(
    "T5X_LITE_CAMPAIGN_MINUTES" not in os.environ, reason="it takes long; set T5X_LITE_CAMPAIGN_MINUTES"
)
"""A test, or a case of one, that repeats at length what others try."""

"""Parametrizations of which some cases stand for all in README's `pytest`."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases for a parametrization, of which all but `quick` are slow."""
    cases = list(cases)
    missing = [case for case in quick if case not in cases]
    assert not missing, missing
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]

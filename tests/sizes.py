"""Which cases of a law every run has, and which are left to `make long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases, for `parametrize`: the quick ones as they are, and the others marked as slow."""
    return [case if case in quick else _slow(case) for case in cases]


def simulated(quick: int, most: int) -> pytest.MarkDecorator:
    """How many trials are simulated, an argument of the test: in every run, and in `make long` alone."""
    return pytest.mark.parametrize("trials", mostly_slow([quick, most], quick))


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)

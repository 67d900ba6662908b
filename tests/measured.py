"""What counts as covered: also what tests run as processes, but each law once.

A test takes half as long again while it is measured, a command twice as long, and so does numba's compiling. So the
cases of a parametrised test are measured no further than the first, Hypothesis's examples no further than the first
few, and the studies and numba not at all; a little more is covered than the report says.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[1]

# Examples of a law that are measured.
_FEW = 10

# What runs the same lines as the tests of the rooms, only more often.
_REPEATING = ("tests/studies/", "tests/test_studies", "tests/test_docs.py")


def measured() -> dict[str, str]:
    """What a process needs in its environment to be measured, if this one is."""
    if coverage.Coverage.current() is None or sys.gettrace() is None:
        return {}
    return {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}


@contextmanager
def unmeasured() -> Iterator[None]:
    """Nothing is measured meanwhile."""
    with _traced_by(None, None):
        yield


@contextmanager
def _traced_by(own: Any, threads: Any) -> Iterator[None]:
    before: tuple[Any, Any] = sys.gettrace(), threading.gettrace()
    sys.settrace(own)
    threading.settrace(threads)
    try:
        yield
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])


class EachLawOnce:
    """A plugin for pytest."""

    def __init__(self) -> None:
        self._repeated: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        laws: set[str] = set()
        for item in items:
            law = item.nodeid.partition("[")[0]
            if law in laws or law.startswith(_REPEATING):
                self._repeated.add(item.nodeid)
            laws.add(law)
        if coverage.Coverage.current() is not None:
            _compile_unmeasured()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        drawn = getattr(getattr(item, "obj", None), "hypothesis", None)
        if item.nodeid not in self._repeated:
            if drawn is None:
                return (yield)
            drawn.inner_test = _measured_few_times(drawn.inner_test)
        with unmeasured():
            return (yield)


def _measured_few_times(law: Any) -> Any:
    """A law that is measured for its first examples, in the midst of what is not."""
    tracers = sys.gettrace(), threading.gettrace()
    left = _FEW

    @functools.wraps(law)
    def example(*drawn: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            return law(*drawn, **named)
        with _traced_by(*tracers):
            return law(*drawn, **named)

    return example


def _compile_unmeasured() -> None:
    from numba.core import dispatcher

    kernels: Any = dispatcher.Dispatcher
    compile_measured = kernels.compile

    def compile(kernel: Any, types: Any) -> Any:
        with unmeasured():
            return compile_measured(kernel, types)

    kernels.compile = compile

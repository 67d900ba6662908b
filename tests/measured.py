"""What counts as covered: also what tests run as processes, but each law once.

A test takes half as long again while it is measured, and numba twice as long to compile. So the cases of a parametrised
test are measured no further than the first, and numba is not; a little more is covered than the report says.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[1]


def measured() -> dict[str, str]:
    """What a process needs in its environment to be measured, if this one is."""
    if coverage.Coverage.current() is None or sys.gettrace() is None:
        return {}
    return {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}


@contextmanager
def unmeasured() -> Iterator[None]:
    """Nothing is measured meanwhile."""
    tracers: tuple[Any, Any] = sys.gettrace(), threading.gettrace()
    nothing: Any = None
    sys.settrace(nothing)
    threading.settrace(nothing)
    try:
        yield
    finally:
        sys.settrace(tracers[0])
        threading.settrace(tracers[1])


class EachLawOnce:
    """A plugin for pytest."""

    def __init__(self) -> None:
        self._repeated: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        laws: set[str] = set()
        for item in items:
            law = item.nodeid.partition("[")[0]
            if law in laws:
                self._repeated.add(item.nodeid)
            laws.add(law)
        if coverage.Coverage.current() is not None:
            _compile_unmeasured()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if item.nodeid not in self._repeated:
            return (yield)
        with unmeasured():
            return (yield)


def _compile_unmeasured() -> None:
    from numba.core import dispatcher

    kernels: Any = dispatcher.Dispatcher
    compile_measured = kernels.compile

    def compile(kernel: Any, types: Any) -> Any:
        with unmeasured():
            return compile_measured(kernel, types)

    kernels.compile = compile

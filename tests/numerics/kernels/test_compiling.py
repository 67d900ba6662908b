from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import pytest

from foldaway.numerics.kernels.compiling import NOTE, compile_for, njit, note_when_slow


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_importing_the_room_imports_no_compiler() -> None:
    program = "import sys, foldaway.numerics.kernels; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_a_slow_compilation_is_noted_once_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with note_when_slow(seconds=0.01):
        time.sleep(0.2)
    assert terminal.getvalue() == NOTE + "\n"


def test_a_quick_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with note_when_slow(seconds=0.1):
        pass
    time.sleep(0.2)
    assert terminal.getvalue() == ""


def test_nothing_is_written_where_nobody_sits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with note_when_slow(seconds=0.01):
        time.sleep(0.2)
    assert log.getvalue() == ""


def test_compiling_for_some_arguments_compiles_for_their_types_only() -> None:
    def double(x: float) -> float:
        return x + x

    kernel: Any = numba.njit(double)
    compile_for(kernel, 1.0)
    compile_for(kernel, 2.0)
    assert [str(argument) for (argument,) in kernel.signatures] == ["float64"]
    assert kernel(2.0) == 4.0


def test_where_nothing_can_be_cached_kernels_compile_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler: Callable[..., Any] = numba.njit

    def refuse_to_cache(function: Callable[..., Any], cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compiler(function, **options)

    monkeypatch.setattr(numba, "njit", refuse_to_cache)

    @njit
    def double(x: int) -> int:
        return x + x

    assert double(21) == 42

"""Compiling kernels: cached on disk where there is a place for it, with a word to whoever waits."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
import numba.extending

NOTE = "compiling foldaway's kernels once; later runs start at once"

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def njit(function: Function) -> Function:
    """Compile a function on first use: no Python objects, the GIL released, the machine code cached on disk.

    Where the package's folder and the user's cache folder are both read-only, numba refuses to decorate with a
    cache at all; such a place compiles in every process instead.

    The cache of a kernel knows when the kernel's own file changes, not when a kernel that it calls does: whoever
    edits one should run `make clean`.

    Example:
        >>> @njit
        ... def double(x: int) -> int:
        ...     return x + x
        >>> double(21)
        42
    """
    return _compiled(function)


def njit_vectors(function: Function) -> Function:
    """The same for loops over arrays that divide: by zero gives infinity, as NumPy has it, so no loop stops halfway."""
    return _compiled(function, error_model="numpy")


def njit_sums(function: Function) -> Function:
    """The same for sums over arrays: their terms may be added in any order, as BLAS does, so several go at once."""
    return _compiled(function, error_model="numpy", fastmath={"contract", "reassoc"})


def _compiled(function: Function, **options: Any) -> Function:
    compiled: Function
    try:
        compiled = numba.njit(function, cache=True, nogil=True, **options)
    except RuntimeError:  # "cannot cache function: no locator available"
        compiled = numba.njit(function, nogil=True, **options)
    return compiled


def njit_part(function: Function) -> Function:
    """Compile a function for kernels alone: no wrapper for Python is made, and what calls it is what is cached.

    It compiles several times faster than a copy of it in every kernel would. LLVM puts it into the kernel's loops.
    """
    without: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # options that numba's types leave out
    compiled: Function = numba.njit(function, nogil=True, **without)
    return compiled


def njit_copied(function: Function) -> Function:
    """The same, and LLVM copies it into every loop that calls it: for the small steps of a loop over octets.

    It makes no arrays, and does not count who holds those that it is given: counting took four fifths of the time.
    """
    without: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    compiled: Function = numba.njit(function, nogil=True, forceinline=True, **without)
    return compiled


def njit_inline(function: Function) -> Function:
    """Copy a function into every kernel that calls it: a loop around a call that can fail is not vectorised."""
    compiled: Function = numba.njit(function, nogil=True, inline="always")
    return compiled


def intrinsic(function: Callable[..., Any]) -> Any:
    """Let a function that writes LLVM instructions be called from kernels; integer constants arrive as types."""
    return numba.extending.intrinsic(prefer_literal=True)(function)


def compile_for(kernel: Callable[..., Any], *arguments: Any) -> None:
    """Compile a kernel for the types of some arguments, or fetch it from the cache; note it when that is slow."""
    typeof: Any = numba.typeof
    dispatcher: Any = kernel
    types = tuple(typeof(argument) for argument in arguments)
    if types not in dispatcher.signatures:
        with note_when_slow():
            dispatcher.compile(types)


def run(kernel: Callable[..., Result], *arguments: Any) -> Result:
    """Run a kernel that is compiled for one kind of arguments; note it when that is slow.

    It costs a hundredth of `compile_for`, which looks at the type of every argument.
    """
    dispatcher: Any = kernel
    if dispatcher.overloads:
        return kernel(*arguments)
    with note_when_slow():
        return kernel(*arguments)


@contextmanager
def note_when_slow(seconds: float = 1.0) -> Iterator[None]:
    """Write one line to a terminal if its body takes longer than some seconds.

    Nothing is written when standard error is not a terminal.

    Example:
        >>> with note_when_slow():
        ...     pass
    """
    timer = threading.Timer(seconds, _note)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _note() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(NOTE, file=sys.stderr, flush=True)

"""When records come one at a time, compiled code takes over from NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

# A tally this large that still gets single records is fed by a stream: compiling, once per machine, pays.
STREAMING = 256


@cache
def row_kernels() -> Any:
    """The compiled functions; numba is imported when they are first wanted."""
    from foldaway.kernels import row

    return row

"""Numbers written as text."""

import pyarrow as pa


def as_numbers(cells: pa.Array) -> pa.Array | None:
    """The cells as float64 if every one that is not null is a number, else None.

    >>> as_numbers(pa.array(["1.5", "-2e3", None])).to_pylist()
    [1.5, -2000.0, None]
    >>> as_numbers(pa.array(["1.5", "old"])) is None
    True
    """
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        return None

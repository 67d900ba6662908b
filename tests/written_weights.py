"""The definition of the bootstrap weights, one at a time: what `kernels/weights.py` must make many at a time.

Production never holds an array of weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Hashes
from foldaway.numerics.kernels.compiling import compile_for, njit
from foldaway.numerics.kernels.philox import philox
from foldaway.numerics.kernels.weights import (
    BITS_STREAM,
    FROM_1,
    FROM_2,
    FROM_3,
    OCTETS_STREAM,
    REST,
    REST_BOUNDS,
    REST_STREAM,
    Kind,
    check_kind,
)


def weights(hashes: Hashes, replicates: int, kind: Kind) -> NDArray[np.uint8]:
    """Write out the weights of units, one row each.

    Args:
        hashes: the unit numbers, from `hash_identifiers`.
        replicates: B, how many weights each unit gets. The first weights do not depend on it.
        kind: "poisson" or "double-or-nothing".

    Example:
        >>> units = np.arange(1000, dtype=np.uint64)
        >>> w = weights(units, 500, "double-or-nothing")
        >>> w.shape, np.unique(w)
        ((1000, 500), array([0, 2], dtype=uint8))
        >>> bool(abs(weights(units, 500, "poisson").mean() - 1) < 0.01)
        True
    """
    check_kind(kind)
    table = np.empty((len(hashes), replicates), dtype=np.uint8)
    write = _write_poisson if kind == "poisson" else _write_double_or_nothing
    compile_for(write, hashes, table)
    write(hashes, table)
    return table


@njit
def _draw_once_more(unit: np.uint64, replicate: np.uint64) -> int:
    """A weight from the part of the Poisson law that whole octets cannot carry."""
    draw = philox(unit, replicate, REST_STREAM)[0]
    weight = 0
    for bound in REST_BOUNDS:
        weight += draw >= bound
    return weight


@njit
def _write_poisson(hashes: Hashes, table: NDArray[np.uint8]) -> None:
    for i in range(table.shape[0]):
        for b in range(table.shape[1]):
            # Each run of 64 octets, eight words of eight, is read by columns: replicate 8j + w has octet j of word w.
            word = b // 64 * 8 + b % 8
            words = philox(hashes[i], np.uint64(word // 2), OCTETS_STREAM)
            octet = np.uint8(words[word % 2] >> np.uint64(b % 64 // 8 * 8))
            if octet < REST:
                table[i, b] = _draw_once_more(hashes[i], np.uint64(b))
            else:
                table[i, b] = (octet >= FROM_1) + (octet >= FROM_2) + (octet >= FROM_3)


@njit
def _write_double_or_nothing(hashes: Hashes, table: NDArray[np.uint8]) -> None:
    for i in range(table.shape[0]):
        for b in range(table.shape[1]):
            words = philox(hashes[i], np.uint64(b // 128), BITS_STREAM)
            bit = (words[b % 128 // 64] >> np.uint64(b % 64)) & np.uint64(1)
            table[i, b] = np.uint8(2) * np.uint8(bit)

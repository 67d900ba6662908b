"""Add `W'Q` to the replicates' totals without ever having W.

At its full price the bootstrap's matrix product is n·B·p multiplications. But a weight is one of very few numbers, so
the rows of a small group have few possible weighted sums: tabulate those once, and a replicate adds one table entry per
group instead of one product per row (the method of the four Russians). Eight tables are read in one pass over the
sums, which are thus loaded and stored once for forty rows (double-or-nothing) or sixteen (Poisson).

What bounds it is loading table entries from the first-level cache: p doubles for five weights, or for two.

References:
    Arlazarov, Dinic, Kronrod and Faradzhev (1970), On economical construction of the transitive closure of a
    directed graph. Soviet Mathematics Doklady 11.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from foldaway.numerics.block import Floats, Hashes
from foldaway.numerics.kernels.compiling import compile_for, njit
from foldaway.numerics.kernels.lanes import GROUPS, LANES, add_entries, add_scaled
from foldaway.numerics.kernels.weights import (
    BIT_DIGITS,
    BIT_ROWS,
    OCTET_DIGITS,
    OCTET_ROWS,
    SPAN,
    WORDS,
    Kind,
    bit_codes,
    check_kind,
    draw_rest,
    octet_codes,
    place,
    row_and_replicate,
)

WIDEST = 32  # columns summed at a time: their tables stay in the fastest cache
TILE = 512  # replicates summed at a time: so do their sums in the next
SMALL = 2**18  # weights, about a tenth of a millisecond: less is not worth a second thread

BIT_ENTRIES = 2**BIT_DIGITS
OCTET_ENTRIES = 4**OCTET_DIGITS

Panel = tuple[int, ...]  # see lanes.py


def accumulate(hashes: Hashes, products: Floats, replicates: int, kind: Kind, totals: Floats, threads: int) -> None:
    """Add every record's products, times its unit's weight, to the totals of each replicate.

    Each replicate's sum is made by one thread, in an order that depends on the rows alone: any number of threads
    gives the same bits. No other library's threads are at work meanwhile: there is no BLAS in it.

    Args:
        hashes: the unit numbers of n records, from `hash_identifiers`.
        products: n rows of p finite numbers, C-contiguous.
        replicates: B, the number of weights per unit.
        kind: "poisson" or "double-or-nothing".
        totals: B rows of p numbers, to which the sums are added.
        threads: how many threads may work at once.

    Example:
        >>> units = np.array([17, 4], dtype=np.uint64)
        >>> totals = np.zeros((3, 1))
        >>> accumulate(units, np.array([[10.0], [1.0]]), 3, "double-or-nothing", totals, threads=1)
        >>> set(totals.ravel().tolist()) <= {0.0, 2.0, 20.0, 22.0}
        True
    """
    check_kind(kind)
    if products.shape != (len(hashes), totals.shape[1]) or totals.shape[0] != replicates:
        raise ValueError(
            f"Shapes do not fit: {len(hashes)} unit numbers, products {products.shape}, {replicates} replicates, "
            f"totals {totals.shape}."
        )
    if not (products.flags.c_contiguous and totals.flags.c_contiguous):
        raise ValueError("Products and totals must be C-contiguous.")
    if totals.size == 0:
        return
    fold = _fold_poisson if kind == "poisson" else _fold_bits
    panel = _panel(totals.shape[1])
    compile_for(fold, hashes, products, 0, totals, panel)
    threads = 1 if len(hashes) * replicates < SMALL else max(threads, 1)
    rounds = -(-replicates // (threads * TILE))
    tile = -(-replicates // (threads * rounds * SPAN)) * SPAN

    def fold_tile(first: int) -> None:
        fold(hashes, products, first, totals[first : first + tile], panel)

    starts = range(0, replicates, tile)
    if threads == 1:
        for first in starts:
            fold_tile(first)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fold_tile, starts))


def _panel(columns: int) -> Panel:
    """The shape of equal panels, at most `WIDEST`, that hold the columns with the least padding."""
    panels = -(-columns // WIDEST)
    return (0,) * -(-columns // (panels * LANES))


@njit
def _fold_bits(hashes: Hashes, products: Floats, first: int, totals: Floats, panel: Panel) -> None:
    replicates, columns = totals.shape
    width = LANES * len(panel)
    spans = -(-replicates // SPAN)
    panels = -(-columns // width)
    sums = np.zeros(panels * replicates * width)
    units = np.zeros(BIT_ROWS, dtype=np.uint64)
    codes = np.empty(spans * WORDS, dtype=np.uint64)
    octets = codes.view(np.uint8)
    rows = np.zeros(BIT_ROWS * width)
    tables = np.zeros(GROUPS * BIT_ENTRIES * width)
    for start in range(0, len(hashes), BIT_ROWS):
        _load_units(hashes, start, units)
        bit_codes(units, first, spans, codes)
        for number in range(panels):
            _load_rows(products, start, number, rows, panel)
            _tabulate(rows, 2, BIT_DIGITS, tables, panel)
            at = number * replicates * width
            for b in range(replicates):
                add_entries(sums, at + b * width, tables, octets, place(b), BIT_ENTRIES, panel)
    _add_sums(sums, 2.0, totals, panel)


@njit
def _fold_poisson(hashes: Hashes, products: Floats, first: int, totals: Floats, panel: Panel) -> None:
    replicates, columns = totals.shape
    width = LANES * len(panel)
    spans = -(-replicates // SPAN)
    panels = -(-columns // width)
    sums = np.zeros(panels * spans * SPAN * width)
    units = np.zeros(OCTET_ROWS, dtype=np.uint64)
    codes = np.empty(spans * WORDS, dtype=np.uint64)
    octets = codes.view(np.uint8)
    rows = np.zeros(OCTET_ROWS * width)
    tables = np.zeros(GROUPS * OCTET_ENTRIES * width)
    room = OCTET_ROWS * spans * SPAN + 4
    rest = np.empty(room, dtype=np.uint64)
    draws = np.empty(room, dtype=np.uint64)
    drawn = np.empty(room, dtype=np.float64)
    for start in range(0, len(hashes), OCTET_ROWS):
        _load_units(hashes, start, units)
        found = octet_codes(units, first, spans, codes, rest)
        draw_rest(units, first, rest[:found], draws, drawn)
        for number in range(panels):
            _load_rows(products, start, number, rows, panel)
            _tabulate(rows, 4, OCTET_DIGITS, tables, panel)
            at = number * spans * SPAN * width
            for b in range(replicates):
                add_entries(sums, at + b * width, tables, octets, place(b), OCTET_ENTRIES, panel)
            for i in range(found):
                row, replicate = row_and_replicate(rest[i])
                to = at + replicate * width
                add_scaled(sums, to, sums, to, drawn[i], rows, row * width, panel)
    _add_sums(sums, 1.0, totals, panel)


@njit
def _load_units(hashes: Hashes, start: int, units: Hashes) -> None:
    for row in range(len(units)):
        units[row] = hashes[start + row] if start + row < len(hashes) else np.uint64(0)


@njit
def _load_rows(products: Floats, start: int, number: int, rows: Floats, panel: Panel) -> None:
    """Copy a block's rows of one panel, with zeros where there is no row or no column any more."""
    width = LANES * len(panel)
    left = number * width
    kept = min(width, products.shape[1] - left)
    for row in range(len(rows) // width):
        to = rows[row * width : (row + 1) * width]
        if start + row < len(products):
            to[:kept] = products[start + row, left : left + kept]
            to[kept:] = 0.0
        else:
            to[:] = 0.0


@njit
def _tabulate(rows: Floats, radix: int, digits: int, tables: Floats, panel: Panel) -> None:
    """Tabulate, for each group, the weighted sum of its rows under every code; the first entry stays zero."""
    width = LANES * len(panel)
    entries = radix**digits
    for group in range(GROUPS):
        table = group * entries * width
        place = 1
        for digit in range(digits):
            row = (digit * GROUPS + group) * width
            for entry in range(place, radix * place):
                to = table + entry * width
                add_scaled(tables, to, tables, to - place * width, 1.0, rows, row, panel)
            place *= radix


@njit
def _add_sums(sums: Floats, factor: float, totals: Floats, panel: Panel) -> None:
    width = LANES * len(panel)
    panels = -(-totals.shape[1] // width)
    each = len(sums) // (panels * width) if panels else 0
    for b in range(totals.shape[0]):
        for column in range(totals.shape[1]):
            number = column // width
            totals[b, column] += factor * sums[(number * each + b) * width + column - number * width]

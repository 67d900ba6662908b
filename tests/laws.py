"""The laws of a tally, stated once for all of them.

A subject is told to the laws by how it starts, how it comes back from its state, and how its numbers are read: as Gram
matrices Σ g g', or as plain sums. Two tallies are the same when their counts agree exactly and their sums up to
rounding, on the scale that the same sums would have without any cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from numpy.typing import NDArray

from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.kernels.siphash import hash_identifiers
from resampling import KEY

Grams = list[Floats]


def gram_scale(size: Floats) -> Floats:
    """How large the entries of a Gram matrix may be."""
    return np.sqrt(np.outer(np.diag(size), np.diag(size)))


@dataclass(frozen=True)
class Subject:
    """A tally under test."""

    name: str
    empty: Callable[[Shape], Any]
    restore: Callable[[Any, Shape], Any]
    counts: Callable[[Any], tuple[int, ...]]
    grams: Callable[[Any, Any], Grams]  # of a tally, in the frame of another if it has one
    rounding: float = 1e-12
    framed: bool = False  # works in a frame of its own, which `rebase` takes in place of a matrix
    units: bool = False  # its blocks must be cut between units
    scale: Callable[[Floats], Floats] = gram_scale  # of sums without cancellation
    rebased: bool = True  # its rows may come in another frame one day


@dataclass(frozen=True)
class Rows:
    """Rows to fold, where they may be cut, and a matrix to change their frame by."""

    shape: Shape
    block: Block
    cuts: tuple[int, ...]
    order: tuple[int, ...]  # of the pieces between the cuts
    B: Floats

    def pieces(self) -> list[Block]:
        return [piece(self.block, start, stop) for start, stop in pairwise([0, *self.cuts, len(self.block)])]


def piece(block: Block, start: int, stop: int) -> Block:
    """The records between two places, their units numbered from zero."""
    part = slice(start, stop)
    weight = None if block.weight is None else block.weight[part].copy()
    unit = None if block.unit is None else block.unit[part] - (block.unit[start] if stop > start else 0)
    key = None if block.key is None else block.key[part].copy()
    return Block(block.rows[:, part].copy(), weight, unit, key)


def keys(n: int, units: int) -> NDArray[np.uint64]:
    """Keyed numbers of n records, scattered over so many units."""
    return hash_identifiers(pa.array(np.arange(n) % max(units, 1)), KEY)


@st.composite
def rows(draw: st.DrawFn, *, units: bool = False, framed: bool = False, most: int = 60) -> Rows:
    """Rows of many kinds: plain, whole numbers, shifted, of mixed scales, with a zero or a repeated column."""
    shape = Shape(draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    # Few rows make a frame in which rounding is large: what works in a frame is compared in one that many make.
    n = draw(st.just(0) | st.integers(4 * shape.columns if framed else 1, most) | st.just(20 * shape.columns))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.normal(size=(shape.columns, n))
    kind = draw(st.sampled_from(["plain", "whole", "shifted", "scaled", "zero", "repeated"]))
    values[0] = 1.0
    if kind == "whole":
        values = np.round(2 * values)
    elif kind == "shifted":
        values[1:] += rng.choice([0.0, 10.0, -1000.0], (shape.columns - 1, 1))
    elif kind == "scaled":
        values *= 10.0 ** rng.integers(-4, 5, (shape.columns, 1))
    elif kind == "zero":
        values[draw(st.integers(0, shape.columns - 1))] = 0.0
    elif kind == "repeated":
        values[-1] = values[0]
    unit = np.sort(rng.integers(0, max(1, n // 3), n)) if units else None
    if unit is not None:
        unit = np.unique(unit, return_inverse=True)[1].astype(np.int64)
    weight = rng.uniform(0.2, 3, n) if framed else None
    places = list(range(n + 1)) if unit is None else [i for i in range(n + 1) if i in (0, n) or unit[i - 1] < unit[i]]
    every = draw(st.booleans())
    cuts = places if every else sorted(draw(st.lists(st.sampled_from(places), max_size=6)))
    order = draw(st.permutations(range(len(cuts) + 1)))
    B = _triangular(rng, shape)
    key = keys(n, -(-n // int(rng.integers(1, 5))))
    return Rows(shape, Block(values, weight, unit, key), tuple(cuts), tuple(order), B)


def _triangular(rng: np.random.Generator, shape: Shape) -> Floats:
    """A change of frame: triangular, and no outcome leans on another."""
    k, columns = shape.regressors, shape.columns
    B = np.triu(rng.uniform(-1.5, 1.5, (columns, columns)), 1)
    B[k:, k:] = 0
    B[range(columns), range(columns)] = rng.uniform(0.5, 2, columns) * rng.choice([-1, 1], columns)
    return B


def check_laws(subject: Subject, rows: Rows) -> None:
    """Every law, on these rows."""
    pieces = [rows.pieces()[i] for i in rows.order]
    empty = subject.empty(rows.shape)
    whole = empty.fold(rows.block)
    size = empty.fold(replace(rows.block, rows=np.abs(rows.block.rows)))
    same = _Same(subject, whole, size)
    check_identity(empty, whole, same)
    folded = empty
    for part in pieces:
        folded = folded.fold(part)
    same(folded, whole)  # any batching
    shards = [empty.fold(part) for part in pieces]
    same(_sum(shards), whole)  # any sharding
    check_addition(shards, same)
    check_value(empty, rows)
    check_state(subject, whole, rows)
    if subject.rebased and not subject.framed:
        check_rebase(subject, whole, rows)


class _Same:
    """Asserts that two tallies are the same, but for rounding on the scale of a tally without cancellation."""

    def __init__(self, subject: Subject, whole: Any, size: Any) -> None:
        self.subject = subject
        self.whole = whole
        self.size = size

    def __call__(self, one: Any, other: Any) -> None:
        subject = self.subject
        assert subject.counts(one) == subject.counts(other)
        grams = [subject.grams(t, self.whole) for t in (one, other, self.whole, self.size)]
        for a, b, whole, size in zip(*grams, strict=True):
            # In a frame all columns are of about one length, and where not, what is short is rounding.
            framed = np.full_like(whole, np.abs(whole).max(initial=0))
            scale = framed if subject.framed else subject.scale(size)
            assert np.all(np.abs(a - b) <= subject.rounding * scale), "the tallies differ"


def check_identity(empty: Any, tally: Any, same: Callable[[Any, Any], None]) -> None:
    """Nothing added changes nothing."""
    same(empty + tally, tally)
    same(tally + empty, tally)
    same(empty + empty, empty)


def check_addition(tallies: Sequence[Any], same: Callable[[Any, Any], None]) -> None:
    """Addition is commutative and associative."""
    for a, b in pairwise(tallies):
        same(a + b, b + a)
    for a, b, c in zip(tallies, tallies[1:], tallies[2:], strict=False):
        same((a + b) + c, a + (b + c))


def check_value(empty: Any, rows: Rows) -> None:
    """Folding and adding leave both the old tally and the block as they were."""
    block = rows.block
    before = _bytes(empty), block.rows.tobytes(), block.weight is None or block.weight.tobytes()
    one = empty.fold(block)
    assert (_bytes(empty), block.rows.tobytes(), block.weight is None or block.weight.tobytes()) == before
    state = _bytes(one)
    one.fold(block)
    one + one
    assert _bytes(one) == state


def check_state(subject: Subject, tally: Any, rows: Rows) -> None:
    """A state comes back bit for bit, and so does all that follows from it."""
    encoded = _bytes(tally)
    back = subject.restore(msgspec.msgpack.decode(encoded), rows.shape)
    assert _bytes(back) == encoded
    assert _bytes(back.fold(rows.block)) == _bytes(tally.fold(rows.block))


def check_rebase(subject: Subject, tally: Any, rows: Rows) -> None:
    """A tally changes frame as if its rows had come in that frame."""
    z, B = rows.block.rows, rows.B
    empty = subject.empty(rows.shape)
    moved = empty.fold(replace(rows.block, rows=B.T @ z))
    size = empty.fold(replace(rows.block, rows=np.abs(B).T @ np.abs(z)))
    before = _bytes(tally)
    _Same(subject, moved, size)(tally.rebase(B), moved)
    assert _bytes(tally) == before


def _sum(tallies: Sequence[Any]) -> Any:
    """By halves, as engines merge."""
    if len(tallies) == 1:
        return tallies[0]
    middle = len(tallies) // 2
    return _sum(tallies[:middle]) + _sum(tallies[middle:])


def _bytes(tally: Any) -> bytes:
    return msgspec.msgpack.encode(tally.state())

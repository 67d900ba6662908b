"""The tally of replicates: the weighted sums it stands for, and a published panel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from foldaway.errors import StateError
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.kernels import accumulate
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.numerics.kernels.weights import Kind
from foldaway.paper import bootstrap_least_squares
from foldaway.plan import Bootstrap
from foldaway.tallies.moments import replicates
from foldaway.tallies.moments.replicates import Replicates
from resampling import KEY, close
from written_weights import weights

PETERSEN = Path(__file__).parents[2] / "data" / "petersen_test_data.txt"
KINDS: list[Kind] = ["poisson", "double-or-nothing"]


def empty(shape: Shape, count: int, kind: Kind = "poisson") -> Replicates:
    return Replicates.empty(Bootstrap(count, kind), shape)


def hashes(n: int, first: int = 0) -> Any:
    return hash_identifiers(pa.array(np.arange(first, first + n)), KEY)


# The laws that it shares with the other tallies are in test_laws.py.


@pytest.mark.parametrize("broken", [{"n": -1}, {"shape": (8, 3)}, {"shape": (7, 2)}, {"value": np.nan}], ids=str)
def test_a_state_that_does_not_fit_is_refused(broken: dict[str, Any]) -> None:
    totals = np.full(broken.get("shape", (8, 2)), broken.get("value", 1.0))
    state = [broken.get("n", 3), [totals.shape, totals.tobytes()]]
    with pytest.raises(StateError):
        empty(Shape(1, 1), 8).restored(state)
    good = empty(Shape(1, 1), 8).restored([3, [(8, 2), np.ones((8, 2)).tobytes()]])
    assert (good.n, good.totals.sum()) == (3, 16)


def test_a_block_without_keyed_numbers_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="keyed numbers"):
        empty(Shape(1, 1), 8).fold(Block(np.ones((2, 5))))


# What the sums are.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [Shape(1, 1), Shape(2, 3), Shape(5, 1), Shape(9, 2)], ids=str)
def test_the_moments_are_the_weighted_sums_over_the_records(shape: Shape, kind: Kind) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(shape.columns, 333))
    keys = hashes(333)
    tally = empty(shape, 100, kind).fold(Block(z, None, None, keys))
    w = weights(keys, 100, kind).astype(float)
    x = z[: shape.regressors]
    for o in range(shape.outcomes):
        square, cross = tally.moments(o)
        y = z[shape.regressors + o]
        np.testing.assert_allclose(square, np.einsum("nb,in,jn->bij", w, x, x), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(cross, np.einsum("nb,in,n->bi", w, x, y), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_first_records_once_it_is_algorithm_3(kind: Kind) -> None:
    rng = np.random.default_rng(2)
    n, m = 200, 12
    X = np.column_stack([np.ones(n), rng.integers(0, 2, n), rng.normal(5, 2, (n, 2))])
    y = X @ [1.0, 2.0, -1.0, 0.5] + rng.normal(size=n)
    literal = bootstrap_least_squares(X, y, weights(hashes(n - m), 50, kind), start=m)
    rest = Block(np.vstack([X[m:].T, y[m:]]), None, None, hashes(n - m))
    square, cross = empty(Shape(4, 1), 50, kind).fold(rest).moments(0)
    ours = np.linalg.solve(square + X[:m].T @ X[:m], (cross + X[:m].T @ y[:m])[:, :, None])[:, :, 0]
    assert close(ours, literal)


@pytest.mark.parametrize("kind", KINDS)
def test_one_thread_and_two_give_the_same_bits(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    block = Block(rng.normal(size=(4, 2_000)), None, None, hashes(2_000))
    used: list[int] = []
    original = accumulate.accumulate

    def watched(*arguments: Any) -> None:
        used.append(arguments[-1])
        original(*arguments)

    monkeypatch.setattr(accumulate, "accumulate", watched)
    states = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(replicates, "cores", partial(int, threads))
        states.append(msgspec.msgpack.encode(empty(Shape(3, 1), 1_000, kind).fold(block).state()))
    assert used == [1, 2, 3]
    assert states[0] == states[1] == states[2]


# A published panel.


def petersen() -> tuple[Any, Floats]:
    panel = np.loadtxt(PETERSEN)
    return panel[:, 0].astype(np.int64), np.vstack([np.ones(len(panel)), panel[:, 2], panel[:, 3]])


@pytest.mark.parametrize(
    ("by", "published"), [("firm", (0.0670, 0.0506)), ("record", (0.0284, 0.0284))], ids=["by firm", "by record"]
)
def test_petersens_panel_has_its_published_errors(by: str, published: tuple[float, float]) -> None:
    firm, z = petersen()
    identifiers = firm if by == "firm" else np.arange(len(firm))
    block = Block(z, None, None, hash_identifiers(pa.array(identifiers), KEY))
    square, cross = empty(Shape(2, 1), 20_000).fold(block).moments(0)
    coef = np.linalg.solve(square, cross[:, :, None])[:, :, 0]
    np.testing.assert_allclose(coef.mean(axis=0), [0.0297, 1.0348], atol=0.002)
    np.testing.assert_allclose(coef.std(axis=0, ddof=1), published, rtol=0.015)

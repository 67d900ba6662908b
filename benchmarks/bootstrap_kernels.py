"""The bootstrap kernels side by side with their peers, in one run: k = 5 regressors, B = 1000 replicates, 2 threads.

    python benchmarks/bootstrap_kernels.py

Everything is a time per record, the best of many short runs. Peers:

- the paper's Algorithm 3 run literally in NumPy (`foldaway.paper`), vectorised over the replicates;
- `arch`'s bootstrap of a least-squares fit on kept rows, timed for some replicates and scaled to B, which costs it
  nothing: its replicates are independent;
- the bare matrix product W'Q in float64 with W given for free, in the size that suits it best.

The first two are set against the whole way: hash the identifiers, form the products, make the weights, add, and solve
all replicates at the end. The third is set against `accumulate` alone, which still makes its weights. Peers may use
one thread or two, whichever is faster for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from arch.bootstrap import IIDBootstrap
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from foldaway.numerics.kernels.accumulate import accumulate
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.numerics.kernels.weights import Kind
from foldaway.paper import bootstrap_least_squares

K = 5
P = K * (K + 1) // 2 + K
B = 1000
ROWS = 100_000  # that `arch` keeps, and after which foldaway solves
BATCH = 16_384
THREADS = 2
KEY = bytes(range(16))
KINDS: tuple[Kind, ...] = ("poisson", "double-or-nothing")

Floats = NDArray[np.float64]


def best(run: Callable[[], object], seconds: float = 2.0) -> float:
    """The shortest of as many runs as a few seconds hold, after one that does not count."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def best_for_peer(run: Callable[[], object], seconds: float = 2.0) -> float:
    """The same, with as many threads as are best for it."""
    times: list[float] = []
    for threads in range(1, THREADS + 1):
        with threadpool_limits(threads):
            times.append(best(run, seconds))
    return min(times)


def trial(n: int) -> tuple[Floats, Floats, pa.Array]:
    """Regressors, an outcome, and identifiers."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, K - 1))])
    y = X @ rng.normal(size=K) + rng.normal(size=n)
    return X, y, pa.array(rng.integers(10**12, 10**17, n)).cast(pa.string())


def products(X: Floats, y: Floats) -> Floats:
    """The rows q = (vech(x x'), x y)."""
    Q = np.empty((len(y), P))
    for column, (i, j) in enumerate(zip(*np.triu_indices(K), strict=True)):
        np.multiply(X[:, i], X[:, j], out=Q[:, column])
    np.multiply(X, y[:, None], out=Q[:, P - K :])
    return Q


def fold(X: Floats, y: Floats, identifiers: pa.Array, kind: Kind, totals: Floats) -> None:
    """Take a batch of records into the replicates' totals, from their columns on."""
    accumulate(hash_identifiers(identifiers, KEY), products(X, y), B, kind, totals, THREADS)


def solve(totals: Floats) -> Floats:
    """The coefficients of all replicates."""
    i, j = np.triu_indices(K)
    moments = np.empty((B, K, K))
    moments[:, i, j] = moments[:, j, i] = totals[:, : P - K]
    return np.asarray(np.linalg.solve(moments, totals[:, P - K :, None])[:, :, 0], dtype=np.float64)


def literal(X: Floats, y: Floats) -> Floats:
    """Algorithm 3, drawing each record's weights as it comes."""
    rng = np.random.default_rng(2)

    def draw() -> Iterator[NDArray[np.int64]]:
        for _ in range(K + 1, len(y)):
            yield rng.poisson(1.0, B)

    return bootstrap_least_squares(X, y, draw(), start=K + 1)


def kept_rows(X: Floats, y: Floats, replicates: int) -> Floats:
    """`arch`, with the quickest way to fit least squares."""

    def fit(y: Floats, X: Floats) -> Floats:
        return np.asarray(np.linalg.solve(X.T @ X, X.T @ y), dtype=np.float64)

    coefficients: Floats = IIDBootstrap(y, X, seed=3).apply(fit, replicates)
    return coefficients


def bare_product(n: int) -> Callable[[], Floats]:
    rng = np.random.default_rng(4)
    W, Q = rng.poisson(1.0, (B, n)).astype(np.float64), rng.normal(size=(n, P))
    return lambda: W @ Q


def main() -> None:
    X, y, identifiers = trial(BATCH)
    hashes, Q = hash_identifiers(identifiers, KEY), products(X, y)
    totals = np.zeros((B, P))
    whole, alone = {}, {}
    for kind in KINDS:
        alone[kind] = best(partial(accumulate, hashes, Q, B, kind, totals, THREADS), 5.0) / BATCH
        whole[kind] = best(partial(fold, X, y, identifiers, kind, totals), 5.0) / BATCH
        whole[kind] += best(partial(solve, totals)) / ROWS

    some = 50
    literally = best_for_peer(partial(literal, X[:some], y[:some])) / (some - K - 1)
    replicates = 2
    kept = best_for_peer(partial(kept_rows, *trial(ROWS)[:2], replicates)) / ROWS * B / replicates
    bare = min(best_for_peer(bare_product(size), 1.0) / size for size in (100, 300, 1_000, 3_000))

    table = Table(title=f"Time per record: k = {K} (p = {P}), B = {B}, {THREADS} threads")
    for heading in ("weights", "peer", "peer, µs", "foldaway, µs", "times faster", "at least"):
        table.add_column(heading, justify="left" if heading in ("weights", "peer") else "right")
    for kind, peer, theirs, mine, limit in (
        ("poisson", "Algorithm 3, literal", literally, whole["poisson"], "120"),
        ("poisson", "arch, rows kept", kept, whole["poisson"], "25"),
        ("poisson", "bare product", bare, alone["poisson"], ""),
        ("double-or-nothing", "Algorithm 3, literal", literally, whole["double-or-nothing"], "400"),
        ("double-or-nothing", "arch, rows kept", kept, whole["double-or-nothing"], ""),
        ("double-or-nothing", "bare product", bare, alone["double-or-nothing"], ""),
    ):
        ratio = theirs / mine
        table.add_row(
            kind, peer, f"{theirs * 1e6:.2f}", f"{mine * 1e6:.3f}", f"{ratio:.{0 if ratio > 10 else 2}f}", limit
        )
    console = Console(width=100)
    console.print(table)

    many = 10_000_000
    column = pa.array(np.random.default_rng(5).integers(10**12, 10**17, many)).cast(pa.string())
    speed = many / best(partial(hash_identifiers, column, KEY)) / 1e6
    letters = column.nbytes / many - 4
    console.print(f"Hashing {many:,} texts of {letters:.1f} octets, one core: {speed:.0f} million a second (aim: 20)")


if __name__ == "__main__":
    main()

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foldaway.numerics.kernels import accumulate as module
from foldaway.numerics.kernels.accumulate import accumulate
from foldaway.numerics.kernels.weights import Kind
from written_weights import weights

KINDS: list[Kind] = ["poisson", "double-or-nothing"]

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]


def rows(n: int, p: int, seed: int = 0) -> tuple[Words, Floats]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**64, n, dtype=np.uint64), rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, p)


def totals(hashes: Words, products: Floats, replicates: int, kind: Kind, threads: int = 1) -> Floats:
    sums = np.zeros((replicates, products.shape[1]))
    accumulate(hashes, products, replicates, kind, sums, threads)
    return sums


def assert_close(ours: Floats, hashes: Words, products: Floats, kind: Kind) -> None:
    w = weights(hashes, len(ours), kind).astype(np.float64)
    scale = w.T @ np.abs(products)
    assert (np.abs(ours - w.T @ products) <= 1e-12 * scale).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replicates", [1, 8, 127, 128, 129, 500, 513, 1000, 1500])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 39, 40, 41, 333])
def test_it_is_the_product_with_the_weights(n: int, replicates: int, kind: Kind) -> None:
    hashes, products = rows(n, 20)
    assert_close(totals(hashes, products, replicates, kind), hashes, products, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [1, 3, 4, 17, 19, 65, 70])  # one panel or three, with and without padding
def test_any_number_of_columns(columns: int, kind: Kind) -> None:
    hashes, products = rows(100, columns)
    assert_close(totals(hashes, products, 200, kind), hashes, products, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_one_unit_share_its_weights(kind: Kind) -> None:
    hashes, products = rows(1, 20)
    many = np.tile(products, (90, 1)) / 90
    assert_close(totals(np.tile(hashes, 90), many, 300, kind), hashes, products, kind)


@given(
    n=st.integers(0, 200),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    threads=st.integers(1, 3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=60)
def test_any_batching_and_any_order(n: int, cuts: list[int], threads: int, kind: Kind, seed: int) -> None:
    hashes, products = rows(n, 20, seed)
    order = np.random.default_rng(seed).permutation(n)
    sums = np.zeros((300, 20))
    for part in np.split(order, sorted(min(cut, n) for cut in cuts)):
        accumulate(hashes[part], products[part], 300, kind, sums, threads)
    assert_close(sums, hashes, products, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replicates", [100, 1000, 1300])
def test_any_number_of_threads_gives_the_same_bits(
    replicates: int, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", 0)
    hashes, products = rows(2000, 20)
    alone = totals(hashes, products, replicates, kind, threads=1)
    for threads in (2, 3, 7):
        assert totals(hashes, products, replicates, kind, threads).tobytes() == alone.tobytes()


def test_threads_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(workers: int) -> ThreadPoolExecutor:
        asked.append(workers)
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(module, "ThreadPoolExecutor", counted)
    hashes, products = rows(2000, 20)
    totals(hashes, products, 1000, "poisson", threads=1)
    assert asked == []
    totals(hashes, products, 1000, "poisson", threads=2)
    assert asked == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_it_adds_to_what_is_there(kind: Kind) -> None:
    hashes, products = rows(50, 20)
    sums = np.full((10, 20), 1e6)
    accumulate(hashes, products, 10, kind, sums, threads=1)
    assert np.allclose(sums - 1e6, totals(hashes, products, 10, kind), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_are_summed_exactly(kind: Kind) -> None:
    hashes, _ = rows(5000, 1)
    products = np.random.default_rng(1).integers(-1000, 1000, (5000, 20)).astype(np.float64)
    exact = weights(hashes, 700, kind).T.astype(np.int64) @ products.astype(np.int64)
    assert (totals(hashes, products, 700, kind) == exact).all()


@pytest.mark.parametrize("kind", KINDS)
def test_its_replicates_are_weighted_least_squares(kind: Kind) -> None:
    rng = np.random.default_rng(2)
    n, k, replicates = 400, 5, 40
    X = np.column_stack([np.ones(n), rng.normal(size=(n, k - 1))])
    y = X @ rng.normal(size=k) + rng.normal(size=n)
    i, j = np.triu_indices(k)
    hashes, _ = rows(n, 1)
    sums = totals(hashes, np.hstack([X[:, i] * X[:, j], X * y[:, None]]), replicates, kind)
    moments = np.empty((replicates, k, k))
    moments[:, i, j] = moments[:, j, i] = sums[:, :15]
    ours = np.linalg.solve(moments, sums[:, 15:, None])[:, :, 0]
    for b, w in enumerate(weights(hashes, replicates, kind).T):
        kept = np.repeat(np.arange(n), w)  # the resample itself, rows as often as they are drawn
        theirs = np.linalg.lstsq(X[kept], y[kept])[0]
        assert np.allclose(ours[b], theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_read_only_input_will_do(kind: Kind) -> None:
    hashes, products = rows(30, 20)
    expected = totals(hashes, products, 10, kind)
    hashes.flags.writeable = products.flags.writeable = False
    assert (totals(hashes, products, 10, kind) == expected).all()


def test_nothing_adds_nothing() -> None:
    for n, replicates, columns in ((0, 5, 20), (5, 0, 20), (5, 5, 0)):
        hashes, products = rows(n, columns)
        assert (totals(hashes, products, replicates, "poisson") == np.zeros((replicates, columns))).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    hashes, products = rows(5, 20)
    for sums in (np.zeros((3, 20)), np.zeros((4, 19))):
        with pytest.raises(ValueError, match="Shapes"):
            accumulate(hashes, products, 4, "poisson", sums, 1)
    with pytest.raises(ValueError, match="Shapes"):
        accumulate(hashes[:4], products, 4, "poisson", np.zeros((4, 20)), 1)
    with pytest.raises(ValueError, match="contiguous"):
        accumulate(hashes, np.asfortranarray(products), 4, "poisson", np.zeros((4, 20)), 1)
    with pytest.raises(ValueError, match="double-or-nothing"):
        accumulate(hashes, products, 4, "gamma", np.zeros((4, 20)), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_records(kind: Kind) -> None:
    """The weights of the larger call, one octet each, would be 400 MB."""
    program = f"""
        import resource
        import numpy as np
        from foldaway.numerics.kernels.accumulate import accumulate
        hashes, products = np.arange(200_000, dtype=np.uint64), np.ones((200_000, 4))
        totals = np.zeros((2000, 4))
        accumulate(hashes[:1000], products[:1000], 2000, "{kind}", totals, 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        accumulate(hashes, products, 2000, "{kind}", totals, 2)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(run.stdout) * unit < 20e6

"""Histograms: the counts that NumPy gives of kept rows, on any number of threads, and states that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from foldaway.errors import StateError
from foldaway.numerics.threads import CORES
from foldaway.records.batch import Batch
from foldaway.tallies.group_folding import fold_histogram
from foldaway.tallies.histogram import Histogram, HistogramShape

ARMS, BINS = 3, 20


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "groups"), [(500, 8), (500, 1), (120_000, 8)])
def test_counts_are_those_of_kept_rows(
    n: int, groups: int, weighted: bool, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CORES, str(workers))
    rng = np.random.default_rng(n)
    arm, key = rng.integers(0, ARMS, n), rng.integers(0, 2**63, n).astype(np.uint64)
    bins, weight = rng.integers(-1, BINS, n).astype(np.int16), rng.uniform(0.5, 2, n)
    batch = Batch(n, lambda _: np.empty((0, 0)), ARMS, arm.astype(np.int8), weight if weighted else None, key=key)
    empty = Histogram.empty(HistogramShape(ARMS, groups, BINS, weighted))
    found = fold_histogram(fold_histogram(empty, batch, bins, 0), batch, bins, n)
    sample = np.column_stack([arm, key % groups, bins])
    edges = [np.arange(size + 1) - 0.5 for size in (ARMS, groups, BINS)]
    expected = 2 * np.histogramdd(sample, edges, weights=weight if weighted else None)[0]
    np.testing.assert_allclose(found.counts, expected, rtol=1e-12)
    assert (found.squares is None) == (not weighted or groups > 1)
    if found.squares is not None:
        squares = 2 * np.histogramdd(sample[:, [0, 2]], [edges[0], edges[2]], weights=weight**2)[0]
        np.testing.assert_allclose(found.squares, squares, rtol=1e-12)
    assert not empty.counts.any()


@pytest.mark.parametrize(("records", "width"), [(0, 1), (255, 1), (256, 2), (65_536, 4), (2**32, 8)])
def test_a_state_has_as_many_bytes_as_the_number_of_records_needs(records: int, width: int) -> None:
    shape = HistogramShape(2, 4, 5)
    counts = np.zeros(shape[:3])
    counts[0, 0, 0] = records
    state = Histogram(shape, counts, None).state()
    assert state.counts is not None
    assert len(state.counts.data) == width * counts.size
    np.testing.assert_array_equal(Histogram.restore(state, shape).counts, counts)


def test_a_state_of_another_shape_or_kind_is_refused() -> None:
    plain, weighted = HistogramShape(2, 1, 5), HistogramShape(2, 1, 5, weighted=True)
    state, weights = Histogram.empty(plain).state(), Histogram.empty(weighted).state()
    for saved, shape in (
        (state, plain._replace(bins=6)),
        (state, plain._replace(groups=4)),
        (state, weighted),
        (weights, plain),
        ([1, 2, 3], plain),
        (Histogram(weighted, -np.ones(weighted[:3]), np.zeros((2, 5))).state(), weighted),
    ):
        with pytest.raises(StateError):
            Histogram.restore(saved, shape)
    with pytest.raises(ValueError, match="shape of the tally"):
        Histogram.empty(weighted).fold([0], [1])

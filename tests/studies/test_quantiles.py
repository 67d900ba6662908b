"""The study of quantiles draws what it says, and its page says what was found."""

from __future__ import annotations

import numpy as np
from studies.quantiles import BINS, Design

from foldaway.inference.reading.quantile import quantiles as quantiles_of
from studies import quantiles


def test_trials_have_the_records_and_quantiles_of_their_design() -> None:
    design = Design(3_000, 4, 0.5, 0.25)
    binned = quantiles.histograms(design, 5, np.random.default_rng(1))
    n = binned.counts.sum(axis=(-1, -2))
    np.testing.assert_allclose(n.sum(axis=1), 12_000, rtol=0.1)
    np.testing.assert_allclose(n[:, 1] / n.sum(axis=1), 0.25, atol=0.03)
    found = quantiles_of(binned, 0.5, by_group=True)
    np.testing.assert_allclose(found.levels.value.mean(axis=0), [1, 1 + quantiles.EFFECT], rtol=0.04)
    plain = quantiles.plain_jackknife(binned, 0.5)
    np.testing.assert_allclose(plain.covariance[:, 0, 0], found.levels.covariance[:, 0, 0], rtol=0.7)
    assert binned.counts.shape == (5, 2, 32, BINS.number)


def test_intervals_cover_and_the_page_says_so() -> None:
    cells = {design: quantiles.study(design, 60, 2) for design in (Design(2_000), Design(400, 5, 0.3))}
    for found in cells.values():
        assert found[0.5].told == found[0.95].told == 1
        assert found[0.99].told < 0.1
        assert min(found[0.5].covers, found[0.95].covers) > 0.87
    page = quantiles.findings(cells, 60).page("quantiles", "python")
    assert "400 units, 2,000 records, correlation 0.3" in page
    assert "Where nearly all trials show an interval" in page

"""The study of survival draws what it says, and its page says what was found."""

from __future__ import annotations

import numpy as np
from studies.survival import BENEFIT, OUTCOME, Design

from foldaway.inference.survival import Exited, area, curve
from studies import survival


def test_trials_have_the_exits_and_the_effect_of_their_design() -> None:
    design = Design(4_000, 3, 0.5, 0.25)
    counts = survival.histograms(design, BENEFIT, 3, np.random.default_rng(1))
    n = counts[:, 0].sum(axis=(-1, -2))
    np.testing.assert_allclose(n.sum(axis=1), 12_000, rtol=0.1)
    np.testing.assert_allclose(n[:, 1] / n.sum(axis=1), 0.25, atol=0.03)
    means = area(curve(Exited.of(counts[:, 0]).total()), OUTCOME.binning.ends).mean(axis=0)
    np.testing.assert_allclose(means[1] - means[0], survival.difference(design, BENEFIT), rtol=0.25)


def test_strata_have_hazards_and_shares_of_their_own_and_together_the_effect() -> None:
    design = Design(12_000, strata=3)
    counts = survival.histograms(design, BENEFIT, 3, np.random.default_rng(4))
    n = counts.sum(axis=(0, -1, -2))
    np.testing.assert_allclose(n[:, 1] / n.sum(axis=1), survival.SHARES, atol=0.02)
    whole = [survival.whole(design, each)[0].total() for each in counts]
    means = np.mean([area(curve(each), OUTCOME.binning.ends) for each in whole], axis=0)
    np.testing.assert_allclose(means[1] - means[0], survival.difference(design, BENEFIT), rtol=0.15)


def test_intervals_cover_and_the_page_says_so() -> None:
    cells = {
        (design, 1.0): survival.study(design, 1.0, 60, 2) for design in (Design(300), Design(100, 5, 0.5, strata=3))
    }
    for found in cells.values():
        assert found.mean_covers > 0.87
        assert found.ratio_covers > 0.87
        assert found.rejects < 0.15
    page = survival.findings(cells, 60).page("survival", "python")
    assert "100 units, 500 exits in 3 strata, frailty of variance 0.5" in page
    assert "Intervals of the restricted means' difference cover" in page

"""The study of releases: its populations have the effect they say, and its intervals are those of a release."""

from __future__ import annotations

import numpy as np
import pytest
from studies.release import DESIGNS, drawn, population, study

from foldaway.effects.released import least_records
from sizes import mostly_slow


@pytest.mark.parametrize("name", DESIGNS)
def test_the_true_effect_is_that_of_very_many_units(name: str) -> None:
    cells = drawn(name, 10**9, 8, 1, np.random.default_rng(1), 1).sum(axis=(0, 1))
    means = cells[:, 1] / cells[:, 0]
    assert means[1] - means[0] == pytest.approx(population(name, 1).effect, rel=0.01)
    assert means[1] / means[0] == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize("name", mostly_slow(["rare", "revenue", "visits"], "revenue"))
def test_intervals_cover_and_are_wider_the_smaller_epsilon_is(name: str) -> None:
    results = study(name, 100_000, 300, 1).values()
    found = [result for result in results if result is not None]
    assert len(found) == len(results)
    for result in found:
        assert 0.91 < result.held < 0.985
        assert result.width > result.exact
    assert found[0].width > found[1].width > found[2].width


def test_a_trial_that_noise_drowns_has_no_interval() -> None:
    assert least_records(DESIGNS["visits"].plan(0.5)) > 500
    assert study("visits", 1_000, 10, 1)[0.5] is None

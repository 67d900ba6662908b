"""λ from groups: the definition on kept cells, what it does not depend on, and coverage with few groups."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from foldaway.inference.jackknife import Cells, jackknife, jackknife_adjusted, mean
from foldaway.inference.levels import difference_of
from foldaway.numerics.block import Floats
from sizes import mostly_slow


def trials(rng: np.random.Generator, count: int, devices: int, groups: int, slope: float) -> Cells:
    """Trials of devices with one to five records each, whose predictions are so many times what they should be."""
    size = count, devices
    arm, group = rng.integers(0, 2, size), rng.integers(0, groups, size)
    n = rng.integers(1, 6, size)
    x = n * rng.normal(size=size) + np.sqrt(n) * rng.normal(size=size)
    y = 5.0 * n + x + n * rng.normal(size=size) / 2 + np.sqrt(n) * rng.normal(size=size)
    cell = (np.arange(count)[:, None] * groups + group) * 2 + arm

    def summed(values: Floats) -> Floats:
        return np.bincount(cell.ravel(), values.ravel(), count * groups * 2).reshape(count, groups, 2).astype(float)

    return Cells(summed(n.astype(float)), summed(y), summed(y - slope * x))


def test_the_size_of_the_prediction_is_of_no_account() -> None:
    cells = trials(np.random.default_rng(1), 20, 80, 16, 1.0)
    assert cells.adjusted is not None
    right = jackknife_adjusted(cells)
    for times in (-3.0, 1e-6, 1e6):
        other = jackknife_adjusted(cells._replace(adjusted=cells.value + times * (cells.adjusted - cells.value)))
        np.testing.assert_allclose(other.value, right.value, rtol=1e-8)
        np.testing.assert_allclose(other.covariance, right.covariance, rtol=1e-6)


def test_the_level_of_sums_is_of_no_account() -> None:
    cells = trials(np.random.default_rng(2), 5, 80, 16, 0.5)
    far = cells._replace(
        value=cells.value - 7.0 * cells.weight,
        adjusted=cells.adjusted - 3.0 * cells.weight,  # type: ignore[operator]
        level=7.0,
        adjusted_level=3.0,
    )
    np.testing.assert_allclose(jackknife_adjusted(far).value, jackknife_adjusted(cells).value, rtol=1e-10)
    np.testing.assert_allclose(jackknife_adjusted(far).covariance, jackknife_adjusted(cells).covariance, rtol=1e-8)


@pytest.mark.parametrize("constant", [0.0, 4.0])
def test_a_prediction_that_is_the_same_for_all_predicts_nothing(constant: float) -> None:
    cells = trials(np.random.default_rng(3), 5, 80, 16, 0.0)
    cells = cells._replace(adjusted=cells.value - constant * cells.weight)
    ours, plain = jackknife_adjusted(cells), jackknife(mean, cells)
    np.testing.assert_allclose(ours.value, plain.value, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance, plain.covariance, rtol=1e-9)


@pytest.mark.parametrize(("devices", "groups"), [(60, 8), (60, 128), (300, 32)])
@pytest.mark.parametrize("slope", mostly_slow([1.0, 0.5, -1.0], 0.5))
def test_intervals_cover_and_wrong_coefficients_cost_little(devices: int, groups: int, slope: float) -> None:
    cells = trials(np.random.default_rng(4), 4000, devices, groups, slope)
    adjusted, plain = (difference_of(levels, 1) for levels in (jackknife_adjusted(cells), jackknife(mean, cells)))
    reach = stdtrit(adjusted.df, 0.975) * np.sqrt(adjusted.variance)
    assert 0.94 < np.mean(np.abs(adjusted.estimate) <= reach) < 0.98
    assert np.std(adjusted.estimate) < 0.75 * np.std(plain.estimate)

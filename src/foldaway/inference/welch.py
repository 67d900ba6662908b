"""Welch's error for independent records, from the arms' second-order sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.inference.levels import ONE_CARRIES, Levels, over
from foldaway.numerics.block import Floats
from foldaway.tallies.sums import Sums

_NONE = np.zeros(2)


class Spread(NamedTuple):
    """One outcome's means and how they vary, with any leading axes.

    Attributes:
        n: The number of records: (…, A).
        weight: Σw: (…, A).
        mean: The means of y and ỹ, less `level`: (…, A, 2); of y alone (…, A, 1) without adjustment.
        products: Σ w² (v − v̄)(v − v̄)', v̄ being these means: (…, A, 2, 2) or (…, A, 1, 1).
        level: What of the means of y and ỹ all arms share, and the means have not: (2,) or (1,).
        effective: (Σw)²/Σw², as many records of equal weight as these are worth: (…, A); n if left out.
    """

    n: Floats
    weight: Floats
    mean: Floats
    products: Floats
    level: Floats = _NONE
    effective: Floats | None = None


def spread_of(sums: Sums, outcome: int) -> Spread:
    """One outcome's spread in every arm."""
    columns = list(range(outcome, sums.shape.columns, sums.shape.outcomes))
    weight = sums.weights(outcome).sum(axis=1)
    about = over(sums.total[..., columns].sum(axis=1), weight[:, None])
    mass = sums.mass[:, outcome]
    products = np.zeros((sums.shape.arms, len(columns), len(columns)))
    diagonal = range(len(columns))
    products[:, diagonal, diagonal] = sums.square[:, columns]
    if sums.cross is not None:
        products[:, 0, 1] = products[:, 1, 0] = sums.cross[:, outcome]
    # They were kept about the means under w²; with weights those are not the means that are compared.
    apart = over(sums.first[:, columns], mass[:, None]) - about
    products += mass[:, None, None] * apart[:, :, None] * apart[:, None, :]
    # Where one record has all of the weight, what is left of the others is rounding.
    products[weight**2 < ONE_CARRIES * mass] = 0
    n = sums.counts(outcome).sum(axis=1)
    worth = np.divide(weight**2, mass, out=n.astype(np.float64), where=(mass > 0) & (mass != weight))
    return Spread(n, weight, about, products, sums.level[columns], worth)


def welch(spread: Spread, rate: Floats | float | None = None) -> Levels:
    """The arms' means, or with a rate λ their adjusted means, and the levels' covariance for independent records.

    Without weights and adjustment an arm's variance is s²/n, with n − 1 degrees of freedom; with weights
    n/(n − 1) · Σ w² (v − v̄)² / (Σw)².
    """
    n = spread.n
    with np.errstate(divide="ignore", invalid="ignore"):
        unbiased = np.where(n > 1, n / (n - 1), np.nan)
        each = spread.products * (unbiased / spread.weight**2)[..., None, None]
    if rate is None:
        variances, away = each[..., 0, 0], spread.mean[..., 0]
        value = spread.level[0] + away
        return Levels(value, variances[..., None] * np.eye(n.shape[-1]), _doubt(spread), n, away=away)
    # An arm that has shown no spread, or no record, takes nothing away from what is known of the others.
    means, each = np.nan_to_num(spread.mean), np.nan_to_num(each)
    # Level a is (1 − λ) ȳ_a + λ ỹ_a + λ Σ_b s_b (ȳ_b − ỹ_b): linear in the means, s_b being the arms' shares.
    lam = np.asarray(rate, dtype=np.float64)[..., None, None]
    share = (spread.weight / spread.weight.sum(axis=-1, keepdims=True))[..., None, :]
    own = np.eye(n.shape[-1])
    parts = np.stack([(1 - lam) * own + lam * share, lam * own - lam * share], axis=-1)  # (…, a, b, 2)
    # The parts of the ȳ add up to 1, those of the ỹ to 0.
    away = np.where(n > 0, np.einsum("...abi,...bi->...a", parts, means), np.nan)
    covariance = np.einsum("...abi,...bij,...cbj->...ac", parts, each, parts)
    return Levels(spread.level[0] + away, covariance, _doubt(spread), n, away=away)


def ratio_welch(sums: Sums, places: tuple[int, int], rates: tuple[float, float] | None = None) -> Levels:
    """The arms' ratios of two means and their covariance for independent records, by linearisation.

    With m the arms' means of u and d, R = m_u/m_d varies as (u − R d)/m_d does: of plain means an arm's variance is
    n/(n − 1) Σ w² (u − R d)² / (Σ w d)². With rates λ the means are adjusted, and linear in the arms' means of u, ũ, d
    and d̃, as `welch` has it.

    Args:
        sums: The sums, with the products of the two.
        places: Where u and d stand.
        rates: λ of u and of d.
    """
    both = [spread_of(sums, place) for place in places]
    n, weight = both[0].n, both[0].weight
    arms, width = len(n), 1 if rates is None else both[0].mean.shape[-1]
    products = np.zeros((arms, 2, width, 2, width))
    for v, spread in enumerate(both):
        products[:, v, :, v] = spread.products[:, :width, :width]
    between = _joint(sums, places)[:, :width, :width]
    products[:, 0, :, 1], products[:, 1, :, 0] = between, np.swapaxes(between, -1, -2)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.nan_to_num(products * (np.where(n > 1, n / (n - 1), np.nan) / weight**2)[:, None, None, None, None])
        own, share = np.eye(arms), np.broadcast_to(weight / weight.sum(), (arms, arms))
        parts = np.stack([own[..., None]] * 2, axis=2)  # (a, b, which, columns)
        if rates is not None:
            blends = [np.stack([(1 - r) * own + r * share, r * own - r * share], axis=-1) for r in rates]
            parts = np.stack(blends, axis=2)
        means = np.nan_to_num(np.stack([(spread.level + spread.mean)[:, :width] for spread in both], axis=1))
        levels = np.einsum("abvi,bvi->av", parts, means)
        value = np.where(n > 0, levels[:, 0] / levels[:, 1], np.nan)
        slope = np.stack([1 / levels[:, 1], -value / levels[:, 1]], axis=1)
        linear = np.nan_to_num(parts * slope[:, None, :, None])
    covariance = np.einsum("abvi,bviwj,cbwj->ac", linear, each, linear, optimize=True)
    return Levels(value, covariance, _doubt(both[0]), n)


def _joint(sums: Sums, places: tuple[int, int]) -> Floats:
    """Σ w² (u − ū)(d − d̄)' of a pair's columns, about the means that are compared: (A, 2, 2) or (A, 1, 1)."""
    assert sums.joint is not None
    mass = sums.mass[:, places[0], None]
    weight = sums.weights(places[0]).sum(axis=1)[:, None]
    apart = [
        over(sums.first[:, columns], mass) - over(sums.total[..., columns].sum(axis=1), weight)
        for columns in map(sums.shape.block, places)
    ]
    joint = sums.joint[:, sums.shape.pairs.index(places)]
    about: Floats = joint + np.nan_to_num(mass[..., None] * apart[0][:, :, None] * apart[1][:, None, :])
    return about


def welch_total(spread: Spread, probabilities: Floats, units: float | None = None) -> Levels:
    """Σv/π_a over the number of units: the paper's mean of z = 1[arm]·y/π_arm (Eq. 3), and its covariance.

    Records are units here, and each has been in every arm's mean, with 0 where it was in another arm.

    Args:
        spread: The arms' sums.
        probabilities: The arms' probabilities.
        units: What totals are divided by; the number of all records if left out.
    """
    pi = np.asarray(probabilities)
    everyone = spread.n.sum(axis=-1, keepdims=True)
    mean = spread.level[0] + spread.mean[..., 0]
    value = mean * spread.weight / (pi * everyone)
    squares = (spread.products[..., 0, 0] + spread.n * mean**2) / (pi**2 * everyone)
    second = squares[..., None] * np.eye(len(pi))
    free = np.where(everyone > 1, everyone - 1, np.nan)[..., None]
    covariance = (second - value[..., :, None] * value[..., None, :]) / free
    doubt = np.broadcast_to(1 / free, covariance.shape)
    scale = np.ones_like(everyone) if units is None else everyone / units
    return Levels(value * scale, covariance * scale[..., None] ** 2, doubt, spread.n)


def noisy_shares(n: Floats, total: Floats, level: float, noise: tuple[float, float]) -> Levels:
    """Shares of ones among independent records, from noisy counts and sums; their error needs no groups.

    The variance is p(1 − p)/n and, by linearisation, that of the noise. If the outcome has values between 0 and 1 it is
    too large rather than too small (Bhatia and Davis 2000). Two ones and two zeros more (Agresti and Coull 1998) keep
    a share that noise has pushed to 0 from looking certain.

    Args:
        n: Noisy numbers of records: (…, A).
        total: Noisy sums of the outcome about the level: (…, A).
        level: What these are about.
        noise: The standard deviations of the noise in `n` and in `total`.
    """
    away = over(total, n)
    share = np.clip((total + level * n + 2) / np.maximum(n + 4, 1), 0, 1)
    variance = share * (1 - share) / n + (noise[1] ** 2 + away**2 * noise[0] ** 2) / n**2
    own = np.eye(n.shape[-1])
    return Levels(level + away, variance[..., None] * own, 1e-9 * own, n)


def _doubt(spread: Spread) -> Floats:
    """Each arm's variance has n − 1 degrees of freedom of its own; with weights, n is what the records are worth."""
    n = spread.n if spread.effective is None else spread.effective
    own: Floats = np.nan_to_num(over(1.0, np.maximum(n - 1, 0)))[..., None] * np.eye(n.shape[-1])
    return own

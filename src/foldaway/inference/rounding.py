"""Rounding of what is told to others, so that no answer can be solved for a person.

Levels are rounded to a quarter of their standard error; errors, correlations and degrees of freedom to two digits;
counts to match. Whatever else a row says is derived from the rounded numbers alone. A step of s/4 adds a variance of
s²/192 to a level, which the told error includes: an interval becomes 0.3 % wider.

That is not enough where few people carry an outcome. If one of n has bought something, the level is v/n and so is its
error: either would tell v. So the fewer carry it, the coarser are both: with k of them, a step is max(1, 8/k) times as
long. What is lost is nothing of worth, since an error that rests on so few is itself off by a factor.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from foldaway.inference.levels import Levels
from foldaway.numerics.block import Floats

STEPS = 4
"""Steps of a level per standard error."""

INFLATION = math.sqrt(1 + 1 / (12 * STEPS**2))
"""By how much the told error exceeds the exact one: the variance of a uniform error within a step."""

ENOUGH_CARRIERS = 8
"""With fewer people who carry an outcome, it is told more coarsely."""

K = TypeVar("K", bound=Hashable)


def two_digits(numbers: Floats | float) -> Floats:
    """Numbers to two significant digits.

    Example:
        >>> two_digits(np.array([0.012345, 98.7, 0.0, np.inf])).tolist()
        [0.012, 99.0, 0.0, inf]
    """
    exact = np.asarray(numbers, dtype=np.float64)
    return np.array([float(f"{number:.1e}") for number in exact.ravel()]).reshape(exact.shape)


def to_steps(values: Floats | float, step: Floats | float) -> Floats:
    """Values to whole steps; NaN where there is no step, since a value without spread is everyone's."""
    exact, width = np.broadcast_arrays(np.asarray(values, dtype=np.float64), step)
    usable = np.isfinite(width) & (width > 0)
    size = np.where(usable, width, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(usable, np.round(exact / size) * size, np.nan)


def round_count(n: float) -> int:
    """A count to a step of about a quarter of its own root: 1, 2 or 5 times a power of ten.

    Example:
        >>> [round_count(n) for n in (0, 7, 23, 137, 5_123, 1_234_567)]
        [0, 8, 24, 135, 5120, 1234500]
    """
    quarter = math.sqrt(n) / STEPS
    if quarter < 1:
        return 2 * round(n / 2)
    power = 10 ** math.floor(math.log10(quarter))
    step = power * next(size for size in (2, 5, 10) if quarter <= size * power)
    return int(step * round(n / step))


def coarse_p_value(p: float | None) -> float | None:
    """A p-value cut off after one digit: it stays on its side of every threshold of one digit.

    Example:
        >>> coarse_p_value(0.0349), coarse_p_value(0.000999), coarse_p_value(0.2)
        (0.03, 0.0009, 0.2)
    """
    if not p or math.isnan(p):
        return 0.0 if p == 0 else None
    digit, _, power = f"{p:.15e}".partition("e")
    return float(f"{digit[0]}e{power}")


def coarseness(carriers: Floats) -> Floats:
    """How many times longer the steps are where so many carry an outcome: a power of two, which tells little of them.

    Example:
        >>> coarseness(np.array([1.0, 2.0, 3.0, 8.0, 1e6])).tolist()
        [8.0, 4.0, 4.0, 1.0, 1.0]
    """
    few = np.clip(ENOUGH_CARRIERS / np.maximum(carriers, 1.0), 1.0, None)
    coarse: Floats = 2.0 ** np.ceil(np.log2(few) - 1e-9)
    return coarse


def coarse_error(errors: Floats, coarse: Floats) -> Floats:
    """Errors to two digits; to a power of 2^(coarseness/4) where few carry an outcome."""
    inflated = np.sqrt(1 + coarse**2 / (12 * STEPS**2)) * errors
    with np.errstate(all="ignore"):
        powers = 2.0 ** (np.round(np.log2(inflated) * STEPS / coarse) * coarse / STEPS)
    return np.where(coarse > 1, powers, two_digits(inflated))


def rounded_levels(kinds: Mapping[K, Levels], carriers: Floats) -> dict[K, Levels]:
    """The arms' levels by one estimator, with several kinds of error, as they are told.

    A level has one step, from the largest of its errors: rounded to different steps it would be told more exactly.

    Args:
        kinds: The levels, by kind of error.
        carriers: By arm, how many people carry the outcome.

    Example:
        >>> exact = Levels(np.array([10.123, 12.456]), np.diag([0.1, 0.15]), np.eye(2) / 99, np.array([103, 98]))
        >>> told = rounded_levels({"welch": exact}, np.array([90.0, 90.0]))["welch"]
        >>> told.value.round(3).tolist(), np.sqrt(np.diag(told.covariance)).tolist(), told.n.tolist()
        ([10.16, 12.48], [0.32, 0.39], [105.0, 100.0])
    """
    coarse = coarseness(carriers)
    errors = {kind: coarse_error(_errors(levels), coarse) for kind, levels in kinds.items()}
    step = np.max(list(errors.values()), axis=0) * coarse / STEPS if errors else np.nan
    return {kind: _rounded(levels, errors[kind], step) for kind, levels in kinds.items()}


def _errors(levels: Levels) -> Floats:
    errors: Floats = np.sqrt(np.maximum(np.diagonal(levels.covariance), 0))
    return errors


def _rounded(levels: Levels, errors: Floats, step: Floats | float) -> Levels:
    exact = _errors(levels)
    with np.errstate(all="ignore"):  # of levels without spread there is none
        correlation = np.clip(np.nan_to_num(levels.covariance / np.outer(exact, exact)), -1, 1).round(2)
    np.fill_diagonal(correlation, 1.0)
    return levels._replace(
        value=to_steps(levels.value, step),
        away=None,
        covariance=correlation * np.outer(errors, errors),
        doubt=two_digits(levels.doubt),
        n=np.array([round_count(n) for n in levels.n], dtype=np.float64),
    )

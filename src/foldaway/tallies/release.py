"""A release: the sums of each arm and group with noise, calibrated jointly to all that one unit can touch.

A unit lies in one arm and one group, so it moves a single cell. There it moves the number of records and the sums of
all released columns at once: the outcomes y and, with the plan's coefficients, their predictions p. Let column j lie in
c_j ± h_j. A record moves the scaled vector

    (a, (v_1 − c_1)/h_1, …, (v_d − c_d)/h_d)   by at most   √(a² + d),

and a unit of at most u records by u times that. Every entry gets the noise of that length, times its h_j (for the
count, 1/a). An arm's mean is c + Σ(v − c)/n, so its noise is that of the sum and |mean − c|/h times that of the count.
The worst case, an outcome at its bound, is best served by a⁴ = d: the variance is then in proportion to (1 + √d)².
A center in the middle of the bounds is never worse than another. `docs/release.md` has the derivation.

Neighbouring are two sets of records of which one has a unit more. Groups are drawn under a secret key, whatever the
records are.

The noise, and what it spends, are OpenDP's, which is loaded when they are needed. The Gaussian mechanism adds N(0, s²)
to a vector that one unit can move by at most 1 in the Euclidean norm. It spends ρ = 1/(2s²) of zero-concentrated
privacy (Bun and Steinke 2016), which OpenDP converts to (ε, δ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foldaway.errors import EstimateError, StateError, not_installed
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.reported import estimators_of
from foldaway.plan.vocabulary import ESTIMATORS, TOTAL
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.sums import Sums, SumsShape

# A thousandth more than the sensitivity: for the rounding of sums in double precision.
_ROUNDING = 1.001

# A prediction that is constant needs no noise to speak of.
_LEAST_RADIUS = 1e-9

# Between these lies the noise of every ε and δ that a plan may have.
_LEAST, _MOST = 0.05, 1e6


class Cell(NamedTuple):
    """What is released of each arm and group.

    Attributes:
        predicted: The outcomes whose predictions are released too.
        center: What sums are about: of the outcomes, then of those predictions.
        scale: Standard deviations of the noise: of the number of records, then of those sums.
    """

    predicted: Sequence[int]
    center: Floats
    scale: Floats


class ReleasedState(msgspec.Struct, array_like=True):
    """A release as it is kept; all else about it follows from the plan."""

    records: Array
    total: Array


def noisy_groups(plan: Plan) -> int:
    """Into how many groups a release goes: as many as the plan says, or one where shares tell their own error."""
    assert plan.release is not None
    return 1 if plan.by_shares else plan.release.noisy_groups


def cell_of(plan: Plan) -> Cell:
    """What is released of each cell and with how much noise: a function of the plan alone."""
    assert plan.release is not None
    predictor = predictor_of(plan)
    adjusts = predictor is not None and any(ESTIMATORS[name].adjusts for name in estimators_of(plan))
    # A total has no denominator: about 0, the noise of the count has no part in it.
    total = np.array([all(TOTAL in each.READ_BY for each in plan.read_from(value)) for value in plan.values])
    predicted = [o for o in range(len(total)) if adjusts and not total[o]]
    bounds = np.array(plan.value_bounds)
    center = np.where(total, 0.0, bounds.mean(axis=1))
    radius = np.where(total, np.abs(bounds).max(axis=1), np.diff(bounds)[:, 0] / 2)
    if predicted:
        assert predictor is not None
        assert predictor.reach is not None
        reach = predictor.reach[predicted]
        center = np.append(center, reach.mean(axis=1))
        radius = np.append(radius, np.maximum(np.diff(reach)[:, 0] / 2, _LEAST_RADIUS * radius[predicted]))
    a = len(radius) ** 0.25
    sensitivity = _ROUNDING * plan.unit_records * np.hypot(a, np.sqrt(len(radius)))
    noise = noise_scale(plan.release.epsilon, plan.release.delta) * sensitivity
    return Cell(predicted, center, noise * np.append(1 / a, radius))


def release(plan: Plan, sums: Sums, rng: np.random.Generator | None = None) -> Sums:
    """The sums with noise, in the groups of a release and without anything of second order.

    Args:
        plan: The plan, with bounds that the records were held to, and a `release`.
        sums: The exact sums, or noisy ones that are to get the same noise once more.
        rng: For simulations alone; see `noisy`.
    """
    cell, outcomes = cell_of(plan), sums.shape.outcomes
    sums = sums.regrouped(noisy_groups(plan))
    n = sums.records
    columns = [sums.totals(o) for o in range(outcomes)]
    columns += [sums.totals(o) - sums.totals(o + outcomes) for o in cell.predicted]
    values = np.stack([n, *(column - c * n for column, c in zip(columns, cell.center, strict=True))], axis=-1)
    values = noisy(values / cell.scale, 1.0, rng) * cell.scale
    return _sums(plan, cell, values[..., 0], values[..., 1:])


def noise_of(plan: Plan, rng: np.random.Generator | None = None) -> Floats:
    """A release's noise by arm and group, for whoever cannot see what it is added to: of n, of each Σy and of each Σỹ.

    NaN stands for a sum that is not released.
    """
    cell, outcomes = cell_of(plan), len(plan.values)
    empty = np.zeros((len(plan.arms), noisy_groups(plan), len(cell.scale)))
    drawn = noisy(empty, 1.0, rng) * cell.scale
    about = drawn[..., 1:] + cell.center * drawn[..., :1]
    found = [drawn[..., :1], about[..., :outcomes]]
    if plan.coefficients is not None:
        tilde = np.full((*empty.shape[:2], outcomes), np.nan)
        tilde[..., list(cell.predicted)] = about[..., list(cell.predicted)] - about[..., outcomes:]
        found.append(tilde)
    return np.concatenate(found, axis=-1)


def released_sums(plan: Plan, records: Floats, totals: Floats) -> Sums:
    """The sums of a release, from noisy n, and Σy and Σỹ, by arm and group."""
    cell, outcomes = cell_of(plan), len(plan.values)
    columns = [totals[..., o] for o in range(outcomes)]
    columns += [totals[..., o] - totals[..., o + outcomes] for o in cell.predicted]
    about = [column - c * records for column, c in zip(columns, cell.center, strict=True)]
    return _sums(plan, cell, records, np.stack(about, axis=-1))


def _sums(plan: Plan, cell: Cell, records: Floats, total: Floats) -> Sums:
    """Sums of y and ỹ = y − p, from what was released of y and p."""
    outcomes = len(plan.values)
    shape = SumsShape(len(plan.arms), outcomes, records.shape[1], adjusted=bool(cell.predicted))
    level, columns = cell.center[:outcomes], total[..., :outcomes]
    if cell.predicted:
        level, columns = np.tile(level, 2), np.concatenate([columns, columns], axis=-1)
        tilde = np.array(cell.predicted) + outcomes
        level[tilde] -= cell.center[outcomes:]
        columns[..., tilde] -= total[..., outcomes:]
    return replace(Sums.empty(shape), level=level, records=records, total=columns)


def restored_release(state: Any, plan: Plan) -> Sums:
    """A release from its state."""
    kept = decode_part(state, ReleasedState)
    if plan.release is None:
        raise StateError("the state does not fit its plan: it holds a release.")
    cell = cell_of(plan)
    A, G, columns = len(plan.arms), noisy_groups(plan), len(plan.values) * (1 + bool(cell.predicted))
    records, total = kept.records.read(A, G), kept.total.read(A, G, columns)
    empty = _sums(plan, cell, np.zeros((A, G)), np.zeros((A, G, len(cell.center))))
    return replace(empty, records=records, total=total)


@cache
def noise_scale(epsilon: float, delta: float) -> float:
    """The smallest standard deviation of noise, for a sensitivity of 1, that spends no more than ε at δ.

    Example:
        >>> round(noise_scale(1.0, 1e-6), 2)
        4.53
    """
    found = _opendp().binary_search(lambda scale: spent(scale, delta) <= epsilon, bounds=(_LEAST, _MOST))
    assert spent(found, delta) <= epsilon
    return float(found)


def spent(scale: float, delta: float) -> float:
    """ε at δ, of noise with this standard deviation for a sensitivity of 1."""
    dp = _opendp()
    approximate = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(_gaussian(scale)), delta)
    return float(approximate.map(1.0)[0])


def noisy(values: Floats, scale: float, rng: np.random.Generator | None = None) -> Floats:
    """The values with Gaussian noise of this standard deviation.

    Args:
        values: Sums.
        scale: The noise.
        rng: For simulations alone: anything that is told needs OpenDP's noise, which nobody can seed and whose
            last digits give nothing away.
    """
    if rng is not None:
        return values + scale * rng.standard_normal(values.shape)
    drawn: Floats = np.array(_gaussian(scale)(values.ravel().tolist())).reshape(values.shape)
    return drawn


@lru_cache(maxsize=8)
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError:
        raise EstimateError(not_installed("opendp", "release")) from None
    dp.enable_features("contrib")  # the mechanisms that OpenDP has proofs for, and its own people have vetted
    return dp

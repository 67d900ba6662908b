"""Every estimator on every replicate of the bootstrap, all replicates at once.

The tallies hold each replicate's weighted moments in the arm's frame, where they are well conditioned, so the normal
equations lose nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from foldaway.inference.estimators import Comparison, Contrast, common_frame, estimator, plain_frame
from foldaway.numerics.block import Floats
from foldaway.tallies import REPLICATES
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.frame import Frame
from foldaway.tallies.replicates import Replicates

# A replicate whose regressors, at unit length, are this close to dependent has no regression.
_SINGULAR = 1e-10


class Distribution(NamedTuple):
    """The replicates of an effect and of the control's level, and how many were left out as singular."""

    effects: Floats
    levels: Floats
    left_out: int


class _Arm(NamedTuple):
    """One arm's replicates: total weight, means of the covariates and the outcome, and moments about zero."""

    weight: Floats
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats


def distribution(name: str, comparison: Comparison) -> Distribution:
    """The bootstrap distribution of an estimator's effect.

    The interacted estimator takes each replicate's own covariate mean, so its distribution is that of the
    population's effect.
    """
    frame, center = common_frame(comparison)
    arms = [_arm(*_moments(arm, frame, comparison.outcome)) for arm in comparison.arms]
    with np.errstate(divide="ignore", invalid="ignore"):
        effects, levels, good = _ESTIMATORS[name](arms, comparison, center)
    good &= np.isfinite(effects) & np.isfinite(levels)
    return Distribution(effects[good], levels[good], int(np.sum(~good)))


_Mask = NDArray[np.bool_]
_Result = tuple[Floats, Floats, _Mask]


def _moments(arm: ArmTally, frame: Frame, outcome: int) -> tuple[Floats, Floats]:
    """Every replicate's moments of an arm in another frame; the arm's other tallies need not go there."""
    replicates = cast(Replicates, arm.tallies[REPLICATES])
    return replicates.rebase(arm.frame.change_to(frame)).moments(outcome)


def _arm(square: Floats, cross: Floats) -> _Arm:
    weight = square[:, 0, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Arm(weight, square[:, 0] / weight[:, None], cross[:, 0] / weight, square, cross)


def _ipw(arms: Sequence[_Arm], comparison: Comparison, center: float) -> _Result:
    total = np.sum([arm.weight for arm in arms], axis=0)
    treated, control = arms[comparison.arm], arms[0]
    pi = comparison.probabilities
    up = (treated.xy[:, 0] + center * treated.weight) / (pi[comparison.arm] * total)
    down = (control.xy[:, 0] + center * control.weight) / (pi[0] * total)
    return up - down, down, total > 0


def _difference(arms: Sequence[_Arm], comparison: Comparison, center: float) -> _Result:
    treated, control = arms[comparison.arm], arms[0]
    good = (treated.weight > 0) & (control.weight > 0)
    return treated.y - control.y, control.y + center, good


def _regression(arms: Sequence[_Arm], comparison: Comparison, center: float) -> _Result:
    """Slopes from covariates and outcome about their arm's means; then the arms' levels at equal covariates."""
    within = sum(arm.xx - arm.weight[:, None, None] * arm.x[:, :, None] * arm.x[:, None, :] for arm in arms)
    cross = sum(arm.xy - arm.weight[:, None] * arm.x * arm.y[:, None] for arm in arms)
    kept = [column - len(arms) + 1 for column in _kept("regression", comparison) if column >= len(arms)]
    # What a constant covariate has left about its means is rounding. Only next to its full length does that show.
    lengths = _lengths(np.sum([arm.xx for arm in arms], axis=0))
    slopes, good = _solve(cast(Floats, within), cast(Floats, cross), kept, lengths)
    mean = _overall_mean(arms)
    treated, control = (arm.y + np.einsum("bk,bk->b", mean - arm.x, slopes) for arm in (arms[comparison.arm], arms[0]))
    return treated - control, control + center, good


def _interacted(arms: Sequence[_Arm], comparison: Comparison, center: float) -> _Result:
    """Each arm's regression in the arm's own frame, where it is well conditioned, at the mean of all arms."""
    k = arms[0].x.shape[1]
    kept = _kept("interacted", comparison)
    common, mean = common_frame(comparison)[0], _overall_mean(arms)
    levels, goods = [], []
    for number in (comparison.arm, 0):
        arm = comparison.arms[number]
        own = plain_frame(arm, center)
        square, cross = _moments(arm, own, comparison.outcome)
        columns = [column - number * k for column in kept if number * k <= column < (number + 1) * k]
        coef, good = _solve(square, cross, columns, _lengths(square))
        levels.append(np.einsum("bk,bk->b", mean @ common.change_to(own)[:k, :k], coef))
        goods.append(good)
    return levels[0] - levels[1], levels[1] + center, goods[0] & goods[1]


def _kept(name: str, comparison: Comparison) -> list[int]:
    """The columns of the estimator's model that add a direction in the sample; the others have none in a replicate."""
    contrast = cast(Contrast, estimator(name, comparison))
    return contrast.fit.kept


def _overall_mean(arms: Sequence[_Arm]) -> Floats:
    total = np.sum([arm.xx[:, 0] for arm in arms], axis=0)
    mean: Floats = total / total[:, :1]
    return mean


def _lengths(square: Floats) -> Floats:
    """The lengths of every replicate's columns; one for a column of zeros."""
    lengths: Floats = np.sqrt(np.maximum(np.einsum("bkk->bk", square), 0))
    lengths[lengths == 0] = 1
    return lengths


def _solve(square: Floats, cross: Floats, kept: Sequence[int], lengths: Floats) -> tuple[Floats, _Mask]:
    """The coefficients of every replicate, and which replicates have them."""
    coef = np.zeros_like(cross)
    good: _Mask = np.isfinite(square.sum(axis=(1, 2)) + cross.sum(axis=1))
    if not good.any() or not kept:
        return coef, good
    columns = np.array(kept)
    length = lengths[:, columns]
    scaled = square[:, columns[:, None], columns] / (length[:, :, None] * length[:, None, :])
    good[good] = np.linalg.eigvalsh(scaled[good])[:, 0] > _SINGULAR
    response = (cross[:, columns] / length)[good][:, :, None]
    coef[np.flatnonzero(good)[:, None], columns] = np.linalg.solve(scaled[good], response)[:, :, 0] / length[good]
    return coef, good


_ESTIMATORS: dict[str, Callable[[Sequence[_Arm], Comparison, float], _Result]] = {
    "ipw": _ipw,
    "difference": _difference,
    "regression": _regression,
    "interacted": _interacted,
}

"""Numeric covariates of few values: what sums of products say of the people who have one of them.

Of a covariate with the values v_1 … v_m, the indicator of v_i is the polynomial Π_{j≠i} (x − v_j)/(v_i − v_j). Sums
over records of polynomials of degree 4 are known, and of degree 3 times the outcome. So these count the people who have
a value, or several values and levels at once, and tell the outcome of whoever is alone.

Which values there are follows from the sums too. A polynomial q of degree m that vanishes at all values has Σ q z = 0
for whatever z there is: linear equations for its coefficients (Prony's method). Four values are looked for among
whole multiples of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.numerics.threads import one_blas_thread
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.combinations import RawScores, raw_scores
from foldaway.tallies.moments.vech import lift

# How far from a whole number a count may be for rounding.
_WHOLE = 1e-3

# What vanishes, beside what does not: sums of fourth order, of standardised values.
_ZERO = 1e-9

# How far apart two values are, in spreads of a covariate.
_APART = 1e-6

# Steps of which values may be whole multiples, and how many multiples on either side of the mean are looked at.
_STEPS = tuple(digit * 10.0**power for power in range(3, -3, -1) for digit in (5, 2.5, 2, 1))
_AROUND = 10

# So many products of variables and an outcome are known.
_DEGREE = 3

# Other covariates that help to find three values.
_OTHERS = 3

# Combinations that are looked at together.
_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Powers:
    """Σ of products of up to four linear forms in x = [1, covariates], and of up to three of them and an outcome.

    Attributes:
        scores: The arm's sums of fourth order, of rows about their means: about 0, large values would leave no digits.
        center: These means, 0 for the intercept.
    """

    scores: RawScores
    center: Floats

    @classmethod
    def of(cls, arm: ArmTally) -> Powers | None:
        """An arm's, if it keeps sums of fourth order."""
        k, raw = arm.shape.regressors, arm.raw_factor()
        if not arm.n:
            return None
        means = raw[:, 0] @ raw[:, :k] / (raw[:, 0] @ raw[:, 0])
        means[0] = 0.0
        scores = raw_scores(arm, means)
        return None if scores is None else cls(scores, means)

    @property
    def regressors(self) -> int:
        """How many entries x has."""
        return len(self.center)

    def _centered(self, forms: Floats) -> Floats:
        """The same forms of x − c."""
        moved = forms.copy()
        moved[..., 0] += forms @ self.center
        return moved

    def count(self, forms: Floats) -> Floats:
        """Σ Π_f (f'x), for each set of at most four forms: sets by four by k."""
        forms = self._centered(forms)
        first, second = lift(forms[:, 0], forms[:, 1]), lift(forms[:, 2], forms[:, 3])
        with one_blas_thread():  # for a few rows, threads wait for one another longer than they work
            found: Floats = np.einsum("nm,nm->n", first @ self.scores.vv, second)
        return found

    def total(self, forms: Floats, outcome: int) -> Floats:
        """Σ Π_f (f'x) y, of the first three."""
        forms = self._centered(forms)
        first = lift(forms[:, 0], forms[:, 1])
        found: Floats = np.einsum("nk,nk->n", first @ self.scores.vs[outcome], forms[:, 2])
        return found

    def square(self, forms: Floats, outcome: int) -> Floats:
        """Σ Π_f (f'x) y², of the first two."""
        forms = self._centered(forms)
        found: Floats = np.einsum("nk,kl,nl->n", forms[:, 0], self.scores.ss[outcome], forms[:, 1])
        return found

    def moments(self, form: Floats) -> Floats:
        """Σ (f'x)^p for p = 0 … 4."""
        one = np.eye(self.regressors)[0]
        return self.count(np.array([[form] * p + [one] * (4 - p) for p in range(5)]))

    def moments_within(self, form: Floats, levels: Floats) -> Floats:
        """Σ g (f'x)^p for p = 0 … 3 and each indicator g: indicators by powers."""
        one = np.eye(self.regressors)[0]
        sets = [[form] * p + [one] * (3 - p) + [level] for level in levels for p in range(4)]
        return self.count(np.array(sets)).reshape(len(levels), 4)

    def people(self, forms: Sequence[Floats]) -> float:
        """How many people have what these forms multiplied are the indicator of."""
        one = np.eye(self.regressors)[0]
        return float(self.count(np.array([_padded(list(forms), one)]))[0])

    def standard(self, column: int) -> tuple[float, float]:
        """The mean and the spread of a column; no spread if that is only rounding."""
        one, x = np.eye(self.regressors)[[0, column]]
        n, total, square = self.moments(x - self.center[column] * one)[:3]
        mean, spread = self.center[column] + total / n, np.sqrt(max(square / n - (total / n) ** 2, 0.0))
        return float(mean), float(spread) if spread > 1e-9 * abs(mean) else 0.0


def moved(moments: Floats, by: float, scale: float = 1.0) -> Floats:
    """Σ ((a − b)/s)^p from Σ a^p, for as many powers: the last axis.

    Example:
        >>> moved(np.array([2.0, 4.0, 10.0]), by=1.0)  # 1 and 3 become 0 and 2
        array([2., 2., 4.])
    """
    powers = moments.shape[-1]
    change = np.zeros((powers, powers))
    for p in range(powers):
        change[p, : p + 1] = [comb(p, k) * (-by) ** (p - k) / scale**p for k in range(p + 1)]
    found: Floats = moments @ change.T
    return found


class FewValues(NamedTuple):
    """A numeric covariate of few values: its column, these, and for each the forms whose product is its indicator."""

    column: int
    values: tuple[float, ...]

    def forms(self, regressors: int) -> list[list[Floats]]:
        """By value, the forms."""
        one, x = np.eye(regressors)[[0, self.column]]
        return [[(x - w * one) / (v - w) for w in self.values if w != v] for v in self.values]


def few_values(column: int, arms: Sequence[Powers]) -> FewValues | None:
    """The values of a numeric column, if it has two, three or four; none if it has others, or they do not show."""
    center, spread = max((each.standard(column) for each in arms), key=lambda about: about[1], default=(0.0, 0.0))
    if not spread:
        return None
    one, x = np.eye(arms[0].regressors)[[0, column]]
    form = (x - center * one) / spread
    moments = [each.moments(form) for each in arms]
    for values in (_two(moments), _three(form, column, arms)):
        if values is not None and all(_are_counts(values, each) for each in moments):
            return FewValues(column, tuple((center + spread * values).tolist()))
    values = _four(moments, center, spread)
    return None if values is None else FewValues(column, tuple(values.tolist()))


def _two(moments: Sequence[Floats]) -> Floats | None:
    """Σ q² = 0 for q = x² + βx + γ: the vector that the matrix of moments, in powers of x, sends to zero."""
    values, vectors = np.linalg.eigh(np.sum(moments, axis=0)[np.add.outer(range(3), range(3))])
    return _roots(vectors[:, 0]) if abs(values[0]) < _ZERO * values[-1] else None


def _three(form: Floats, column: int, arms: Sequence[Powers]) -> Floats | None:
    """Σ q z = 0 for q = x³ + αx² + βx + γ, in each arm, where z is 1, x or another covariate."""
    unit = np.eye(len(form))
    others = [unit[c] for c in range(1, len(unit)) if c != column][:_OTHERS]
    equations = []
    for each in arms:
        sets = [[form] * p + [unit[0]] * (3 - p) + [z] for z in (unit[0], form, *others) for p in range(4)]
        rows = each.count(np.array(sets)).reshape(-1, 4)
        sizes = np.abs(rows).max(axis=1, keepdims=True)
        equations.append(rows[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0])
    system = np.concatenate(equations)
    if len(system) < 4:
        return None
    _, sizes, vectors = np.linalg.svd(system)
    return _roots(vectors[-1]) if sizes[3] < _ZERO < 1e-3 * sizes[2] else None


def _roots(coefficients: Floats) -> Floats | None:
    """Those of a polynomial, lowest power first, if they are real and apart."""
    if abs(coefficients[-1]) < _ZERO:
        return None
    roots = np.sort_complex(np.roots(coefficients[::-1]))
    real = np.asarray(roots.real, dtype=np.float64)
    return real if np.all(np.abs(roots.imag) < _APART) and np.all(np.diff(real) > _APART) else None


def _are_counts(values: Floats, moments: Floats) -> bool:
    """Whether people, or their weights, can have these values."""
    counts = np.linalg.solve(np.vander(values, increasing=True).T, moments[: len(values)])
    return bool(np.all(counts > -_WHOLE * counts.sum()))


def _four(moments: Sequence[Floats], center: float, spread: float) -> Floats | None:
    """Four whole multiples of a step, such that in every arm whole numbers of people have them."""
    for step in _STEPS:
        begin = step * (np.round(center / step) - _AROUND)
        whole = [moved(each, (begin - center) / spread, step / spread) for each in moments]
        if not all(map(_is_whole, whole)):
            continue
        sets, inverse = _grid()
        possible = np.ones(len(sets), bool)
        for each in whole:
            counts = inverse @ each[:4]
            fourth = np.einsum("sv,sv->s", sets**4, counts)
            near = np.abs(counts - np.round(counts)) < _WHOLE
            fits = np.abs(fourth - each[4]) < max(_WHOLE, _ZERO * each[4])
            possible &= near.all(axis=1) & (counts > -_WHOLE).all(axis=1) & fits
        # Whole multiples of a step are ones of all that divide it: smaller steps have nothing to add.
        values: Floats = begin + step * sets[int(possible.argmax())]
        return values if possible.any() else None
    return None


@lru_cache(maxsize=1)
def _grid() -> tuple[Floats, Floats]:
    """All sets of four whole numbers, and what gives the counts of each from its moments of order 0 … 3."""
    sets = np.array(list(combinations(range(2 * _AROUND + 1), 4)), dtype=float)
    return sets, np.linalg.inv(sets[:, None, :] ** np.arange(4)[None, :, None])


def _is_whole(moments: Floats) -> bool:
    slack = np.maximum(_WHOLE, 1e-11 * np.abs(moments))
    return bool(np.all((np.abs(moments - np.round(moments)) < slack) & (slack < 0.1)))


Place = tuple[int, int]
"""A covariate and one of its values or levels, by their places."""


class Alone(NamedTuple):
    """People whose outcomes are told: one or two who have the same values and levels.

    Attributes:
        who: What they have in common.
        total: Σ y of each outcome.
        square: Σ y² of each outcome, of two; else none.
    """

    who: tuple[Place, ...]
    total: list[float]
    square: list[float] | None = None


def standing_out(arm: Powers, few: Sequence[FewValues], levels: Sequence[Floats], outcomes: int) -> Iterator[Alone]:
    """Everybody who is alone, or with one other, in values of these covariates and levels of up to two others.

    Args:
        arm: Its sums.
        few: Numeric covariates: their places come first.
        levels: The indicators of each categorical covariate's levels, which come after them.
        outcomes: How many there are.
    """
    parts = [each.forms(arm.regressors) for each in few] + [[[row] for row in rows] for rows in levels]
    one = np.eye(arm.regressors)[0]
    for size in range(1, _DEGREE + 1):
        for chosen in combinations(range(len(parts)), size):
            degree = sum(len(parts[c][0]) for c in chosen)
            if chosen[0] >= len(few) or degree > _DEGREE:
                continue
            cells = list(product(*(range(len(parts[c])) for c in chosen)))
            for start in range(0, len(cells), _AT_ONCE):
                some = cells[start : start + _AT_ONCE]
                factors = ([f for c, v in zip(chosen, at, strict=True) for f in parts[c][v]] for at in some)
                forms = np.array([_padded(each, one) for each in factors])
                counts = arm.count(forms)
                for people in (1, 2) if degree < _DEGREE else (1,):
                    for place in np.flatnonzero(np.abs(counts - people) < _WHOLE).tolist():
                        mine = forms[place : place + 1]
                        totals = [float(arm.total(mine, o)[0]) for o in range(outcomes)]
                        squares = [float(arm.square(mine, o)[0]) for o in range(outcomes)] if people == 2 else None
                        yield Alone(tuple(zip(chosen, some[place], strict=True)), totals, squares)


def _padded(forms: list[Floats], one: Floats) -> list[Floats]:
    return forms + [one] * (4 - len(forms))

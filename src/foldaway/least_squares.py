"""Least squares that can be updated for ever: coefficients and errors of an analysis that kept every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import EstimateError, RecordError, instead_of
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.group_regression import jackknife_least_squares
from foldaway.inference.variance import covariance
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import LARGEST, Floats, Shape
from foldaway.numerics.linalg import solve_upper
from foldaway.numerics.threads import one_blas_thread
from foldaway.plan.vocabulary import ERRORS
from foldaway.records.batch import Batch, Index
from foldaway.records.values import identifiers
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.moments import (
    RECORDS,
    UNITS,
    WORTH_COMPILING,
    ArmTally,
    Kinds,
    RowStream,
    Scores,
    UnitScores,
    fold_batch,
)
from foldaway.tallies.sums import group_of

JACKKNIFE = "jackknife"
"""The kind of error that leaves out one group at a time."""


class LeastSquares:
    """A linear regression that takes rows in for ever and keeps none of them.

    Args:
        columns: The names of the design's columns. Include a column of ones for an intercept.
        robust: Keep the tally behind HC and CR errors (about k⁴/4 numbers).
        groups: Keep moments by group instead, for the jackknife: a power of two, 128 serves most. A hash under a secret
            key deals clusters into groups, so that a cluster's rows may come in any number of folds.
        key: The 128-bit secret behind the groups; a new one if left out. Regressions that are to be added, and whose
            clusters may be the same, must share it: ``LeastSquares(columns, groups=128, key=other.key)``.

    Example:
        >>> fit = LeastSquares(["const", "x"])
        >>> fit.fold([[1, 1], [1, 2], [1, 3]], [3, 5, 8])
        >>> fit.fold([1, 4], 9)
        >>> fit.coef.round(6)
        array([1. , 2.1])
        >>> fit.n, fit.df
        (4, 2)
        >>> fit.std_error("HC1").round(6)
        array([0.34641 , 0.202978])
        >>> fit
        LeastSquares: n=4 | const=1, x=2.1
    """

    def __init__(
        self, columns: Sequence[str], *, robust: bool = True, groups: int | None = None, key: bytes | None = None
    ) -> None:
        names = tuple(columns)
        if isinstance(columns, str) or not names or len(set(names)) < len(names):
            raise ValueError("`columns` needs at least one name, and no name twice.")
        if groups is not None and (groups < 2 or groups & (groups - 1)):
            raise ValueError("`groups` must be a power of two, for example 128.")
        self.columns = names
        shape = Shape(len(names), 1)
        kinds: Kinds = {RECORDS: Scores.empty, UNITS: UnitScores.empty} if robust and groups is None else {}
        self._folded = ArmTally.empty(shape, kinds)
        self._stream: RowStream | None = None
        self._secret = None if groups is None else Secret(key)
        self._groups = None if groups is None else GroupMoments.empty(MomentsShape(1, groups, shape))

    def fold(
        self, X: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None, cluster: ArrayLike | None = None
    ) -> None:
        """Take rows in: n by k and n, or one row and one number.

        Args:
            X: The design's rows, with a column of ones if there is an intercept.
            y: The responses.
            weight: Observation weights, positive.
            cluster: What each row belongs to. Without groups, a cluster's rows must all come in this call. Rows folded
                without one count as clusters of their own.
        """
        alone = weight is None and cluster is None and self._groups is None
        if alone and self._stream is not None and self._stream.take(X, y):
            return
        x, response = self._checked(X, y)
        n, unit = len(x), None
        w = None if weight is None else _checked_weights(weight, n)
        if self._groups is not None:
            rows = self._assembler(x, response)(slice(0, n)) * (1.0 if w is None else np.sqrt(w))
            with one_blas_thread():  # for the small products of each group
                self._groups = self._groups.fold(np.zeros(n, dtype=np.intp), rows, self._dealt(cluster, n))
        elif cluster is not None:
            unit, order = _numbered(cluster, n)
            self._folded, self._stream = _clustered(self._tally), None
            x, response, w = x[order], response[order], None if w is None else w[order]
        [self._folded] = fold_batch([self._tally], Batch(n, self._assembler(x, response), weight=w, unit=unit))
        self._stream = None
        if alone and n == 1 and self._tally.n >= WORTH_COMPILING and not _is_clustered(self._tally):
            self._stream = RowStream(self._tally)

    def _dealt(self, cluster: ArrayLike | None, n: int) -> NDArray[np.int64]:
        """The group of each row."""
        assert self._groups is not None
        assert self._secret is not None
        groups = self._groups.shape.groups
        if cluster is None:
            return np.random.default_rng().integers(groups, size=n)
        from foldaway.numerics.kernels.siphash import hash_identifiers

        names, faults = identifiers(pa.array(_names(cluster, n)))
        if missing := int(np.sum([mask.sum() for mask in faults.values()])):
            raise RecordError(f"rows with a missing cluster, or one that is neither text nor a number: {missing}.")
        return group_of(hash_identifiers(names, self._secret.of_groups()), groups)

    @property
    def key(self) -> bytes:
        """The secret behind the groups, for a regression whose clusters may be the same."""
        if self._secret is None:
            raise EstimateError("there is no key: the regression has no groups.")
        return self._secret.reveal()

    @property
    def _tally(self) -> ArmTally:
        return self._folded if self._stream is None else self._stream.tally()

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, LeastSquares):
            return NotImplemented
        if (self.columns, self._tally.kinds) != (other.columns, other._tally.kinds) or (
            (self._groups is None) != (other._groups is None)
        ):
            raise EstimateError("only regressions with the same columns, `robust` and `groups` can be added.")
        merged = type(self)(self.columns, robust=bool(self._tally.kinds))
        if self._groups is not None and other._groups is not None:
            if self.key != other.key:
                raise EstimateError("a cluster would count as two: make both regressions with the same key=.")
            merged._groups, merged._secret = self._groups + other._groups, Secret(self.key)
        ours, theirs = self._tally, other._tally
        if _is_clustered(ours) or _is_clustered(theirs):
            ours, theirs = _clustered(ours), _clustered(theirs)
        merged._folded = ours + theirs
        return merged

    @property
    def n(self) -> int:
        """Rows taken in."""
        return self._tally.n

    @property
    def df(self) -> int:
        """Residual degrees of freedom, n − k."""
        return self.n - len(self.columns)

    @property
    def coef(self) -> Floats:
        """The coefficients, in the order of the columns."""
        k = len(self.columns)
        F = self._tally.frame.F
        # y = x̃'f + s·ỹ and x̃ = x F⁻¹, where f and s are the frame's last column.
        return self._unframed(F[:k, k] + F[k, k] * self._fit().coef)

    @property
    def rss(self) -> float:
        """The (weighted) sum of squared residuals."""
        return self._fit().rss * float(self._tally.frame.F[-1, -1]) ** 2

    def covariance(self, kind: str = "classical") -> Floats:
        """The coefficients' covariance.

        Args:
            kind: classical, HC0, HC1; CR0 or CR1 after folds with ``cluster=``; jackknife for a regression with groups.
        """
        fit = self._fit()
        if kind == JACKKNIFE:
            if self._groups is None:
                raise EstimateError("the jackknife needs groups: make the regression with groups=128.")
            return jackknife_least_squares(self._groups)
        if kind in ERRORS and ERRORS[kind].only_for:
            raise EstimateError(f"{kind} exists for a difference of means only; use HC1.")
        if kind in ERRORS and ERRORS[kind].tally and not self._tally.kinds:
            raise EstimateError(
                f"{kind} needs the robust tally: make the regression with robust=True and without groups."
            )
        half = self._unframed(covariance(fit, kind) * self._tally.frame.F[-1, -1] ** 2)
        return self._unframed(half.T)

    def std_error(self, kind: str = "classical") -> Floats:
        """The coefficients' standard errors."""
        return np.sqrt(np.diag(self.covariance(kind)))

    def __repr__(self) -> str:
        head = f"LeastSquares: n={self.n:_}"
        try:
            coef = self.coef
        except EstimateError:
            return f"{head} | {', '.join(self.columns)}"
        return f"{head} | " + ", ".join(f"{c}={b:.6g}" for c, b in zip(self.columns, coef, strict=True))

    def _fit(self) -> Fit:
        k = len(self.columns)
        if self.n < k:
            raise EstimateError(f"{k} coefficients need at least {k} rows; there are {self.n}.")
        fit = Fit([ArmModel(self._tally, np.eye(k))], 0, self._tally.frame)
        if fit.rank < k:
            names = ", ".join(self.columns[c] for c in fit.left_out)
            raise EstimateError(f"collinear columns: {names} can be written in terms of the others; leave out.")
        return fit

    def _unframed(self, values: Floats) -> Floats:
        """F⁻¹ times values: coefficients of the framed columns as coefficients of the columns."""
        k = len(self.columns)
        raw: Floats = solve_upper(self._tally.frame.F[:k, :k], values)
        return raw

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
        """The rows as numbers in the right shape; their values are checked as blocks are assembled."""
        k = len(self.columns)
        x, response = _floats(self._in_order(X), "X"), _floats(y, "y")
        if x.ndim == 1 and response.size == 1:
            x = x.reshape(1, -1)
        fits = x.ndim == 2 and x.shape[1] == k and response.size == len(x)
        if not fits or response.shape not in ((), (len(x),), (len(x), 1)):
            raise RecordError(f"X must be n by {k} and y of length n, or one row of {k} numbers and one number.")
        return x, response.reshape(-1)

    def _in_order(self, X: Any) -> Any:
        """A table's columns in our order, by their names; anything without names as it is."""
        names = getattr(X, "columns", None)
        if names is None or not all(isinstance(name, str) for name in names):  # pandas numbers what has no names
            return X
        if sorted(names) != sorted(self.columns):
            raise RecordError(f"the table's columns must be {', '.join(self.columns)}.")
        return X[list(self.columns)]

    def _assembler(self, x: Floats, y: Floats) -> Callable[[Index], Floats]:
        k = len(self.columns)

        def assemble(index: Index) -> Floats:
            part = x[index]
            rows = np.empty((k + 1, len(part)))
            rows[:k], rows[k] = part.T, y[index]
            # One product tells whether anything is amiss; only then is it worth counting.
            if not np.vdot(rows, rows) < LARGEST:
                _refuse_faulty(self.columns, x, y)
            return rows

        return assemble


def _is_clustered(tally: ArmTally) -> bool:
    return UNITS in tally.tallies and tally.tallies[UNITS].n > 0


def _clustered(tally: ArmTally) -> ArmTally:
    """The tally, with the rows that came without a cluster so far as clusters of their own."""
    records = tally.tallies.get(RECORDS)
    if _is_clustered(tally) or not isinstance(records, Scores):
        return tally
    alone = UnitScores(records.shape, records.n, records.clusters, records.sums)
    return ArmTally(tally.shape, tally.kinds, tally.frame, tally.factor, {**tally.tallies, UNITS: alone})


def _floats(values: ArrayLike, name: str) -> Floats:
    """Numbers, or a RecordError: NumPy's own message would quote a value."""
    fault = f"{name} must be numbers, in rows of one length."
    with instead_of((TypeError, ValueError, OverflowError), RecordError(fault)):
        array = np.asarray(values)
        if array.dtype.kind in "buifO":
            return array.astype(np.float64, copy=False)
    raise RecordError(fault)


def _refuse_faulty(columns: Sequence[str], x: Floats, y: Floats) -> None:
    """Count what is wrong in each column; nothing may be, for the product of many large numbers is larger."""
    bad = [*(~(np.abs(x) <= LARGEST)).sum(axis=0), (~(np.abs(y) <= LARGEST)).sum()]  # NaN counts as well
    counts = [f"{name}: {count}" for name, count in zip([*columns, "y"], bad, strict=True) if count]
    if counts:
        listed = ", ".join(counts)
        raise RecordError(f"rows with a missing, infinite or too large (over 1e40) number, by column: {listed}.")


def _checked_weights(weight: ArrayLike, n: int) -> Floats:
    w = _floats(weight, "weight").reshape(-1)
    if len(w) != n:
        raise RecordError(f"`weight` has length {len(w)} for {n} rows.")
    bad = int(np.sum(~((w >= 1 / LARGEST) & (w <= LARGEST))))
    if bad:
        raise RecordError(f"weights that are not positive, finite numbers: {bad}.")
    return w


def _names(cluster: ArrayLike, n: int) -> NDArray[Any]:
    """The clusters' names, one for each row."""
    try:
        names = np.asarray(cluster)
    except ValueError:
        names = np.empty(0)
    if names.shape != (n,):
        raise RecordError(f"`cluster` must have one entry for each of the {n} rows.")
    return names


def _numbered(cluster: ArrayLike, n: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Each row's cluster number in rising order, and the order that sorts the rows so."""
    names = _names(cluster, n)
    missing = sum(name is None or name != name for name in names) if names.dtype.kind in "OfMm" else 0
    if missing:
        raise RecordError(f"rows with a missing cluster: {missing}.")
    with instead_of(TypeError, RecordError("clusters must all be named by text, or all by numbers.")):
        unit = np.unique(names, return_inverse=True)[1]
    order = np.argsort(unit, kind="stable")
    return unit[order].astype(np.int64), order

"""Rows that come one at a time: an arm's tallies, taken over for compiled updates in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.factor import Factor
from foldaway.tallies.moments.scores import Scores, UnitScores

# An arm this large that still gets single rows is fed by a stream: compiling, once per machine, pays.
WORTH_COMPILING = 256


class RowStream:
    """A copy of an arm's tallies that takes rows one by one; the tally it was made from stays as it was.

    Serves arms with a factor and, at most, a score tally by record; rows without weight or unit.
    """

    def __init__(self, tally: ArmTally) -> None:
        from foldaway.numerics.kernels.row import take_row

        self._take = take_row
        self._tally = tally
        self._k = tally.shape.regressors
        self._row = np.empty(tally.shape.columns)
        self._x = self._row[: self._k]
        self._start()

    def _start(self) -> None:
        tally = self._tally
        self._F = tally.frame.F
        self._R = tally.factor.R.copy(order="F")
        self._most = tally.frame.longest(self._R)
        scores = self._scores()
        self._sums = np.empty(0) if scores is None else scores.sums.copy()
        self._taken = 0
        # The tally makes itself a new frame when its records have doubled.
        self._room = 2 * tally.frame.n - tally.n

    def _scores(self) -> Scores | None:
        tallies = self._tally.tallies.values()
        return next((t for t in tallies if isinstance(t, Scores) and not isinstance(t, UnitScores)), None)

    def take(self, x: Any, y: Any) -> bool:
        """Take a row in, or say False and change nothing: it is not a row of good numbers for this tally."""
        try:
            if len(x) != self._k:
                return False
            self._x[:] = x
            self._row[self._k] = y
        except (TypeError, ValueError, OverflowError):
            return False
        if not self._take(self._F, self._R, self._sums, self._row, self._k, self._most):
            return False
        self._taken += 1
        if self._taken >= self._room:
            self._tally = self.tally()
            self._start()
        return True

    def tally(self) -> ArmTally:
        """The tallies with all rows taken in."""
        if not self._taken:
            return self._tally
        old, n = self._tally, self._taken
        if (scores := self._scores()) is not None:
            grown = Scores(scores.shape, scores.n + n, scores.clusters + n, self._sums.copy())
            old = replace(old, tallies={k: grown if tally is scores else tally for k, tally in old.tallies.items()})
        return replace(old, factor=Factor(old.n + n, self._R.copy(order="F"))).in_own_frame_if_doubled()

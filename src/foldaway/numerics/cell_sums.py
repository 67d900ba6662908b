"""Sums of outcomes by cell, in NumPy; `kernels/sums.py` does the same for many records."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Arms, CellPiece, Cells, Floats, Hashes

ABSOLUTE, CROSS, MASS, SQUARE, FIRST = range(5)
"""The sums of an outcome y by arm: Σ|wy|, Σw²dd̃, Σw², Σw²d², Σw²d, where d = y − about.

Its ỹ has the last two once more, `TILDE` places on. What every record adds to stands side by side, so that it is in
one line of a core's cache."""

TILDE = 2
FIELDS = FIRST + 1 + TILDE

LANES = 8
"""Into so many sums the records of an arm are dealt, so that one addition need not wait for the other."""


class CellSums(NamedTuple):
    """Sums of records, to which others are added in place.

    Attributes:
        records: n by cell and outcome; of the first outcome alone if none may be missing.
        weight: Σw, likewise; of no cells without weights.
        total: Σwd by cell and column: the outcomes, then their ỹ.
        second: By arm, lane, outcome and `FIELDS`. Without weights, `MASS` and `FIRST` are left as they are: they would
            be the sums of `records` and `total`. If no outcome may be missing, `MASS` is that of the first outcome.
    """

    records: Floats
    weight: Floats
    total: Floats
    second: Floats

    @classmethod
    def zeros(cls, arms: int, groups: int, outcomes: int, *, adjusted: bool, weighted: bool, missing: bool) -> Self:
        """Sums of no records."""
        cells, counted = arms * groups, outcomes if missing else 1
        weights, columns = np.zeros((cells * weighted, counted)), outcomes * (1 + adjusted)
        second = np.zeros((arms, LANES, outcomes, FIELDS))
        return cls(np.zeros((cells, counted)), weights, np.zeros((cells, columns)), second)


def add_sums(piece: CellPiece, about: Floats, groups: int, missing: bool, sums: CellSums) -> None:
    """Add records to the sums of their cells and arms.

    Args:
        piece: The records.
        about: What the sums of first and second order are about: by arm, outcome and (y, ỹ).
        groups: How many cells an arm has.
        missing: Whether a record may lack an outcome (NaN); it is then left out of that outcome's sums.
        sums: What they are added to.
    """
    cell, y, tilde, weight = piece
    second = sums.second.reshape(-1, *sums.second.shape[2:])
    for o, values in enumerate(y):
        here = ~np.isnan(values) if missing else np.s_[:]
        c, w, size = cell[here], None if weight is None else weight[here], np.abs(values[here])
        lane = c // groups * LANES + c % LANES

        def add(field: int, terms: Floats | None, lane: Cells = lane, o: int = o) -> None:
            second[:, o, field] += np.bincount(lane, terms, len(second))

        add(ABSOLUTE, size if w is None else size * w)
        mass = None if w is None else w * w
        if missing or not o:
            sums.records[:, o] += np.bincount(c, minlength=len(sums.records))
            if w is not None:
                sums.weight[:, o] += np.bincount(c, w, len(sums.weight))
                add(MASS, mass)
        pairs = []
        for which, column in enumerate([values] if tilde is None else [values, tilde[o]]):
            d = column[here] - about[c // groups, o, which]
            d2 = d if mass is None else d * mass
            sums.total[:, o + which * len(y)] += np.bincount(c, d if w is None else d * w, len(sums.total))
            if mass is not None:
                add(FIRST + TILDE * which, d2)
            add(SQUARE + TILDE * which, d * d2)
            pairs.append((d, d2))
        if tilde is not None:
            add(CROSS, pairs[0][0] * pairs[1][1])


def add_joint(
    piece: CellPiece, about: Floats, groups: int, missing: bool, pairs: NDArray[np.intp], joint: Floats
) -> None:
    """Add Σ w² (u − about)(v − about)' of pairs of outcomes to those of their cells.

    `joint` is by cell, pair and, for the one outcome and the other, (y, ỹ); all else is as `add_sums` has it.
    """
    cell, y, tilde, weight = piece
    mass = 1.0 if weight is None else weight**2
    columns = [each for each in (y, tilde) if each is not None]
    for p, pair in enumerate(pairs):
        away = [[column[o] - about[cell // groups, o, which] for which, column in enumerate(columns)] for o in pair]
        here = ~np.isnan(away[0][0] + away[1][0]) if missing else np.s_[:]
        for i, u in enumerate(away[0]):
            for j, v in enumerate(away[1]):
                joint[:, p, i, j] += np.bincount(cell[here], (mass * u * v)[here], len(joint))


def add_counts(
    arm: Arms, hashes: Hashes | None, bins: NDArray[np.int16], weight: Floats | None, counts: Floats
) -> None:
    """Add records to the histograms of their arms and groups.

    Args:
        arm: Each record's arm.
        hashes: Its unit's hash, whose lowest bits are its group; None if there is one group.
        bins: Each record's bin; it is left out where that is negative.
        weight: Observation weights, if there are any.
        counts: By arm, group and bin.
    """
    groups = counts.shape[1]
    group = 0 if hashes is None else (hashes & np.uint64(groups - 1)).astype(np.intp)
    place = (arm.astype(np.intp) * groups + group) * counts.shape[2] + bins
    here = bins >= 0
    if not here.all():
        place, weight = place[here], None if weight is None else weight[here]
    np.add.at(counts.reshape(-1), place, 1.0 if weight is None else weight)

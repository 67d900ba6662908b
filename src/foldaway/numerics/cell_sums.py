"""Sums of outcomes by cell, in NumPy; `kernels/sums.py` does the same for many records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats

RECORDS, WEIGHT, MASS, ABSOLUTE, CROSS, TOTAL, FIRST, SQUARE = range(8)
"""The sums of an outcome y in a cell: n, Σw, Σw², Σ|wy|, Σw²dd̃, Σwd, Σw²d, Σw²d², where d = y − about.

Its ỹ has the last three once more, `TILDE` places on."""

TILDE = 3
FIELDS = SQUARE + 1 + TILDE


def add_sums(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats | None,
    weight: Floats | None,
    about: Floats,
    missing: bool,
    sums: Floats,
) -> None:
    """Add records to the sums of their cells.

    Args:
        cell: Each record's cell.
        y: Outcomes by records.
        tilde: Their ỹ, if there are any.
        weight: Observation weights, if there are any.
        about: What the sums of first and second order are about: by cell, outcome and (y, ỹ).
        missing: Whether a record may lack an outcome (NaN); it is then left out of that outcome's sums.
        sums: By cell, outcome and `FIELDS`. Without weights, `WEIGHT`, `MASS` and `FIRST` are left as they are: they
            would be `RECORDS` and `TOTAL`.
    """
    for o, values in enumerate(y):
        here = ~np.isnan(values) if missing else np.s_[:]
        c, w, size = cell[here], None if weight is None else weight[here], np.abs(values[here])

        def add(field: int, terms: Floats | None, c: NDArray[np.intp] = c, o: int = o) -> None:
            sums[:, o, field] += np.bincount(c, terms, len(sums))

        add(RECORDS, None)
        add(ABSOLUTE, size if w is None else size * w)
        mass = None if w is None else w * w
        if w is not None:
            add(WEIGHT, w)
            add(MASS, mass)
        pairs = []
        for which, column in enumerate([values] if tilde is None else [values, tilde[o]]):
            d = column[here] - about[c, o, which]
            d2 = d if mass is None else d * mass
            add(TOTAL + TILDE * which, d if w is None else d * w)
            if mass is not None:
                add(FIRST + TILDE * which, d2)
            add(SQUARE + TILDE * which, d * d2)
            pairs.append((d, d2))
        if tilde is not None:
            add(CROSS, pairs[0][0] * pairs[1][1])


def add_counts(cell: NDArray[np.intp], bins: NDArray[np.int16], weight: Floats | None, counts: Floats) -> None:
    """Add records to the histograms of their cells.

    Args:
        cell: Each record's cell.
        bins: Each record's bin; it is left out where that is negative.
        weight: Observation weights, if there are any.
        counts: By cell and bin.
    """
    place = cell * counts.shape[1] + bins
    here = bins >= 0
    if not here.all():
        place, weight = place[here], None if weight is None else weight[here]
    np.add.at(counts.reshape(-1), place, 1.0 if weight is None else weight)

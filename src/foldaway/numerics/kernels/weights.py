"""The law of the bootstrap weights: how a unit number and a replicate number make a weight.

Every record of a unit has the same weights, in whatever batch, shard or month it comes (Bakshy and Eckles 2013;
the paper's Algorithm 4), because they are a function of the unit number alone. The unit number is a keyed hash, so
without the key nobody can tell whose weights they are.

- "poisson": Poisson(1), the online bootstrap. An octet of the unit's stream decides a replicate's weight in 250 of its
  256 values: 94 of them mean 0, 94 mean 1, 47 mean 2 and 15 mean 3, the whole parts of 256 e⁻¹/w!. The other six, one
  weight in 43, are drawn once more from what is then left of the law, with 64 further bits: each probability is
  exact to 2⁻⁶⁹.
- "double-or-nothing": 0 or 2 with probability 1/2 (Owen and Eckles 2012). Bit b of the stream decides replicate b's.

`codes.py` makes them many at a time; `tests/written_weights.py` has the definition, one weight at a time.

References:
    Bakshy and Eckles (2013), Uncertainty in online experiments with dependent data. KDD '13.
    Owen and Eckles (2012), Bootstrapping data arrays of arbitrary order. Annals of Applied Statistics 6(3).
"""

from fractions import Fraction
from math import factorial
from typing import Literal, get_args

import numpy as np

Kind = Literal["poisson", "double-or-nothing"]

# Counters of one purpose never meet those of another.
BITS_STREAM = np.uint64(1)
OCTETS_STREAM = np.uint64(2)
REST_STREAM = np.uint64(3)


def _cells() -> list[Fraction]:
    """256 e⁻¹/w! for w = 0, 1, …: how many of an octet's values each weight should have."""
    inverse_e = sum((Fraction((-1) ** i, factorial(i)) for i in range(40)), Fraction(0))  # the next: below 2⁻¹⁵⁰
    return [256 * inverse_e / factorial(weight) for weight in range(40)]


def _rest_bounds() -> list[int]:
    """The 64-bit numbers from which on a weight drawn from the rest of the law is 1, is 2, and so on."""
    left = [cells - int(cells) if weight < 4 else cells for weight, cells in enumerate(_cells())]
    bounds = [round(2**64 * sum(left[: weight + 1]) / REST) for weight in range(40)]
    return [bound for bound in bounds if bound < 2**64]


WHOLE_CELLS = [int(cells) for cells in _cells()[:4]]
REST = 256 - sum(WHOLE_CELLS)  # an octet below this means "draw once more"; then come the cells of 0, 1, 2 and 3
FROM_1, FROM_2, FROM_3 = (REST + sum(WHOLE_CELLS[:weight]) for weight in (1, 2, 3))
REST_BOUNDS = np.array(_rest_bounds(), dtype=np.uint64)


def check_kind(kind: str) -> None:
    """Refuse a name that is no kind of weights."""
    if kind not in get_args(Kind):
        raise ValueError(f"The kinds of bootstrap weights are {', '.join(get_args(Kind))}; {kind!r} is none of them.")

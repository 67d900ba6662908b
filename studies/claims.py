"""What attackers claim of people, held against the people."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from foldaway.auditing.finding import NEAR


class Score(NamedTuple):
    """Claims, those right to the cent, those within 10 %, and how many would be if each were the median amount."""

    claims: int = 0
    exact: int = 0
    near: int = 0
    guessed: int = 0

    def __add__(self, other: Score) -> Score:  # type: ignore[override]
        return Score(*(a + b for a, b in zip(self, other, strict=True)))


def held(claim: float, values: ArrayLike, guess: float) -> Score:
    """The score of the claim that one of these values is this one."""
    truths = np.asarray(values, dtype=float)
    apart = np.abs(truths - claim)
    near, guessed = (bool(np.any(each <= NEAR * truths)) for each in (apart, np.abs(truths - guess)))
    return Score(1, int(np.any(apart < 0.006)), int(near), int(guessed))

"""The Statistical Reference Datasets of NIST: data and certified values, read from the files as published."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foldaway.numerics.block import Floats

_FOLDER = Path(__file__).parent / "data" / "nist"
NAMES = ("Norris", "Longley", "NoInt1", "NoInt2", "Wampler1", "Wampler2", "Wampler3")


@dataclass(frozen=True)
class Certified:
    """A data set with its certified answer."""

    X: Floats
    y: Floats
    coef: Floats
    std_error: Floats
    rss: float

    @property
    def columns(self) -> list[str]:
        return [f"B{c}" for c in range(self.X.shape[1])]


def certified(name: str) -> Certified:
    """A set by its name, with the design matrix that its model asks for."""
    lines = (_FOLDER / f"{name}.dat").read_text(encoding="ascii").splitlines()
    header, data = lines[:60], [[float(v) for v in line.split()] for line in lines[60:] if line.strip()]
    parameters = [m.groups() for line in header if (m := re.match(r"\s+B\d+\s+(\S+)\s+(\S+)\s*$", line))]
    coef, errors = np.array(parameters, dtype=np.float64).T
    (rss,) = [float(line.split()[2]) for line in header if re.match(r"Residual +\d+ +\S+", line)]
    y, x = np.array(data)[:, 0], np.array(data)[:, 1:]
    if name.startswith("Wampler"):
        x = x ** np.arange(6)
    elif not name.startswith("NoInt"):
        x = np.column_stack([np.ones(len(x)), x])
    assert x.shape[1] == len(coef)
    return Certified(x, y, coef, errors, rss)


def wampler(scale: float) -> Certified:
    """Wampler4 and 5: Wampler1's polynomial plus so many times the deviations of Wampler3; all coefficients are 1."""
    exact, noisy = certified("Wampler1"), certified("Wampler3")
    return Certified(exact.X, exact.y + scale * (noisy.y - exact.y), exact.coef, scale * noisy.std_error, np.nan)

"""Whether effects differ between the levels of a segment, beside the interaction F of kept rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtri

import foldaway as fa
from studies.judgement.design import Design, Found, Law
from studies.judgement.reading import named, plan

SIZE = Law("wrong: levels differ", 0.065)
BEHIND = Law("power behind the interaction F", 0.05)
UNTESTED = Law("no test of levels", 0.01)
KEYS = Law("spread over keys, as z", 0.2, share=False)
APART = Law("apart from the interaction F, as z", 0.4, share=False)
CLEAR = 0.05


@dataclass(frozen=True)
class Levels:
    """Levels with so many units each, of so many records, and how much effects differ between them."""

    levels: int
    units: int
    records: int = 1
    treated: float = 0.5
    apart: float = 0.0
    tiny: int = 0
    by_unit: bool = True

    @property
    def plan(self) -> fa.Plan:
        """With the levels in it."""
        names = [f"level {level:02}" for level in range(self.levels)]
        settings: dict[str, Any] = {"unit": "unit"} if self.by_unit else {}
        return plan(self.treated, ["y"], segments=[{"column": "level", "levels": names}], **settings)

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
        """Level and arm of every unit, and the means of its records."""
        sizes = np.full(self.levels, self.units)
        sizes[: self.tiny] = 4
        level = np.repeat(np.arange(self.levels), sizes)
        # Each level has its share of treated units, so that all cells of kept rows have some.
        d = np.concatenate([rng.permutation(size) < round(self.treated * size) for size in sizes])
        effect = self.apart * ndtri((np.arange(self.levels) + 0.5) / self.levels)
        y = rng.normal(size=self.levels)[level] + effect[level] * d + rng.normal(size=len(level))
        return level, d, y

    def folded(self, drawn: Any, rng: np.random.Generator, key: bytes) -> fa.Effects:
        """The effects of these units under a key."""
        level, d, y = drawn
        unit = np.repeat(np.arange(len(level)), self.records)
        trial = fa.Trial(self.plan, key=key)
        names = np.array([f"level {each:02}" for each in range(self.levels)])
        records = y[unit] + 0.5 * (rng.normal(size=len(unit)) if self.records > 1 else 0.0)
        trial.fold({"arm": named(d[unit]), "unit": unit, "level": names[level[unit]], "y": records})
        return trial.effects()


def interaction(level: NDArray[np.int64], d: NDArray[np.bool_], y: NDArray[np.float64]) -> float:
    """The p-value of the interaction F of a regression on arms by levels.

    Example:
        >>> d = np.arange(120) % 2 == 1
        >>> y = np.random.default_rng(1).normal(size=120)
        >>> interaction(np.arange(120) // 40, d, y) > 0.01 > interaction(np.arange(120) // 40, d, y + d * (y > 1) * 9)
        True
    """
    cells = 2 * (int(level.max()) + 1)
    cell = 2 * level + d
    n = np.bincount(cell, minlength=cells)
    mean = np.bincount(cell, y, cells) / n
    spread = float(np.sum((y - mean[cell]) ** 2)) / (len(y) - cells)
    effect = mean[1::2] - mean[::2]
    weight = 1 / (1 / n[1::2] + 1 / n[::2])
    away = effect - float(weight @ effect) / float(weight.sum())
    free = cells // 2 - 1
    return float(fdtrc(free, len(y) - cells, float(weight @ away**2) / free / spread))


def study(of: Levels) -> Any:
    """A trial: whether its test and the one on kept rows find that levels differ."""

    def trial(rng: np.random.Generator) -> Found:
        drawn = of.draw(rng)
        (segment,) = of.folded(drawn, rng, rng.bytes(16)).segments
        ours, kept = bool(segment.differs), interaction(*drawn) < CLEAR
        notes: dict[str, float | bool | None] = {"no test of levels": segment.differs is None}
        if of.apart:
            notes |= {"power behind the interaction F": float(kept) - float(ours), "power": ours, "F's power": kept}
        else:
            notes |= {"wrong: levels differ": ours, "F finds": kept}
        return {"": notes}

    return trial


def over_keys(of: Levels, keys: int = 8) -> Any:
    """A trial under several keys: how far p-values are from one another, and from that of kept rows, as z."""

    def trial(rng: np.random.Generator) -> Found:
        drawn = of.draw(rng)
        kept = _as_z(interaction(*drawn))
        p = [of.folded(drawn, rng, rng.bytes(16)).segments[0].differ_p_value for _ in range(keys)]
        z = np.array([_as_z(each) for each in p if each is not None])
        if len(z) < keys:
            return {"": {KEYS.figure: None, APART.figure: None}}
        return {"": {KEYS.figure: float(np.std(z, ddof=1)), APART.figure: float(np.mean(np.abs(z - kept)))}}

    return trial


def _as_z(p: float) -> float:
    """A p-value as a normal deviate."""
    return float(ndtri(min(max(p, 1e-12), 1 - 1e-12)))


def designs() -> Iterator[Design]:
    """All of them."""
    shapes = {
        "20 levels of 60 units": (Levels(20, 60), 0.28),
        "20 levels of 60 records": (Levels(20, 60, by_unit=False), 0.28),
        "8 levels of 40 units of 5": (Levels(8, 40, records=5), 0.48),
        "3 levels of 200 units": (Levels(3, 200), 0.33),
        "6 levels of 150 units, 90/10": (Levels(6, 150, treated=0.1), 0.45),
    }
    for name, (shape, apart) in shapes.items():
        yield Design("levels", f"{name}, equal effects", study(shape), (SIZE,))
        differing = Levels(**{**vars(shape), "apart": apart})
        yield Design("levels", f"{name}, effects differ", study(differing), (BEHIND,), part=0.3)
    large = Levels(20, 60, apart=0.5)
    yield Design("levels", "20 levels of 60 units, effects differ much", study(large), (BEHIND,), part=0.1)
    many = Levels(30, 40, tiny=3, apart=0.6)
    yield Design("levels", "30 levels, of which 27 are large enough", study(many), (UNTESTED,), part=0.05)
    yield Design("levels", "20 levels of 60 units, eight keys", over_keys(large), (KEYS, APART), part=0.03)

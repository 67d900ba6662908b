"""Trials randomised within strata: with covariates, with units, by segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import foldaway as fa
from studies.judgement.design import WRONG, Design, Found, Law
from studies.judgement.reading import AROUND_ZERO, Columns, folded, leads, named, notes_of, plan

HOSPITALS = {"north": 0.2, "middle": 0.5, "south": 0.8}
SIZES, MEANS = (0.5, 0.3, 0.2), (0.0, 4.0, 8.0)
WIDTH = Law("width over that from kept rows", 1.1, share=False)
AWAY = Law("whole apart from its segments", 0.25, share=False)


class Ward(NamedTuple):
    """Units by hospital, arm and segment, with what is known beforehand, and their records."""

    hospital: NDArray[np.int64]
    treated: NDArray[np.bool_]
    before: NDArray[np.float64]
    half: NDArray[np.bool_]
    unit: NDArray[np.int64]
    y: NDArray[np.float64]

    @property
    def columns(self) -> Columns:
        """The records."""
        of = self.unit
        return {
            "arm": named(self.treated[of]), "unit": of, "hospital": np.array(list(HOSPITALS))[self.hospital[of]],
            "x": self.before[of], "half": np.where(self.half, "a", "b")[of], "y": self.y,
        }  # fmt: skip


def ward(rng: np.random.Generator, units: int, each: int) -> Ward:
    """No treatment has an effect; hospitals differ in their means and in how many they treat."""
    hospital = rng.choice(3, units, p=SIZES)
    treated = rng.random(units) < np.array(list(HOSPITALS.values()))[hospital]
    before, own, half = rng.normal(size=units), 0.5 * rng.normal(size=units), rng.random(units) < 0.5
    unit = np.repeat(np.arange(units), each if each == 1 else 1 + rng.poisson(each - 1, units))
    y = (np.array(MEANS)[hospital] + 2 * before + own)[unit] + 0.5 * rng.normal(size=len(unit))
    return Ward(hospital, treated, before, half, unit, y)


def kept_rows(of: Ward, *, adjusted: bool) -> float:
    """The standard error of the blocked difference from all rows, by unit; adjusted by one slope within all cells."""
    n, total = np.bincount(of.unit, minlength=len(of.treated)), np.bincount(of.unit, of.y, len(of.treated))
    cell = 2 * of.hospital + of.treated

    def within(values: NDArray[Any]) -> NDArray[np.float64]:
        """Units' sums less what their numbers of records would give at the mean of their cell."""
        return values - n * (np.bincount(cell, values, 6) / np.bincount(cell, n, 6))[cell]

    away = within(total)
    if adjusted:
        x = within(of.before * n)
        away = away - x * float(x @ away) / float(x @ x)
    units, records = np.bincount(cell, minlength=6), np.bincount(cell, n, 6)
    variance = units / (units - 1) * np.bincount(cell, away**2, 6) / records**2
    size = records.reshape(3, 2).sum(axis=1) / records.sum()
    return float(np.sqrt(np.sum(size**2 * variance.reshape(3, 2).sum(axis=1))))


def strata() -> fa.Strata:
    """As a plan has them."""
    return fa.Strata(
        column="hospital",
        probabilities={name: {"control": 1 - p, "treatment": p} for name, p in HOSPITALS.items()},
    )


def study(of: fa.Plan, units: int, each: int) -> Any:
    """A trial: how wide its interval is beside the one from kept rows, and how far it is from those of its segments."""
    adjusted = bool(of.covariates)

    def trial(rng: np.random.Generator) -> Found:
        made = ward(rng, units, each)
        effects = folded(of, made.columns, rng).effects()
        ((said, row),) = leads(effects)
        notes = dict(notes_of(said, row, AROUND_ZERO))
        notes["width over that from kept rows"] = (
            None if row.std_error is None else row.std_error / kept_rows(made, adjusted=adjusted)
        )
        for segment in effects.segments:
            parts = [each for each in segment.effects if each.estimate is not None]
            if row.estimate is None or not row.std_error or len(parts) < 2:
                continue
            mean = sum((each.n or 0) * (each.estimate or 0.0) for each in parts) / sum(each.n or 0 for each in parts)
            notes["whole apart from its segments"] = abs(row.estimate - mean) / row.std_error
        return {"": notes}

    return trial


def designs() -> Iterator[Design]:
    """All of them."""
    for covariates in (False, True):
        for units, each in ((900, 1), (600, 3)):
            for halves in (False, True):
                settings: dict[str, Any] = {"strata": strata()}
                name = [f"{units} units of about {each}" if each > 1 else f"{units} records"]
                if each > 1:
                    settings["unit"] = "unit"
                if covariates:
                    settings["covariates"] = ["x"]
                    name.append("covariate")
                if halves:
                    settings |= {"segments": [{"column": "half", "levels": ["a", "b"]}]}
                    name.append("by segment")
                laws = (WRONG, WIDTH, AWAY) if halves else (WRONG, WIDTH)
                yield Design("strata", ", ".join(name), study(plan(0.5, ["y"], **settings), units, each), laws)

"""R's estimatr on kept rows, and foldaway on the same rows in random batches and shards.

The numbers are in tests/data/estimatr, with the script that made them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldaway as fa

FOLDER = Path(__file__).parents[1] / "data" / "estimatr"
SITES = {"lyon": 0.5, "leeds": 0.3, "turin": 0.8}
STRATA = fa.Strata("site", {site: {"a": 1 - share, "b": share} for site, share in SITES.items()})
BASE: dict[str, Any] = {"name": "estimatr", "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"]}
MOMENTS: dict[str, Any] = {**BASE, "moments": {}, "unit": "u", "records_per_unit": "together"}


def truths() -> dict[str, tuple[float, float]]:
    with (FOLDER / "estimates.csv").open(newline="") as file:
        return {row["name"]: (float(row["estimate"]), float(row["std_error"])) for row in csv.DictReader(file)}


def folded(**settings: Any) -> fa.Effects:
    """The effects from random batches, dealt to two shards; a unit's two records stay together."""
    with (FOLDER / "trial.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chance = np.random.default_rng(4)
    shards = [fa.Trial(fa.Plan(**settings), key=bytes(16)) for _ in range(2)]
    at = 0
    while at < len(rows):
        size = 2 * int(chance.integers(1, 30))
        shards[chance.integers(2)].fold(rows[at : at + size], text=True)
        at += size
    return (shards[0] + shards[1]).effects()


CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "blocks": ({**BASE, "strata": STRATA}, {"estimator": "difference"}),
    "welch": (BASE, {"estimator": "difference"}),
    "fixed_effects_HC1": ({**MOMENTS, "strata": STRATA}, {"estimator": "regression", "se_kind": "HC1"}),
    "fixed_effects_covariate_HC1": (
        {**MOMENTS, "strata": STRATA, "covariates": ["x"]},
        {"estimator": "regression", "se_kind": "HC1"},
    ),
    "fixed_effects_classical": ({**MOMENTS, "strata": STRATA}, {"estimator": "regression", "se_kind": "classical"}),
    "difference_HC3": ({**MOMENTS, "moments": {"errors": ["HC3"], "estimators": ["difference"]}}, {"se_kind": "HC3"}),
    "regression_clustered_stata": ({**MOMENTS, "covariates": ["x"]}, {"estimator": "regression", "se_kind": "CR1"}),
}


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_estimatr(case: str) -> None:
    settings, which = CASES[case]
    (row,) = folded(**settings).filter(**which)
    assert (row.estimate, row.std_error) == pytest.approx(truths()[case], rel=1e-9)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_compliers_are_those_of_two_stage_least_squares() -> None:
    """The same estimate; an error by groups of units, and so another one. With covariates both are cross-fitted."""
    (row,) = folded(**BASE, received="d", unit="u").filter(estimator="compliers")
    estimate, error = truths()["compliers_HC1"]
    assert row.estimate == pytest.approx(estimate, rel=1e-9)
    assert row.std_error == pytest.approx(error, rel=0.35)
    (row,) = folded(**BASE, received="d", unit="u", covariates=["x"]).filter(estimator="compliers")
    estimate, error = truths()["compliers_covariate"]
    assert row.estimate == pytest.approx(estimate, abs=0.1 * error)

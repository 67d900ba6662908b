"""Random effects over sites, against R's metafor: `tests/data/sites/make.R` made what they are compared with."""

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest

from foldaway.inference.random_effects import RandomEffects, random_effects

FOLDER = Path(__file__).parents[1] / "data" / "sites"


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=["bcg", "normand", "alike", "two"])
def both(request: pytest.FixtureRequest) -> tuple[RandomEffects, dict[str, float]]:
    own = [row for row in rows("effects.csv") if row["set"] == request.param]
    effects, variances = (np.array([float(row[name]) for row in own]) for name in ("effect", "variance"))
    truth = {row["name"]: float(row["value"]) for row in rows("truths.csv") if row["set"] == request.param}
    return random_effects(effects, variances), truth


def test_they_are_metafors(both: tuple[RandomEffects, dict[str, float]]) -> None:
    found, truth = both
    own = {**msgspec.structs.asdict(found), "lower": found.ci_lower, "upper": found.ci_upper, "i2": 100 * found.i2}
    for name, value in truth.items():
        assert own[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_sites_that_are_all_alike_have_no_error_between_them() -> None:
    found = random_effects(np.array([1.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.3]))
    assert (found.estimate, found.std_error) == (1.0, 0.0)
    assert (found.tau2, found.q, found.p_value) == (0.0, 0.0, 0.0)


def test_of_effects_in_per_cent_they_are_in_per_cent() -> None:
    effects, variances = np.array([0.1, 0.3, 0.2]), np.array([0.002, 0.001, 0.004])
    scaled, fresh = random_effects(effects, variances).scaled(100), random_effects(100 * effects, 1e4 * variances)
    assert msgspec.structs.astuple(scaled) == pytest.approx(msgspec.structs.astuple(fresh), rel=1e-9)

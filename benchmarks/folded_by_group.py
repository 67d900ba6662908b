"""A Parquet file folded into sums or moments by group, as a process does that has loaded nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec

import foldaway as fa

COVARIATES = [f"x{c}" for c in range(1, 6)]
CENTER = dict(zip(COVARIATES, (0.0, 100.0, 0.0, 50.0, 0.0), strict=True))
SLOPES = dict(zip(COVARIATES, (1.0, 0.1, -1.0, 0.2, 1.0), strict=True))
KEY = bytes(range(16))
MOMENTS = fa.Plan(
    name="groups",
    arm="arm",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["y"],
    covariates=COVARIATES,
    unit="unit",
)
SUMS = msgspec.structs.replace(MOMENTS, coefficients=fa.Coefficients(center=CENTER, slopes={"y": SLOPES}))


def sums_in(file: Path) -> fa.Trial:
    """The trial of a file whose plan has coefficients: sums from the first record on."""
    return fa.fold_files(file, SUMS, key=KEY)


def moments_in(file: Path) -> fa.Trial:
    """The trial of a file whose coefficients are still to be found: moments by group."""
    return fa.fold_files(file, MOMENTS, key=KEY)

"""What a plan costs that asks every question, beside means of the same columns alone.

    python -m benchmarks questions

A Parquet file is folded on one core. The clock counts this process's own time.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import best_times, show

import foldaway as fa
from foldaway.effects.numbers import bytes_text
from foldaway.numerics.threads import one_core

ROWS, GROUP, USERS, STRATA = 1_000_000, 100_000, 200_000, 20
MOST = 3.0  # times the time of means alone
KEY = bytes(range(16))
MEANS = ["clicks", "views", "orders", "sessions", "latency_ms"]
COUNTRIES, PLATFORMS = ["de", "fr", "us"], ["android", "ios", "web"]

RATIOS: list[Any] = [fa.Ratio("clicks", "views"), fa.Ratio("orders", "sessions")]
QUANTILE = fa.Quantile("latency_ms", (0.5, 0.95), bounds=(1, 60_000))
SEGMENTS = {
    "segments": [{"column": "country", "levels": COUNTRIES}, {"column": "platform", "levels": PLATFORMS}],
}
SITES = {f"site-{i}": {"control": 0.3 + 0.02 * i, "treatment": 0.7 - 0.02 * i} for i in range(STRATA)}
BY_SITE = {"strata": fa.Strata("site", SITES)}


def plan_of(outcomes: list[Any], **settings: Any) -> fa.Plan:
    """A plan with users of several records."""
    arms = {"control": 0.5, "treatment": 0.5}
    return fa.Plan(name="questions", arm="variant", arms=arms, unit="user", outcomes=outcomes, **settings)


PLANS = {
    "means of five columns": plan_of(MEANS),
    "two ratios": plan_of([*MEANS, *RATIOS]),
    "one quantile": plan_of([*MEANS, QUANTILE]),
    "two segment columns": plan_of(MEANS, **SEGMENTS),
    f"{STRATA} strata": plan_of(MEANS, **BY_SITE),
    "all of them": plan_of([*MEANS, *RATIOS, QUANTILE], **SEGMENTS, **BY_SITE),
}


def table() -> pa.Table:
    """Records of users, with texts as a Parquet file gives them."""
    rng = np.random.default_rng(1)
    user = rng.integers(0, USERS, ROWS)
    site = rng.integers(0, STRATA, USERS)[user]
    treated = rng.random(USERS)[user] < 0.7 - 0.02 * site

    def named(names: list[str], codes: Any) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))

    return pa.table(
        {
            "variant": named(["control", "treatment"], treated),
            "user": user,
            "site": named(list(SITES), site),
            "country": named(COUNTRIES, rng.integers(0, 3, ROWS)),
            "platform": named(PLATFORMS, rng.integers(0, 3, ROWS)),
            "clicks": rng.poisson(1.0, ROWS).astype(float),
            "views": rng.poisson(5.0, ROWS) + 1.0,
            "orders": rng.poisson(0.2, ROWS).astype(float),
            "sessions": rng.poisson(2.0, ROWS) + 1.0,
            "latency_ms": rng.lognormal(5, 1, ROWS),
        }
    )


def fold(plan: fa.Plan, file: Path) -> fa.Trial:
    """The trial of the file, on one core."""
    with one_core():
        return fa.fold_files(file, plan, key=KEY)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trial.parquet")
        pq.write_table(table(), file, row_group_size=GROUP)
        sizes = {name: len(fold(plan, file).dumps()) for name, plan in PLANS.items()}  # the first compiles
        contestants = {name: partial(fold, plan, file) for name, plan in PLANS.items()}
        times = best_times(contestants, rounds=5, clock=time.process_time)
    (means, alone), *_ = times.items()
    rows = []
    for name, seconds in times.items():
        limit = [f"{MOST:g}", "yes" if seconds <= MOST * alone else "NO"] if name == "all of them" else ["", ""]
        label = name if name in (means, "all of them") else f"… and {name}"
        ratio = f"{seconds / alone:.2f}"
        rows.append([label, f"{1e9 * seconds / ROWS:.0f} ns", ratio, *limit, bytes_text(sizes[name])])
    title = f"{ROWS:,} records of {USERS:,} users, in row groups of {GROUP:,}, one core"
    show(title, rows, ["", "per record", "times means alone", "at most", "met", "state"])


if __name__ == "__main__":
    main()

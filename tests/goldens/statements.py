"""The statement that sums records where they are, in dialects of which no engine runs in the tests."""

from __future__ import annotations

import re
from functools import cache

import foldaway as fa

DIALECTS = ("bigquery", "snowflake", "redshift", "databricks", "trino")

PLAN = fa.Plan.of(
    {
        "name": "shop",
        "arm": "variant",
        "arms": {"control": 0.5, "treatment": 0.5},
        "outcomes": [
            "revenue",
            {"kind": "share", "column": "seconds", "below": 30.0, "missing": "allowed"},
            {
                "kind": "quantile",
                "column": "latency",
                "quantiles": [0.95],
                "bounds": [1.0, 60000.0],
                "resolution": 0.05,
            },
        ],
        "covariates": ["before"],
        "coefficients": {
            "center": {"before": 52.0},
            "slopes": {
                "revenue": {"before": 0.81},
                "seconds < 30": {"before": 0.0},
                "latency within [1, 60000]": {"before": 0.0},
            },
        },
        "segments": ["country"],
        "unit": "user_id",
        "hash": "sha256",
    }
)


@cache
def statements() -> dict[str, str]:
    """The statement by dialect, without what any change of the plan would change."""
    made = {}
    for dialect in DIALECTS:
        text = PLAN.sql("select * from shop.visits where day = '2026-03-01'", dialect=dialect)
        text = text.replace(PLAN.fingerprint, "FINGERPRINT")
        made[dialect] = re.sub("(?<=FINGERPRINT )[0-9a-f]{32}", "DIGEST", text) + "\n"
    return made

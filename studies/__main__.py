"""`python -m studies NAME` runs a study, `python -m studies all` each of them; `python -m studies` lists them."""

from __future__ import annotations

import importlib
import sys

ALL = (
    "bootstrap_start",
    "bootstrap_coverage",
    "groups_coverage",
    "groups_that_fit",
    "site_coverage",
    "few_clusters",
    "groups_anytime",
    "judgement",
    "decisions",
    "planned_looks",
    "quantiles",
    "survival",
    "power",
    "questions",
    "release",
    "coverage",
    "digits",
    "edges",
    "attacks",
    "told_attacks",
    "disk_attacks",
    "server_attacks",
    "crashes",
    "consumers",
    "bad_devices",
    "same_everywhere",
    "federated_dropout",
    "federated_schedules",
    "pair_schedules",
    "pair_attacks",
    "federated_scale",
)


def main(arguments: list[str]) -> None:
    """Run the study named first, with the options that follow."""
    if not arguments:
        for name in ALL:
            print(f"{name}: {_first_line(importlib.import_module(f'studies.{name}').__doc__)}")
        return
    name, *options = arguments
    if name not in (*ALL, "all"):
        sys.exit(f"There is no study {name}; there are {', '.join(ALL)}.")
    for study in ALL if name == "all" else [name]:
        importlib.import_module(f"studies.{study}").main(options)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]


if __name__ == "__main__":
    main(sys.argv[1:])

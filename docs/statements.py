"""Writes docs/reference/sums.*.sql: the demo's sums as one statement, in three dialects. Run by `make goldens`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foldaway.simulation.demo import PLAN

REFERENCE = Path(__file__).parent / "reference"


def statements() -> dict[Path, str]:
    """The statements, by their files."""
    plan = msgspec.structs.replace(PLAN, hash="sha256")
    return {
        REFERENCE / f"sums.{dialect}.sql": f"{plan.sql('visits', dialect=dialect)};\n"
        for dialect in ("postgres", "bigquery", "snowflake")
    }


if __name__ == "__main__":
    for path, statement in statements().items():
        path.write_text(statement, "utf-8")

"""Makes data/open_trials.json: a database as the first revision of its tables has it, with trials that are under way.

    python tests/open_trials.py

It was made when that revision was the last one. Do not make it again: later servers must open what that one left.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import batches
from counted_devices import Simulated, plan_of
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.migrations import REVISIONS
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import JSON, Limits
from stores import VAULT

FILE = Path(__file__).parent / "data" / "open_trials.json"
SIZE = 40
MODES = ("sums", "one-message")

PLAN: dict[str, Any] = {
    "name": "records",
    "arm": "group",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "unit": "who",
    "privacy": {"cohort": 10, "smallest_cell": 2},
}


CHANGE = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{last}"

def upgrade() -> None:
    op.add_column("foldaway_trials", sa.Column("owner", sa.Text))
    op.create_table("foldaway_visits", sa.Column("id", sa.Text, primary_key=True))
    {then}
"""


def revised(folder: Path, then: str = "") -> Path:
    """A copy of the revisions, and a change of the trials' tables as their last one."""
    shutil.copytree(REVISIONS, folder)
    last = max(file.stem[1:5] for file in (folder / "trials").glob("r*.py"))
    (folder / "trials" / "r9999_next.py").write_text(CHANGE.format(last=last, then=then))
    return folder


def rows(batch: int) -> list[dict[str, Any]]:
    """A producer's batch: 20 units with two records each, which come again in every other batch."""
    numbers = range(SIZE * batch, SIZE * (batch + 1))
    return [{"group": "ab"[i % 2], "y": float(i % 17), "who": f"u{i % 60}"} for i in numbers]


def send(service: Service, batch: int) -> Any:
    """Batch and number are the same, from 1."""
    return batches.send(
        service, "records", json.dumps(rows(batch)).encode(), Sent(JSON, None, Numbers("till", batch, batch))
    )


def main() -> None:
    """Register, collect a part, and write all tables down."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Store.open(folder, VAULT), "main", Limits())
        service.create(json.dumps(PLAN))
        for batch in (1, 2, 3):
            assert send(service, batch).durable == batch
        messages = {}
        for mode in MODES:
            plan = plan_of(mode, mode)
            service.create(plan.to_toml())
            devices = [Simulated(plan, j) for j in range(6)]
            sent = {kind: [device.message(kind) for device in devices] for kind in ("enrolments", "reports")}
            service.devices.receive(mode, "enrolments", sent["enrolments"])
            outcomes = service.devices.receive(mode, "reports", sent["reports"][:4])
            assert all(outcome.durable for outcome in outcomes)  # type: ignore[union-attr]
            messages[mode] = [message.hex() for message in sent["reports"]]
        service.store.close()
        parts = {part: tables(Path(folder) / file) for part, file in (("trials", "foldaway.db"), ("keys", "keys.db"))}
    FILE.write_text(json.dumps({**parts, "reports": messages}, indent=1) + "\n")


def tables(file: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables but the version's; bytes as hexadecimal text in a list of their own."""
    connection = sqlite3.connect(file)
    connection.row_factory = sqlite3.Row
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {
        name: [
            {key: [value.hex()] if isinstance(value, bytes) else value for key, value in dict(row).items()}
            for row in connection.execute(f"SELECT * FROM {name}")
        ]
        for name in names
        if not name.endswith("_version")
    }
    connection.close()
    return found


if __name__ == "__main__":
    main()

"""Trials that were registered on a server from the command line, and the environment of whoever uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from commands import foldaway
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN as DEMO
from plans import replaced
from served import Served

# With coefficients in the plan, servers and one process compute the same.
PLAN = DEMO.calibrated(pa.Table.from_batches(list(checkout(3000, seed=99))))


def plan_file(folder: Path, name: str, **settings: Any) -> Path:
    plan = replaced(PLAN, name=name, **settings)
    plan.save(folder / f"{name}.toml")
    return folder / f"{name}.toml"


def register(server: Served, plan: Path) -> dict[str, dict[str, str]]:
    """A trial; what the environment of those who send, read and rule is."""
    made = json.loads(foldaway("trial", "create", plan, "--json", env=admin(server)).stdout)
    return {
        "ingest": {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": made["ingest_token"]},
        "read": {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": made["read_token"]},
        "admin": admin(server),
    }


def admin(server: Served) -> dict[str, str]:
    return {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": server.admin}

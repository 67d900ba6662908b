"""The walks in CONTRIBUTING.md are those that records take: each is taken here and followed from call to call."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import foldaway as fa
from commands import foldaway
from devices import Hosted, device_in
from served import Served
from servers import Nursery
from test_map import section
from traced import CLIENT, ROOT, WRITTEN_TO, Tracer, Way, read_way

WALKS = {
    name: Way(*(re.findall(r"`([^`]+\.py)`", way) for way in (down, up)))
    for name, down, up in re.findall(
        r"\*\*(.+?)\*\*.*?\nDown.*?: (.+?)\nUp.*?: (.+?)(?:\n\n|\s*\Z)",
        section("Four walks through the house"),
        re.DOTALL,
    )
}
PRIVACY = {"cohort": 10, "smallest_cell": 2}
PLAN = fa.Plan(name="t", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="u", privacy=PRIVACY)
RECORDS = [{"g": "ab"[i % 2], "y": float(i % 17), "u": str(i // 4 * 2 + i % 2)} for i in range(400)]


def in_order(names: list[str], taken: list[str]) -> list[str]:
    """The names as they come in what was taken: those that do not are missing."""
    return [name for name in taken if name in names]


def assert_walk(name: str, taken: Way) -> None:
    walk = WALKS[name]
    assert walk.down == in_order(walk.down, taken.down)
    assert walk.up == in_order(walk.up, taken.up)


@pytest.fixture
def server(tmp_path: Path, served_from: Nursery) -> Iterator[Served]:
    served = Served(tmp_path / "server", served_from)
    served._environment = {WRITTEN_TO: str(tmp_path / "way")}
    with served:
        yield served


def begin(server: Served) -> None:
    Path(server._environment[WRITTEN_TO]).with_name("begin").touch()


def way_of(server: Served) -> Way:
    """The way since `begin`."""
    time.sleep(0.2)  # for its threads to come back from what is answered
    file = Path(server._environment[WRITTEN_TO])
    file.with_name("end").touch()
    assert server.ask("GET", "/health").is_success
    return read_way(file)


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4


def test_a_file_to_effects(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.toml")
    pa.parquet.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "records.parquet")
    foldaway("run", "plan.toml", "records.parquet", folder=tmp_path, env={WRITTEN_TO: str(tmp_path / "way")})
    assert_walk("A Parquet file to effects", read_way(tmp_path / "way"))


def test_a_batch_to_its_commit(server: Served) -> None:
    made = server.create("t", arm="g", unit="u", privacy=PRIVACY)
    begin(server)
    assert server.ask("POST", "/v1/trials/t/records", made["ingest_token"], json=RECORDS).is_success
    assert_walk("An HTTP batch to its commit", way_of(server))


def test_a_devices_record_to_effects(server: Served) -> None:
    plan = fa.Plan(name="d", arm="g", arms=PLAN.arms, outcomes=["y"], federated="one-message", privacy=PRIVACY)
    trial = Hosted(server, plan)
    begin(server)
    for number in range(24):
        device = device_in(plan, "ab"[number % 2], trial.link)
        with Tracer() as tracer:
            device.record({"y": float(number % 5)})
            device.report(timeout=60)
    trial.end(deadline=0)
    down = [name for name in tracer.way().down if (ROOT / name).is_relative_to(CLIENT)]
    there = way_of(server)
    assert_walk("A device's record to effects", Way([*down, *there.down], there.up))


def test_a_state_to_a_report(tmp_path: Path) -> None:
    trial = fa.Trial(PLAN, key=bytes(16))
    trial.fold(RECORDS)
    trial.save(tmp_path / "state")
    (tmp_path / "key").write_text(bytes(16).hex())
    (tmp_path / "key").chmod(0o600)
    words = ["report", "state", "--key", "key", "--output", "report.html"]
    foldaway(*words, folder=tmp_path, env={WRITTEN_TO: str(tmp_path / "way")})
    assert_walk("A state to a report", read_way(tmp_path / "way"))

"""Planted records through the real server: of none of them is anything left, anywhere, a second after the answer."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from canary import PLAN, Report, batches, drop, report
from memory_scan import Marks
from postgres import Postgres
from served import Served

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)


def sent(server: Served, marks: Marks, *, killed: bool, data: list[Path]) -> tuple[Report, Counter[tuple[str, int]]]:
    """Everything planted, sent; what is found of it while the server runs, or after a SIGKILL."""
    made = server.ask("POST", "/v1/trials", content=PLAN.to_json(), headers={"Content-Type": "application/json"}).json()
    token, said, answers = made["ingest_token"], [], Counter[tuple[str, int]]()
    path = "/v1/trials/canary/records"
    with server.http(token) as client:
        for batch in batches(marks, ("good", "good", "faulty", "cut", "dropped")):
            if batch.kind == "dropped":
                drop(batch, server.port, path, {"Authorization": f"Bearer {token}"})
                continue
            answer = client.post(path, content=batch.body, headers=batch.headers)
            said.append(repr(answer.headers).encode() + answer.content)
            answers[batch.kind, answer.status_code] += 1
        said.append(server.ask("GET", "/v1/trials/canary/effects").content)
        pid = server.pid
        if killed:
            server.kill()
        else:
            time.sleep(1)  # the connection stays open meanwhile, as those of real clients do
        logs = server.out.read_bytes() + server.err.read_bytes()
        temporary = [Path(os.environ.get("TMPDIR", "/tmp")) / "foldaway"]
        found = report(
            marks,
            pid=None if killed else pid,
            data=[server.folder, *data],
            temporary=temporary,
            logs=logs,
            responses=b"".join(said),
        )
    return found, answers


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
@pytest.mark.parametrize("kept_in", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_nothing_is_left_of_what_was_sent(
    kept_in: str, killed: bool, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres: Postgres | None = request.getfixturevalue("postgres") if kept_in == "postgresql" else None
    address = None if postgres is None else postgres.database()
    marks = Marks(20_000)
    try:
        with Served(tmp_path / "server", None, database=address) as server:
            data = [] if postgres is None else [postgres.folder]
            found, answers = sent(server, marks, killed=killed, data=data)
    finally:
        if postgres is not None and address is not None:
            postgres.drop(address)
    with capsys.disabled():
        print(f"\n{kept_in}, {'killed' if killed else 'running'}: {found}")
    assert {kind for kind, status in answers if status == 200} == {"good"}
    assert {status for kind, status in answers if kind == "faulty"} == {422}
    assert found.clean

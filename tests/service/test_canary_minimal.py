"""What is left of planted records in a minimal server that takes all the care foldaway can take."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from canary import PLAN, Batch, Report, batches, drop, report
from certificates import LOCALHOST, certificate
from memory_scan import Marks

SERVER = Path(__file__).parents[1] / "canary_server.py"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)


@contextmanager
def serving(care: str, folder: Path, *signed: Path) -> Iterator[tuple[int, int]]:
    """The server's process and port; what it writes goes to a file."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, str(SERVER), PLAN.to_json(), care, *map(str, signed)]
    with (folder / "logs").open("wb") as logs:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=logs, env=environ)
    try:
        assert server.stdout is not None
        yield server.pid, int(server.stdout.readline())
    finally:
        server.terminate()
        server.communicate()


def canary(care: str, folder: Path, signed: tuple[Path, Path] | None = None) -> tuple[Report, Counter[tuple[str, int]]]:
    marks = Marks(20_000)
    said: list[bytes] = []
    answers: Counter[tuple[str, int]] = Counter()
    trust = None if signed is None else ssl.create_default_context(cafile=signed[0])
    scheme = "http" if trust is None else "https"
    with serving(care, folder, *signed or ()) as (pid, port):
        address = f"{scheme}://localhost:{port}"
        with httpx.Client(base_url=address, timeout=60, verify=True if trust is None else trust) as client:

            def send(batch: Batch) -> None:
                fail = {"fail": batch.kind} if batch.kind in ("inside", "after") else {}
                if batch.kind == "dropped":
                    drop(batch, port, "/records", {}, trust)
                    return
                answer = client.post("/records", content=batch.body, headers=batch.headers, params=fail)
                said.append(repr(answer.headers).encode() + answer.content)
                answers[batch.kind, answer.status_code] += 1

            for batch in batches(marks):
                send(batch)
            # The connection stays open, as those of real clients do.
            time.sleep(1)
            logs = (folder / "logs").read_bytes()
            found = report(
                marks,
                pid=pid,
                data=[folder],
                temporary=[folder / "temporary"],
                logs=logs,
                responses=b"".join(said),
            )
    assert logs.count(b"RuntimeError: forced") >= answers["inside", 500] + answers["after", 500] > 0
    return found, answers


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_hardly_a_number_is_left(secure: bool, tmp_path: Path) -> None:
    found, answers = canary("hardened", tmp_path, certificate(tmp_path, LOCALHOST) if secure else None)
    print(found)
    assert answers["good", 200] > 10
    assert answers["faulty", 422] > 5
    assert answers["cut", 400] > 5
    memory = found.places.pop("process memory")
    assert found.clean, str(found)
    # Single numbers stay in working memory of NumPy or of the libraries below it, without what belongs to them.
    assert len(memory.outcomes) <= found.planted / 1000, str(found)
    assert (memory.identifiers, memory.texts, memory.fragments) == (set(), set(), 0), str(found)


@pytest.mark.slow
def test_without_the_care_much_is_left(tmp_path: Path) -> None:
    found, _ = canary("usual", tmp_path)
    print(found)
    memory = found.places["process memory"]
    assert len(memory.identifiers) > 1000
    assert len(memory.outcomes) > 1000

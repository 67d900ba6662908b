"""Each version of a stored state has a key of its own, and no moment is a bad one to be killed in."""

from __future__ import annotations

import json
import os
from itertools import cycle, product
from pathlib import Path

import httpx
import numpy as np
import pytest

from foldaway.keeping.user_keys import state_home
from foldaway.keeping.version_keys import LENGTH
from postgres import Postgres
from served import Served, rows
from servers import KILLED, STEPS, Nursery, wait_for
from sizes import mostly_slow

SIZE = 40

# Nothing is told before the fourth batch, so that until then states alone have keys.
QUIET = {"cohort": 10, "smallest_cell": 70}


def keys_in(file: Path) -> int:
    """How many keys a file holds."""
    data = file.read_bytes()
    return sum(any(data[i : i + LENGTH]) for i in range(LENGTH, len(data), LENGTH))


def send(server: Served, sequence: int) -> httpx.Response:
    headers = {"Foldaway-Producer": "till", "Foldaway-Sequence": str(sequence)}
    return server.ask("POST", "/v1/trials/kept/records", json=rows(SIZE, SIZE * sequence), headers=headers)


PLACES = ("folder", "database")


@pytest.mark.parametrize(
    ("where", "step"), mostly_slow(product(PLACES, STEPS), *zip(cycle(PLACES), STEPS, strict=False))
)
def test_a_server_killed_at_any_step_counts_every_batch_once(
    request: pytest.FixtureRequest, served_from: Nursery, tmp_path: Path, where: str, step: str
) -> None:
    postgres: Postgres | None = request.getfixturevalue("postgres") if where == "database" else None
    address = None if postgres is None else postgres.database()
    server = Served(tmp_path / "server", served_from, database=address)
    name = "" if address is None else address.rsplit("/", 1)[1]
    file = server.data / "version.keys" if address is None else state_home() / "versions" / f"{name}.keys"
    armed = tmp_path / "armed"
    server._environment[KILLED] = f"{step}:{armed}"
    with server:
        server.create("kept", privacy=QUIET)
        assert [send(server, sequence).json()["durable"] for sequence in (1, 2)] == [1, 2]
        assert keys_in(file) == 1

        armed.touch()
        with pytest.raises(httpx.TransportError):
            send(server, 3)
        wait_for(lambda: not server.runs(), 10, "dying")
        armed.unlink()
        server.start()

        # What broke off is noise by now: the database's one state has the one key that is left.
        assert keys_in(file) == 1
        answer = send(server, 3).json()
        assert answer["repeated"] == (step in ("committed", "destroyed"))
        assert answer["durable"] == 3
        assert keys_in(file) == 1
        assert send(server, 4).json()["durable"] == 4
        ended = server.ask("POST", "/v1/trials/kept/end", json={"exact": True}).json()
        assert keys_in(file) == 0
    effect = ended["effects"]["effects"][0]
    kept = [row for sequence in range(1, 5) for row in rows(SIZE, SIZE * sequence)]
    means = {arm: np.mean([row["y"] for row in kept if row["group"] == arm]) for arm in "ab"}
    assert effect["n"] == len(kept)
    assert effect["estimate"] == pytest.approx(means["b"] - means["a"], rel=1e-12)
    if postgres is not None and address is not None:
        postgres.drop(address)


def test_servers_on_one_database_need_one_file(postgres: Postgres, served_from: Nursery, tmp_path: Path) -> None:
    address = postgres.database()
    shared = tmp_path / "shared" / "version.keys"
    one = Served(tmp_path / "one", served_from, "--version-keys", shared, database=address)
    with one:
        one.create("kept", privacy=QUIET)
        assert send(one, 1).json()["durable"] == 1
        other = tmp_path / "none.keys"
        stranger = Served(tmp_path / "stranger", served_from, "--version-keys", other, database=address)
        stranger.start(wait=False)
        wait_for(lambda: not stranger.runs(), 20, "being refused")
        assert "the keys of the stored states are not there" in stranger.said()
        assert not other.exists()
        two = Served(tmp_path / "two", served_from, "--version-keys", shared, database=address)
        two._arguments[two._arguments.index("--shard") + 1] = "two"
        with two:
            two.admin = one.admin
            assert send(two, 2).json()["durable"] == 2
            # The second reads what the first has stored, and its end ends that, too.
            assert keys_in(shared) == 2
            for server, sequence in ((one, 3), (two, 4)):
                assert send(server, sequence).json()["durable"] == sequence
            ended = two.ask("POST", "/v1/trials/kept/end", json={"exact": True}).json()
            assert ended["effects"]["effects"][0]["n"] == 4 * SIZE
            assert keys_in(shared) == 0
    postgres.drop(address)


def test_a_lost_file_leaves_trials_that_have_ended_readable(served_from: Nursery, tmp_path: Path) -> None:
    server = Served(tmp_path / "server", served_from)
    file = server.data / "version.keys"
    with server:
        for name in ("kept", "ended"):
            server.create(name)
        assert send(server, 1).json()["durable"] == 1
        assert server.ask("POST", "/v1/trials/ended/end", json={"without_effects": True}).status_code == 200
        server.stop()
        file.unlink()
        server.start(wait=False)
        wait_for(lambda: not server.runs(), 20, "being refused")
        assert f"bring back {file}" in server.said()
        file.touch(0o600)  # as docs/deployment.md says, where there is no other copy
        server.start()
        assert server.ask("GET", "/v1/trials/ended").json()["status"] == "ended"
        refused = send(server, 2)
        assert refused.status_code == 503
        assert "restore the database and this file from the same backup" in json.dumps(refused.json())
        listed = server.ask("GET", "/v1/trials").json()
        assert {"kept", "ended"} <= {
            trial["name"] for trial in (listed if isinstance(listed, list) else listed["trials"])
        }
        assert server.ask("POST", "/v1/trials/kept/end").status_code == 503
        ended = server.ask("POST", "/v1/trials/kept/end", json={"without_effects": True}).json()
        assert (ended["effects"], ended["records"], ended["left_out"]) == (None, 0, SIZE)
    assert os.stat(file).st_mode & 0o777 == 0o600

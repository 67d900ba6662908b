"""Attacks on a running server: each succeeds where its defence does not reach, and fails where it does."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from served import Served, rows
from servers import Nursery


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("attacked"), served_from) as server:
        yield server


def another(server: Served, trial: str) -> str:
    """A second ingest token of a trial."""
    token: str = server.ask("POST", "/v1/tokens", json={"scope": "ingest", "trial": trial}).json()["token"]
    return token


@pytest.mark.parametrize("shared", [True, False], ids=["one token for both", "a token each"])
def test_someone_else_takes_a_producer_s_next_number(server: Served, shared: bool) -> None:
    """The victim's batch is then acknowledged and not counted; with tokens of their own, the thief is refused."""
    trial = f"stolen-{shared}".lower()
    victim = server.create(trial)["ingest_token"]
    thief = victim if shared else another(server, trial)

    def send(token: str, number: int) -> tuple[int, bool | None]:
        headers = {"Foldaway-Producer": "till-7", "Foldaway-Sequence": str(number)}
        answer = server.ask("POST", f"/v1/trials/{trial}/records", token, json=rows(20), headers=headers)
        return answer.status_code, answer.json().get("repeated")

    assert send(victim, 1) == (200, False)
    assert send(thief, 2) == ((200, False) if shared else (403, None))
    assert send(victim, 2) == (200, shared)
    asked = server.ask("GET", f"/v1/trials/{trial}/producers/till-7", thief)
    assert asked.status_code == (200 if shared else 403)
    if not shared:
        assert "belongs to the token that first used it" in asked.json()["detail"]
        assert server.ask("DELETE", f"/v1/tokens/{victim.split('_')[1]}").status_code == 204
        assert send(thief, 3) == (200, False)  # its successor, now that the first token is revoked


def test_unfinished_bodies_stop_nobody_but_their_token_and_are_given_up(server: Served) -> None:
    attacker = server.create("flooded")["ingest_token"]
    victim = server.create("dry")["ingest_token"]
    other = another(server, "flooded")
    with ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30)) for _ in range(64)]
        head = (
            f"POST /v1/trials/flooded/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {attacker}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n["
        )
        for line in lines:
            line.sendall(head.encode())
        refused: set[socket.socket] = set()  # whichever of them came last
        while len(refused) < 32:
            refused.update(select.select([line for line in lines if line not in refused], [], [], 30)[0])
        assert all(line.recv(20).startswith(b"HTTP/1.1 503 ") for line in refused)  # a token has half of the places
        assert server.ask("POST", "/v1/trials/flooded/records", attacker, json=rows(20)).status_code == 503
        for trial, token in (("dry", victim), ("flooded", other)):
            assert server.ask("POST", f"/v1/trials/{trial}/records", token, json=rows(20)).status_code == 200
        # The patience for a whole body is a minute; for one of which nothing comes it is a few seconds.
        assert all(line.recv(20).startswith(b"HTTP/1.1 408 ") for line in lines if line not in refused)
    assert server.ask("POST", "/v1/trials/flooded/records", attacker, json=rows(20)).status_code == 200


def test_who_watches_learns_nothing_of_single_records(server: Served) -> None:
    """Not from the metrics, nor from a trial's status, whoever asks; counts by the batch take an admin token."""
    made = server.create("watched", privacy={"cohort": 50, "smallest_cell": 2})
    server.ask("POST", "/v1/trials/watched/records", made["ingest_token"], json=rows(1))

    def looks() -> dict[str, str]:
        tokens = {"nobody": "", "ingest": made["ingest_token"], "read": made["read_token"]}
        seen = {who: server.ask("GET", "/metrics", token).text for who, token in tokens.items()}
        seen |= {f"status, {who}": server.ask("GET", "/v1/trials/watched", token).text for who, token in tokens.items()}
        metrics = server.ask("GET", "/metrics").text.splitlines()
        return seen | {"admin": next(line for line in metrics if line.startswith("foldaway_records_folded_total"))}

    changed = set()
    for count in (1, 7, 1):
        before = looks()
        server.ask("POST", "/v1/trials/watched/records", made["ingest_token"], json=rows(count))
        after = looks()
        changed |= {who for who in before if before[who] != after[who]}
    assert changed == {"admin"}
    assert not any(made["fingerprint"] in seen for who, seen in looks().items() if who != "status, read")


# What a body may be.


def test_a_body_may_be_as_large_as_the_server_says(server: Served) -> None:
    token = server.create("large")["ingest_token"]
    headers = {"Content-Type": "application/json"}
    for size, status in ((12 * 2**20, 200), (32 * 2**20 + 1, 413)):
        body = json.dumps(rows(20)).encode().ljust(size)
        chunks = (body[i : i + 2**20] for i in range(0, size, 2**20))
        for content in (body, chunks):
            answer = server.ask("POST", "/v1/trials/large/records", token, content=content, headers=headers)
            assert answer.status_code == status


def test_a_body_with_two_lengths_is_refused_and_the_connection_ends(server: Served) -> None:
    token = server.create("smuggled")["ingest_token"]
    body = json.dumps(rows(20)).encode()
    head = f"POST /v1/trials/smuggled/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        line.sendall(
            head.encode() + b"%x\r\n%b\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n" % (len(body), body)
        )
        answer = b"".join(iter(lambda: line.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"alive" not in answer
    assert b"read in two ways" in answer

"""The npm package's sender against a real collecting server: every batch counts once, whatever crashes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foldaway as fa
from driven import Driven, Refused
from served import Served, rows
from servers import Nursery
from sizes import mostly_slow
from trials import known

pytestmark = pytest.mark.once

SECRET = "SECRET-27182"


@pytest.fixture
def server(served_from: Nursery, tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "server", served_from, "--max-body", 1) as found:
        yield found


@pytest.fixture
def node(node_package: Path) -> Iterator[Driven]:
    with Driven(node_package) as found:
        yield found


def begin(node: Driven, server: Served, trial: str, name: str = "s", **others: Any) -> dict[str, str]:
    """A trial and its sender."""
    tokens = server.create(trial)
    node.ask(name, "sender", f"{server.url}/v1/trials/{trial}", {"token": tokens["ingest_token"], **others})
    return tokens


def counted(server: Served, trial: str) -> int:
    return int(server.ask("GET", f"/v1/trials/{trial}").json()["records"])


def test_batches_are_held_until_they_are_durable(node: Driven, server: Served) -> None:
    begin(node, server, "held")
    held = []
    for _ in range(5):
        receipt = node.ask("s", "send", rows(4))
        assert receipt["folded"] == 4
        held.append(node.ask("s", "held"))
    assert held == [1, 2, 0, 1, 2]
    assert node.ask("s", "durable") == 3
    assert receipt == {"folded": 4, "durable": 3, "pending": True}


def test_batches_that_are_sent_at_once_go_out_in_order(node: Driven, server: Served) -> None:
    begin(node, server, "at-once")
    receipts = node.ask("s", "send-all", [rows(10) for _ in range(20)])
    assert [receipt["durable"] for receipt in receipts] == list(range(1, 21))
    assert counted(server, "at-once") == 200


def test_a_faulty_batch_is_forgotten_and_its_number_used_again(node: Driven, server: Served) -> None:
    begin(node, server, "faulty")
    node.ask("s", "send", rows(4))
    with pytest.raises(Refused) as refused:
        node.ask("s", "send", [{"group": "a", "y": SECRET}])
    assert refused.value.status == 422
    assert SECRET not in str(refused.value)
    assert node.ask("s", "held") == 1
    assert node.ask("s", "send", rows(6))["durable"] == 2
    for bad in ({"y": 1}, ["words"], [None]):
        with pytest.raises(Refused, match="give a list of objects") as unsent:
            node.ask("s", "send", bad)
        assert unsent.value.kind == "RecordError"
    assert counted(server, "faulty") == 10


def test_a_batch_that_is_too_large_goes_in_parts(node: Driven, server: Served) -> None:
    tokens = begin(node, server, "large")
    many = [{**row, "text": "x" * 100} for row in rows(20_000)]
    assert node.ask("s", "send", many)["folded"] == len(many)
    assert counted(server, "large") == len(many)
    # Who gives the producer's name counts on the numbers.
    own = {"token": tokens["ingest_token"], "producer": "mine"}
    node.ask("own", "sender", f"{server.url}/v1/trials/large", own)
    with pytest.raises(Refused) as refused:
        node.ask("own", "send", many)
    assert refused.value.status == 413


def test_bad_settings_are_refused(node: Driven, server: Served) -> None:
    for settings in ({"token": ""}, {"token": "a b"}, {"token": "t", "producer": "a/b"}):
        with pytest.raises(Refused) as refused:
            node.ask("s", "sender", f"{server.url}/v1/trials/x", settings)
        assert refused.value.kind == "PlanError"
    with pytest.raises(Refused, match="form https://host/v1/trials/NAME"):
        node.ask("s", "sender", server.url, {"token": "t"})


def test_what_could_not_be_sent_goes_out_later(node: Driven, server: Served) -> None:
    begin(node, server, "later", patience=0)
    node.ask("s", "send", rows(3))
    server.kill()
    with pytest.raises(Refused, match="cannot be reached"):
        node.ask("s", "send", rows(4))
    assert node.ask("s", "held") == 2
    server.start()
    node.ask("s", "deliver")  # the server has lost the first as well
    assert node.ask("s", "send", rows(3))["durable"] == 3
    assert node.ask("s", "held") == 0
    assert counted(server, "later") == 10


def test_a_sender_that_begins_again_goes_on_from_what_is_durable(
    node_package: Path, node: Driven, server: Served
) -> None:
    tokens = begin(node, server, "again", producer="mine")
    for _ in range(4):
        node.ask("s", "send", rows(4))
    node.kill()
    with Driven(node_package) as other:
        own = {"token": tokens["ingest_token"], "producer": "mine"}
        other.ask("s", "sender", f"{server.url}/v1/trials/again", own)
        assert other.ask("s", "durable") == 3
        for _ in range(3):  # the server has the fourth already
            receipt = other.ask("s", "send", rows(4))
        assert receipt["durable"] == 6
    assert counted(server, "again") == 24


@pytest.mark.parametrize("seed", mostly_slow(list(range(4)), 0))
def test_every_batch_counts_once_while_the_server_is_killed(seed: int, node: Driven, server: Served) -> None:
    """Each batch has a digit of its own in the sum of a's y: 4^i, to the base 4, says how often it was counted."""
    name, rng = f"kills-{seed}", random.Random(seed)
    begin(node, server, name, patience=60)
    batches = 24
    for i in range(batches):
        batch = [{"group": "a", "y": 4.0**i}, *({"group": "ab"[j % 2], "y": 0.0} for j in range(rng.randrange(1, 8)))]
        node.start("s", "send", batch)
        if i % 3 == 1:
            time.sleep(rng.uniform(0, 0.02))
            server.kill()
            server.start()
        node.answer()
    node.ask("s", "send", [{"group": "b", "y": 1.0}] * 10)
    assert node.ask("s", "held") == 0
    ended = server.ask("POST", f"/v1/trials/{name}/end", json={"exact": True})
    assert ended.is_success, ended.text
    answer = ended.json()
    row = fa.Effects.from_json(msgspec.json.encode(answer["effects"]))[0]
    total = (10 / row.n_arm - known(row.estimate)) * row.n_control  # of the control, a; b has the last ten alone
    assert abs(total - sum(4.0**i for i in range(batches))) < 0.25

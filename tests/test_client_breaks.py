"""The client against a real collector behind a transport that breaks, and a server that forgets, at chosen moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pyarrow as pa
import pytest

import foldaway as fa
from batches import send
from foldaway.cli.commands.send import send_files
from foldaway.client import Client
from foldaway.errors import FoldawayError, IngestError, ServerError
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.http import problems
from foldaway.sources.formats.body import Limits
from plans import SMALL, replaced
from stores import VAULT

pytestmark = pytest.mark.once

PLAN = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10))


class Stand:
    """A server without a network: `crash` takes its memory, `plan` says what happens to the next requests."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.fates: list[str] = []
        self.sent: list[tuple[str, int]] = []
        self.most = 2**30
        self.crash()

    def crash(self) -> None:
        self.service = Service(self.store, "main", Limits())

    def __call__(self, request: httpx.Request) -> httpx.Response:
        fate = self.fates.pop(0) if self.fates and request.method == "POST" else "answer"
        if fate == "crash first":
            self.crash()
        if fate == "unreachable":
            raise httpx.ConnectError("no")
        try:
            content = self._answer(request)
        except FoldawayError as error:
            problem = problems.of_error(error)
            return httpx.Response(problem.status, content=msgspec.json.encode(problem))
        if fate == "answer lost":
            raise httpx.ReadError("no")
        return httpx.Response(200, content=content)

    def _answer(self, request: httpx.Request) -> bytes:
        parts = request.url.path.split("/")
        if request.method == "GET":
            if parts[-1] == "plan":
                return self.service.store.trial(parts[3]).plan.encode()
            durable, _ = self.service.store.shards.producer(parts[3], parts[5])
            return msgspec.json.encode({"durable": durable, "ended": False})
        producer, numbers = request.headers["Foldaway-Producer"], request.headers["Foldaway-Sequence"].split("-")
        first, last = int(numbers[0]), int(numbers[-1])
        self.sent.append((producer, first))
        if len(request.content) > self.most:
            raise IngestError(413, "too large.")
        body, media_type = request.content, request.headers["Content-Type"]
        sent = Sent(media_type, None, Numbers(producer, first, last))
        return msgspec.json.encode(send(self.service, parts[3], body, sent))


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    store = Store.open(tmp_path / "trials", VAULT)
    store.create_trial(PLAN, None)
    return Stand(store)


@pytest.fixture
def client(stand: Stand) -> Iterator[Client]:
    with made(stand) as found:
        yield found


def made(stand: Stand, producer: str = "p", patience: float = 5.0) -> Client:
    found = Client("http://stand", "token", producer=producer, patience=patience)
    found._asking._http = httpx.Client(transport=httpx.MockTransport(stand), base_url="http://stand")
    return found


def batch(n: int) -> pa.Table:
    return pa.table({"group": ["ab"[i % 2] for i in range(n)], "y": [float(i) for i in range(n)]})


def counted(stand: Stand) -> tuple[int, int]:
    status = stand.service.status("small")
    assert status.records is not None
    return status.records, stand.service.records.pending("small")


def test_batches_are_kept_until_they_are_durable(stand: Stand, client: Client) -> None:
    kept = []
    for _ in range(5):
        client.send("small", batch(4))
        kept.append(client.kept("small"))
    assert kept == [1, 2, 0, 1, 2]
    assert counted(stand) == (12, 8)


def test_an_answer_that_was_lost_does_not_count_twice(stand: Stand, client: Client) -> None:
    stand.fates = ["answer lost", "unreachable", "answer lost"]
    assert client.send("small", batch(4))["repeated"]
    client.send("small", batch(6))
    assert counted(stand) == (10, 0)


def test_what_a_crash_has_taken_is_sent_again_even_through_another_crash(stand: Stand, client: Client) -> None:
    for _ in range(3):
        client.send("small", batch(2))
    stand.fates = ["crash first", "answer", "answer", "crash first", "answer lost", "crash first"]
    client.send("small", batch(2))
    client.send("small", batch(2))
    assert counted(stand) == (10, 0)
    assert client.kept("small") == 0


def test_a_faulty_batch_is_forgotten_and_its_number_used_again(stand: Stand, client: Client) -> None:
    client.send("small", batch(4))
    with pytest.raises(ServerError) as refused:
        client.send("small", pa.table({"group": ["a", "nobody"], "y": [1.0, 2.0]}))
    assert refused.value.status == 422
    assert client.kept("small") == 1
    assert client.send("small", batch(6))["durable"] == 2
    assert counted(stand) == (10, 0)


@pytest.mark.parametrize("fate", ["unreachable", "answer lost"])
def test_a_batch_that_could_not_be_delivered_keeps_its_number(stand: Stand, fate: str) -> None:
    with made(stand, patience=0.0) as client:
        client.send("small", batch(2))
        stand.fates = [fate]
        with pytest.raises(ServerError, match="cannot be reached"):
            client.send("small", batch(3))
        assert client.kept("small") == 2
        client.send("small", batch(5))
    assert counted(stand) == (10, 0)


def test_closing_delivers_what_a_crash_has_taken(stand: Stand) -> None:
    with made(stand) as client:
        client.send("small", batch(2))
        client.send("small", batch(3))
        stand.crash()
    assert counted(stand) == (0, 5)


def test_an_error_leaves_the_block_at_once(stand: Stand) -> None:
    def leave() -> None:
        with made(stand, patience=0.0) as client:
            client.send("small", batch(2))
            stand.fates = ["unreachable"] * 9
            client.send("small", batch(2))

    with pytest.raises(ServerError, match="cannot be reached"):
        leave()
    assert len(stand.fates) == 8


def test_a_producer_that_begins_again_goes_on_from_what_is_durable(stand: Stand) -> None:
    sizes = [4, 4, 4, 4, 4]
    first = made(stand)
    for size in sizes[:4]:
        first.send("small", batch(size))
    again = made(stand)  # the server still has number 4 in memory
    assert again.durable("small") == 3
    said = [again.send("small", batch(size)) for size in sizes[3:]]
    assert [(one["sequence"], one["repeated"]) for one in said] == [(4, True), (5, False)]
    assert counted(stand) == (12, 8)


def test_a_server_that_has_lost_what_was_durable_is_not_believed(stand: Stand, client: Client, tmp_path: Path) -> None:
    client.send("small", batch(10))
    stand.store = Store.open(tmp_path / "others", VAULT)
    stand.store.create_trial(PLAN, None)
    stand.crash()
    with pytest.raises(ServerError) as refused:
        client.send("small", batch(4))
    assert (refused.value.status, refused.value.expected) == (409, 1)


def lines(path: Path, n: int) -> Path:
    rows = [f"{'ab'[i % 2]},{i}" for i in range(n)]
    path.write_text("\n".join(["group,y", *rows]) + "\n")
    return path


def test_every_file_is_a_producer_of_its_own(stand: Stand, tmp_path: Path) -> None:
    files = [lines(tmp_path / f"day{n}.csv", n) for n in (4, 7, 12)]
    with made(stand) as client:
        assert send_files(client, "small", files, ignored, key=bytes(16))[0] == 23
    assert {sequence for _, sequence in stand.sent} == {1}
    assert len({producer for producer, _ in stand.sent}) == 3
    with made(stand) as client:
        assert send_files(client, "small", files, ignored, key=bytes(16))[:2] == (0, 23)


@pytest.mark.parametrize("crash", [False, True])
def test_a_file_is_counted_once_however_it_is_cut(stand: Stand, tmp_path: Path, crash: bool) -> None:
    """In small parts at first, of which some are pending; in one piece after a break, which then overlaps with them."""
    plan = replaced(PLAN, name="large", privacy=fa.Privacy(cohort=600))
    stand.store.create_trial(plan, None)
    file, records = [lines(tmp_path / "large.csv", 2_000)], stand.service.records
    stand.most, stand.fates = 4_000, ["answer"] * 7 + ["unreachable"] * 9
    with pytest.raises(ServerError, match="cannot be reached"), made(stand, patience=0.0) as client:
        send_files(client, "large", file, ignored, key=bytes(16))
    assert (records.exactly(plan).records, records.pending("large")) == (750, 250)
    if crash:
        stand.crash()
    stand.most, stand.fates, stand.sent = 2**30, [], []
    with made(stand) as client:
        sent = send_files(client, "large", file, ignored, key=bytes(16)).sent
    assert [first for _, first in stand.sent] == ([751] if crash else [751, 751, 1001])
    assert (sent, stand.service.records.exactly(plan).records) == (1_250 if crash else 1_000, 2_000)


ignored: Callable[..., None] = lambda *_: None  # noqa: E731


@pytest.mark.parametrize("content", [b"", b"<html>", b"[1]", b'{"detail": null}'])
def test_an_answer_that_is_no_problem_of_ours_is_an_error_with_its_status(content: bytes) -> None:
    client = Client("http://stand", "token", patience=0.0)
    client._asking._http = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(502, content=content)), base_url="http://stand"
    )
    with pytest.raises(ServerError, match="the server answered 502") as refused:
        client.trials()
    assert refused.value.status == 502

"""The client against a real server: it numbers its batches, keeps what is not durable, and gives it again."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from foldaway.asking import _problem
from foldaway.cli.terminal.connecting import QUESTION, connect
from foldaway.client import Client
from foldaway.client.stream import halves
from foldaway.errors import RecordError, ServerError, ServerWarning
from served import Served, rows
from servers import Nursery

SECRET = "SECRET-14142"


@pytest.fixture
def server(served_from: Nursery, tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, served_from) as server:
        yield server


@pytest.fixture(scope="module")
def steady(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that is not stopped, and takes small bodies only."""
    with Served(tmp_path_factory.mktemp("steady"), served_from, "--max-body", 1) as server:
        yield server


def records(server: Served, trial: str) -> int:
    with Client(server.url, server.admin) as client:
        return int(client.status(trial)["records"])


FORMS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow-table": pa.Table.from_pylist,
    "arrow-batch": pa.RecordBatch.from_pylist,
    "list": list,
    "iterator": iter,
    "columns": lambda batch: {name: [row[name] for row in batch] for name in batch[0]},
}


@pytest.mark.parametrize("form", FORMS)
def test_all_kinds_of_tables(steady: Served, form: str) -> None:
    name = f"kinds-{form}"
    token = steady.create(name)["ingest_token"]
    with Client(steady.url, token) as client:
        receipt = client.send(name, FORMS[form](rows(10)))
    assert (receipt["folded"], receipt["sequence"], receipt["durable"]) == (10, 1, 1)
    assert records(steady, name) == 10


def test_batches_are_numbered_and_kept_until_they_are_durable(steady: Served) -> None:
    token = steady.create("numbered")["ingest_token"]
    with Client(steady.url, token, producer="me") as client:
        seen = []
        for count in (4, 4, 4, 4, 12):
            receipt = client.send("numbered", rows(count))
            seen.append((receipt["sequence"], receipt["durable"], receipt["pending"], client.kept("numbered")))
        assert seen == [(1, 0, True, 1), (2, 0, True, 2), (3, 3, False, 0), (4, 3, True, 1), (5, 5, False, 0)]
        assert client.durable("numbered") == 5
    with Client(steady.url, token, producer="me") as client:
        assert client.send("numbered", rows(1))["sequence"] == 6
    with Client(steady.url, token) as client:
        assert client.producer != Client(steady.url, token).producer
        assert client.send("numbered", rows(1))["sequence"] == 1


def test_a_refused_batch_frees_its_number_and_says_what_is_wrong(steady: Served) -> None:
    token = steady.create("refused")["ingest_token"]
    with Client(steady.url, token) as client:
        client.send("refused", rows(3))
        faulty: list[list[dict[str, Any]]] = [
            [{"group": SECRET, "y": 1.0}],
            [{"group": "a", "y": SECRET}],
            [{"group": "a", SECRET: 1}],
        ]
        for batch in faulty:
            with pytest.raises(ServerError) as refusal:
                client.send("refused", batch)
            assert refusal.value.status == 422
            assert "1 of 1 record is" in str(refusal.value) or "column" in str(refusal.value)
            assert SECRET not in str(refusal.value)
            assert client.kept("refused") == 1
        assert client.send("refused", rows(7))["sequence"] == 2
    assert records(steady, "refused") == 10


@pytest.mark.parametrize(
    "batch",
    [
        {"group": "a", "y": 1.0},  # a single record
        [{"group": "a", "y": SECRET}, {"group": "a", "y": 1.0}],
        [{"group": "a", "y": 1.0}, {"group": "a", "y": SECRET}],
        {"group": ["a", "b"], "y": [1.0, SECRET]},
        {"group": ["a"], "y": [1.0, 2.0]},
        [SECRET],
        None,
    ],
)
def test_what_is_no_batch_is_refused_before_it_is_sent_and_not_quoted(steady: Served, batch: Any) -> None:
    with Client(steady.url, steady.admin) as client, pytest.raises(RecordError) as refusal:
        client.send("unsent", batch)
    assert SECRET not in str(refusal.value)
    assert refusal.value.__context__ is None


def test_a_column_that_the_first_record_lacks_is_sent(steady: Served) -> None:
    """A value is faulty or folded, and never left behind."""
    token = steady.create("later")["ingest_token"]
    with Client(steady.url, token) as client, pytest.raises(ServerError, match=r"1 of 2 records is faulty") as refusal:
        client.send("later", [{"group": "a"}, {"group": "b", "y": 1.0}])
    assert "y: 1 null" in str(refusal.value)


def test_a_batch_with_none_of_the_columns_is_refused(steady: Served) -> None:
    token = steady.create("strange")["ingest_token"]
    with Client(steady.url, token) as client, pytest.raises(ServerError):
        client.send("strange", [{"other": 1}])


def test_a_batch_that_is_too_large_is_sent_in_parts_unless_its_number_is_the_callers(steady: Served) -> None:
    token, many = steady.create("large")["ingest_token"], 150_000
    table = pa.table({"group": ["a", "b"] * (many // 2), "y": [0.0, 1.0] * (many // 2)})  # nearly 2 MiB
    with Client(steady.url, token) as client:
        receipt = client.send("large", table)
        assert (receipt["folded"], receipt["sequence"], receipt["durable"]) == (many, 2, 2)
    assert records(steady, "large") == many
    with (
        Client(steady.url, token, producer="me") as named,
        pytest.raises(ServerError, match="producer me numbers") as refused,
    ):
        named.send("large", table)
    assert refused.value.status == 413
    assert records(steady, "large") == many


def test_units_stay_together_in_parts() -> None:
    table = pa.table({"unit": list("abcbacddd"), "y": range(9)})
    parts = halves(table, "unit")
    assert [sorted(set(part["unit"].to_pylist())) for part in parts] == [["a", "b"], ["c", "d"]]
    assert sorted(y for part in parts for y in part["y"].to_pylist()) == list(range(9))
    with pytest.raises(ServerError, match="all records of a unit"):
        halves(parts[0].slice(0, 1), "unit")


def test_leaving_with_pending_batches_warns(steady: Served) -> None:
    token = steady.create("leaving")["ingest_token"]
    client = Client(steady.url, token)
    client.send("leaving", rows(4))
    client.send("leaving", rows(4))
    with pytest.warns(ServerWarning, match="not durable yet: 2") as warned:
        client.close()
    assert warned[0].filename == __file__
    with warnings.catch_warnings(), Client(steady.url, token) as client:
        warnings.simplefilter("error")
        assert client.send("leaving", rows(4))["pending"] is False


def test_errors_are_sentences(steady: Served) -> None:
    made = steady.create("asked")
    with Client(steady.url, made["read_token"]) as reader:
        for ask, status, words in [
            (lambda: reader.effects("asked"), 425, "no effects yet"),
            (lambda: reader.send("asked", rows(1)), 403, "needs an ingest token for asked; you sent a read token"),
            (lambda: reader.status("unknown"), 403, "needs a read token for unknown; you sent a read token for asked"),
        ]:
            start = time.monotonic()
            with pytest.raises(ServerError, match=words) as refusal:
                ask()  # type: ignore[no-untyped-call]
            assert refusal.value.status == status
            assert time.monotonic() - start < 5  # not tried again
        assert [trial["name"] for trial in reader.trials()] == ["asked"]  # the one that it may read
        with pytest.raises(RecordError, match=r"not the name of a file\. `foldaway send TRIAL FILE`"):
            reader.send("asked", "day1.csv")
    nothing = pytest.raises(ServerError, match="nothing at this address: check its path")
    with Client(f"{steady.url}/prefix", made["read_token"]) as lost, nothing:
        lost.trials()
    request = httpx.Request("GET", "https://me:secret@example.org/wrong/v1/trials")
    by_proxy = str(_problem(httpx.Response(404, request=request)))
    assert by_proxy.startswith("there is no foldaway server at https://example.org/wrong/v1/trials (404): check")
    with Client(steady.url, "fa_nobody") as stranger, pytest.raises(ServerError, match="the token is not valid"):
        stranger.status("asked")
    with Client(steady.url, steady.admin) as admin, pytest.raises(ServerError, match="no trial"):
        admin.status("unknown")


def test_a_token_from_a_file_may_end_in_a_line_break_and_one_that_cannot_be_sent_is_refused_at_once(
    steady: Served,
) -> None:
    with Client(steady.url, f" {steady.admin}\n") as client:
        client.trials()
    for token, fault in (("secret\nsecond", "a line break"), ("secret\tsecond", "a blank"), (" \n", "is empty")):
        with pytest.raises(ServerError, match=f"the token .*{fault}") as refused:
            Client(steady.url, token)
        assert "secret" not in str(refused.value)


def test_a_life_through_the_client(steady: Served) -> None:
    plan = 'name = "life"\narm = "group"\noutcomes = ["y"]\nprivacy = {cohort = 10}\narms = {a = 0.5, b = 0.5}\n'
    with Client(steady.url, steady.admin) as client:
        made = client.create(plan)
        assert client.plan("life")["outcomes"] == ["y"]
        client.send("life", rows(100))
        assert client.effects("life")["records"] == 100
        assert "life" in [row["name"] for row in client.trials()]
        final = client.end("life")
        assert final["final"]
        assert final["fingerprint"] == made["fingerprint"]
        with pytest.raises(ServerError, match="ended") as refusal:
            client.send("life", rows(10))
        assert refusal.value.status == 410
        assert client.kept("life") == 0


@pytest.mark.once
def test_a_server_that_is_down_for_a_while(server: Served) -> None:
    token = server.create("patient")["ingest_token"]
    with Client(server.url, token, patience=30) as client:
        client.send("patient", rows(4))
        server.stop()
        later = threading.Timer(1.0, server.start)
        later.start()
        # The 4 were in the server's memory only: the client sends them again, before the new ones.
        receipt = client.send("patient", rows(8, 4))
        later.join()
        assert (receipt["sequence"], receipt["durable"], client.kept("patient")) == (2, 2, 0)
    assert records(server, "patient") == 12


@pytest.mark.once
def test_patience_ends_and_the_batch_is_kept(server: Served) -> None:
    token = server.create("impatient")["ingest_token"]
    client = Client(server.url, token, patience=1.0)
    client.send("impatient", rows(3))
    server.kill()
    start = time.monotonic()
    with pytest.raises(ServerError, match="cannot be reached") as refusal:
        client.send("impatient", rows(9, 3))
    assert refusal.value.status is None
    assert 0.2 < time.monotonic() - start < 10
    assert client.kept("impatient") == 2
    server.start()
    client.close()  # gives the server what it has not got
    assert records(server, "impatient") == 12


@pytest.mark.once
def test_leaving_gives_the_server_what_it_has_lost(server: Served) -> None:
    token = server.create("left")["ingest_token"]
    with Client(server.url, token) as client:
        client.send("left", rows(4))
        client.send("left", rows(5, 4))
        server.kill()
        server.start()
    with Client(server.url, token) as other:
        assert other.send("left", rows(1))["pending"] is False
    assert records(server, "left") == 10


def test_back_off_spares_a_server_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever waits is told why, once."""
    now, pauses, told = 0.0, [], []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    monkeypatch.setattr("foldaway.asking.time.sleep", sleep)
    monkeypatch.setattr("foldaway.asking.time.monotonic", lambda: now)
    with pytest.raises(ServerError, match="cannot be reached"):
        Client("http://127.0.0.1:9", "fa_x", patience=40, told=lambda problem: told.append(str(problem))).status("x")
    assert len(told) == 1
    assert "is it running" in told[0]
    assert 5 < len(pauses) < 40
    assert max(pauses) < 10
    assert sum(pauses[-3:]) > 10 * sum(pauses[:3])
    assert 30 < now <= 48
    with (
        pytest.warns(ServerWarning, match=r"is it running.* Trying again for up to 9 seconds"),
        pytest.raises(ServerError, match="cannot be reached"),
    ):
        Client("http://127.0.0.1:9", "fa_x", patience=9).status("x")


def test_a_server_that_never_answers_is_given_up_with_a_sentence() -> None:
    """By commands that ask something after ten seconds, whereas a batch or an end may take longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        never = "accepts connections but has not answered for 0.2 seconds. It may be busy"
        with pytest.raises(ServerError, match=never):
            Client(url, "fa_x", patience=0.1, timeout=0.2).status("x")
        for patience, seconds in ((QUESTION, 10.0), (60.0, 60.0)):
            with connect(url, "fa_x", None, patience=patience) as client:
                assert client._asking._http.timeout.read == seconds

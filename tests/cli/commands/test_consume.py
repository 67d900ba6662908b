"""`foldaway consume` and `foldaway effects`, as a person or a service manager would use them: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import commands
import foldaway as fa
from bodies import as_arrow, as_json, as_ndjson
from brokers import Nats, Redis, Sent, require
from consuming import fresh_name, messages, one_pass, people, plan_of, sizes_of
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.effects.door import TOLD
from foldaway.keeping.saved import StreamPositions
from measured import measured
from memory_scan import Marks, scan_files
from sizes import mostly_slow

PASSWORD = "PASSWORD-16180"


def started(*words: object, **options: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "COLUMNS": "80", **measured(), **options.pop("env", {})}
    command = [sys.executable, "-m", "foldaway", *map(str, words)]
    return subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": env, **options})


def foldaway(*words: object, **options: Any) -> tuple[str, str]:
    done = commands.foldaway(*words, **options)
    return done.stdout, done.stderr


def saved(folder: Path, **settings: Any) -> tuple[fa.Plan, Path]:
    plan = plan_of(fresh_name(), **settings)
    plan.save(folder / "plan.toml")
    return plan, folder / "plan.toml"


def test_a_stream_from_the_first_message_to_the_effects(redis_server: Redis, tmp_path: Path) -> None:
    """Redis for all three: `tests/sources/brokers/test_consumer_killed.py` runs the command with each."""
    broker = redis_server
    plan, file = saved(tmp_path, moments={"bootstrap": 20}, covariates=[])
    records = people(300)
    broker.create(plan.name)
    broker.send(plan.name, messages(records.slice(0, 200), sizes_of(200, 3)))
    store, key = tmp_path / "store", tmp_path / "secret.key"
    words = ("consume", broker.address(plan.name), file, "--store", store, "--key", key, "--json", "--delete")
    out, _ = foldaway(*words, "--until-empty")
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["event"] for line in lines} == {"progress", "end"}
    assert lines[-1]["records"] + lines[-1]["pending"] == 200
    secret = bytes.fromhex(key.read_text())
    assert (os.stat(store).st_mode & 0o777, os.stat(key).st_mode & 0o777) == (0o700, 0o600)
    assert {os.stat(path).st_mode & 0o777 for path in store.iterdir()} == {0o600}

    broker.send(plan.name, messages(records.slice(200), sizes_of(100, 4)))
    out, _ = foldaway(*words, "--end")
    ended = json.loads(out.splitlines()[-1])
    expected_for_others = replace(one_pass(plan, records, secret).read(TOLD), final=True).to_json()
    assert ended["effects"] == json.loads(expected_for_others)
    assert broker.held(plan.name) == 0
    assert not key.exists()  # ended, so nobody can ever tie an identifier to a weight

    table, _ = foldaway("effects", store)
    assert f"{plan.name}: 300 records" in table
    assert max(map(len, table.splitlines())) <= 80
    assert json.loads(foldaway("effects", store, "--json")[0]) == json.loads(expected_for_others)
    _, closed = foldaway(*words, "--until-empty", code=1)
    assert "has ended: `foldaway effects" in closed
    out, _ = foldaway(*words, "--end")  # after a crash, say: it does no harm
    assert json.loads(out.splitlines()[-1])["effects"] == json.loads(expected_for_others)


@pytest.mark.parametrize("how", mostly_slow([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_stop_in_good_order_leaves_the_rest_at_the_broker(
    redis_server: Redis, tmp_path: Path, how: signal.Signals
) -> None:
    plan, file = saved(tmp_path, cohort=50)
    redis_server.create(plan.name)
    redis_server.send(plan.name, [Sent(as_json(people(60)))])
    words = ("consume", redis_server.address(plan.name), file, "--store", tmp_path / "store", "--delete")
    process = started(*words)
    _until(lambda: redis_server.held(plan.name) == 0)
    redis_server.send(plan.name, [Sent(as_json(people(20, seed=1)))])
    time.sleep(0.7)  # it has read them, and may not keep them
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"60 records are in the store" in err
    assert b"20 more wait at the broker" in err
    assert redis_server.held(plan.name) == 1
    assert fa.Trial.load(tmp_path / "store" / STATE, plan).n == 60


def _until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_no_cohort_is_told_and_stays(redis_server: Redis, tmp_path: Path) -> None:
    plan, file = saved(tmp_path, cohort=50)
    redis_server.create(plan.name)
    redis_server.send(plan.name, [Sent(as_json(people(20)))])
    words = ("consume", redis_server.address(plan.name), file, "--store", tmp_path / "store")
    _, err = foldaway(*words, "--delete", "--until-empty")
    assert "20 more wait at the broker until there is a cohort of 50" in err
    assert "no effects yet" in err
    assert redis_server.held(plan.name) == 1
    assert not (tmp_path / "store" / STATE).exists()
    _, none = foldaway("effects", tmp_path / "store", code=1)
    assert "holds no records yet" in none


def test_stores_of_several_consumers_are_merged(tmp_path: Path) -> None:
    plan = plan_of("parts", smallest_cell=15)
    records, stores = people(60), []
    for number in range(3):
        part = fa.Trial(plan)
        part.fold(records.slice(20 * number, 20))
        stores.append(tmp_path / str(number))
        stores[-1].mkdir()
        part.save(stores[-1] / STATE, positions=StreamPositions(str(number)))
    plan.save(tmp_path / "plan.toml")
    foldaway("run", tmp_path / "plan.toml", *stores, "--save", tmp_path / "whole")
    assert fa.Trial.load(tmp_path / "whole", plan).n == 60


def test_no_value_reaches_the_store_the_output_or_an_error(nats_server: Nats, tmp_path: Path) -> None:
    """Planted identifiers and outcomes, good and faulty, in every form; the broker's own files are not ours."""
    marks = Marks(400)
    rows = [
        {"group": "ab"[i % 2], "x": float(i % 7), "y": marks.outcome(i), "unit": marks.identifier(i)}
        for i in range(marks.count)
    ]
    table = pa.Table.from_pylist(rows)
    bad = [{**row, "group": "c", "y": f"{row['y']}?"} for row in rows[:10]]
    plan, file = saved(tmp_path)
    nats_server.create(plan.name)
    forms = [as_arrow, as_ndjson, as_json]
    good = [Sent(forms[i % 3](table.slice(50 * i, 50))) for i in range(8)]
    faulty = [Sent(json.dumps(bad).encode()), Sent(good[0].body[:-40]), Sent(str(bad).encode())]
    nats_server.send(plan.name, [*good[:4], *faulty, *good[4:]])
    words = ("consume", nats_server.address(plan.name), file, "--store", tmp_path / "store")
    said = [*foldaway(*words, "--until-empty", "--json", code=1)]
    assert "the message at position 5 is refused" in said[1]
    assert "group: 10 unknown arm" in said[1]
    said += foldaway(*words, "--until-empty", "--skip-faulty", "--delete", env={"FOLDAWAY_DEBUG": "1"})
    assert "3 faulty messages were skipped" in said[-1]
    assert not marks.find("".join(said).encode())
    assert not scan_files([tmp_path], marks)
    assert marks.find(good[0].body)  # the search can find


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    require("redis")

    class Locked(Redis):
        def command(self) -> list[str]:
            return [*super().command(), "--requirepass", "another"]

    server = Locked()
    _, file = saved(tmp_path)
    try:
        server.start()
        place = f"127.0.0.1:{server.port}/orders"
        for address, env in (
            (f"redis://ann:{PASSWORD}@{place}", {}),
            (f"redis://{place}", {"FOLDAWAY_BROKER_PASSWORD": PASSWORD}),
        ):
            out, err = foldaway("consume", address, file, "--store", tmp_path / "store", code=1, env=env)
            assert PASSWORD not in out + err
            assert err.startswith("error: Redis refuses this user or password")
    finally:
        server.remove()


def test_a_broker_that_is_not_there_is_told_once_and_waited_for(tmp_path: Path) -> None:
    _, file = saved(tmp_path)
    with (tmp_path / "err").open("wb") as err:
        process = started("consume", "nats://127.0.0.1:9/orders", file, "--store", tmp_path / "store", stderr=err)
    deadline = time.monotonic() + 60
    while not (tmp_path / "err").stat().st_size and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.terminate()
    assert process.wait(30) == 0
    said = (tmp_path / "err").read_text()
    assert said.count("nats://127.0.0.1:9/orders cannot be reached; trying again until it can.") == 1


def test_a_person_at_a_terminal_sees_progress(redis_server: Redis, tmp_path: Path) -> None:
    plan, file = saved(tmp_path)
    redis_server.create(plan.name)
    redis_server.send(plan.name, [Sent(as_json(people(60)))])
    words = ("consume", redis_server.address(plan.name), file, "--store", tmp_path / "store", "--until-empty")
    shown = commands.at_terminal(*words).stderr
    assert "60 records | 0 pending" in shown
    assert "0 messages waiting" in shown


@pytest.mark.parametrize(
    ("words", "settings", "told"),
    [
        (["--key", "store/key"], {"moments": {"bootstrap": 20}}, "kept apart from the tallies"),
    ],
)
def test_the_key_lies_apart_from_the_store(
    tmp_path: Path, words: list[str], settings: dict[str, Any], told: str
) -> None:
    _, file = saved(tmp_path, **settings)
    said = foldaway("consume", "redis://127.0.0.1:9/orders", file, "--store", "store", *words, code=1, folder=tmp_path)
    assert told in said[1]


def test_a_store_that_somebody_has_is_refused(tmp_path: Path) -> None:
    plan, file = saved(tmp_path)
    with StreamFile(tmp_path / "store", plan, "redis orders"):
        said = foldaway("consume", "redis://127.0.0.1:9/orders", file, "--store", tmp_path / "store", code=1)
    assert "another program is writing to" in said[1]

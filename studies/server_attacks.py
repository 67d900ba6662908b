"""What does a server give to those who hold one of its tokens? Attacks on a running server, over HTTP.

Every function plays the holder of a token against a server that others use too, and returns a figure: how often it was
right about a single record of somebody else, how long others waited, or how much was taken that must be refused.
`tests/service/test_server_attacks.py` runs them small.
"""

from __future__ import annotations

import json
import random
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import foldaway as fa
from foldaway.federated.messages import MEDIA_TYPE, DeviceSums, Enrolment, SiteSums, encoded, new_number, packed
from studies.findings import Findings, markdown_table, options_of, publish

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from served import Served
from servers import Nursery

NAME = "server_attacks"
COHORT = 100
FEW = 20
"""A cohort of devices, each of which takes two requests."""

TICK = 1.0
LOOKS = 2.5
"""Ticks for which an attacker watches."""

JSON = {"Content-Type": "application/json"}
MESSAGE = {"Content-Type": MEDIA_TYPE}
OCTETS = {"Content-Type": "application/octet-stream"}


class Score(NamedTuple):
    """How often somebody was right, and of how many times."""

    right: int
    of: int


class Trial:
    """A trial on a server, with tokens of an attacker and of a victim."""

    def __init__(self, server: Served, name: str, **settings: Any) -> None:
        self.server = server
        self.name = name
        made = server.create(name, **{"privacy": {"cohort": COHORT, "smallest_cell": 2}, **settings})
        self.attacker, self.reader = made["ingest_token"], made["read_token"]
        self.victim = self.token("ingest")

    def token(self, scope: str, **about: Any) -> str:
        """Another token."""
        issued = self.server.ask("POST", "/v1/tokens", json={"scope": scope, "trial": self.name, **about})
        return str(issued.json().get("token", ""))

    def send(self, token: str, units: Sequence[str], number: str | None = None) -> dict[str, Any]:
        """Send a record of each of these units; the receipt."""
        rows = [{"group": "ab"[i % 2], "y": 1.0, "u": unit} for i, unit in enumerate(units)]
        headers = {} if number is None else {"Foldaway-Producer": "spy", "Foldaway-Sequence": number}
        answer = self.server.ask("POST", f"/v1/trials/{self.name}/records", token, json=rows, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    def durable(self) -> int:
        """What is durable of the attacker's own batches."""
        asked = self.server.ask("GET", f"/v1/trials/{self.name}/producers/spy", self.attacker)
        return int(asked.json()["durable"])


Attack = Callable[[Served, int, float, random.Random], Score]
"""Somebody who watches: the server, how many times, for how many seconds each, and the coins."""


def _judged(trials: Sequence[Trial], came: Sequence[bool], says: Callable[[Trial], bool], wait: float) -> Score:
    time.sleep(wait)
    return Score(sum(says(trial) == truth for trial, truth in zip(trials, came, strict=True)), len(trials))


# Who watches.


def own_receipts(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """Send all of a cohort but one, and look whether one's own batch is durable: then another's record has come."""
    trials = [Trial(server, f"receipts-{rng.getrandbits(40)}", unit="u") for _ in range(rounds)]
    came = [rng.random() < 0.5 for _ in trials]
    for trial, truth in zip(trials, came, strict=True):
        trial.send(trial.attacker, [f"own {i}" for i in range(COHORT - 1)], "1")
        if truth:
            trial.send(trial.victim, ["somebody"])
    return _judged(trials, came, lambda trial: trial.durable() == 1, wait)


def this_person(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """Somebody's record is there. If it is the target's, the target's own name does not fill the cohort."""
    trials = [Trial(server, f"person-{rng.getrandbits(40)}", unit="u") for _ in range(rounds)]
    came = [rng.random() < 0.5 for _ in trials]
    for trial, truth in zip(trials, came, strict=True):
        trial.send(trial.attacker, [f"own {i}" for i in range(COHORT - 2)], "1")
        trial.send(trial.victim, ["target" if truth else "another"])
        trial.send(trial.attacker, ["target"], "2")
    return _judged(trials, came, lambda trial: trial.durable() < 2, wait)


def own_reports(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """The same with reports of devices that the attacker has made up."""
    privacy = {"cohort": FEW, "smallest_cell": 2}
    names = [f"reports-{rng.getrandbits(40)}" for _ in range(rounds)]
    trials = [Trial(server, name, federated="delta", privacy=privacy) for name in names]
    came = [rng.random() < 0.5 for _ in trials]
    own: dict[str, bytes] = {}

    def report(trial: Trial, token: str) -> bytes:
        number = new_number()
        message = encoded(DeviceSums(number, "a", 1, packed(np.ones(1))))
        for kind, body in (("enrolments", encoded(Enrolment(number, "a"))), ("reports", message)):
            server.ask("POST", f"/v1/trials/{trial.name}/{kind}", token, content=body, headers=MESSAGE)
        return message

    for trial, truth in zip(trials, came, strict=True):
        for _ in range(FEW - 1):
            own[trial.name] = report(trial, trial.attacker)
        if truth:
            report(trial, trial.victim)

    def durable(trial: Trial) -> bool:
        path = f"/v1/trials/{trial.name}/reports"
        answer = server.ask("POST", path, trial.attacker, content=own[trial.name], headers=MESSAGE)
        return bool(answer.json()["durable"])

    return _judged(trials, came, durable, wait)


def status_of_readers(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """With a read token: has the status changed?"""
    trials = [Trial(server, f"status-{rng.getrandbits(40)}", unit="u") for _ in range(rounds)]
    came = [rng.random() < 0.5 for _ in trials]

    def status(trial: Trial) -> str:
        return server.ask("GET", f"/v1/trials/{trial.name}", trial.reader).text

    before = {trial.name: status(trial) for trial in trials}
    for trial, truth in zip(trials, came, strict=True):
        if truth:
            trial.send(trial.victim, ["somebody"])
    return _judged(trials, came, lambda trial: status(trial) != before[trial.name], wait)


def metrics(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """With a metrics token: have the counts of senders changed?"""
    trial = Trial(server, f"metrics-{rng.getrandbits(40)}", unit="u")
    token = server.ask("POST", "/v1/tokens", json={"scope": "metrics"}).json()["token"]

    def counts() -> list[str]:
        lines = server.ask("GET", "/metrics", token).text.splitlines()
        return [line for line in lines if "/records" in line or "records_folded_total" in line or "_pending" in line]

    right = 0
    for _ in range(rounds):
        before, truth = counts(), rng.random() < 0.5
        if truth:
            trial.send(trial.victim, [f"somebody {rng.random()}"])
        time.sleep(wait)
        right += (counts() != before) == truth
    return Score(right, rounds)


def finest_time(server: Served, rounds: int, wait: float, rng: random.Random) -> Score:
    """Answers whose time in the history is finer than a second."""
    trial = Trial(server, f"history-{rng.getrandbits(40)}")
    for _ in range(rounds):
        trial.send(trial.victim, ["somebody"] * 3 * COHORT)
        time.sleep(wait)
        server.ask("GET", f"/v1/trials/{trial.name}/effects", trial.reader)
    points = server.ask("GET", f"/v1/trials/{trial.name}/history", trial.reader).json()["points"]
    return Score(sum(point["time"] != int(point["time"]) for point in points), len(points))


# Who holds others up.

PACKED = {**JSON, "Content-Type": "application/x-ndjson", "Content-Encoding": "zstd"}


def blank() -> bytes:
    """A few kB of blank lines that unpack to 100 MB."""
    return bytes(pa.compress(b"\n" * 10**8, "zstd", asbytes=True))


def texts() -> bytes:
    """Half a million records whose numbers come as text, so that each is read by itself, in a few kB."""
    return bytes(pa.compress(b'{"group":"a","y":"1"}\n' * 500_000, "zstd", asbytes=True))


def longest_wait(server: Served, body: bytes, bodies: int, rng: random.Random) -> float:
    """Seconds that a record of another trial waits while one token sends such bodies, as many at a time."""
    attacked, other = (Trial(server, f"wait-{rng.getrandbits(40)}") for _ in range(2))
    other.send(other.victim, ["warm"])

    def attack() -> None:
        path = f"{server.url}/v1/trials/{attacked.name}/records"
        with server.http(attacked.attacker, timeout=300) as http:
            http.post(path, content=body, headers=PACKED)

    threads = [threading.Thread(target=attack) for _ in range(bodies)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    begun = time.monotonic()
    with server.http(other.victim, timeout=300) as http:
        http.post(f"/v1/trials/{other.name}/records", json=[{"group": "a", "y": 1.0}])
    waited = time.monotonic() - begun
    for thread in threads:
        thread.join()
    return waited


# Who says what is not so.


def sites_taken(server: Served, scope: str, units: int, rng: random.Random, records: int = 1) -> bool:
    """Whether made-up tallies of so many units an arm are taken with a token of this kind, good for 1,000 units."""
    plan = fa.Plan(
        name=f"site-{rng.getrandbits(40)}",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        unit="u",
        expected_units=64,
        federated="sums",
        privacy=fa.Privacy(cohort=10, smallest_cell=2),
    )
    headers = {"Content-Type": "application/json"}
    token = server.ask("POST", "/v1/trials", content=plan.to_json(), headers=headers).json()["ingest_token"]
    if scope == "site":
        wanted = {"scope": "site", "trial": plan.name, "units": 1_000}
        token = server.ask("POST", "/v1/tokens", json=wanted).json()["token"]
    counts = np.full((2, plan.groups), units * records // plan.groups, dtype=float)
    sums = counts * np.array([[0.0], [1.0]])
    body = encoded(SiteSums(units=[int(units)] * 2, records=packed(counts), sums=packed(sums)))
    said = {**OCTETS, "Foldaway-Number": new_number().hex()}
    return server.ask("POST", f"/v1/trials/{plan.name}/tallies", token, content=body, headers=said).status_code == 200


def rows_left(server: Served, requests: int, rng: random.Random) -> int:
    """Producers in the database after so many refused requests, each under another name."""
    trial = Trial(server, f"rows-{rng.getrandbits(40)}")
    path = f"/v1/trials/{trial.name}/records"
    faults: list[dict[str, Any]] = [
        {"content": b"no json", "headers": JSON},
        {"json": [{"group": "no arm", "y": 1.0}]},
        {"content": b"x", "headers": {"Content-Type": "text/plain"}},
        {"json": [{"group": "a", "y": 1.0}], "headers": {"Foldaway-Sequence": "7"}},
    ]
    for i in range(requests):
        fault = faults[i % len(faults)]
        numbers = {"Foldaway-Producer": f"p{i}", "Foldaway-Sequence": "1"}
        request = {**fault, "headers": {**numbers, **fault.get("headers", {})}}
        assert server.ask("POST", path, trial.attacker, **request).status_code >= 400
    with sqlite3.connect(server.data / "foldaway.db") as database:
        query = "select count(*) from foldaway_sequences where trial = ?"
        return int(database.execute(query, [trial.name]).fetchone()[0])


def other_arms(server: Served, rounds: int, rng: random.Random) -> Score:
    """Reports that are taken in another arm than their number was enrolled for, at once or after a second enrolment."""
    trial = Trial(server, f"arms-{rng.getrandbits(40)}", federated="delta")
    path, taken = f"/v1/trials/{trial.name}", 0
    for i in range(rounds):
        number = new_number()
        for arm in "ab"[: 1 + i % 2]:
            body = encoded(Enrolment(number, arm))
            server.ask("POST", f"{path}/enrolments", trial.attacker, content=body, headers=MESSAGE)
        report = encoded(DeviceSums(number, "b", 1, packed(np.ones(1))))
        answer = server.ask("POST", f"{path}/reports", trial.attacker, content=report, headers=MESSAGE)
        taken += answer.status_code == 200
    return Score(taken, rounds)


def heads(trial: Trial) -> dict[str, str]:
    """Heads of a request for a trial's plan or with a record, by what is wrong with them."""
    own, none = f"Authorization: Bearer {trial.attacker}", "Authorization: Bearer nobody"
    get = f"GET /v1/trials/{trial.name}/plan HTTP/1.1\r\nHost: x\r\n"
    post = f"POST /v1/trials/{trial.name}/records HTTP/1.1\r\nHost: x\r\n{own}\r\nContent-Type: application/json\r\n"
    return {
        "two tokens": f"{get}{own}\r\n{none}\r\n",
        "two tokens, the other first": f"{get}{none}\r\n{own}\r\n",
        "two media types": f"{post}Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n",
        "two producers": f"{post}Foldaway-Producer: a\r\nFoldaway-Producer: b\r\nFoldaway-Sequence: 1\r\n"
        "Transfer-Encoding: chunked\r\n",
        "HTTP/2.0": f"{get.replace('HTTP/1.1', 'HTTP/2.0')}{own}\r\n",
        "HTTP/1.7": f"{get.replace('HTTP/1.1', 'HTTP/1.7')}{own}\r\n",
        "a folded length": f"{post}Transfer-Encoding:\r\n chunked\r\n",
        "another folded length": f"{post}Transfer-Encoding: chunked\r\nX-A: b\r\n\tTransfer-Encoding: identity\r\n",
        "a folded token": f"{get}Authorization:\r\n Bearer {trial.attacker}\r\n",
    }


def heads_taken(server: Served, rng: random.Random) -> dict[str, int]:
    """The status of each of these requests."""
    trial = Trial(server, f"heads-{rng.getrandbits(40)}")
    body = json.dumps([{"group": "a", "y": 1.0}])
    chunks = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    found = {}
    for what, head in heads(trial).items():
        with socket.create_connection(("127.0.0.1", server.port), 30) as line:
            line.sendall(f"{head}\r\n{chunks if head.startswith('POST') else ''}".encode())
            found[what] = int(line.recv(65_536).split()[1])
    return found


# The table.

WATCHING: dict[str, Attack] = {
    "an ingest token: was there another record, from one's own receipts": own_receipts,
    "an ingest token: was it this person": this_person,
    "a device's token: was there another report": own_reports,
    "a read token: was there a record, from the status": status_of_readers,
    "a metrics token: was there a record": metrics,
    "a read token: times of answers finer than a second": finest_time,
}


def _of(score: Score) -> str:
    return f"{score.right} of {score.of}"


def watched(server: Served, rounds: int, wait: float, rng: random.Random) -> list[str]:
    """The figures of those who watch."""
    return [_of(attack(server, 5 if attack is finest_time else rounds, wait, rng)) for attack in WATCHING.values()]


def others(server: Served, rounds: int, rng: random.Random) -> list[list[str]]:
    """The figures of the rest."""
    taken = heads_taken(server, rng)
    return [
        ["12 bodies of blank lines: seconds that another trial waits", f"{longest_wait(server, blank(), 12, rng):.2f}"],
        ["12 bodies of numbers as text: the same", f"{longest_wait(server, texts(), 12, rng):.2f}"],
        ["a device's token sends tallies of a million units", str(sites_taken(server, "ingest", 10**6, rng))],
        ["a site's token for 1,000 units sends tallies of a million", str(sites_taken(server, "site", 10**6, rng))],
        ["the same of 500 units with 10 million records each", str(sites_taken(server, "site", 160, rng, 10**7))],
        ["producers left by refused requests", f"{rows_left(server, 10 * rounds, rng)} of {10 * rounds}"],
        ["reports taken in another arm", _of(other_arms(server, rounds, rng))],
        ["heads taken that can be read in two ways", f"{sum(s < 400 for s in taken.values())} of {len(taken)}"],
    ]


def findings(rounds: int, seed: int) -> Findings:
    """The table and what it says."""
    with tempfile.TemporaryDirectory() as folder, Nursery() as nursery:
        with Served(Path(folder) / "off", nursery, "--quiet") as server:
            off = watched(server, rounds, 0.2, random.Random(seed))
        with Served(Path(folder) / "on", nursery, "--quiet", tick=TICK) as server:
            on = watched(server, rounds, LOOKS * TICK, random.Random(seed))
            rest = others(server, rounds, random.Random(seed))
    rows = [[what, *figures] for what, *figures in zip(WATCHING, off, on, strict=True)]
    return Findings(
        "What a server gives to those who hold a token",
        f"""Attacks on a running server, over HTTP, each {rounds} times. An attacker sends all units of a cohort of
        {COHORT} but one, or only reads, and says whether one record of somebody else has come, which is so in half
        of the cases. “Off” is a server with `--tick 0`, which stores and shows everything at once; “on” has ticks of
        {TICK:g} s, and the attacker watches for {LOOKS:g} of them.

        The second table needs no such pair: it shows what the same attacks get from a server as it is.""",
        ["who watches for what", "right: off", "on"],
        rows,
        """Without ticks, whoever watches is nearly always right. With them, it is guessing: a write comes a random
        number of records after its cohort, so that one record more changes the odds of a write by about one in a
        hundred.""",
        details="## Bodies, sites and requests\n\n" + markdown_table(["attack", "figure"], rest, 1),
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, rounds=40, seed=1)
    publish(findings(options.rounds, options.seed), NAME, options)

"""The addresses of federated trials over HTTP, and the commands that end one, on a real server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import msgspec
import pytest

from clustered import Kept, devices_of, federated, moments, reply, report
from commands import foldaway
from foldaway.federated.messages import (
    MEDIA_TYPE,
    DeviceMoments,
    Enrolment,
    PublishedCoefficients,
    ScoreReply,
    decoded,
    encoded,
    new_number,
    packed,
)
from foldaway.federated.modes import most_bytes
from served import Served
from servers import Nursery
from sizes import mostly_slow
from trials import make_trial


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("devices"), served_from, measured=True) as server:
        yield server


class Hosted:
    """A federated trial on the server, and its devices' records."""

    def __init__(self, server: Served, name: str, mode: str, **settings: Any) -> None:
        plan, rows = make_trial(5, n=160, units=True, covariates=0 if mode == "delta" else 1)
        self.server = server
        self.plan = federated(plan, mode, name=name, cohort=5, smallest_cell=2, **settings)
        answer = server.ask(
            "POST", "/v1/trials", content=self.plan.to_json(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 201, answer.text
        self.tokens: dict[str, str] = answer.json()
        self.kept: list[Kept] = devices_of(self.plan, rows)
        self.numbers = [new_number() for _ in self.kept]

    def post(self, kind: str, body: bytes, media_type: str = MEDIA_TYPE, **headers: str) -> httpx.Response:
        said = {"Content-Type": media_type, **headers}
        path = f"/v1/trials/{self.plan.name}/{kind}"
        token = self.server.admin if kind == "tallies" else self.tokens["ingest_token"]
        return self.server.ask("POST", path, token, content=body, headers=said)

    def enrol(self) -> None:
        for number, kept in zip(self.numbers, self.kept, strict=True):
            answer = self.post("enrolments", encoded(Enrolment(number, kept.arm)))
            assert answer.json() == {"repeated": False, "durable": True}

    def foldaway(self, *words: str, code: int = 0) -> str:
        """What a command about the trial says, as a person reads it or, if it fails, as a script does."""
        environment = {"FOLDAWAY_SERVER": self.server.url, "FOLDAWAY_TOKEN": self.server.admin}
        command = [words[0]] if words[0] in ("end", "effects") else ["trial", words[0]]
        done = foldaway(*command, self.plan.name, *words[1:], env=environment, code=code)
        if code:
            return done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80 or "--json" in words
        return done.stdout


def test_a_life_in_mode_scores(server: Served) -> None:
    trial = Hosted(server, "replies", "scores")
    trial.enrol()
    assert server.ask("GET", "/v1/trials/replies/coefficients", trial.tokens["ingest_token"]).status_code == 425
    for kept in trial.kept:
        assert trial.post("moments", encoded(moments(kept))).status_code == 200
    closing = server.ask("POST", "/v1/trials/replies/end", json={"deadline": 500, "share": 1}).json()
    assert closing["final"] is False
    assert closing["effects"] is None
    assert closing["federated"]["stage"] == "replying"
    published = server.ask("GET", "/v1/trials/replies/coefficients", trial.tokens["ingest_token"])
    assert published.headers["Content-Type"].startswith(MEDIA_TYPE)
    coefficients = decoded(published.content, PublishedCoefficients)
    for number, kept in list(zip(trial.numbers, trial.kept, strict=True))[1:]:
        scores = reply(trial.plan, coefficients, kept.arm, kept.rows)
        assert trial.post("reports", encoded(ScoreReply(number, kept.arm, packed(scores)))).status_code == 200
    status = trial.foldaway("status")
    assert re.search(r"^replies  replying ", status, re.MULTILINE)
    until = re.search(r"replying until (.+)", status)
    assert until is not None
    deadline = datetime.fromisoformat(until[1])
    assert deadline.tzinfo is not None
    assert 0 < deadline.timestamp() - time.time() < 500
    assert columns(status) == ["enrolled", "with moments", "replied", "not yet"]
    told = trial.foldaway("end", "--yes", "--deadline", "0")
    assert told.startswith("replies has ended; these effects are final.\n\n")
    assert trial.foldaway("end", "--yes") == told
    assert "Integrity: some missing" in told
    assert "missing at random" in " ".join(told.split())
    status = trial.foldaway("status")
    assert re.search(r"^replies  ended ", status, re.MULTILINE)
    assert columns(status) == ["enrolled", "replied", "missing"]
    final = json.loads(trial.foldaway("end", "--yes", "--json"))
    assert final["federated"]["integrity"]["verdict"] == "some missing"
    assert sum(final["federated"]["missing"].values()) == 1


def columns(status: str) -> list[str]:
    """The headings of the table of arms."""
    (header,) = (line for line in status.splitlines() if line.startswith("arm "))
    return re.split(r"\s{2,}", header)[1:]


@pytest.mark.parametrize("mode", mostly_slow(["one-message", "scores", "delta", "sums"], "one-message", "scores"))
def test_while_a_trial_is_open_nobody_is_missing_and_what_is_pending_is_said(server: Served, mode: str) -> None:
    trial = Hosted(server, f"open-{mode}", mode)
    trial.enrol()
    scores = mode == "scores"
    for number, kept in list(zip(trial.numbers, trial.kept, strict=True))[:3]:
        message = moments(kept) if scores else msgspec.structs.replace(report(trial.plan, kept), number=number)
        assert trial.post("moments" if scores else "reports", encoded(message)).status_code == 200
    status = trial.foldaway("status")
    assert re.search(rf"open-{mode}\s+open\s+0\s+5\s+0\n", status)
    assert "records  cohort  left out at end" in status
    assert columns(status) == ["enrolled", *(["with moments", "replied"] if scores else ["reported"]), "not yet"]
    assert "Counts of devices are rounded too, unless you have an admin token." in " ".join(status.split())
    assert f"{'Messages with moments' if scores else 'Reports'} that wait for their cohort" in status
    assert ("asked for replies at its end" in " ".join(status.split())) is scores
    assert json.loads(trial.foldaway("status", "--json"))["status"] == "open"


def test_refusals(server: Served) -> None:
    trial = Hosted(server, "refusals", "one-message")
    number, kept = trial.numbers[0], trial.kept[0]
    enrolment, message = encoded(Enrolment(number, kept.arm)), report(trial.plan, kept)
    assert isinstance(message, DeviceMoments)
    own = encoded(DeviceMoments(number, message.arm, message.n, message.factor))
    assert trial.post("reports", own).status_code == 404
    assert trial.post("enrolments", enrolment).json() == {"repeated": False, "durable": True}
    assert trial.post("enrolments", enrolment).json() == {"repeated": True, "durable": True}
    assert trial.post("enrolments", enrolment, "application/octet-stream").status_code == 415
    assert trial.post("enrolments", bytes(most_bytes(trial.plan) + 1)).status_code == 422
    assert trial.post("enrolments", b"").status_code == 422
    assert trial.post("enrolments", encoded(Enrolment(new_number(), "nobody"))).status_code == 422
    assert trial.post("moments", own).status_code == 422
    assert trial.post("reports", own[:-1]).status_code == 422
    assert (
        trial.post("reports", encoded(DeviceMoments(number, kept.arm, message.n + 1, message.factor))).status_code
        == 422
    )
    assert trial.post("reports", own).json() == {"repeated": False, "durable": False}
    assert trial.post("reports", own).json() == {"repeated": True, "durable": False}
    assert server.ask("GET", "/v1/trials/refusals/coefficients", trial.tokens["ingest_token"]).status_code == 409
    octets = "application/octet-stream"
    assert trial.post("tallies", b"", octets, **{"Foldaway-Number": "0" * 32}).status_code == 422
    assert trial.post("tallies", b"", octets).status_code == 400
    assert trial.post("tallies", b"", octets, **{"Foldaway-Number": "x" * 32}).status_code == 400
    records = server.ask("POST", "/v1/trials/refusals/records", trial.tokens["ingest_token"], json=[])
    assert records.status_code == 409
    assert "stay on its devices" in records.json()["detail"]
    faulty: list[Any] = [{"deadline": -1}, {"share": 0}, {"share": 2}, {"until": 5}, []]
    for wanted in faulty:
        assert server.ask("POST", "/v1/trials/refusals/end", json=wanted).status_code == 400
    assert server.ask("POST", "/v1/trials/refusals/end", content=b"x").status_code == 415
    status = server.ask("GET", "/v1/trials/refusals", trial.tokens["read_token"]).json()
    (listed,) = server.ask("GET", "/v1/trials", trial.tokens["read_token"]).json()
    exact = server.ask("GET", "/v1/trials/refusals").json()["federated"]
    assert exact["enrolled"][kept.arm] == exact["missing"][kept.arm] == 1
    for rounded in (status["federated"], listed["federated"]):  # not for others: who joins last, and in which arm
        assert rounded["enrolled"][kept.arm] == rounded["missing"][kept.arm] == 2
    metrics = server.ask("GET", "/metrics").text
    assert 'foldaway_messages_received_total{kind="enrolments"}' in metrics


def test_a_plain_trial_takes_no_messages(server: Served) -> None:
    tokens = server.create("plain")
    answer = server.ask(
        "POST", "/v1/trials/plain/enrolments", tokens["ingest_token"], content=b"", headers={"Content-Type": MEDIA_TYPE}
    )
    assert answer.status_code == 409
    assert "takes records" in answer.json()["detail"]
    assert server.ask("GET", "/v1/trials/plain", tokens["read_token"]).json()["federated"] is None


def test_ended_without_enough_devices(server: Served) -> None:
    trial = Hosted(server, "few", "delta")
    refused = server.ask("POST", "/v1/trials/few/end", json={"deadline": 600})
    assert refused.status_code == 409
    assert "effects would be withheld: every arm needs durable reports of" in refused.json()["detail"]
    assert trial.foldaway("status").count("open") >= 1
    assert "every arm needs durable reports" in trial.foldaway("end", "--yes", "--without-effects")


def test_a_deadline_that_too_few_have_kept(server: Served) -> None:
    """The command waits for the deadline, then says that the trial waits on, and how to go on from there."""
    trial = Hosted(server, "late", "delta")
    trial.enrol()
    told = trial.foldaway("end", "--yes", "--deadline", "1", code=1)
    assert "waits on, though its deadline is over" in told
    assert f"reports of 2 devices (the plan's smallest_cell), and {next(iter(trial.plan.arms))} has 0." in told
    status = " ".join(trial.foldaway("status").split())
    assert "replying" in status
    assert "The trial waits on, though its deadline is over" in status
    assert "--share is above 0" in trial.foldaway("end", "--yes", "--share", "0", code=1)
    more = server.ask("POST", "/v1/trials/late/end", json={"deadline": 600})
    assert (more.status_code, more.json()["final"]) == (200, False)
    for number, kept in zip(trial.numbers, trial.kept, strict=True):
        message = msgspec.structs.replace(report(trial.plan, kept), number=number)
        assert trial.post("reports", encoded(message)).status_code == 200
    assert "these effects are final" in trial.foldaway("end", "--yes")

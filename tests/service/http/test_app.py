"""The HTTP interface of a running server: every address, every refusal, and what is said about them."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pytest

import foldaway as fa
from served import PLAN, Served, eventually, rows
from servers import Nursery

SECRET = "SECRET-27182"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("http"), served_from, "--max-body", 1, measured=True) as server:
        yield server


@pytest.fixture(scope="module")
def trial(server: Served) -> dict[str, str]:
    """A trial of the team red with records enough for effects."""
    red = server.ask("POST", "/v1/tokens", json={"scope": "team", "team": "red"}).json()["token"]
    made = {**server.create("known", red), "red": red}
    answer = server.ask("POST", "/v1/trials/known/records", made["ingest_token"], json=rows(40))
    assert answer.json()["folded"] == 40
    return made


@pytest.fixture(scope="module")
def tokens(server: Served, trial: dict[str, str]) -> dict[str, str]:
    other = server.create("other")
    revoked = server.ask("POST", "/v1/tokens", json={"scope": "admin"}).json()
    assert server.ask("DELETE", f"/v1/tokens/{revoked['id']}").status_code == 204
    right = trial["read_token"]
    return {
        "admin": server.admin,
        "ingest": trial["ingest_token"],
        "read": trial["read_token"],
        "site": server.ask("POST", "/v1/tokens", json={"scope": "site", "trial": "known", "units": 9}).json()["token"],
        "invite": server.ask("POST", "/v1/tokens", json={"scope": "invite", "trial": "known"}).json()["token"],
        "red": trial["red"],
        "blue": server.ask("POST", "/v1/tokens", json={"scope": "team", "team": "blue"}).json()["token"],
        "other ingest": other["ingest_token"],
        "other read": other["read_token"],
        "revoked": revoked["token"],
        "none": "",
        "no token": SECRET,
        "wrong secret": right[:-4] + ("aaaa" if right[-4:] != "aaaa" else "bbbb"),
        "unknown id": f"fa_{'0' * 16}_{'A' * 43}",
    }


def check_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"].endswith((".", "counted."))
    assert SECRET not in answer.text + str(answer.headers)
    return problem


def test_a_token_that_was_just_used_is_revoked_at_once(server: Served) -> None:
    server.create("withdrawn")
    issued = server.ask("POST", "/v1/tokens", json={"scope": "read", "trial": "withdrawn"}).json()
    for _ in range(2):
        assert server.ask("GET", "/v1/trials/withdrawn", issued["token"]).status_code == 200
    assert server.ask("DELETE", f"/v1/tokens/{issued['id']}").status_code == 204
    assert server.ask("GET", "/v1/trials/withdrawn", issued["token"]).status_code == 401


NOBODY = ["none", "no token", "wrong secret", "unknown id", "revoked"]
ROUTES = {
    ("GET", "/v1/trials"): ["admin", "read", "other read", "red", "blue"],
    ("POST", "/v1/trials"): ["admin", "red", "blue"],
    ("GET", "/v1/trials/known"): ["admin", "read", "red"],
    ("GET", "/v1/trials/known/plan"): ["admin", "ingest", "read", "site", "red"],
    ("GET", "/v1/trials/known/effects"): ["admin", "read", "red"],
    ("GET", "/v1/trials/known/effects/exact"): ["admin"],
    ("GET", "/v1/trials/known/report/exact"): ["admin"],
    ("GET", "/v1/trials/known/report"): ["admin", "read", "red"],
    ("GET", "/v1/trials/known/history"): ["admin", "read", "red"],
    ("GET", "/v1/trials/known/outlook"): ["admin", "read", "red"],
    ("GET", "/v1/trials/known/certificate"): ["admin", "read", "red"],
    ("POST", "/v1/trials/known/end"): ["admin", "red"],
    ("DELETE", "/v1/trials/known"): ["admin", "red"],
    ("POST", "/v1/trials/known/records"): ["admin", "ingest"],
    ("GET", "/v1/trials/known/producers/me"): ["admin", "ingest"],
    ("POST", "/v1/trials/known/enrolments"): ["admin", "ingest"],
    ("POST", "/v1/trials/known/moments"): ["admin", "ingest"],
    ("POST", "/v1/trials/known/reports"): ["admin", "ingest"],
    ("POST", "/v1/trials/known/withdrawals"): ["admin", "ingest"],
    ("GET", "/v1/trials/known/coefficients"): ["admin", "ingest"],
    ("POST", "/v1/trials/known/tallies"): ["admin", "site"],
    ("POST", "/v1/trials/known/invitations"): ["admin", "invite", "red"],
    ("GET", "/v1/tokens/own"): ["admin", "read", "other read", "red", "blue"],
    ("POST", "/v1/tokens"): ["admin", "red", "blue"],
    ("GET", "/v1/tokens"): ["admin", "red", "blue"],
    ("DELETE", "/v1/tokens/0123456789abcdef"): ["admin", "red", "blue"],
}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_who_may_ask_what(server: Served, tokens: dict[str, str], method: str, path: str) -> None:
    allowed = ROUTES[method, path]
    for who, token in tokens.items():
        if who in allowed:
            if not path.endswith("/end") and (method, path) != ("DELETE", "/v1/trials/known"):
                answer = server.ask(method, path, token)
                assert answer.status_code not in (401, 403), who
        elif who in NOBODY:
            answer = server.ask(method, path, token, content=SECRET)
            check_problem(answer, 401)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "Foldaway-Fingerprint" not in answer.headers
        else:
            answer = server.ask(method, path, token, content=SECRET)
            check_problem(answer, 404 if who == "blue" and "known" in path else 403)
            assert "Foldaway-Fingerprint" not in answer.headers


def test_a_refusal_names_the_right_token_and_is_the_same_where_there_is_no_trial(
    server: Served, tokens: dict[str, str]
) -> None:
    def said(path: str, who: str) -> str:
        return str(server.ask("GET", path, tokens[who]).json()["detail"])

    sent = "you sent an ingest token for known."
    assert said("/v1/trials/known/effects", "ingest") == f"this needs a read token for known; {sent}"
    assert said("/v1/tokens", "ingest") == f"this needs an admin token or a team's; {sent}"
    for who in (*NOBODY, "other read", "blue"):
        there, absent = (said(f"/v1/trials/{name}/effects", who) for name in ("known", "absent"))
        assert there == absent.replace("absent", "known")
    assert "an admin token was sent, which was revoked" in said("/v1/trials", "revoked")


def test_a_team_sees_nothing_of_another(server: Served, tokens: dict[str, str]) -> None:
    red, blue = tokens["red"], tokens["blue"]

    def trials(token: str) -> set[tuple[str, str]]:
        return {(row["name"], row["team"]) for row in server.ask("GET", "/v1/trials", token).json()}

    assert (trials(red), trials(blue)) == ({("known", "red")}, set())
    for plan in ({**PLAN, "name": "known"}, {**PLAN, "name": "known", "outcomes": ["z"]}):
        refused = check_problem(server.ask("POST", "/v1/trials", blue, json=plan), 409)
        assert refused["detail"].startswith("the name 'known' is taken on this server, by a trial that is not your")
    own = server.ask("POST", "/v1/tokens", red, json={"scope": "read", "trial": "known", "label": "wall"}).json()
    assert server.ask("GET", "/v1/trials/known", own["token"]).status_code == 200
    for wanted, status in (({"scope": "read", "trial": "known"}, 404), ({"scope": "team", "team": "blue"}, 403)):
        check_problem(server.ask("POST", "/v1/tokens", blue, json=wanted), status)
    assert server.ask("GET", "/v1/tokens", blue).json() == []
    rows = {row["id"]: row for row in server.ask("GET", "/v1/tokens", red).json()}
    assert {row["trial"] for row in rows.values()} == {"known"}
    assert rows[own["id"]]["label"] == "wall"
    check_problem(server.ask("DELETE", f"/v1/tokens/{own['id']}", blue), 404)
    check_problem(server.ask("POST", "/v1/trials/known/end", red, json={"exact": True}), 403)
    assert server.ask("DELETE", f"/v1/tokens/{own['id']}", red).status_code == 204


def test_a_removed_trial_is_gone_with_its_tokens_and_its_name_stays_taken(
    server: Served, tokens: dict[str, str]
) -> None:
    made = server.create("passing", tokens["red"])
    server.ask("POST", "/v1/trials/passing/records", made["ingest_token"], json=rows(40))
    check_problem(server.ask("DELETE", "/v1/trials/passing", tokens["red"]), 409)
    assert server.ask("POST", "/v1/trials/passing/end", tokens["red"]).status_code == 200
    assert server.ask("DELETE", "/v1/trials/passing", tokens["red"]).status_code == 204
    for token in ("red", "admin"):
        check_problem(server.ask("GET", "/v1/trials/passing", tokens[token]), 404)
        assert "passing" not in {row["name"] for row in server.ask("GET", "/v1/trials", tokens[token]).json()}
        for plan in ({**PLAN, "name": "passing"}, {**PLAN, "name": "passing", "outcomes": ["z"]}):
            refused = check_problem(server.ask("POST", "/v1/trials", tokens[token], json=plan), 409)
            assert "was removed" in refused["detail"]
    assert "passing" not in {row["trial"] for row in server.ask("GET", "/v1/tokens").json()}
    for method, path, token in (("GET", "", "read_token"), ("POST", "/records", "ingest_token")):
        eventually(lambda: server.ask(method, f"/v1/trials/passing{path}", made[token], json=[]).status_code == 401)  # noqa: B023


def test_the_last_use_is_a_day_and_no_receipt(server: Served, tokens: dict[str, str]) -> None:
    server.ask("POST", "/v1/trials/known/records", tokens["ingest"], json=rows(10))
    server.ask("GET", "/v1/trials/known", tokens["read"])
    used = {row["id"]: row["used"] for row in server.ask("GET", "/v1/tokens").json()}
    assert used[tokens["ingest"].split("_")[1]] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", used[tokens["read"].split("_")[1]])


def test_every_documented_address_is_in_the_list_above(server: Served) -> None:
    document = server.ask("GET", "/schema/openapi.json", "").json()
    found = {(method.upper(), path) for path, ways in document["paths"].items() for method in ways}
    listed = {
        (
            method,
            re.sub(r"/0123456789abcdef$", "/{id}", re.sub(r"/me$", "/{producer}", path.replace("known", "{name}"))),
        )
        for method, path in ROUTES
    }
    assert found == listed | {("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics")}
    for method, path in listed:
        assert document["paths"][path][method.lower()]["security"] == [{"token": []}]


@pytest.mark.parametrize(
    "authorization",
    [b"Basic YTpi", b"Bearer", b"bearer", b"Bearer \xff\xfe", b"Bearer " + b"x" * 5000, b"\xc3\xa4"],
)
def test_strange_credentials_are_none(server: Served, authorization: bytes) -> None:
    with server.http("") as http:
        check_problem(http.get("/v1/trials", headers={b"Authorization": authorization}), 401)


def test_the_scheme_is_read_as_the_standard_has_it(server: Served) -> None:
    with server.http("") as http:
        assert http.get("/v1/trials", headers={"Authorization": f"bearer  {server.admin}"}).status_code == 200


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "known" in route[1]])
@pytest.mark.parametrize("name", ["unknown", f"..{SECRET}", "%00", "%F0%9F%98%80", "a" * 101, f"{SECRET} x"])
def test_an_unknown_trial(server: Served, method: str, path: str, name: str) -> None:
    check_problem(server.ask(method, path.replace("known", name), content=SECRET), 404)


def test_a_refused_method_names_those_that_the_address_takes(server: Served) -> None:
    refused = server.ask("PUT", "/v1/trials", content=SECRET)
    assert check_problem(refused, 405)["detail"] == "This address does not take PUT; it takes GET and POST."


def test_a_life_and_its_fingerprint(server: Served) -> None:
    created = server.ask("POST", "/v1/trials", json={**PLAN, "name": "life"})
    fingerprint = created.json()["fingerprint"]
    ingest, read = created.json()["ingest_token"], created.json()["read_token"]
    records = "/v1/trials/life/records"
    numbered = {"Foldaway-Producer": "me", "Foldaway-Sequence": "1"}
    early = server.ask("GET", "/v1/trials/life/effects", read)
    assert "2 units in every arm" in check_problem(early, 425)["detail"]
    answers = [
        created,
        server.ask("POST", records, ingest, json=rows(4), headers=numbered),
        server.ask("POST", records, ingest, json=rows(30, 4)),
        server.ask("GET", "/v1/trials/life/producers/me", ingest),
        server.ask("GET", "/v1/trials/life", read),
        eventually(lambda: told if (told := server.ask("GET", "/v1/trials/life/effects", read)).is_success else None),
        server.ask("POST", records, ingest, json=rows(3)),
        server.ask("POST", "/v1/trials/life/end"),
        server.ask("GET", "/v1/trials/life/effects", read),
    ]
    assert [answer.status_code for answer in answers] == [201, *[200] * 5, 202, 200, 200]
    assert all(answer.json()["fingerprint"] == fingerprint for answer in answers)
    refusals = [
        early,
        server.ask("POST", records, ingest, json=rows(3)),
        server.ask("POST", records, ingest, content=b"", headers={"Content-Type": "application/json"}),
        server.ask("POST", records, ingest, content=SECRET, headers={"Content-Type": "text/plain"}),
    ]
    assert [answer.status_code for answer in refusals] == [425, 410, 400, 415]
    plan = server.ask("GET", "/v1/trials/life/plan", read)
    for answer in [*answers, *refusals, plan]:
        assert answer.headers["Foldaway-Fingerprint"] == fingerprint
    first, second, progress, status, effects, _, closed, final = (answer.json() for answer in answers[1:])
    assert (first["folded"], first["durable"], first["pending"]) == (4, 0, True)
    assert (second["folded"], second["durable"], second["pending"]) == (30, None, False)
    assert progress["durable"] == 1
    assert (status["records"], status["status"]) == (34, "open")
    assert (effects["records"], effects["final"]) == (34, False)
    assert (closed["records"], closed["left_out"], closed["final"]) == (34, 4, True)  # three came later
    assert closed["effects"]["effects"] == effects["effects"]["effects"]  # three more are too few to tell anything new
    assert closed == final
    assert "ended" in refusals[1].json()["detail"]
    listed = {row["name"]: row for row in server.ask("GET", "/v1/trials").json()}
    assert listed["life"]["status"] == "ended"
    assert listed["life"]["fingerprint"] == fingerprint
    assert plan.json()["outcomes"] == ["y"]


def test_the_list_is_of_the_trials_that_a_token_reads(server: Served, tokens: dict[str, str]) -> None:
    def listed(who: str) -> list[str]:
        return [row["name"] for row in server.ask("GET", "/v1/trials", tokens[who]).json()]

    assert {"known", "other"} <= set(listed("admin"))
    assert (listed("read"), listed("other read")) == (["known"], ["other"])
    (alone,) = server.ask("GET", "/v1/trials", tokens["read"]).json()
    by_itself = server.ask("GET", "/v1/trials/known", tokens["read"]).json()
    # The server may note in between that it has renewed an answer.
    assert all(len(each.pop("ledger_head")) == 64 for each in (alone, by_itself))
    assert alone == by_itself


def test_the_status_says_neither_that_records_wait_nor_when_the_last_one_came(server: Served) -> None:
    made = server.create("forgetful")
    before = server.ask("GET", "/v1/trials/forgetful", made["read_token"]).json()
    assert before["forgotten"] is None
    begun = time.time()
    receipt = server.ask("POST", "/v1/trials/forgetful/records", made["ingest_token"], json=rows(4)).json()
    assert (receipt["folded"], receipt["pending"]) == (4, True)
    assert server.ask("GET", "/v1/trials/forgetful", made["read_token"]).json() == before
    server.ask("POST", "/v1/trials/forgetful/records", made["ingest_token"], json=rows(6))
    after = server.ask("GET", "/v1/trials/forgetful", made["read_token"]).json()
    assert begun // 3600 * 3600 <= after["forgotten"] <= time.time()
    assert after["forgotten"] % 3600 == 0


def test_the_course_of_a_trial_and_what_is_asked_of_it(server: Served) -> None:
    made = server.create("course")
    read = made["read_token"]
    path = "/v1/trials/course/history"
    assert server.ask("GET", path, read).json()["points"] == []

    def at(records: int) -> bool:
        points = server.ask("GET", path, read).json()["points"]
        return bool(points) and points[-1]["records"] == records

    for size, whole_size in ((20, 20), (40, 60)):
        server.ask("POST", "/v1/trials/course/records", made["ingest_token"], json=rows(size))
        eventually(partial(at, whole_size))
    whole = server.ask("GET", path, read).json()
    assert (whole["name"], whole["fingerprint"]) == ("course", made["fingerprint"])
    assert [point["records"] for point in whole["points"]] == [20, 60]
    now = server.ask("GET", "/v1/trials/course/effects", read).json()["effects"]["effects"]
    (shown,) = [row for row in now if (row["estimator"], row["se_kind"]) == ("difference", "welch")]
    asked = {"outcome": "y", "arm": "b", "estimator": "difference", "after": 20}
    (point,) = server.ask("GET", path, read, params=asked).json()["points"]
    assert point["effects"] == [{name: shown[name] for name in point["effects"][0]}]
    for after in ("-1", "1e3", SECRET, str(2**53 + 1), "1.5"):
        check_problem(server.ask("GET", path, read, params={"after": after}), 400)
    assert SECRET not in server.ask("GET", path, read, params={"arm": SECRET}).text


def test_the_outlook_follows_from_what_was_told(server: Served) -> None:
    made = server.create("ahead")
    read, path = made["read_token"], "/v1/trials/ahead/outlook"
    check_problem(server.ask("GET", path, read), 425)

    def at(records: int) -> bool:
        answer = server.ask("GET", "/v1/trials/ahead/effects", read)
        return answer.status_code == 200 and bool(answer.json()["records"] == records)

    for size, whole in ((200, 200), (400, 600)):
        server.ask("POST", "/v1/trials/ahead/records", made["ingest_token"], json=rows(size))
        eventually(partial(at, whole))
    told = server.ask("GET", "/v1/trials/ahead/effects", read).json()["effects"]
    points = server.ask("GET", "/v1/trials/ahead/history", read).json()["points"]
    ahead = server.ask("GET", path, read, params={"records": 5_000, "width": 0.1}).json()
    rate = ahead["records_per_day"]
    assert rate == pytest.approx(400 / (points[-1]["time"] - points[0]["time"]) * 86_400)
    effects = fa.Effects.from_json(json.dumps(told))
    same = effects.outlook(records=5_000, width=0.1, records_per_day=rate, sequential=True)
    assert ahead["rows"] == same.to_dict()["rows"]
    assert (ahead["by"], ahead["days"]) == (5_000, pytest.approx((5_000 - 600) / rate))
    for wrong in ({"records": "0"}, {"days": "-1"}, {"width": SECRET}):
        check_problem(server.ask("GET", path, read, params=wrong), 400)
    check_problem(server.ask("GET", path, read, params={"records": 10}), 422)
    server.ask("POST", "/v1/trials/ahead/end")
    check_problem(server.ask("GET", path, read), 410)


def test_a_plan_never_changes(server: Served) -> None:
    first = server.create("fixed")
    again = server.create("fixed")
    assert again["fingerprint"] == first["fingerprint"]
    assert again["ingest_token"] != first["ingest_token"]
    assert server.ask("GET", "/v1/trials/fixed", first["read_token"]).status_code == 200
    other = server.ask("POST", "/v1/trials", json={**PLAN, "name": "fixed", "privacy": {"cohort": 11}})
    assert "another plan" in check_problem(other, 409)["detail"]
    toml = 'name = "fixed"\narm = "group"\noutcomes = ["y"]\n'
    toml += f"arms = {{a = 0.5, b = 0.5}}\n[privacy]\ncohort = {PLAN['privacy']['cohort']}\nsmallest_cell = 2"
    same = server.ask("POST", "/v1/trials", content=toml, headers={"Content-Type": "application/toml; charset=utf-8"})
    assert same.json()["fingerprint"] == first["fingerprint"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 422),
        (SECRET.encode(), "application/json", 422),
        (b"\xff\xfe\x00", "application/toml", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "", 415),
        (b" " * (2**20 + 1), "application/json", 413),
        (json.dumps({**PLAN, "name": f"{SECRET} /"}).encode(), "application/json", 422),
        (json.dumps({**PLAN, "arms": {"a": SECRET}}).encode(), "application/json", 422),
        (b'[{"group": "a", "y": "%s"}]' % SECRET.encode(), "application/json", 422),
        (b"group,y\na,%s" % SECRET.encode(), "application/toml", 422),
        (b"[" * 100_000, "application/json", 422),
        (b"a=" + b"[" * 100_000, "application/toml", 422),
    ],
)
def test_what_is_no_plan(server: Served, body: bytes, kind: str, status: int) -> None:
    check_problem(server.ask("POST", "/v1/trials", content=body, headers={"Content-Type": kind}), status)


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


BODIES = {
    "application/json": json.dumps(rows(12)).encode(),
    "application/x-ndjson": "".join(json.dumps(row) + "\n" for row in rows(12)).encode(),
    ARROW: arrow(pa.Table.from_pylist(rows(12))),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": partial(pa.compress, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("kind", BODIES)
def test_formats_and_encodings(
    server: Served, trial: dict[str, str], tokens: dict[str, str], kind: str, encoding: str
) -> None:
    headers = {"Content-Type": kind, "Content-Encoding": encoding}
    body = PACKED[encoding](BODIES[kind])
    answer = server.ask("POST", "/v1/trials/known/records", tokens["ingest"], content=body, headers=headers)
    assert (answer.status_code, answer.json()["folded"]) == (200, 12)
    in_pieces = (body[i : i + 7] for i in range(0, len(body), 7))
    answer = server.ask("POST", "/v1/trials/known/records", tokens["ingest"], content=in_pieces, headers=headers)
    assert (answer.status_code, answer.json()["folded"]) == (200, 12)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (SECRET.encode(), {"Content-Type": "application/json"}, 400),
        (SECRET.encode(), {"Content-Type": ARROW}, 400),
        (BODIES[ARROW][:-30], {"Content-Type": ARROW}, 400),
        (b"", {"Content-Type": "application/json"}, 400),
        (SECRET.encode(), {"Content-Type": "application/x-ndjson"}, 422),
        (SECRET.encode(), {"Content-Type": SECRET}, 415),
        (SECRET.encode(), {}, 415),
        (BODIES["application/json"], {"Content-Type": "application/json; charset=latin-1"}, 415),
        (BODIES["application/json"], {"Content-Type": "application/json", "Content-Encoding": SECRET}, 415),
        (SECRET.encode(), {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 400),
        (bytes(2**20 + 1), {"Content-Type": "application/json"}, 413),
        (json.dumps([{"group": SECRET, "y": 1}]).encode(), {"Content-Type": "application/json"}, 422),
        (json.dumps([{"group": "a", "y": SECRET}]).encode(), {"Content-Type": "application/json"}, 422),
        (json.dumps([{SECRET: "a"}]).encode(), {"Content-Type": "application/json"}, 422),
    ],
)
def test_faulty_batches_change_nothing(
    server: Served, tokens: dict[str, str], body: bytes, headers: dict[str, str], status: int
) -> None:
    def status_of() -> dict[str, Any]:
        found: dict[str, Any] = server.ask("GET", "/v1/trials/known", tokens["read"]).json()
        del found["ledger_head"]  # the server may just have told what others have sent before
        return found

    before = status_of()
    answer = server.ask("POST", "/v1/trials/known/records", tokens["ingest"], content=body, headers=headers)
    problem = check_problem(answer, status)
    assert "drop_limit" not in problem["detail"]  # the plan of a registered trial is fixed
    if status == 422 and SECRET.encode() in body and b"group" in body:
        assert sum(count for rules in problem["faults"].values() for count in rules.values()) == 1
    assert status_of() == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Foldaway-Producer": "me"},
        {"Foldaway-Sequence": "1"},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": "0"},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": "-1"},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": "2-1"},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": SECRET},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": "1e3"},
        {"Foldaway-Producer": "me", "Foldaway-Sequence": "9" * 30},
        {"Foldaway-Producer": "", "Foldaway-Sequence": "1"},
        {"Foldaway-Producer": f"a/{SECRET}", "Foldaway-Sequence": "1"},
        {"Foldaway-Producer": "x" * 201, "Foldaway-Sequence": "1"},
    ],
)
def test_producer_and_sequence_come_together_and_are_what_they_should_be(
    server: Served, tokens: dict[str, str], headers: dict[str, str]
) -> None:
    answer = server.ask("POST", "/v1/trials/known/records", tokens["ingest"], json=rows(10), headers=headers)
    check_problem(answer, 400)


def test_numbered_batches(server: Served, tokens: dict[str, str]) -> None:
    def send(sequence: int | str, count: int = 10) -> httpx.Response:
        headers = {"Foldaway-Producer": "counting:1@host+x", "Foldaway-Sequence": str(sequence)}
        return server.ask("POST", "/v1/trials/known/records", tokens["ingest"], json=rows(count), headers=headers)

    gap = check_problem(send(2), 409)
    assert gap["expected"] == 1
    assert [send(1).json()["repeated"], send(1).json()["repeated"], send(2).json()["repeated"]] == [False, True, False]
    assert send(1, 11).json()["durable"] == 2
    assert check_problem(send("2-11"), 409)["expected"] == 3  # a part of it is there already
    assert (send("3-12").json()["durable"], send("4-10").json()["repeated"]) == (12, True)
    path = "/v1/trials/known/producers/counting:1@host+x"
    assert server.ask("GET", path, tokens["ingest"]).json()["durable"] == 12
    check_problem(server.ask("GET", f"/v1/trials/known/producers/{SECRET}%20x", tokens["ingest"]), 400)


def test_tokens(server: Served, tokens: dict[str, str]) -> None:
    issued = server.ask("POST", "/v1/tokens", json={"scope": "read", "trial": "known"})
    assert issued.status_code == 201
    made = issued.json()
    assert server.ask("GET", "/v1/trials/known", made["token"]).status_code == 200
    listed = server.ask("GET", "/v1/tokens")
    row = next(row for row in listed.json() if row["id"] == made["id"])
    assert (row["scope"], row["trial"], row["status"]) == ("read", "known", "valid")
    assert not any(token.split("_", 2)[2] in listed.text for token in tokens.values() if token.startswith("fa_"))
    assert server.ask("DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    check_problem(server.ask("GET", "/v1/trials/known", made["token"]), 401)
    check_problem(server.ask("DELETE", "/v1/tokens/0123456789abcdef"), 404)
    check_problem(server.ask("DELETE", f"/v1/tokens/{SECRET}"), 404)
    check_problem(server.ask("POST", "/v1/tokens", json={"scope": "read", "trial": SECRET}), 404)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"scope": SECRET}, 400),
        ({"scope": "read"}, 400),
        ({"scope": "admin", "trial": "known"}, 400),
        ({"scope": "admin", SECRET: 1}, 400),
        ({"scope": "team"}, 400),
        ({"scope": "team", "team": "red", "label": ""}, 400),
        ({"scope": "admin", "expires_in": 0}, 400),
        ([SECRET], 400),
        ({"scope": "x" * 5000}, 413),
    ],
)
def test_tokens_that_cannot_be(server: Served, body: Any, status: int) -> None:
    check_problem(server.ask("POST", "/v1/tokens", json=body), status)
    check_problem(server.ask("POST", "/v1/tokens", data={"scope": "admin"}), 415)


def test_addresses_and_methods_that_are_none(server: Served) -> None:
    check_problem(server.ask("GET", f"/{SECRET}"), 404)
    answer = server.ask("PUT", "/v1/trials")
    check_problem(answer, 405)
    assert "POST" in answer.headers["Allow"]
    check_problem(server.ask("PATCH", "/v1/trials"), 405)
    check_problem(server.ask(SECRET, "/v1/trials"), 400)


def test_health_readiness_and_metrics(server: Served, trial: dict[str, str]) -> None:
    assert server.ask("GET", "/health", "").text == "alive"
    assert server.ask("GET", "/ready", "").text == "ready"
    server.ask("GET", f"/{SECRET}?q={SECRET}", SECRET)
    check_problem(server.ask("GET", "/metrics", ""), 401)
    token = server.ask("POST", "/v1/tokens", json={"scope": "metrics"}).json()["token"]
    for elsewhere in ("/v1/trials", "/v1/trials/known", "/v1/tokens"):
        check_problem(server.ask("GET", elsewhere, token), 403)
    answer = server.ask("GET", "/metrics", token)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert re.search(r"^foldaway_records_folded_total \d+", answer.text, re.M)
    assert re.search(r'^foldaway_requests_total\{route="\(none\)",status="404"\} \d+', answer.text, re.M)
    assert SECRET not in answer.text
    assert "known" not in answer.text  # nor the names of trials


def test_the_log_has_every_request_and_nothing_of_it(server: Served, tokens: dict[str, str]) -> None:
    headers = {
        "Content-Type": "application/json",
        "Foldaway-Producer": f"p-{SECRET}",
        "Foldaway-Sequence": "1",
        "User-Agent": SECRET,
        "X-Forwarded-For": SECRET,
        "Cookie": f"a={SECRET}",
    }
    records = f"/v1/trials/known/records?user={SECRET}"
    body = json.dumps([{"group": "a", "y": 1, "id": SECRET}] * 10)
    server.ask("POST", records, tokens["ingest"], content=body, headers=headers)
    server.ask("POST", records, tokens["ingest"], content=SECRET, headers=headers)
    server.ask("POST", records, SECRET, content=SECRET, headers=headers)
    server.ask("SEARCH", f"/{SECRET}?{SECRET}")
    expected = [
        ("POST", "/v1/trials/{name}/records", 200),
        ("POST", "/v1/trials/{name}/records", 400),
        ("POST", "/v1/trials/{name}/records", 401),
        ("(other)", "(none)", 404),
    ]
    eventually(  # an answer may be there before its line
        lambda: [(line["method"], line["route"], line["status"]) for line in server.events("request")[-4:]] == expected
    )
    log = server.log()
    assert SECRET not in log
    assert not any(token.split("_", 2)[2] in log for token in tokens.values() if token.startswith("fa_"))
    assert all(json.loads(line)["time"] for line in log.splitlines())  # nothing but structured lines

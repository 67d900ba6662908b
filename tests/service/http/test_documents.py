"""The OpenAPI document is true: what schemathesis draws from it is answered as it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldaway.federated.coordinator.ending import EndRequest
from served import Served, rows
from servers import Nursery
from sizes import mostly_slow

# A plan or a batch may be all that a schema can ask for and still be faulty, a trial too young or a number out of
# turn; all else that is valid must be taken.
CONFIG = """
headers = {{ Authorization = "Bearer {token}" }}
continue-on-failure = true
seed = 1

[generation]
deterministic = true
max-examples = {examples}
database = "none"
with-security-parameters = true

[checks.positive_data_acceptance]
expected-statuses = ["2xx", 404, 409, 410, 422, 425]

# Bytes may be anything, and the two headers come together, which no schema can say.
[[operations]]
include-path-regex = "^/v1/trials(/.*/records)?$"
include-method = "POST"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404, 409, 410, 422]
"""

# Every address once more with a trial that is there; and with one whose records stay on devices.
KNOWN = """
[parameters]
"path.name" = "{name}"
"""


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("openapi"), served_from, "--patience", 5) as server:
        yield server


def create(server: Served, name: str) -> None:
    """A trial of this name, now: what was there before may have been found, and ended."""
    made = server.create(name, **({"federated": "scores"} if name == "federated" else {}))
    if name == "known":
        path = f"/v1/trials/{name}/records"
        assert server.ask("POST", path, made["ingest_token"], json=rows(40)).status_code == 200


def test_the_page_shows_every_address_of_the_document_and_loads_nothing_from_elsewhere(server: Served) -> None:
    page = server.ask("GET", "/api", "")
    document = server.ask("GET", "/schema/openapi.json", "").json()
    addresses = [f"{how.upper()} {path}" for path, methods in document["paths"].items() for how in methods]
    assert len(addresses) > 20
    assert [each for each in addresses if f"<code>{each}</code>" not in page.text] == []
    assert "Bad request syntax" not in page.text  # the framework's words
    assert all(f"`{field}`" in page.text for field in EndRequest.__struct_fields__)
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert re.findall(r'(?:src|href)="([^"]+)"', page.text) == [
        "dashboard/icon.svg",
        "dashboard/style.css",
        "dashboard/api.css",
        "schema/openapi.json",
    ]
    assert not re.search(r"<script|style=|https?://", page.text)


@pytest.mark.parametrize(
    ("known", "least"), mostly_slow([(None, 250), ("known", 150), ("federated", 150)], ("known", 150))
)
def test_what_is_drawn_from_the_document_is_answered_as_it_says(
    server: Served, tmp_path: Path, known: str | None, least: int
) -> None:
    if known:
        create(server, known)
    config = tmp_path / "schemathesis.toml"
    settings = CONFIG.format(token=server.admin, examples=8)
    config.write_text(settings + (KNOWN.format(name=known) if known else ""))
    words = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    words += [f"{server.url}/schema/openapi.json", "--checks", "all", "--workers", "1", "--no-color"]
    # A trial stays known if it is not ended; and the name that is given here would mend names that are faulty on
    # purpose, which puzzles the check of sequences of requests.
    words += ["--exclude-path-regex", "/end$", "--phases", "coverage,fuzzing"] if known else []
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    cases = re.search(r"([\d,]+) (?:generated|test cases)", done.stdout)
    assert cases is not None, done.stdout
    assert int(cases[1].replace(",", "")) >= least
    assert not any(line["status"] >= 500 for line in server.events("request"))
    assert not server.events("failed")
    assert not any(line["level"] == "error" for line in server.events("library"))


def test_the_whole_document_is_open_and_names_no_trial(server: Served) -> None:
    answer = server.ask("GET", "/schema/openapi.json", "")
    assert answer.status_code == 200
    assert "known" not in json.dumps(answer.json())

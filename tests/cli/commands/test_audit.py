"""`foldaway audit`: a state, two of them, a store and a server's answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.service.database.store import Store
from foldaway.service.keys.vault import Vault
from served import Served, rows

PLAN = fa.Plan(name="bought", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["amount"], unit="who")


def records(n: int, start: int = 0) -> dict[str, object]:
    rng = np.random.default_rng([1, start])
    amount = np.where(rng.random(n) < 0.02, np.round(rng.lognormal(3, 1, n), 2), 0.0)
    return {"arm": rng.choice(["a", "b"], n), "amount": amount, "who": np.arange(start, start + n)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    trial = fa.Trial(PLAN)
    for name, start, n in (("early", 0, 4000), ("late", 4000, 100)):
        trial.fold(records(n, start))
        trial.save(folder / name)
    return folder


def test_a_state_is_attacked_and_the_exit_code_says_whether_somebody_was_found(folder: Path) -> None:
    done = foldaway("audit", "early", folder=folder, code=1)
    assert "records could be solved for by whoever reads these" in done.stdout
    assert "sparse outcomes" in done.stdout
    assert "for 16 groups" in done.stdout
    assert "Traceback" not in done.stderr


def test_two_states_are_also_subtracted(folder: Path) -> None:
    found = json.loads(foldaway("audit", "--json", "early", "late", folder=folder, code=1).stdout)
    assert [each["what"] for each in found] == ["early", "late", "late less the state before it"]
    assert [each["records"] for each in found] == [4000, 4100, 100]
    alone = {each["attack"]: each["exact"] for each in found[2]["findings"]}
    assert alone["cells of one record"] > 40
    assert "Keep one state" in found[2]["findings"][0]["remedy"]


def test_a_state_that_tells_nobody_ends_well(folder: Path) -> None:
    trial = fa.Trial(fa.Plan(name="d", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["amount"]))
    trial.fold(records(1000))
    trial.save(folder / "plain")
    assert "Nobody could be solved for" in foldaway("audit", "plain", folder=folder).stdout


def test_a_store_is_opened_with_its_key_and_every_share_attacked(folder: Path) -> None:
    store = Store.open(folder / "data", Vault.open(folder / "data", None, {}))
    store.create_trial(PLAN, bytes(16))
    trial = fa.Trial(PLAN, key=bytes(16))
    trial.fold(records(2000))
    store.shards.commit("bought", "main", version=0, n=2000, state=trial.dumps(), sequences={"till": (0, 1)})
    store.close()
    (found,) = json.loads(foldaway("audit", "--json", "data", folder=folder, code=1).stdout)
    assert (found["what"], found["records"]) == ("bought, share of main", 2000)
    assert found["solved"] > 10


def test_answers_of_a_server_are_asked_for(server: Served) -> None:
    made = server.create("asked", privacy={"cohort": 20})
    server.ask("POST", "/v1/trials/asked/records", made["ingest_token"], json=rows(100))
    words = ("audit", f"{server.url}/v1/trials/asked", "--token", made["read_token"], "--json")
    (found,) = json.loads(foldaway(*words).stdout)
    assert (found["what"], found["solved"], found["attacks"]) == (
        "asked, answers that were given: 1",
        0,
        ["differencing"],
    )
    assert "v1/trials/NAME" in foldaway("audit", server.url, code=1).stderr

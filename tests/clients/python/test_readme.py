"""What the README of the Python client shows works, with a real server's address and token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import foldaway as fa
from devices import Hosted
from served import Served
from servers import Nursery

README = Path(__file__).parents[3] / "clients/python/README.md"
SHOWN = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_its_snippets_run(
    served_from: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    plan = fa.Plan(
        name="checkout",
        arm="variant",
        arms={"old": 0.5, "new": 0.5},
        outcomes=["revenue"],
        federated="sums",
        privacy=fa.Privacy(cohort=1, smallest_cell=1),  # a server without others' devices to wait for
    )
    with Served(tmp_path / "server", served_from) as server:
        trial = Hosted(server, plan)
        Path("checkout.plan.json").write_bytes(plan.canonical())
        known = f'"{trial.address}", token="{trial.token}"'
        blocks = SHOWN.findall(README.read_text(encoding="utf-8"))
        text, count = re.subn(r'"https://trials\.example/v1/trials/checkout", token="…"', known, "".join(blocks))
        assert count == len(blocks) == 2
        names: dict[str, object] = {}
        exec(compile(text, str(README), "exec"), names)
    assert capsys.readouterr().out.split("\n")[-2] == "counted"
    assert str(names["device"]).startswith("Device: checkout: forgotten")
    assert str(names["offline"]).startswith("Device: checkout: new")

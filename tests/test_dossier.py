"""Papers for the data protection file: every field of a plan is in them, and every open point is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foldaway as fa
from commands import foldaway
from foldaway.dossier import OPEN, dossier
from foldaway.report.page.kept import planned
from foldaway.sources.formats.chunk import wanted_by
from plans import replaced

PLAN = fa.Plan(
    name="wards",
    arm="arm",
    arms={"usual": 0.5, "new": 0.5},
    outcomes=["days|left", fa.Share(column="cost", above=10)],
    covariates=["age", {"column": "sex", "levels": ["f", "m"]}],
    segments=["sex"],
    unit="patient",
    weight="w",
)
DEMO = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])

PLANS = {
    "sums": PLAN,
    "moments": replaced(PLAN, moments={}, segments=[]),
    "strata": replaced(DEMO, strata={"column": "site", "probabilities": {"x": {"a": 0.5, "b": 0.5}}}),
    "federated": replaced(DEMO, federated="delta"),
    "release": replaced(DEMO, outcomes=[fa.Mean("y", bounds=(0, 1))], release=1.0, unit="u", records_per_unit="one"),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_field_and_every_kind_of_kept_number_is_in_it(name: str) -> None:
    plan = PLANS[name]
    papers = dossier(plan, 5_000)
    fields = next(section for section in papers.record_of_processing if section.law == "Art. 30(1)(c)").table
    kept = next(section for section in papers.impact_assessment if section.law == "Art. 35(7)(a)").table
    assert fields is not None
    assert kept is not None
    wanted = wanted_by(plan)
    assert {row[0] for row in fields.rows} == {*wanted.numeric, *wanted.text}
    assert [row[0] for row in kept.rows] == [each[0] for each in planned(plan)]
    laws = [section.law for section in (*papers.record_of_processing, *papers.impact_assessment)]
    assert [law[-2] for law in laws if "30(1)" in law] == list("abcdefg")
    assert [law[-2] for law in laws if "35(7)" in law] == list("abcd")
    assert "ICH E6" in papers.to_markdown()
    assert json.loads(papers.to_json())["fingerprint"] == plan.fingerprint
    columns = {len(line.split("|")) for line in papers.to_markdown().splitlines() if line.startswith("| ")}
    assert columns <= {4, 5}  # no name breaks a table


def test_the_command_writes_both_forms_and_says_what_is_open(tmp_path: Path) -> None:
    PLANS["sums"].save(tmp_path / "plan.toml")
    words = (
        "plan",
        "check",
        "plan.toml",
        "--dossier",
        "plan.dossier.md",
        "--controller",
        "Example Ltd",
        "--purpose",
        "Shorter stays.",
    )
    done = foldaway(*words, "--recipient", "the ward", "--expect", 800, folder=tmp_path)
    assert OPEN in done.stderr
    text = (tmp_path / "plan.dossier.md").read_text()
    for said in ("Example Ltd", "Shorter stays.", "Effects are shown to: the ward.", "for 800 units"):
        assert said in text
    assert json.loads((tmp_path / "plan.dossier.json").read_text())["units"] == 800
    assert "exists; choose another name" in foldaway(*words, folder=tmp_path, code=1).stderr
    assert "name the .md file" in foldaway(*words, "--dossier", "a.json", folder=tmp_path, code=1).stderr

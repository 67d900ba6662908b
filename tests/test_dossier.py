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
from plans import SHARED, replaced

PLAN = fa.Plan(
    name="wards",
    arm="arm",
    arms={"usual": 0.5, "new": 0.5},
    outcomes=["days|left", fa.Share(column="cost", above=10)],
    covariates=["age", {"column": "sex", "levels": ["f", "m"]}],
    segments=["sex"],
    baseline=["sex", "weight"],
    estimand={"population": "adults on the wards"},
    unit="patient",
    weight="w",
)
DEMO = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])

PLANS = {
    "sums": PLAN,
    "moments": replaced(PLAN, moments={}, segments=[]),
    "strata": replaced(DEMO, strata={"column": "site", "probabilities": {"x": {"a": 0.5, "b": 0.5}}}),
    "federated": replaced(DEMO, federated="delta"),
    "shares": fa.Plan(**SHARED),
    "release": replaced(DEMO, outcomes=[fa.Mean("y", bounds=(0, 1))], release=1.0, unit="u", records_per_unit="one"),
}


SITES = {"unit": "patient"}

NOTHING_SENT = "foldaway sends nothing anywhere while it folds records where they are."
BY_KEY = "hashed at once under a secret key, never stored; the key is destroyed at the end"
BY_SITE_KEY = "hashed at once under a random key of the site's own"
SPACED = "A state is stored only after 100 distinct units have come since the last one"
SITE_STORED = "A site's tallies are stored as soon as they come."
DEVICES_STORED = "Devices' messages are stored only when 100 of them have come since the last time."
POOLED = "Before a state is saved, levels are pooled until nobody is."
AUDITED = "`foldaway audit` attacks the tallies"
LEVELS = {"covariates": [{"column": "sex", "levels": ["f", "m"]}]}

DESIGNS: dict[str, tuple[fa.Plan, set[str]]] = {
    "records, or a server": (PLAN, {NOTHING_SENT, BY_KEY, SPACED, AUDITED}),
    "moments": (replaced(DEMO, moments={}, **LEVELS), {NOTHING_SENT, SPACED, POOLED, AUDITED}),
    "whole units": (
        replaced(DEMO, moments={}, unit="patient", records_per_unit="together"),
        {NOTHING_SENT, BY_KEY, SPACED, POOLED, AUDITED},
    ),
    "release": (
        PLANS["release"],
        {NOTHING_SENT, "neither hashed nor stored", SPACED, "once, when the trial ends, and with noise"},
    ),
    "sites, sums": (
        replaced(DEMO, federated="sums", **SITES),
        {
            BY_SITE_KEY,
            SITE_STORED,
            DEVICES_STORED,
            AUDITED,
            "each group of at least 10 units of an arm",
            "its random group",
        },
    ),
    "sites alone": (
        replaced(DEMO, federated="sums", outcomes=[fa.Mean("y", missing="allowed")], **SITES),
        {BY_SITE_KEY, SITE_STORED, AUDITED, "each group of at least 10 units of an arm", "Devices cannot take part."},
    ),
    "sites, one message": (
        replaced(DEMO, federated="one-message", records_per_unit="together", **SITES, **LEVELS),
        {
            *("neither hashed nor stored", SITE_STORED, DEVICES_STORED, AUDITED, "Levels are not pooled"),
            "the second moments of each arm's records, of at least 100 units",
            "once, the number of its records and the triangular factor",
        },
    ),
    "one-message": (
        replaced(DEMO, federated="one-message", **LEVELS),
        {DEVICES_STORED, AUDITED, "Levels are not pooled", "once, the number of its records and the triangular factor"},
    ),
    "scores": (
        replaced(DEMO, federated="scores"),
        {
            *(DEVICES_STORED, AUDITED, "and its scores at the end"),
            *("sends every device coefficients", "and once, when the trial has ended"),
        },
    ),
    "delta": (
        replaced(DEMO, federated="delta"),
        {
            DEVICES_STORED,
            AUDITED,
            "once, the number of its records and the sum of each outcome",
        },
    ),
    "sites with a baseline": (
        replaced(DEMO, federated="sums", unit="patient", baseline=["age"]),
        {
            *(
                BY_SITE_KEY,
                SITE_STORED,
                AUDITED,
                "each group of at least 10 units of an arm",
                "Devices cannot take part.",
            ),
            "It sends, by arm, how many records have each characteristic",
        },
    ),
    "sites with segments": (
        replaced(DEMO, federated="sums", unit="patient", segments=[{"column": "sex", "levels": ["f", "m"]}]),
        {
            *(BY_SITE_KEY, SITE_STORED, AUDITED, "Devices cannot take part."),
            "each group of at least 10 units of an arm",
            "the same counts and sums for each value of sex that at least 10 units of every arm have",
        },
    ),
    "device sums": (replaced(DEMO, federated="sums"), {DEVICES_STORED, AUDITED, "its random group"}),
    "device release": (
        replaced(DEMO, federated="sums", outcomes=[fa.Mean("y", bounds=(0, 1))], release=1.0),
        {DEVICES_STORED, "its random group", "once, when the trial ends, and with noise"},
    ),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_what_is_sent_hashed_pooled_and_stored_is_said_by_the_design(design: str) -> None:
    """A sentence that is true of one design stands in its papers, and in those of no other."""
    plan, expected = DESIGNS[design]
    papers = dossier(plan, 5_000).to_markdown()
    sentences = set().union(*(each for _, each in DESIGNS.values()))
    assert {sentence for sentence in sentences if sentence in papers} == expected
    everywhere = (
        "coordinator" in papers,
        "Each site sends" in papers,
        "ach device sends" in papers or "Each sends" in papers,
    )
    at_sites = plan.federated is not None and plan.unit is not None
    assert everywhere == (plan.federated is not None, at_sites, plan.federated is not None and not plan.sites_only)


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
    assert ("adults on the wards" in papers.to_markdown()) == (plan.estimand is not None)
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

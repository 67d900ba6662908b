"""Papers for the data protection file: every field of a plan is in them, and every open point is marked."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from commands import foldaway
from devices import Hosted
from foldaway.dossier import OPEN, dossier
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import SiteSums
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.mode import SentBefore
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.site.site import fold_site, send_site
from foldaway.report.page.kept import planned
from foldaway.sources.formats.chunk import wanted_by
from plans import SHARED, replaced
from served import Served
from servers import Nursery

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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from) as found:
        yield found


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
            "It sends, by arm, how many records have a value of each characteristic",
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


WARDS = replaced(
    DEMO,
    outcomes=[fa.Mean("y", missing="allowed"), fa.Survival("days", "relapsed", until=60, bins=60)],
    baseline=["age", {"column": "sex", "levels": ["f", "m"]}],
    federated=fa.Federated("sums", sites=1),
    looks={"information": {"units": 400}, "at": [0.5, 1.0]},
    privacy={"cohort": 30, "smallest_cell": 5},
    **SITES,
)


def test_the_papers_of_a_site_say_what_it_sends_and_keeps(served: Served, tmp_path: Path) -> None:
    """Each sentence is held against a site that sends twice: its messages, its mark, the coordinator and others."""
    papers = " ".join(dossier(WARDS, 400).to_markdown().split())
    trial, chance, n = Hosted(served, WARDS), np.random.default_rng(4), 400
    columns: dict[str, Any] = {"patient": np.arange(n), "g": np.where(np.arange(n) % 2, "a", "b")}
    columns |= {"y": np.where(chance.random(n) < 0.2, np.nan, chance.normal(size=n)), "age": chance.normal(60, 9, n)}
    columns |= {"sex": np.where(np.arange(n) == 1, "f", "m"), "relapsed": 1, "days": chance.integers(1, 60, n)}
    rows, file, messages = pd.DataFrame(columns), tmp_path / "rows.parquet", list[SiteSums]()
    link = HttpLink(trial.address, trial.site(label="Aarhus"))
    for size in (300, n):
        rows.head(size).to_parquet(file)
        site = fold_site(WARDS, [str(file)], tmp_path)
        exits = [b64decode(each) for each in _mark(tmp_path)["exits"]] if messages else []
        sent = site_mode_of(WARDS).from_site(site, SentBefore(exits, []) if messages else None)
        messages.append(msgspec.json.decode(sent, type=SiteSums))
        send_site(site, [str(file)], link, tmp_path, replace=True)

    assert "in each group, none or those of at least 5 units" in papers
    assert isinstance(messages[0].present, bytes)
    present = np.frombuffer(messages[0].present).reshape(2, -1, 2)[..., 0]
    assert present[present > 0].min() >= 5
    assert "at least 5 records of every arm have left, and as many more than in each message before" in papers
    first, last = (np.frombuffer(each.exits[0]).reshape(2, -1, 61, 2).sum(axis=(1, 3)) for each in messages)
    ends = np.flatnonzero(first.any(axis=0) & last.any(axis=0))
    for counts, times in ((first, np.flatnonzero(first.any(axis=0))), (last - first, ends)):
        assert np.diff(np.cumsum(counts, axis=1)[:, times], axis=1, prepend=0).min() >= 5
    assert "A level may be that of a single unit." in papers
    assert isinstance(messages[0].baseline, bytes)
    count, share = np.frombuffer(messages[0].baseline).reshape(2, 3, 4)[0, 1, :2]
    assert count * share == pytest.approx(1)

    remembered = "(random numbers, a keyed digest of its files, counts of units by arm and outcome and characteristic"
    assert f"{remembered}; how many left at each time that it sent; until the sums are stored, the key" in papers
    mark = _mark(tmp_path)
    assert {name for name, value in mark.items() if value} == {
        *("fingerprint", "number", "site", "digest", "key", "sending", "safe", "units", "cells", "exits")
    }
    assert not any(b64decode(mark["key"]))

    assert "and as many again for each site" in papers
    share = ServerShare.of(WARDS)
    share = share.merge(site_mode_of(WARDS).site(share, sent).sent_by("site", "Aarhus"))
    held = [share.own, *(each.share.own for each in share.sites.values())]
    each_holds = sum(number for _, _, number in planned(WARDS))
    assert [sum(own.tallies.kept().values()) for own in held] == [each_holds] * 2
    assert "others see the sites' names and numbers of units and the baseline table. All counts are rounded." in papers
    assert "others see what each has found, without its statistics" in papers
    reader = served.ask("POST", "/v1/tokens", json={"scope": "read", "trial": WARDS.name}).json()["token"]
    told = served.ask("GET", f"{trial.path}/effects", reader).json()["effects"]
    assert told["baseline"]
    assert "Sites that have reported: Aarhus 400 units." in told["notes"]
    assert "The largest share of an arm's records that came from one site: 100 %." in told["notes"]
    assert told["looks"]
    assert all(arm.get("z") is None for look in told["looks"] for arm in look["arms"])
    assert "Devices cannot take part." in papers
    assert "Devices draw" not in papers


def _mark(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "demo.site").read_text())
    return found


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

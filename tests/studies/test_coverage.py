"""The coverage study: theory's word is kept, planted faults are found, and numbers come again."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from sizes import mostly_slow

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.coverage import page, runs, trials  # noqa: E402
from studies.coverage.designs import DESIGNS, EFFECT, Design, normal  # noqa: E402
from studies.coverage.expectations import (  # noqa: E402
    ANYTIME,
    NORMAL,
    PERCENTILE,
    POPULATION,
    Cell,
    Expectation,
    Verdict,
    chance,
    cluster_sizes,
    expectation,
)
from studies.coverage.tally import Found, Hits  # noqa: E402

from studies import __main__ as command  # noqa: E402
from studies import findings  # noqa: E402

OF = {design.name: design for design in DESIGNS}
designs = pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's words alone; its picture takes seconds."""
    monkeypatch.setattr(page, "picture", lambda grid, trials: "")


def hits(share: float, number: int = 2000) -> Hits:
    return Hits(number, round(share * number), squared_deviation=1.0, squared_error=1.0)


# What theory says.


@pytest.mark.parametrize(
    ("verdict", "floor", "coverage", "holds"),
    [
        ("covers", 0.95, 0.936, True),
        ("covers", 0.95, 0.964, True),
        ("covers", 0.95, 0.935, False),
        ("covers", 0.95, 0.966, False),
        ("at least", 0.95, 1.0, True),
        ("at least", 0.95, 0.935, False),
        ("may fall short", 0.9, 0.885, True),
        ("may fall short", 0.9, 0.875, False),
        ("may fall short", 0.9, 0.966, False),
        ("falls short", 0.95, 0.934, True),
        ("falls short", 0.95, 0.937, False),
        ("falls short", 0.95, 0.97, False),
    ],
)
def test_three_monte_carlo_errors_decide(verdict: Verdict, floor: float, coverage: float, holds: bool) -> None:
    assert 100 * chance(0.95, 2000) == pytest.approx(1.46, abs=0.01)
    assert Expectation(verdict, "", floor).holds(coverage, 2000) is holds


@pytest.mark.parametrize(
    ("design", "estimator", "kind", "form", "verdict"),
    [
        ("normal", "difference", "classical", "", "covers"),
        ("heavy-tailed", "interacted", PERCENTILE, "", "covers"),
        ("unequal spread", "regression", "classical", "", "covers"),
        ("unequal spread and shares", "regression", "classical", "", "falls short"),
        ("unequal spread and shares", "regression", "HC1", "", "covers"),
        ("unequal spread and shares", "horvitz_thompson", "classical", "", "covers"),
        ("effect varies", "interacted", "HC1", "", "falls short"),
        ("effect varies", POPULATION, "HC1", "", "covers"),
        ("effect varies", "interacted", NORMAL, "", "covers"),
        ("100 clusters", "difference", "HC2", "", "falls short"),
        ("100 clusters", "difference", "CR1", "", "may fall short"),
        ("10 clusters", "horvitz_thompson", "CR1", "", "at least"),
        ("small", "difference", "classical", "", "covers"),
        ("small", "difference", "HC0", "", "may fall short"),
        ("peeking", "difference", "HC2", "", "falls short"),
        ("peeking", "difference", "HC2", ANYTIME, "at least"),
        ("peeking, clusters", "difference", "HC2", ANYTIME, "falls short"),
        ("peeking, clusters", "difference", "CR1", ANYTIME, "at least"),
    ],
)
def test_what_theory_says(design: str, estimator: str, kind: str, form: str, verdict: Verdict) -> None:
    assert expectation(OF[design], Cell(design, "treatment", estimator, kind, form)).verdict == verdict


def test_floors_fall_with_the_number_of_clusters() -> None:
    floors = [
        expectation(OF[name], Cell(name, "treatment", "difference", "CR1")).floor
        for name in ("100 clusters", "20 clusters", "10 clusters")
    ]
    assert 0.95 > floors[0] > floors[1] > floors[2] > 0.75


# The designs.


@designs
def test_a_designs_records_have_the_effect_that_is_called_true(design: Design) -> None:
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(60):
        rows = design.simulate(rng)
        y, arm = rows["y"].astype(float), rows["arm"]
        for other in list(design.shares)[1:]:
            differences.append(y[arm == other].mean() - y[arm == "control"].mean())
    error = np.std(differences) / np.sqrt(len(differences))
    assert np.mean(differences) == pytest.approx(EFFECT, abs=4 * error)
    assert error < 0.2


@designs
def test_a_designs_records_are_as_the_page_says(design: Design) -> None:
    rng = np.random.default_rng(2)
    rows = [design.simulate(rng) for _ in range(30)]
    units = [len(np.unique(each["unit"])) for each in rows]
    shares = [np.mean([np.mean(each["arm"] == arm) for each in rows]) for arm in design.shares]
    assert shares == pytest.approx(list(design.shares.values()), abs=0.06)
    if not design.clustered:
        assert set(units) == {design.looks[-1] if design.looks else design.records}
        return
    clusters, variation = cluster_sizes(design)
    assert set(units) == {clusters}
    sizes = np.concatenate([np.unique(each["unit"], return_counts=True)[1] for each in rows])
    assert np.std(sizes) / np.mean(sizes) == pytest.approx(variation, abs=0.05)
    if design.few_clusters:
        for each in rows:
            treated = {unit for unit, arm in zip(each["unit"], each["arm"], strict=True) if arm == "treatment"}
            assert len(treated) == clusters // 2


@designs
def test_blocks_are_all_records_in_order_and_units_stay_whole(design: Design) -> None:
    rows = design.simulate(np.random.default_rng(3))
    blocks = [block for _, block in design.blocks(rows)]
    assert len(blocks) == max(1, len(design.looks))
    for name, column in rows.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), column)
    seen = [set(block["unit"].tolist()) for block in blocks]
    assert sum(map(len, seen)) == len(set().union(*seen))


@pytest.mark.parametrize("design", mostly_slow(DESIGNS, *DESIGNS[::4]), ids=lambda design: design.name)
def test_every_cell_is_there_and_statsmodels_agrees(design: Design) -> None:
    found = trials.trial_of(design, np.random.default_rng(4))
    arms = len(design.shares) - 1
    forms = 2 if design.looks else 1
    analytic = arms * (4 * 5 + 1)  # HC2 for the difference alone
    percentile = 4 * arms if design.bootstrap else 0
    population = 5 if design.slope else 0
    compared = [each for each in found.values() if each.apart is not None]
    if design.few_clusters or design.name == "small":  # errors by unit may be withheld
        assert 4 * 3 + 1 <= sum(not runs.may_be_withheld(design, cell) for cell in found) <= len(compared)
    else:
        assert len(found) == forms * (analytic + percentile) + percentile + population
        assert len(compared) == (0 if design.looks else analytic)
    assert max([each.apart or 0 for each in compared], default=0) < 1e-9


# Faults are found.


def narrowed(kind: str, design: Design, trial: fa.Trial) -> Iterator[tuple[Cell, trials.Interval]]:
    for cell, interval in original(design, trial):
        if cell.kind == kind:
            half = interval.std_error
            interval = interval._replace(lower=interval.estimate - half, upper=interval.estimate + half)
        yield cell, interval


original = trials.intervals


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_an_interval_that_is_too_narrow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "intervals", lambda design, trial: narrowed("HC1", design, trial))
    grid = runs.simulated([OF["small"]], 80, seed=5, processes=1)
    assert {cell.kind for cell in runs.broken(grid, 80)} == {"HC1"}
    assert len(runs.broken(grid, 80)) == 4
    found = page.findings(grid, {cell: grid[cell] for cell in runs.broken(grid, 80)}, 80, 5)
    assert "Not as theory says, in both simulations: small, treatment, difference, HC1 (" in found.answer
    assert sum("✗" in " ".join(row) for row in found.rows) == 4
    assert found.summary is not None
    assert ["✗" in cell for cell in found.summary.rows[0]].index(True) == found.summary.header.index("HC1")


def test_an_error_that_is_wrong_by_a_thousandth_shows_beside_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(design: Design, trial: fa.Trial) -> Iterator[tuple[Cell, trials.Interval]]:
        for cell, interval in original(design, trial):
            yield cell, interval._replace(std_error=interval.std_error * 1.001)

    monkeypatch.setattr(trials, "intervals", wrong)
    found = trials.trial_of(OF["small"], np.random.default_rng(6))
    assert min(each.apart or 0 for each in found.values()) > 9e-4


def test_one_look_that_misses_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([True, False, True])
    cell = Cell("three looks", "treatment", "difference", "HC1")

    def looked_at(design: Design, trial: fa.Trial) -> Iterator[tuple[Cell, trials.Interval]]:
        covers = next(looks)
        yield cell, trials.Interval(0, 1, EFFECT - 1, EFFECT + 1 if covers else EFFECT - 0.5)

    monkeypatch.setattr(trials, "intervals", looked_at)
    design = Design("three looks", "", normal, bootstrap=False, looks=(20, 30, 40))
    assert trials.trial_of(design, np.random.default_rng(7))[cell].covers is False


def test_cells_are_broken_that_break_theory_or_miss_trials() -> None:
    good, bad, wide, missing = (Cell("normal", "treatment", name, "HC1") for name in "abcd")
    clustered = Cell("100 clusters", "treatment", "difference", "HC1")
    grid = {good: hits(0.95), bad: hits(0.9), wide: hits(0.98), missing: hits(0.95, 1999), clustered: hits(0.95)}
    assert runs.broken(grid, 2000) == [bad, wide, missing, clustered]


@pytest.mark.usefixtures("undrawn")
def test_a_cell_outside_once_is_not_broken_but_told() -> None:
    grid = {
        Cell("normal", "treatment", name, "HC1"): hits(share)
        for name, share in (("difference", 0.9), ("horvitz_thompson", 0.95))
    }
    [outside] = runs.broken(grid, 2000)
    text = page.findings(grid, {outside: hits(0.95)}, 2000, 1).page("coverage", "")
    assert "Every cell is as theory says." in text
    assert "simulated once more: normal, treatment, difference, HC1 (90.0 %, then 95.0 %)." in text
    assert "✗ |" not in text
    twice = page.findings(grid, {outside: hits(0.9)}, 2000, 1).page("coverage", "")
    assert "Every cell is as theory says." not in twice
    assert "90.0 ✗ |" in twice


# The same again.


def test_a_trial_depends_on_seed_design_and_number_alone() -> None:
    design = OF["small"]
    whole = runs.run(runs.Task(design, 0, 4, 8))
    first, rest = runs.run(runs.Task(design, 0, 1, 8)), runs.run(runs.Task(design, 1, 4, 8))
    for cell, found in whole.items():
        both = first[cell] + rest[cell]
        assert (both.trials, both.covered, both.kept_covered) == (4, found.covered, found.kept_covered)
        assert both.squared_error == pytest.approx(found.squared_error, rel=1e-12)
    other = runs.run(runs.Task(design, 0, 4, 9))
    assert all(other[cell].deviation != found.deviation for cell, found in whole.items())


def test_bootstraps_come_again_too() -> None:
    task = runs.Task(OF["10 clusters"], 0, 1, 8)
    assert runs.run(task) == runs.run(task)


def test_hits_are_sums() -> None:
    found = Hits()
    for estimate, covers in ((EFFECT + 3, True), (EFFECT - 3, False)):
        found.add(Found(estimate, 1.5, covers, kept_covers=True, apart=1e-12 * estimate))
    assert (found.trials, found.coverage, found.kept_coverage, found.ratio) == (2, 0.5, 1.0, 0.5)
    assert found.apart == 3.5e-12


# The page.


def test_the_study_writes_the_same_page_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (OF["small"], OF["effect varies"])
    monkeypatch.setattr("studies.coverage.designs.DESIGNS", few)
    monkeypatch.setattr("studies.coverage.picture.DESIGNS", few)
    written: list[dict[str, bytes]] = []
    for folder in ("a", "b"):
        monkeypatch.setattr(findings, "PAGES", tmp_path / folder)
        command.main(["coverage", "--trials", "3", "--processes", "1", "--write"])
        written.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert written[0] == written[1]
    assert sorted(written[0]) == ["coverage.csv", "coverage.md", "coverage.svg"]
    assert "seed 1\n" in capsys.readouterr().out
    text = written[0]["coverage.md"].decode()
    assert "](coverage.svg)" in text
    assert "python -m studies coverage --trials 3 --seed 1 --processes 1`" in text
    assert "statsmodels 0." in text
    rows: list[dict[str, Any]] = list(csv.DictReader(written[0]["coverage.csv"].decode().splitlines()))
    assert len(rows) == 21 + 34
    assert {row["trials"] for row in rows if row["design"] != "small"} == {"3"}  # errors by unit may be withheld

"""Quantile effects of a trial: what other packages say of kept rows, in any batches, and why some are withheld."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.door import TOLD
from foldaway.effects.from_sums import SumsRead
from foldaway.inference.stepped import Stepped
from foldaway.tallies import grouped_of
from latencies import QUANTILES, latencies
from trials import known

PEERS = json.loads((Path(__file__).parent / "data" / "quantiles" / "peers.json").read_text())
BOUNDS = (1, 60_000)


def plan_of(*outcomes: Any, **settings: Any) -> fa.Plan:
    arms = {"control": 0.5, "treatment": 0.5}
    named: dict[str, Any] = {"name": "latency", "arm": "variant", "arms": arms, "outcomes": list(outcomes)}
    return fa.Plan(**named | settings)


def folded(plan: fa.Plan, rows: dict[str, Any], parts: int = 1, key: bytes = bytes(16)) -> fa.Trial:
    """The rows in random batches, over two shards that are saved and merged if there are several."""
    n = len(rows["variant"])
    shards = [fa.Trial(plan, key=key) if plan.keyed else fa.Trial(plan) for _ in range(1 + (parts > 1))]
    for place, part in enumerate(np.array_split(np.random.default_rng(parts).permutation(n), parts)):
        shards[place % len(shards)].fold({name: column[part] for name, column in rows.items()})
    if parts == 1:
        return shards[0]
    return fa.Trial.loads(shards[0].dumps(), plan) + fa.Trial.loads(shards[1].dumps(), plan)


def rows_of(trial: fa.Trial, kind: str) -> dict[float, Effect]:
    outcomes = {outcome.name: outcome for outcome in trial.plan.outcomes}
    found = {}
    for row in trial.effects():
        outcome = outcomes[row.outcome]
        if row.se_kind == kind and isinstance(outcome, fa.Quantile):
            found[outcome.quantiles[0]] = row
    return found


@pytest.mark.parametrize(("resolution", "off"), [(None, 0.01), (0.0015, 0.0015)])
def test_the_quantiles_are_those_of_kept_rows_to_the_resolution(resolution: float | None, off: float) -> None:
    quantile = fa.Quantile("latency_ms", QUANTILES, bounds=BOUNDS, resolution=resolution)
    found = rows_of(folded(plan_of(quantile), latencies(), parts=7), "welch")
    for p, row in found.items():
        theirs = PEERS[str(p)]["tea-tasting"]
        assert known(row.control_level) == pytest.approx(theirs["control"], rel=off)
        assert known(row.control_level) + known(row.estimate) == pytest.approx(theirs["treatment"], rel=off)
        assert known(row.relative) == pytest.approx(theirs["relative"], abs=2 * off)


def width_of(ends: tuple[float | None, float | None]) -> float:
    return known(ends[1]) - known(ends[0])


def test_errors_of_independent_records_are_those_of_other_packages() -> None:
    """Intervals, which invert the distribution function, are a little wider than those by its slope."""
    found = rows_of(folded(plan_of(fa.Quantile("latency_ms", QUANTILES, bounds=BOUNDS)), latencies(), 5), "welch")
    beside_bootstrap = []
    for p, row in found.items():
        # Both read the slope of the distribution function between two quantiles, which are not quite the same two.
        assert known(row.std_error) == pytest.approx(PEERS[str(p)]["gbstats"]["std_error"], rel=0.08)
        width = width_of((row.ci_lower, row.ci_upper))
        assert width == pytest.approx(width_of(PEERS[str(p)]["gbstats"]["ci"]), rel=0.1)
        beside_bootstrap.append(width / width_of(PEERS[str(p)]["tea-tasting"]["ci"]))
    assert np.mean(beside_bootstrap) == pytest.approx(1.0, abs=0.15)


def test_clustered_errors_are_those_of_another_package_but_for_how_users_fall_into_groups() -> None:
    plan = plan_of(fa.Quantile("latency_ms", QUANTILES, bounds=BOUNDS), unit="user")
    keys = [bytes([seed] * 16) for seed in range(12)]
    trials = [folded(plan, latencies(), key=key) for key in keys]
    found = [rows_of(trial, "jackknife") for trial in trials]
    for p in QUANTILES:
        spread = np.array([known(rows[p].std_error) for rows in found])
        # The spread of an error from 32 groups is 13 % of itself.
        theirs = PEERS[str(p)]["gbstats, clustered"]["std_error"]
        assert np.sqrt(np.mean(spread**2)) == pytest.approx(theirs, rel=0.13)
    for outcome in trials[0].plan.outcomes:
        steps = SumsRead.of(grouped_of(trials[0].tallies)).exact(("difference", "jackknife"), outcome).steps
        assert isinstance(steps, Stepped)
        assert np.all((steps.df > 25) & (steps.df < 32))


def quantile_rows(trial: fa.Trial) -> list[Effect]:
    """Those of the whole and of every segment."""
    effects = trial.effects()
    return [row for row in (*effects, *(r for s in effects.segments for r in s.effects)) if row.outcome != "latency_ms"]


MIXED: dict[str, Any] = {
    "unit": "user",
    "segments": ["device"],
    "weight": "w",
    "covariates": ["before"],
}


@pytest.mark.parametrize("settings", [MIXED, {}, {"weight": "w"}], ids=["mixed", "plain", "weighted"])
def test_no_batching_or_sharding_changes_them(settings: dict[str, Any]) -> None:
    rows = latencies()
    n = len(rows["user"])
    rng = np.random.default_rng(3)
    rows |= {
        "device": rng.choice(["phone", "laptop"], n),
        "w": rng.uniform(0.5, 2, n),
        "before": rng.normal(size=n),
    }
    plan = plan_of("latency_ms", fa.Quantile("latency_ms", QUANTILES, bounds=BOUNDS), **settings)
    whole, parts = folded(plan, rows), folded(plan, rows, parts=6)
    whole = fa.Trial.loads(whole.dumps(), plan)
    assert parts.n == n
    ours, theirs = quantile_rows(whole), quantile_rows(parts)
    assert len(ours) == (4 if settings is MIXED else 1) * len(QUANTILES)
    for a, b in zip(ours, theirs, strict=True):
        told = settings is not MIXED or a.se_kind == "jackknife"
        assert (a.outcome, a.se_kind, a.segment, a.reliable) == (b.outcome, b.se_kind, b.segment, told)
        if told:
            assert a.estimate == pytest.approx(known(b.estimate), rel=1e-9)
            assert a.std_error == pytest.approx(known(b.std_error), rel=1e-9)


def test_a_segment_is_a_trial_of_its_own() -> None:
    rows = latencies() | {"device": np.where(np.arange(8_000) % 3, "phone", "laptop")}
    quantile = fa.Quantile("latency_ms", (0.5,), bounds=BOUNDS)
    whole = folded(plan_of(quantile, unit="user", segments=[{"column": "device", "levels": ["laptop", "phone"]}]), rows)
    (segment,) = whole.effects().segments
    for row in segment.effects:
        alone = {name: column[rows["device"] == row.segment] for name, column in rows.items()}
        apart = rows_of(folded(plan_of(quantile, unit="user"), alone), "jackknife")[0.5]
        assert (row.estimate, row.std_error) == (apart.estimate, apart.std_error)


def test_strata_of_unequal_probabilities_do_not_bias_a_quantile() -> None:
    rng = np.random.default_rng(8)
    n = 40_000
    slow = rng.random(n) < 0.3
    treated = rng.random(n) < np.where(slow, 0.2, 0.7)
    rows = {
        "variant": np.where(treated, "treatment", "control"),
        "site": np.where(slow, "slow", "fast"),
        "latency_ms": rng.lognormal(np.where(slow, 7.0, 5.0), 0.5) * np.where(treated, 1.1, 1.0),
    }
    shares = {"fast": {"control": 0.3, "treatment": 0.7}, "slow": {"control": 0.8, "treatment": 0.2}}
    quantile = fa.Quantile("latency_ms", (0.5, 0.9), bounds=BOUNDS)
    plan = plan_of(quantile, strata=fa.Strata("site", shares), arms={"control": 0.45, "treatment": 0.55})
    base = rng.lognormal(np.where(rng.random(10**6) < 0.3, 7.0, 5.0), 0.5)
    for p, row in rows_of(folded(plan, rows), "welch").items():
        level = float(np.quantile(base, p))
        assert abs(known(row.control_level) - level) < 4 * known(row.std_error)
        assert abs(known(row.estimate) - 0.1 * level) < 3 * known(row.std_error)
        assert known(row.std_error) < 0.03 * level


def why(row: Effect) -> str:
    assert not row.reliable
    assert row.std_error is row.ci_lower is row.p_value is row.relative is None
    return str(row.why)


def test_a_quantile_that_cannot_be_told_says_why() -> None:
    rows = latencies()
    narrow = fa.Quantile("latency_ms", (0.5, 0.95), bounds=(10, 500))
    found = rows_of(folded(plan_of(narrow, unit="user"), rows), "jackknife")
    assert found[0.5].reliable
    assert found[0.95].estimate is None
    assert "beyond the `bounds`" in why(found[0.95])
    rare = fa.Quantile("latency_ms", (0.9995, 0.001), bounds=BOUNDS)
    found = rows_of(folded(plan_of(rare, unit="user"), rows), "jackknife")
    assert all(why(row).startswith("In an arm, fewer than 10 groups of units") for row in found.values())
    found = rows_of(folded(plan_of(rare), rows), "welch")
    assert all(why(row).startswith("In an arm, fewer than 10 records") for row in found.values())
    none = fa.Trial(plan_of(rare)).effects()
    assert all(why(row) == "There are no records yet." for row in none)
    constant = rows | {"latency_ms": np.full(8_000, 200.0)}
    (row,) = rows_of(folded(plan_of(fa.Quantile("latency_ms", (0.5,), bounds=BOUNDS)), constant), "welch").values()
    assert row.estimate == 0
    assert known(row.std_error) == pytest.approx(2.0 * np.sqrt(2 / 12), rel=0.01)  # anywhere in a bin of 1 %


def test_values_that_come_in_steps_show_no_effect_within_a_step() -> None:
    """Whole milliseconds lie further apart than bins: how much of a bin is below says nothing about the quantile."""
    rng = np.random.default_rng(4)
    n = 200_000
    treated = rng.random(n) < 0.5
    latency = np.round(rng.normal(30.0, 3.0, n) + 0.15 * treated)
    rows = {"variant": np.where(treated, "treatment", "control"), "latency_ms": latency}
    (row,) = rows_of(folded(plan_of(fa.Quantile("latency_ms", (0.5,), bounds=BOUNDS)), rows), "welch").values()
    assert np.median(latency[treated]) == np.median(latency[~treated]) == 30
    assert known(row.ci_lower) < 0 < known(row.ci_upper)
    assert abs(known(row.estimate)) < 0.3


def test_told_quantiles_are_rounded_and_the_histogram_is_nowhere_in_them() -> None:
    trial = folded(plan_of(fa.Quantile("latency_ms", (0.5,), bounds=BOUNDS), unit="user"), latencies())
    exact, told = (effects.filter(se_kind="jackknife")[0] for effects in (trial.effects(), trial.read(TOLD)))
    assert told.estimate != exact.estimate
    assert known(told.estimate) == pytest.approx(known(exact.estimate), abs=0.5 * known(exact.std_error))
    assert len(trial.read(TOLD).to_json()) < 5_000


def test_records_without_the_outcome_count_for_all_others() -> None:
    rows = latencies()
    n = len(rows["user"])
    holes = np.where(np.arange(n) % 7 == 0, np.nan, rows["latency_ms"])
    quantile = fa.Quantile("latency_ms", (0.5, 0.9), bounds=BOUNDS, missing="allowed", label="Latency")
    given = rows | {"latency_ms": holes, "visits": np.ones(n), "before": np.arange(n) % 5.0}
    for settings in ({}, {"covariates": ["before"]}):
        trial = folded(plan_of("visits", quantile, unit="user", **settings), given, parts=4)
        assert trial.n == n
        here = ~np.isnan(holes)
        alone = folded(plan_of(quantile, unit="user"), {name: column[here] for name, column in rows.items()})
        complete = rows_of(alone, "jackknife")
        for p, row in rows_of(trial, "jackknife").items():
            assert row.estimate == pytest.approx(complete[p].estimate)
            assert row.n == here.sum()
            assert row.std_error == pytest.approx(complete[p].std_error)
        (note,) = [note for note in trial.effects().notes if note.startswith("Records without")]
        assert note.startswith("Records without 'Latency p50' or 'Latency p90': control: ")
        page = trial.report().html
        assert page.count("missing equally often in all arms?") == 1
        assert page.count("(the plain difference between the arms&#x27; quantiles), since") == 2
        assert page.count("since quantiles are not adjusted for covariates.") == (2 if settings else 0)


def test_rows_print_and_are_reported_like_those_of_any_outcome() -> None:
    quantile = fa.Quantile(
        "latency_ms", (0.5, 0.95), bounds=BOUNDS, better="lower", margin=1000, label="Latency", measure="ms"
    )
    trial = folded(plan_of("latency_ms", quantile, unit="user"), latencies())
    effects = trial.effects()
    assert list(fa.Effects.from_json(effects.to_json())) == list(effects)
    page = trial.report().html
    for percentile in ("p50", "p95"):
        assert f"Latency {percentile} (ms): treatment against control" in effects.to_string(all=True)
        assert f"Latency {percentile}" in page
    assert "Histograms" in page
    assert " ".join(str(effects).split()).count("Verdicts on quantiles are always for one look: ") == 1


def test_states_are_small_and_their_size_says_only_how_many_records_there_are() -> None:
    plan = plan_of(fa.Quantile("latency_ms", (0.5, 0.95), bounds=BOUNDS), unit="user")
    rows = latencies()
    sizes = [len(folded(plan, rows).dumps()), len(folded(plan, rows | {"latency_ms": np.full(8_000, 7.0)}).dumps())]
    assert sizes[0] == sizes[1] < 160_000
    assert fa.Trial(plan).tallies.size == sum(counts for counts in (2 * 32 * 1108, 2 * 128 * 2, 1, 2 * 4))

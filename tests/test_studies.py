"""The studies run, and on a small scale already say what the large ones do."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foldaway as fa
from clustered import reply
from foldaway.federated.replies.published import Published
from foldaway.paper import bootstrap_least_squares
from foldaway.plan import Bootstrap
from written_weights import weights

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies import __main__ as command  # noqa: E402
from studies import (  # noqa: E402
    bootstrap_coverage,
    bootstrap_start,
    federated_dropout,
    federated_schedules,
    findings,
    pair_attacks,
    same_everywhere,
)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(findings, "PAGES", tmp_path)
    return tmp_path


# Two servers.


def test_one_server_cannot_tell_devices_apart_and_both_can() -> None:
    found = pair_attacks.study(400, 2)
    assert found.pop("both servers") == 1
    assert len(found) == 10
    assert all(abs(share - 0.5) < 5 * (0.25 / 400) ** 0.5 for share in found.values()), found


# The bootstrap's start.


def test_algorithm_3_from_moments_is_the_literal_one() -> None:
    rng = np.random.default_rng(5)
    X, y = bootstrap_start.simulate(rng, 80)
    unit = rng.integers(0, 2**64, 80, dtype=np.uint64)
    paper, ours = bootstrap_start.replicates(X, y, unit, 30, Bootstrap(25))
    literal = bootstrap_least_squares(X, y, weights(unit[30:], 25, "poisson"), start=30)
    np.testing.assert_allclose(paper, literal, rtol=1e-9, atol=1e-12)
    assert bootstrap_start.largest_difference(seed=6) < 1e-12
    # And foldaway's: weighted least squares with random weights for every record.
    w = weights(unit, 25, "poisson").astype(float)
    for b in (0, 24):
        root = np.sqrt(w[:, b])
        np.testing.assert_allclose(ours[b], np.linalg.lstsq(X * root[:, None], y * root, rcond=None)[0], rtol=1e-9)


def test_the_papers_start_understates_the_error_and_foldaways_does_not() -> None:
    found = bootstrap_start.study(ratio=2, m=40, trials=300, truths=4000, count=100, seed=7)
    assert found.n == 80
    assert found.paper == pytest.approx(np.sqrt(1 / 2), abs=0.06)
    assert found.ours == pytest.approx(1, abs=0.08)
    assert found.paper_covers < 0.9 < found.ours_covers


# Coverage.


@pytest.mark.slow
def test_by_unit_the_intervals_cover_and_by_record_they_do_not() -> None:
    table = bootstrap_coverage.summary(bootstrap_coverage.study(trials=60, units=60, replicates=99, seed=8))
    assert len(table) == 10
    bootstrap = table[table["errors"] == "bootstrap, poisson"]
    by_unit, by_record = (bootstrap[bootstrap["by"] == by] for by in ("unit", "record"))
    assert len(by_unit) == len(by_record) == 2
    assert by_unit[["normal", "percentile"]].to_numpy().min() > 0.85
    assert by_record[["normal", "percentile"]].to_numpy().max() < 0.85
    assert by_record["ratio"].max() < 0.65 < by_unit["ratio"].min()


def test_the_records_of_a_study_are_what_its_page_says() -> None:
    rows = bootstrap_coverage.simulate(np.random.default_rng(9), 20_000)
    sizes = rows.groupby("unit").size()
    assert sizes.min() == 1
    assert (sizes.mean(), sizes.std()) == pytest.approx((10, 7), rel=0.03)
    assert (rows.groupby("unit")["arm"].nunique() == 1).all()
    means = rows.groupby("arm")["y"].mean()
    assert means["treatment"] - means["control"] == pytest.approx(0.5, abs=0.1)
    assert rows["record"].is_unique


# The same everywhere.


def test_a_path_that_differs_is_found_and_one_that_does_not_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    one, query = same_everywhere.one_process, same_everywhere.duckdb_query
    assert next(iter(same_everywhere.PATHS)) == same_everywhere.ONE
    others = {"two processes", "DuckDB query", "Dask, two processes", "Spark local[2]", "Spark stream", "NATS", "Redis"}
    assert set(same_everywhere.PATHS) == {same_everywhere.ONE, *others}
    monkeypatch.setattr(same_everywhere, "PATHS", {"one": one, "query": query})
    rows = same_everywhere.study(records=1000, replicates=20, seed=3)
    assert [row[:2] for row in rows] == [["one", "1,000"], ["query", "1,000"]]
    assert all(float(cell) < 1e-9 for cell in rows[1][4:])

    def another_key(setting: same_everywhere.Setting) -> fa.Trial:
        return one(replace(setting, key=bytes(16)))

    def a_file_less(setting: same_everywhere.Setting) -> fa.Trial:
        return one(replace(setting, files=setting.files[1:]))

    for wrong in (another_key, a_file_less):
        monkeypatch.setattr(same_everywhere, "PATHS", {"one": one, "wrong": wrong})
        with pytest.raises(SystemExit, match="Not the same: wrong"):
            same_everywhere.study(records=1000, replicates=20, seed=3)


# From the command line to the page.


def test_a_study_is_the_same_in_every_run(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--trials 3 --few 40 --many 60 --replicates 19 --seed 2"
    texts = []
    for _ in range(2):
        command.main(["bootstrap_coverage", *shlex.split(options), "--write"])
        texts.append((pages / "bootstrap_coverage.md").read_text("utf-8"))
    assert texts[0] == texts[1]
    assert f"python -m studies bootstrap_coverage {options}`" in texts[0]
    assert texts[0].startswith("# Coverage of the bootstrap's intervals\n")
    table = [line for line in texts[0].splitlines() if line.startswith("|")]
    assert len(table) == 2 + 20
    assert len({line.count("|") for line in table}) == 1
    shown = capsys.readouterr()
    assert "by record" in shown.out
    assert "trials of 60 units: 3 in" in shown.err


def test_nothing_is_written_unless_asked_for(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["bootstrap_start", "--trials", "2", "--truths", "20", "--start", "10", "--replicates", "9"])
    assert not list(pages.iterdir())
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[0] for words in printed if len(words) == 10] == ["2", "4", "10", "50"]


def test_progress_is_counted_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert list(findings.counted("abcd", 4, "letters")) == list("abcd")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["letters: 1 of 4, 6 s", "letters: 3 of 4, 12 s", "letters: 4 in 15 s"]


def test_studies_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    command.main([])
    listed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in listed] == list(command.ALL)
    with pytest.raises(SystemExit, match="There is no study nonsense"):
        command.main(["nonsense"])


@pytest.mark.slow
def test_the_command_runs_from_the_projects_folder() -> None:
    done = subprocess.run([sys.executable, "-m", "studies"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "bootstrap_start: " in done.stdout


# Federated trials.


def test_the_replies_of_all_devices_at_once_are_those_of_each() -> None:
    devices, plan = federated_dropout.simulate(np.random.default_rng(10), 40), federated_dropout.plan_of("scores")
    everyone = np.ones(40, dtype=bool)
    share = federated_dropout._share(plan, devices, federated_dropout.triangles(devices), everyone)
    message = Published.of(share.trial).message("replying", 0.0)
    together = federated_dropout.replies(plan, message, devices)
    for j, (first, size) in enumerate(zip(devices.first, devices.sizes, strict=True)):
        arm = federated_dropout.ARMS[devices.arm[j]]
        alone = reply(plan, message, arm, devices.rows[first : first + size])
        np.testing.assert_allclose(together[j], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_intervals_cover_when_devices_drop_out_at_random() -> None:
    table = federated_dropout.summary(federated_dropout.study(trials=60, devices=80, seed=11))
    assert len(table) == 12
    assert min(covers for *_, covers in table) > 0.85
    assert all(0.75 < ratio < 1.3 for *_, ratio, _ in table)


def test_a_schedule_of_the_study_is_counted() -> None:
    found = federated_schedules.study(schedules=3, seed=12, processes=1)
    assert sum(tale.schedules for tale in found.values()) == 3
    assert not [wrong for tale in found.values() for wrong in tale.wrong]
    assert "These events happened" in federated_schedules.findings(found).answer

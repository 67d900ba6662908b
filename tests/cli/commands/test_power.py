"""`foldaway power`: from numbers, a saved state, or earlier records with and without arms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.planning import Baseline
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from plans import replaced


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("power")
    rows = pa.Table.from_batches(list(checkout(6_000, seed=3)))
    pq.write_table(rows, folder / "earlier.parquet")
    pq.write_table(rows.drop_columns(["variant"]), folder / "before.parquet")
    # What only a trial has is not looked for in earlier records.
    segments = [{"column": "platform", "levels": ["web", "app"]}]
    plan = replaced(PLAN, name="power", records_per_unit="one", segments=segments)
    plan.save(folder / "plan.toml")
    trial = fa.Trial(plan)
    trial.fold(rows.append_column("platform", pa.array(["web", "app"] * 3_000)))
    trial.save(folder / "state")
    return folder


def asked(folder: Path, *words: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(foldaway("power", "plan.toml", *words, "--json", folder=folder).stdout)
    return found


def test_numbers_on_the_command_line_are_those_of_python(folder: Path) -> None:
    told = asked(folder, "--level", "revenue=17", "--sd", "revenue=20", "--effect", "5%", "--records-per-day", 500)
    plan = fa.Plan.load(folder / "plan.toml")
    known = {"revenue": Baseline(level=17.0, sd=20.0)}
    same = fa.power(known, plan=plan, relative=0.05, records_per_day=500)
    assert told == json.loads(same.to_json())
    words = ("power", "plan.toml", "--level", 0.2, "--margin", 0.01, "--better", "lower")
    known = {outcome.name: Baseline(level=0.2) for outcome in plan.outcomes}
    assert foldaway(*words, folder=folder).stdout == f"{fa.power(known, plan=plan, margin=0.01, better='lower')}\n"


def test_an_earlier_trial_and_earlier_records_say_the_same(folder: Path) -> None:
    state, records, before = (
        asked(folder, "--from", source, "--effect", "5%") for source in ("state", "earlier.parquet", "before.parquet")
    )
    assert [row["outcome"] for row in state["rows"]] == ["revenue", "converted"]
    for one, other, without in zip(state["rows"], records["rows"], before["rows"], strict=True):
        # What the covariates explain is that of the coefficients fixed at saving, by folds, or of the regression.
        assert one["records"] == pytest.approx(other["records"], rel=0.06)
        assert other["records"] == pytest.approx(without["records"], rel=0.25)  # other arms, and no effect in them
        assert one["sd"] == pytest.approx(other["sd"], rel=1e-9)
    told = asked(folder, "--from", "state", "--level", "converted=0.5", "--records", 9_000)
    assert [row["level"] == 0.5 for row in told["rows"]] == [False, True]


def test_records_without_arms_are_dealt_by_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    unit = np.repeat(np.arange(800), 5)
    y = rng.normal(size=800)[unit] + rng.normal(size=4_000)
    pq.write_table(pa.table({"unit": unit, "y": y}), tmp_path / "before.parquet")
    fa.Plan(name="dealt", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="unit").save(
        tmp_path / "plan.toml"
    )
    row = asked(tmp_path, "--from", "before.parquet", "--effect", 0.1)["rows"][0]
    assert row["design_effect"] == pytest.approx(3, rel=0.4)  # 1 + 4 · 0.5


def test_it_draws(folder: Path) -> None:
    done = foldaway("power", "plan.toml", "--level", 0.2, "--effect", "10%", "--plot", "p.svg", folder=folder)
    assert done.stderr == "Plot written to p.svg.\n"
    assert "<svg" in (folder / "p.svg").read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--effect", "1"], "nothing is known about 'revenue' yet"),
        (["--level", "profit=1"], "the plan has no outcome 'profit'"),
        (["--level", "high"], "--level takes a number"),
        (["--level", "0.2"], "give the effect to find"),
        (["--level", "0.2", "--relative", "5%"], "there is no option --relative; write a percentage"),
        (["--level", "0.2", "--effect", "5%", "--plot", "p.doc"], "cannot be written"),
        (["--from", "nowhere.parquet", "--effect", "1"], "nowhere.parquet"),
    ],
)
def test_what_is_wrong_is_one_sentence(folder: Path, words: list[str], error: str) -> None:
    done = foldaway("power", "plan.toml", *words, folder=folder, code=1)
    assert error in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr

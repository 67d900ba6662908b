"""From a saved state to a report: real processes, real files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own data")
    rows = pa.Table.from_batches(list(checkout(2_000, seed=3)))
    pa.csv.write_csv(rows, folder / "my trial.csv")
    pq.write_table(rows, folder / "trial.parquet")
    trial = fa.Trial(PLAN)
    trial.fold(rows)
    trial.save(folder / "state")
    return folder


# foldaway report


def test_a_report_from_a_state(folder: Path) -> None:
    done = foldaway("report", "state", "-o", "report.html", folder=folder)
    written = (folder / "report.html").read_text(encoding="utf-8")
    assert written == fa.Trial.load(folder / "state").report().html
    assert done.stderr == f"Report written to report.html ({len(written.encode()):,} bytes). Open it in a browser.\n"
    assert done.stdout == ""


def test_other_places_for_a_report(folder: Path) -> None:
    foldaway("report", "state", folder=folder)
    assert (folder / "state.html").exists()
    printed = foldaway("report", "state", "-o", "-", "--adjust", "holm", folder=folder)
    assert printed.stdout == fa.Trial.load(folder / "state").report(adjust="holm").html + "\n"
    assert printed.stderr == ""


def test_refusals_of_a_report(folder: Path) -> None:
    assert "is not a foldaway state" in foldaway("report", "my trial.csv", folder=folder, code=1).stderr
    assert not (folder / "my trial.csv.html").exists()
    before = (folder / "my trial.csv").read_bytes()
    done = foldaway("report", "state", "-o", "my trial.csv", folder=folder, code=1)
    assert done.stderr == "error: my trial.csv exists and is no report; choose another name.\n"
    assert (folder / "my trial.csv").read_bytes() == before
    assert "there is no adjustment" in foldaway("report", "state", "--adjust", "luck", folder=folder, code=1).stderr


def test_a_run_writes_a_report_along_with_its_table(folder: Path) -> None:
    PLAN.save(folder / "whole.toml")
    done = foldaway("run", "whole.toml", "trial.parquet", "--report", "run.html", folder=folder)
    assert "revenue: treatment against control" in done.stdout
    expected = fa.fold_files(folder / "trial.parquet", PLAN).report().html
    assert (folder / "run.html").read_text(encoding="utf-8") == expected
    refused = foldaway("run", "whole.toml", "trial.parquet", "--report", "whole.toml", folder=folder, code=1)
    assert refused.stderr == "error: whole.toml exists and is no report; choose another name.\n"
    assert refused.stdout == ""

"""The examples run offline, within a minute, and their stories are true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from foldaway.report.page.document import MARK

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_has_a_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 3
    assert all(f'"{name}"' in here for name in names)


def test_product_test(tmp_path: Path) -> None:
    told = run("product_test.py", tmp_path / "report.html")
    errors = [float(error) for error in re.findall(r"standard error (\S+)", told)]
    assert errors[1] < 0.95 * errors[0]
    [reduction] = re.findall(r"explains away (\d+)% of the variance", told)
    assert int(reduction) / 100 == pytest.approx(1 - (errors[1] / errors[0]) ** 2, abs=0.02)
    for low, high in re.findall(r"\[(\S+), (\S+)\]", told):
        assert float(low) < 1.0 < float(high)
    assert MARK in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_late_records() -> None:
    told = run("late_records.py")
    lines = re.findall(r"(\d\.\d{4})   standard error (\d\.\d{4})", told)
    (ours, by_user), (theirs, kept), (_, by_record) = [(float(a), float(b)) for a, b in lines]
    assert ours == theirs
    assert by_user == pytest.approx(kept, rel=0.12)  # about five standard errors of a bootstrap with 1,000 replicates
    assert by_record < 0.7 * kept
    assert abs(ours - 1.0) < 4 * kept
    [late] = re.findall(r"; (\S+) of the records came on a later day", told)
    assert int(late.replace(",", "")) > 1_000


def test_many_sites(tmp_path: Path) -> None:
    told = run("many_sites.py", tmp_path / "report.html")
    widths = [float(high) - float(low) for low, high in re.findall(r"\[ *(\S+), (\S+)\]", told)]
    assert len(widths) == 6
    assert widths[-1] < min(widths[:-1])
    [gap] = re.findall(r"difference of (\S+)\.", told)
    assert float(gap) < 1e-12
    assert MARK in (tmp_path / "report.html").read_text(encoding="utf-8")


# What a notebook does: runs each cell in one IPython, and keeps what its last line shows in every form.
SHELL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell, shown = InteractiveShell.instance(), []
for source in json.load(sys.stdin):
    done = shell.run_cell(source)
    done.raise_error()
    data, _ = shell.display_formatter.format(done.result)
    shown.append({kind: value if isinstance(value, str) else len(value) for kind, value in data.items()})
with open(sys.argv[1], "w") as file:
    json.dump(shown, file)
"""


def test_the_notebook_runs_and_everything_in_it_shows_itself(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # Outputs would be of another version, and a notebook with records in it keeps them.
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    sources = json.dumps(["".join(cell["source"]) for cell in cells])
    done = subprocess.run(
        [sys.executable, "-c", SHELL, tmp_path / "shown.json"],
        input=sources,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"IPYTHONDIR": str(tmp_path), "MPLCONFIGDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    plan, trial, effects, plot, frame, segments, report = json.loads((tmp_path / "shown.json").read_text())
    assert "treatment = 0.5" in plan["text/html"]
    assert "No record is kept" in trial["text/html"]
    assert "50,000 records" in trial["text/html"]
    assert "Ship it: revenue is higher" in effects["text/html"]
    assert plot["image/png"] > 10_000
    assert "jackknife" in frame["text/html"]
    assert all(country in segments["text/html"] for country in ("de", "fr", "us"))
    assert "<iframe" in report["text/html"]

"""The examples run offline, within a minute, and their stories are true."""

from __future__ import annotations

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

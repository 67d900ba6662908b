"""Spark with encryption of its own files: complete units may be brought together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

import foldaway as fa
import sparks
from foldaway.engines import spark
from memory_scan import Marks, scan_files
from trials import make_trial


def test_units_are_brought_together_and_nothing_is_in_the_files(encrypted_session: Any, tmp_path: Path) -> None:
    marks = Marks(300)
    plan, rows = make_trial(5, n=300, units=True)
    rows["unit"] = [marks.identifier(int(name.removeprefix("unit-"))) for name in rows["unit"]]
    rows["y0"] = [marks.outcome(i) for i in range(300)]
    rows.sample(frac=1, random_state=1).to_parquet(tmp_path / "rows.parquet")
    trial = spark.fold(encrypted_session.read.parquet(str(tmp_path)).repartition(3), plan)
    whole = fa.Trial(plan)
    whole.fold(rows)
    ours, theirs = (each.effects().to_pandas() for each in (trial, whole))
    assert "CR1" in set(ours["se_kind"])
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-12)
    assert any(path.name.startswith("shuffle_") for path in sparks.folder().rglob("*"))
    assert not scan_files([sparks.folder()], marks)

"""`import foldaway` is light and leaves no trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import foldaway as fa

HEAVY = ("numba", "scipy.stats", "pandas", "polars", "duckdb", "statsmodels", "typer", "rich", "matplotlib", "litestar")


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement loads into a fresh interpreter."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_nothing_heavy_is_loaded() -> None:
    loaded = loaded_by("import foldaway")
    assert "foldaway" in loaded
    assert not loaded & {"numpy", "pyarrow", *HEAVY}


def test_dir_shows_what_there_is() -> None:
    assert set(dir(fa)) == {*fa.__all__, "__version__"}
    assert all(getattr(fa, name) is not None for name in fa.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Trail'"):
        fa.Trail  # noqa: B018


def test_making_and_reading_a_plan_loads_nothing_heavy() -> None:
    plan = "foldaway.Plan(name='p', arm='g', arms={'a': 0.5, 'b': 0.5}, outcomes=['y'])"
    assert not loaded_by(f"import foldaway\nfoldaway.Trial(foldaway.Plan.loads({plan}.to_toml()))") & set(HEAVY)


def test_a_plan_is_calibrated_by_whoever_has_loaded_nothing_else() -> None:
    plan = "Plan(name='p', arm='g', arms={'a': 0.5, 'b': 0.5}, outcomes=['y'], covariates=['x'])"
    records = "{'x': list(range(2000)), 'y': [3 * x + x % 5 for x in range(2000)]}"
    assert "foldaway.calibrating" in loaded_by(f"from foldaway.plan import Plan\n{plan}.calibrated({records})")


def test_a_module_that_is_loaded_is_seen() -> None:
    """So that the tests above can fail."""
    assert loaded_by("import rich") & set(HEAVY) == {"rich"}


def test_importing_writes_nothing_and_says_nothing(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    written = (
        "import sys\n"
        "written = []\n"
        "def audit(event, args):\n"
        "    writes = event == 'open' and (args[2] or 0) & 3\n"
        "    if writes or event in ('os.mkdir', 'os.rename', 'os.remove', 'socket.connect', 'subprocess.Popen'):\n"
        "        written.append((event, str(args)))\n"
        "sys.addaudithook(audit)\n"
        "import foldaway, threading\n"
        "assert not written, written\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", written], cwd=work, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(home.iterdir()) + list(work.iterdir())

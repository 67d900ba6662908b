"""Library and command line do without what only POSIX has; the service says that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

LIBRARY = """
import importlib, json, os, pkgutil, sys, tempfile
from pathlib import Path
import foldaway
skipped = ("foldaway.service", "foldaway.__main__")
modules = [m.name for m in pkgutil.walk_packages(foldaway.__path__, "foldaway.", onerror=lambda name: None)]
for name in modules:
    if not name.startswith(skipped):
        importlib.import_module(name)

from foldaway import cli
from foldaway.keeping.planted import require_private
from foldaway.keeping.locks import locked
from foldaway.forgetting import harden

assert not hasattr(harden.os, "fork") and harden._limits() is None and harden.os.name == "nt", "nothing is hidden"
require_private(Path("device"))
with locked(Path("state")):
    try:
        with locked(Path("state"), ValueError("taken")):
            raise AssertionError
    except ValueError:
        pass

def run(*words):
    sys.argv = ["foldaway", *words]
    return cli.exit_code()

codes = {
    "demo": run("demo", "--records", "3000"),
    "run": run("run", "plan.toml", "one.csv", "two.csv", "--processes", "2", "--save", "state", "--harden"),
    "more": run("run", "plan.toml", "three.csv", "--resume", "state", "--save", "state"),
    "effects": run("effects", "state"),
    "report": run("report", "state", "--output", "report.html"),
    "end": run("end", "state", "--yes"),
    "serve": run("serve", "--data", "trials"),
}
print(json.dumps({"modules": len(modules), "codes": codes}))
"""


def test_library_and_command_line_do_without_posix(tmp_path: Path) -> None:
    plan = 'name = "p"\narm = "g"\noutcomes = ["y"]\nunit = "u"\n\n[arms]\na = 0.5\nb = 0.5\n\n[privacy]\ncohort = 20\n'
    (tmp_path / "plan.toml").write_text(plan)
    for number, name in enumerate(("one", "two", "three")):
        lines = [f"{'ab'[i % 2]},{i % 7},u{number}-{i}" for i in range(400)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["g,y,u", *lines]))
    # Windows writes to pipes in an encoding that lacks many characters.
    path = os.pathsep.join([str(HERE / "without_posix"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "cp1252", "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=tmp_path, env=environment, capture_output=True, encoding="cp1252"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["modules"] > 200
    assert found["codes"] == {**dict.fromkeys(found["codes"], 0), "serve": 1}, done.stderr
    assert "1,200 records" in done.stdout + done.stderr
    assert "freed memory is not overwritten here" in done.stderr
    assert "the service needs Linux or macOS" in done.stderr

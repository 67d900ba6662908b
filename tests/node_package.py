"""The npm package of devices, built once for all processes that run tests: by what `clients/typescript` pins."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from postgres import INSTALL

SOURCE = Path(__file__).parents[1] / "clients"
NODE, NPM = shutil.which("node"), shutil.which("npm")


@pytest.fixture(scope="session")
def node_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built package; `dist/src` is what is published."""
    if NODE is None or NPM is None:
        reason = f"Node or npm is missing; get them with {INSTALL}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    clients, built = shared / "clients", shared / "clients.built"
    with (shared / "clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            ignored = shutil.ignore_patterns("node_modules", "dist")
            shutil.copytree(SOURCE, clients, ignore=ignored, dirs_exist_ok=True)
            _run([str(NPM), "ci", "--no-audit", "--no-fund"], clients / "typescript")
            _run([str(NPM), "run", "build"], clients / "typescript")
            built.touch()
    return clients / "typescript"


def node_tests(package: Path, name: str, **environment: str) -> str:
    """Run the tests of a file with Node; what it printed, which the failure of a test also is."""
    return _run([str(NODE), "--test", f"dist/test/{name}.test.js"], package, **environment)


def _run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout

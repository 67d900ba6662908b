"""The Python client's package: small, with nothing that it needs, and nothing in it that it should not have."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "clients/python"

MOST_BYTES = 60_000


def test_the_wheel_is_small_and_whole(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=PACKAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        needs = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
        assert [line.endswith("extra == 'shares'") for line in needs] == [True]
    source = PACKAGE / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in (".py", ".typed")}
    assert names == modules


def test_it_needs_nothing_but_python() -> None:
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert declared["dependencies"] == []
    alone = (
        "import sys\n"
        "import foldaway_device\n"
        "ours = {'foldaway_device'}\n"
        "others = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - ours - {'__main__'}\n"
        "assert not {name for name in others if not name.startswith('_')}, others\n"
        "assert 'ssl' not in sys.modules and 'urllib.request' not in sys.modules  # before it talks\n"
    )
    source = {"PYTHONPATH": str(PACKAGE / "src")}
    done = subprocess.run([sys.executable, "-S", "-c", alone], capture_output=True, text=True, env=source)
    assert done.returncode == 0, done.stderr


def test_the_licence_is_that_of_the_whole() -> None:
    assert (PACKAGE / "LICENSE").read_bytes() == (PACKAGE.parents[1] / "LICENSE").read_bytes()

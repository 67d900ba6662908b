"""Builds wheel and sdist into dist/ and tries them where nothing else is installed: `make package`.

Every environment is new and gets the wheel, one extra (or none, or all) and what these ask for, at the versions of
requirements/dev.txt. What runs in it is what a user of that extra does first.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"

FOLD = """
import foldaway as fa
from foldaway.simulation.demo import PLAN
from foldaway.simulation.datasets import checkout
trial = fa.Trial(PLAN)
for records in checkout(4_000):
    trial.fold(records)
effects = trial.effects()
"""

LIBRARY = f"""
{FOLD}
assert len(effects) > 0 and "checkout" in effects.to_html() + str(PLAN.name)
trial.save("state.fold")
fa.Trial.load("state.fold").effects()
for call in (effects.to_pandas, effects.to_polars, effects.plot):
    try:
        call()
    except ImportError as missing:
        assert "pip install 'foldaway[" in str(missing)
    else:
        raise AssertionError("more is installed than was asked for")
"""

SERVICE = """
import subprocess, sys, httpx
from foldaway.client import Client
from foldaway.simulation.demo import PLAN
command = [sys.executable, "-m", "foldaway", "serve", "--data", "trials", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    url = server.stdout.readline().split()[-1]
    token = open("trials/admin.token").read().strip()
    assert httpx.get(url + "/ready").status_code == 200
    assert "<html" in httpx.get(url + "/").text
    with Client(url, token) as client:
        client.create(PLAN.to_toml())
        assert client.status(PLAN.name)["status"] == "open"
finally:
    server.terminate()
assert server.wait(60) == 0
"""

# By extra; what several need is there with each.
FIRST_STEPS = {
    "": LIBRARY,
    "client": "from foldaway.client import Client",
    "dask": "import foldaway.engines.dask, dask.dataframe, distributed",
    "kafka": "import foldaway.sources.brokers.kafka",
    "nats": "import foldaway.sources.brokers.nats",
    "pandas": f"{FOLD}\nassert len(effects.to_pandas()) == len(effects)",
    "plot": f"{FOLD}\neffects.plot()",
    "polars": f"{FOLD}\nassert len(effects.to_polars()) == len(effects)",
    "redis": "import foldaway.sources.brokers.redis",
    "release": "import foldaway.tallies.release, opendp",
    "serve": SERVICE,
    "spark": "import foldaway.engines.spark, pyspark",
    "sql": "import foldaway.engines.sql.statement",
}


def main() -> None:
    """Build, compare, install, try."""
    for old in DIST.glob("foldaway-*"):
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {*declared, ""} == set(FIRST_STEPS), "an extra without its first steps"
    with tempfile.TemporaryDirectory(prefix="foldaway-package-") as place:
        folder = Path(place)
        check_contents(wheel, sdist, folder)
        versions = folder / "versions.txt"
        pinned = (line.split()[0] for line in (ROOT / "requirements/dev.txt").read_text().splitlines() if "==" in line)
        versions.write_text("\n".join(pinned))
        wanted = sys.argv[1:] or [*FIRST_STEPS, "all"]
        for extra in wanted:
            extras = ",".join(declared) if extra == "all" else extra
            steps = list(FIRST_STEPS.values())[1:] if extra == "all" else [FIRST_STEPS[extra]]
            try_installed(folder / (extra or "plain"), f"{wheel}[{extras}]" if extras else str(wheel), versions, steps)
            print(f"foldaway{f'[{extra}]' if extra else ''}: works in an empty environment", flush=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(DIST), cwd=ROOT / "clients/python")


def check_contents(wheel: Path, sdist: Path, folder: Path) -> None:
    """The sdist makes the same wheel, and this has all of the package and nothing else."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (unpacked,) = (folder / "sdist").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", cwd=unpacked)
    (again,) = (unpacked / "dist").glob("*.whl")
    assert contents(again) == contents(wheel), "the sdist makes another wheel"
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/foldaway").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == package


def contents(wheel: Path) -> dict[str, int]:
    """The names of a wheel's files, and their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


def try_installed(folder: Path, wheel: str, versions: Path, steps: list[str]) -> None:
    """Install the wheel into an empty environment, and take a user's first steps there."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    python = programs / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", versions, wheel)
    run(python, "-m", "pip", "check")
    work = folder / "work"
    work.mkdir()
    run(programs / "foldaway", "--version", cwd=work)
    run(programs / "foldaway", "demo", "--records", "3000", cwd=work, stdout=subprocess.DEVNULL)
    for step in steps:
        run(python, "-W", "error::DeprecationWarning:foldaway", "-c", step, cwd=work)


def run(*command: object, cwd: Path = ROOT, stdout: int | None = None) -> None:
    """Run a command to its end, which must be a good one."""
    subprocess.run([str(word) for word in command], cwd=cwd, stdout=stdout, check=True)


if __name__ == "__main__":
    main()

"""`tools/run_tests.py`, by which a change is judged: what failed may run once more, and no rule turns a fault green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

# A test that fails in the first session alone, and notes in a file that it has run.
FLAKY = """
from pathlib import Path
import pytest

def flaky(name):
    path = Path(name + ".ran")
    first = not path.exists()
    path.write_text(path.read_text() + "." if path.exists() else ".")
    assert not first, "the first time"
"""


def judged(folder: Path, tests: str, *words: str, conftest: str = "", plugins: str = "") -> Any:
    """What the script says of these tests; a process in a folder of its own."""
    (folder / "test_it.py").write_text(FLAKY + tests)
    (folder / "conftest.py").write_text(conftest)
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider --strict-markers\nmarkers = once: once\n"
    )
    measuring = {name: value for name, value in os.environ.items() if name.startswith(("COV", "PYTEST"))}
    env = {name: value for name, value in os.environ.items() if name not in measuring}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": f"xdist.plugin{plugins}"}
    command = [sys.executable, str(ROOT / "tools/run_tests.py"), *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def runs(folder: Path, name: str) -> int:
    """How often a flaky test has run."""
    path = folder / f"{name}.ran"
    return len(path.read_text()) if path.exists() else 0


def test_a_session_without_a_failure_passes(tmp_path: Path) -> None:
    done = judged(tmp_path, "def test_well(): pass\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "build").exists()


def test_what_failed_passes_the_second_time_alone_and_its_name_is_kept(tmp_path: Path) -> None:
    tests = (
        "@pytest.mark.parametrize('of', ['a::b', 'c'])\ndef test_shaky(of): flaky(of[0])\ndef test_well(): flaky('w')\n"
    )
    (tmp_path / "w.ran").write_text(".")
    done = judged(tmp_path, tests, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    names = ["test_it.py::test_shaky[a::b]", "test_it.py::test_shaky[c]"]
    assert sorted((tmp_path / "build/failed_first.txt").read_text().split()) == names
    assert all(name in done.stdout.split("=== failed first ===")[1] for name in names)
    assert [runs(tmp_path, name) for name in ("a", "c", "w")] == [2, 2, 2]


@pytest.mark.parametrize(
    "second",
    [pytest.param("assert False", marks=pytest.mark.slow), "first or pytest.skip('not now')"],
    ids=["fails", "skipped"],
)
def test_what_does_not_pass_the_second_time_has_failed(second: str, tmp_path: Path) -> None:
    tests = f"def test_shaky():\n    first = runs() == 0\n    {second}\n    flaky('a')\n"
    tests += "def runs(): return Path('a.ran').exists()\n"
    done = judged(tmp_path, tests)
    assert done.returncode == 1
    assert "not passed the second time either: test_it.py::test_shaky" in done.stderr


def test_no_more_than_three_run_again(tmp_path: Path) -> None:
    for few, code in ((3, 0), (4, 1)):
        folder = tmp_path / str(few)
        folder.mkdir()
        done = judged(folder, f"@pytest.mark.parametrize('i', range({few}))\ndef test_shaky(i): flaky(str(i))\n")
        assert done.returncode == code
        assert [runs(folder, str(i)) for i in range(few)] == [2 - code] * few


@pytest.mark.parametrize("words", [[], ["-n", "1"]], ids=["here", "worker"])
def test_a_test_of_kills_never_runs_again_nor_any_beside_it(words: list[str], tmp_path: Path) -> None:
    """Whether the test itself is marked or its file."""
    (tmp_path / "test_file.py").write_text(FLAKY + "pytestmark = [pytest.mark.once]\ndef test_crash(): flaky('c')\n")
    done = judged(tmp_path, "@pytest.mark.once\ndef test_kill(): flaky('k')\ndef test_shaky(): flaky('a')\n", *words)
    assert done.returncode == 1
    assert "never run again have failed: test_file.py::test_crash, test_it.py::test_kill." in done.stderr
    assert [runs(tmp_path, name) for name in "cka"] == [1, 1, 1]


@pytest.mark.parametrize(
    ("tests", "conftest", "words"),
    [
        ("def test_z(): raise KeyboardInterrupt", "", ()),
        ("def test_z(): pytest.exit('enough', returncode=1)", "", ()),
        pytest.param("def test_z(): pytest.exit('enough', returncode=0)", "", (), marks=pytest.mark.slow),
        pytest.param(
            "def test_z(): Path('z').exists() or (Path('z').touch(), __import__('os')._exit(0))",
            "",
            (),
            marks=pytest.mark.slow,
        ),
        ("def test_z(): Path('z').exists() or (Path('z').touch(), __import__('os')._exit(1))", "", ("-n", "1")),
        (
            "def test_z(): pass",
            "def pytest_runtest_teardown(item):\n    if 'z' in item.name: item.session.shouldstop = 'x'",
            (),
        ),
        (
            "",
            "import os\ndef pytest_sessionfinish(session): hasattr(session.config, 'workerinput') and os._exit(1)",
            ("-n", "1"),
        ),
        ("def test_z(): pass", "def pytest_runtest_logfinish(nodeid):\n    assert 'z' not in nodeid", ()),
    ],
    ids=[
        "interrupted",
        "left with 1",
        "left with 0",
        "gone",
        "worker crashed",
        "stopped",
        "worker crashed at its end",
        "internal error",
    ],
)
def test_a_session_that_is_not_complete_has_failed(tests: str, conftest: str, words: Any, tmp_path: Path) -> None:
    done = judged(tmp_path, f"def test_shaky(): flaky('a')\n{tests}\ndef test_zz(): pass\n", *words, conftest=conftest)
    assert done.returncode == 1
    assert "the session is not complete" in done.stderr
    assert runs(tmp_path, "a") == 1


@pytest.mark.parametrize("words", [[], ["-n", "1"]], ids=["here", "worker"])
def test_a_file_that_cannot_be_collected_fails_the_session(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text("import nothing_of_this_name")
    done = judged(tmp_path, "def test_shaky(): flaky('a')\n", *words, "--continue-on-collection-errors")
    assert done.returncode == 1
    assert "the session is not complete" in done.stderr
    assert runs(tmp_path, "a") < 2


def test_no_tests_at_all_are_a_failure(tmp_path: Path) -> None:
    done = judged(tmp_path, "")
    assert done.returncode == 1
    assert "exit code 5" in done.stderr


LAW = "from law import one, two\ndef test_one(): one()\ndef test_two():\n    flaky('a')\n    two()\n"


@pytest.mark.parametrize(
    ("known", "limit", "code"),
    [(False, 100, 0), pytest.param(False, 101, 1, marks=pytest.mark.slow), (True, 101, 1)],
    ids=["both sessions cover all", "too little, and a failure", "too little, no failure"],
)
def test_coverage_is_that_of_both_sessions_and_has_its_limit(
    known: bool, limit: int, code: int, tmp_path: Path
) -> None:
    more = "" if limit == 100 else "def three():\n    return 3\n"
    (tmp_path / "law.py").write_text(f"def one():\n    return 1\ndef two():\n    return 2\n{more}")
    (tmp_path / ".coveragerc").write_text("[run]\nsource_pkgs = law\nparallel = true\n[report]\nfail_under = 100\n")
    if known:
        (tmp_path / "a.ran").write_text(".")
    done = judged(tmp_path, LAW, "-n", "1", "--cov", "--cov-report=term", plugins=",pytest_cov.plugin")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("coverage above is too low" in done.stderr) is bool(code)
    assert "not complete" not in done.stderr
    assert runs(tmp_path, "a") == 2


def test_what_is_missing_is_said_though_tests_failed(tmp_path: Path) -> None:
    """The recipe of the Makefile, in a folder whose Python fails and passes as it is told."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    programs = {
        ".venv/bin/python": "#!/bin/sh\nexit $TESTS\n",
        "tools/install_test_services.sh": '#!/bin/sh\n[ -z "$1" ] || { echo "Not run: $1"; exit $SERVICES; }\n',
    }
    for name, text in programs.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for target in ("test", "long"):
        for tests, services in ((0, 0), (1, 0), (0, 1)):
            env = {**os.environ, "TESTS": str(tests), "SERVICES": str(services), "MAKEFLAGS": ""}
            words = ["make", target, "-o", ".venv/.dev-stamp"]
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
            assert "Not run: --missing" in done.stdout, done.stdout + done.stderr
            assert (done.returncode == 0) is (tests == services == 0)

"""Runs pytest, and what failed once more, so that a busy machine fails no change and a fault passes none.

`python tools/run_tests.py WORDS…` takes pytest's own words. Hundreds of tests start servers and wait for them, and on a
busy machine one may wait too long; so tests that failed may run again, one after the other. The rules:

- Only a complete session has a second chance. One that was interrupted, that could not collect a file, or that lost a
  worker has failed.
- At most three tests run again, and each of them must pass then; to be skipped is not enough.
- A test marked `once`, of kills or of what counts exactly once, never runs again: it may have found a rare fault.
- Coverage is that of both sessions together, and is held against `fail_under` whatever else happened.

The names of tests that failed first are printed, and added to `build/failed_first.txt`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MOST = 3
RECORDED = Path(__file__).with_name("recorded_tests.py")
NAMES = Path("build/failed_first.txt")


class Session(NamedTuple):
    """How a session of pytest went, as `recorded_tests.py` writes it down.

    Attributes:
        aborted: Why it is not complete; empty if it is.
        failed: The tests that failed.
        once: Those of them that never run again.
        passed: The tests that passed.
    """

    aborted: str
    failed: Sequence[str] = ()
    once: Sequence[str] = ()
    passed: Sequence[str] = ()


def run(words: Sequence[str]) -> Session:
    """Run pytest with these words in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "session.json")
        code = subprocess.run([sys.executable, RECORDED, path, *words], check=False).returncode
        found = json.loads(path.read_text("utf-8")) if path.exists() else {"aborted": "it ended without a word"}
    session = Session(**found)
    if not session.aborted and code != (1 if session.failed else 0):
        session = session._replace(aborted=f"pytest ended with exit code {code}")
    return session


def verdict(words: Sequence[str]) -> str:
    """Run the tests by the rules: why they have failed; empty if they have passed."""
    first = run(words)
    if first.failed:
        said = "".join(f"  {name}\n" for name in first.failed)
        print(f"\n=== failed first ===\n{said}", end="", flush=True)
        NAMES.parent.mkdir(exist_ok=True)
        with NAMES.open("a", encoding="utf-8") as names:
            names.write(said)
    if first.aborted:
        return f"the session is not complete: {first.aborted}."
    if first.once:
        return f"tests that never run again have failed: {', '.join(first.once)}."
    if len(first.failed) > MOST:
        return f"{len(first.failed)} tests have failed, and no more than {MOST} may run again."
    if not first.failed:
        return ""
    print("\n=== they run once more, one after the other ===", flush=True)
    again = run([*words, *(["--cov-append"] if measured(words) else []), "-n", "0", *first.failed])
    if again.aborted:
        return f"the second session is not complete: {again.aborted}."
    left = [name for name in first.failed if name not in again.passed]
    return f"these have not passed the second time either: {', '.join(left)}." if left else ""


def measured(words: Sequence[str]) -> bool:
    """Whether coverage is measured."""
    return any(word == "--cov" or word.startswith("--cov=") for word in words)


def main(words: Sequence[str]) -> int:
    """Run the tests and hold the coverage of both sessions against `fail_under`; the exit code."""
    covered = 0
    if measured(words):  # a limit in a session would be one for that session alone
        why = verdict([*words, "--cov-fail-under=0"])
        covered = subprocess.run([sys.executable, "-m", "coverage", "report", "--format=total"], check=False).returncode
    else:
        why = verdict(words)
    if covered:
        print("\n=== failed: the coverage above is too low, or could not be read ===", file=sys.stderr)
    if why:
        print(f"\n=== failed: {why} ===", file=sys.stderr)
    return 1 if why or covered else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

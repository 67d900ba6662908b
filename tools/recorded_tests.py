"""A session of pytest that writes down how it went, for `run_tests.py`: `recorded_tests.py FILE WORDS…`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


class Record:
    """A plugin of pytest, loaded where the session is led and not in its workers.

    Args:
        path: The file that it writes when the session ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._expected: set[str] = set()
        self._finished: set[str] = set()
        self._called: set[str] = set()
        self._failed: dict[str, bool] = {}
        self._aborted = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tests that are to run in this process."""
        self._expected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Tests that are to run in workers."""
        self._expected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """A worker has ended, or crashed."""
        if error:
            self._aborted = "a worker crashed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file was collected, or could not be."""
        if report.failed:
            self._aborted = f"{report.nodeid} could not be collected"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown has ended."""
        if report.failed:
            self._failed[report.nodeid] = "once" in report.keywords
        elif report.when == "call" and report.passed:
            self._called.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self._finished.add(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """The session ends: what is written says whether it is complete."""
        if missing := len(self._expected - self._finished):
            self._aborted = self._aborted or f"{missing} tests were not run"
        once = [name for name, never_again in self._failed.items() if never_again]
        passed = sorted(self._called - self._failed.keys())
        session = {"aborted": self._aborted, "failed": list(self._failed), "once": once, "passed": passed}
        self._path.write_text(json.dumps(session), "utf-8")


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # as `python -m pytest` has it
    sys.exit(pytest.main(sys.argv[2:], plugins=[Record(Path(sys.argv[1]))]))

"""What `docs/site.md` tells a hospital's data manager, row by row: the words are printed, and what they say works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from commands import foldaway
from devices import Hosted
from served import Served, eventually
from servers import Nursery

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/site.md").read_text("utf-8")
CHECK, RUN = ((*line.split("#")[0].split()[1:],) for line in re.findall(r"^foldaway site run .*", PAGE, re.MULTILINE))
ROWS = re.findall(r"^\| (?:\"(.+?)\"|.*?)[^|]*\| (.+?) \|$", PAGE.split("|---|---|")[1], re.MULTILINE)
FAULTY, TOO_FAULTY, TOO_FEW, DONE, BROKEN, ALREADY = [words for words, _ in ROWS if words]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from) as found:
        yield found


class Hospital:
    """A folder with the plan and records, where somebody types what the page says."""

    def __init__(self, server: Served, name: str, folder: Path) -> None:
        arms, privacy = {"usual": 0.5, "new": 0.5}, fa.Privacy(cohort=30, smallest_cell=5)
        settings: dict[str, Any] = {"unit": "patient", "drop_limit": 0.05, "federated": "sums", "privacy": privacy}
        self.trial = Hosted(server, fa.Plan(name=name, arm="arm", arms=arms, outcomes=["days"], **settings))
        self.trial.plan.save(folder / "plan.toml")
        self.folder = folder
        token = self.trial.site(label="Aarhus")
        self.env = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": token, "HOME": str(folder)}

    def has(self, patients: int, *, empty: int = 0) -> None:
        """Write the records, of which some lack the outcome."""
        who = np.arange(patients)
        days = np.where(who < empty, np.nan, who % 9)
        rows = pd.DataFrame({"patient": who, "arm": np.where(who % 2, "new", "usual"), "days": days})
        rows.to_csv(self.folder / "records.csv", index=False)

    def types(self, *words: str, code: int = 0) -> str:
        """What a command says, at a terminal's width, in one line."""
        ended = foldaway(*words, code=code, folder=self.folder, env=self.env)
        assert max(map(len, ended.stdout.splitlines()), default=0) <= 80
        return " ".join((ended.stdout + ended.stderr).split())

    def counted(self) -> int:
        return sum(self.trial.status()["reported"].values())


def test_the_page_has_a_row_for_whatever_else_happens_and_shows_the_folder_that_is_used() -> None:
    assert len(ROWS) == 7
    assert ROWS[-1][0] == ""
    assert "`.foldaway` in your home folder" in dict(ROWS)[DONE]
    assert CHECK[:-1] == RUN
    (install,) = re.findall(r"pip install 'foldaway\[(\w+)\]'", PAGE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert any(each.startswith("httpx") for each in extras[install])


def test_of_too_few_nothing_is_sent_and_with_more_the_same_command_is_enough(server: Served, tmp_path: Path) -> None:
    hospital = Hospital(server, "manager-few", tmp_path)
    hospital.has(50)
    for words in (CHECK, RUN):
        assert f"{TOO_FEW} 25 units in the arm usual and 25 units" in hospital.types(*words, code=1)
    assert hospital.counted() == 0
    hospital.has(120)
    assert DONE not in hospital.types(*CHECK)
    assert hospital.counted() == 0
    assert not (tmp_path / ".foldaway").exists()
    assert DONE in hospital.types(*RUN)
    assert (tmp_path / ".foldaway/manager-few.site").exists()
    assert hospital.counted() == 120


def test_faulty_records_above_the_limit_stop_everything_and_below_it_only_themselves(
    server: Served, tmp_path: Path
) -> None:
    hospital = Hospital(server, "manager-faulty", tmp_path)
    hospital.has(200, empty=20)
    for words in (CHECK, RUN):
        assert f"{TOO_FAULTY} than the 5 % that the plan allows (`drop_limit`): days: 20 null" in hospital.types(
            *words, code=1
        )
    hospital.has(200, empty=4)
    for words in (CHECK, RUN):
        said = hospital.types(*words)
        assert f"4 records of 200 {FAULTY}" in said
        assert "usual days null 2" in said
    assert hospital.counted() == 196


def test_after_a_break_the_same_command_is_counted_once(server: Served, tmp_path: Path) -> None:
    """The coordinator is away, the data manager loses patience; then again, and once more."""
    hospital = Hospital(server, "manager-broken", tmp_path)
    hospital.has(200)
    server.kill()
    words = [sys.executable, "-m", "foldaway", *RUN]
    with subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, **hospital.env}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as site:
        assert site.stderr is not None
        assert BROKEN in site.stderr.readline().decode()
        time.sleep(0.5)
        site.send_signal(signal.SIGINT)
        site.wait(30)
    server.start()
    assert DONE in hospital.types(*RUN)
    assert "did not count them again" in hospital.types(*RUN)
    eventually(lambda: hospital.counted() == 200)


def test_as_patients_come_all_records_replace_those_sent_before(server: Served, tmp_path: Path) -> None:
    hospital = Hospital(server, "manager-growing", tmp_path)
    hospital.has(120)
    hospital.types(*RUN)
    hospital.has(150)
    assert ALREADY in hospital.types(*RUN, code=1)
    assert "15 units more in the arm usual" in hospital.types(*RUN, "--replace", code=1)
    assert hospital.counted() == 120
    hospital.has(180)
    assert DONE in hospital.types(*RUN, "--replace")
    assert hospital.counted() == 180


def test_no_error_quotes_a_record(server: Served, tmp_path: Path) -> None:
    hospital = Hospital(server, "manager-other", tmp_path)
    hospital.env["FOLDAWAY_TOKEN"] = "fa_misspelt"
    (tmp_path / "records.csv").write_text("patient;arm;days\n271828;new;4\n")
    assert "271828" not in hospital.types(*RUN, code=1)
    hospital.has(120)
    for words in (CHECK, RUN):
        assert "a site needs one from foldaway token issue site" in hospital.types(*words, code=1)

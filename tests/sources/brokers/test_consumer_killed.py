"""`foldaway consume`, killed with SIGKILL: every message counts once, and the broker forgets what is folded."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import foldaway as fa
from brokers import Server
from consuming import fresh_name
from crashing import digits, plan_of
from killing import kill_often, table
from servers import Nursery

pytestmark = pytest.mark.once

BATCHES = 48


@pytest.mark.slow
def test_killed_again_and_again_every_message_counts_once(broker: Server, served_from: Nursery, tmp_path: Path) -> None:
    tale = kill_often(broker, served_from, tmp_path, fresh_name(), 4, random.Random(3), BATCHES)
    assert tale.counted == Counter({1: BATCHES})
    assert tale.apart < 1e-9
    assert tale.held == 0
    assert tale.states > 1


def test_a_message_left_out_or_folded_twice_would_show() -> None:
    trial = fa.Trial(plan_of("digits"))
    for index in (0, 1, 1, 3):
        trial.fold(table(index))
    assert digits(trial.effects())[:4] == [1, 2, 0, 1]

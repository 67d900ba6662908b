"""The laws of an account, whatever store it has: each batch counts once, and two states are a cohort apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import foldaway as fa
from foldaway.account.account import Account, AccountStore, Durable
from foldaway.account.stream_file import StreamFile
from foldaway.account.trial_file import TrialFile
from foldaway.errors import Conflict, Unavailable
from foldaway.keeping.folded_files import FilePositions
from foldaway.keeping.saved import StreamPositions
from foldaway.service.collecting.record_store import RecordStore
from foldaway.service.database.store import Store as Database
from plans import SMALL
from stores import VAULT

COHORT = 20
PLAN = fa.Plan(**SMALL, unit="unit", privacy=fa.Privacy(cohort=COHORT))
KEY = bytes(16)
Stored = Durable[fa.Trial, Any]


class Memory(AccountStore[fa.Trial, StreamPositions]):
    """The shortest store there is, which the laws are tried with, too."""

    def __init__(self) -> None:
        self.durable = Durable(fa.Trial(PLAN, key=KEY), StreamPositions("s"))

    def read(self) -> Stored:
        return self.durable

    def write(self, was: Stored, tallies: fa.Trial, reached: StreamPositions) -> Stored:
        if was.version != self.durable.version:
            raise Conflict("somebody else has written.")
        self.durable = Durable(tallies.copy(), reached, was.version + 1)
        return self.durable


class Failing(AccountStore[fa.Trial, Any]):
    """Another store, which now and then fails, before it has written or after."""

    def __init__(self, store: AccountStore[fa.Trial, Any], rng: random.Random) -> None:
        self.store, self.rng = store, rng
        self.states = [0]

    def read(self) -> Stored:
        return self.store.read()

    def write(self, was: Stored, tallies: fa.Trial, reached: Any) -> Stored:
        if self.rng.random() < 0.2:
            raise Unavailable("the store does not answer.")
        durable = self.store.write(was, tallies, reached)
        self.states.append(durable.tallies.n)
        if self.rng.random() < 0.2:
            raise Unavailable("the connection broke.")
        return durable


def in_a_file(folder: Path) -> AccountStore[fa.Trial, Any]:
    return TrialFile(folder / "state", PLAN, FilePositions(bytes(16), {}), key=KEY, resume=folder / "state")


def in_a_folder(folder: Path) -> AccountStore[fa.Trial, Any]:
    return StreamFile(folder, PLAN, "s", key=KEY)


def in_a_database(folder: Path) -> AccountStore[fa.Trial, Any]:
    database = Database.open(str(folder), VAULT)
    database.create_trial(PLAN, KEY)
    return RecordStore(database, PLAN.name, "main")


STORES: dict[str, Callable[[Path], AccountStore[fa.Trial, Any]]] = {
    "a file": in_a_file,
    "a stream's file": in_a_folder,
    "a database": in_a_database,
    "memory": lambda folder: Memory(),
}


def people(first: int, n: int) -> dict[str, list[Any]]:
    units = range(first, first + n)
    return {"group": ["ab"[i % 2] for i in units], "y": [float(i) for i in units], "unit": [f"u{i}" for i in units]}


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_what_is_durable_is_a_cohort_apart_and_nothing_is_lost(
    name: str, seed: int, tmp_path: Path
) -> None:
    """The source sends again what is not durable, as every source does."""
    rng = random.Random(seed)
    store = Failing(STORES[name](tmp_path), rng)
    account, sent, total = Account[fa.Trial, Any](store), 0, 20 * COHORT
    while account.durable.tallies.n < total:
        size = min(rng.choice((1, 2, COHORT - 1, COHORT, 3 * COHORT)), total - sent)
        batch = people(sent, size)
        account.take(lambda live, batch=batch: live.fold(batch))  # type: ignore[misc]
        sent += size
        assert account.pending == sent - account.durable.tallies.n
        assert account.is_due() == (account.pending >= COHORT)
        with suppress(Unavailable):
            if account.is_due() or sent == total:
                account.commit()
            continue
        account.fall_back()
        sent = account.live.n
    whole = fa.Trial(PLAN, key=KEY)
    whole.fold(people(0, total))
    assert store.read().tallies.counts == whole.counts
    for row, other in zip(store.read().tallies.effects(), whole.effects(), strict=True):
        assert (row.estimate, row.std_error) == pytest.approx((other.estimate, other.std_error), rel=1e-9)
    apart = [after - before for before, after in pairwise(store.states) if after != total]
    assert min(apart) >= COHORT


def test_what_somebody_else_has_written_is_not_overwritten() -> None:
    store = Memory()
    one, two = Account(store), Account(store)
    for account, first in ((one, 0), (two, 100)):
        account.take(lambda live, first=first: live.fold(people(first, COHORT)))  # type: ignore[misc]
    one.commit()
    with pytest.raises(Conflict):
        two.commit()
    assert (two.pending, two.live.n) == (0, COHORT)
    two.take(lambda live: live.fold(people(100, COHORT)))
    two.commit()
    assert store.read().tallies.n == 2 * COHORT


def test_a_copy_is_what_was_there_whatever_comes_after() -> None:
    account = Account(Memory())
    account.take(lambda live: live.fold(people(0, 5)))
    before = account.copy()
    account.take(lambda live: live.fold(people(5, COHORT)))
    assert (before.pending, before.is_due(), account.pending, account.is_due()) == (5, False, 5 + COHORT, True)
    account.commit()
    assert (before.live.n, account.live.n, account.pending) == (5, 5 + COHORT, 0)

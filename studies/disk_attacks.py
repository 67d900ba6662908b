"""What do disks give away? Attacks on what databases and file systems still hold of former versions, and planted keys.

Somebody has the files of a server, or of a user, and keys besides: all those that are left when a trial has ended.
`tests/studies/test_disk_attacks.py` runs them small.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import foldaway as fa
from foldaway.errors import FoldawayError, TooEarly
from foldaway.keeping.saved import loads
from foldaway.keeping.secret import Secret, read_or_make_key
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.keys.vault import Vault, key_id
from foldaway.sources.formats.body import JSON, Limits
from studies import findings
from studies.findings import Findings, options_of, publish

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

NAME = "disk_attacks"
TRIAL_KEY = bytes(range(16))
UNITS = 64
"""Units that come between two states."""

_CHUNK = 1996  # bytes of a value that PostgreSQL puts into one row of its own, if it is too long for its table's


def plan_of(**settings: Any) -> fa.Plan:
    """A plan under which nearly every unit is alone in its group: a state is as much as there can be to find."""
    return fa.Plan(
        **{
            "name": "target",
            "arm": "arm",
            "arms": {"control": 0.5, "treatment": 0.5},
            "outcomes": ["amount"],
            "unit": "who",
            "expected_units": 4096 * 2 * 2,
            "privacy": fa.Privacy(cohort=UNITS, smallest_cell=2),
            **settings,
        }
    )


def people(batch: int, seed: int) -> list[dict[str, Any]]:
    """Records of a cohort of new units, with amounts to the cent."""
    rng = np.random.default_rng([seed, batch])
    amounts = np.round(rng.lognormal(3, 1, UNITS), 2)
    who = range(UNITS * batch, UNITS * (batch + 1))
    return [{"arm": ("control", "treatment")[i % 2], "who": f"u{i}", "amount": amounts[i % UNITS]} for i in who]


# A database.

STATES, AMOUNTS = "former states of a trial that has ended", "amounts in them, to the cent"


class Left(NamedTuple):
    """What an attacker finds: the master key, the database's write-ahead log and tables, and other files of keys."""

    master: bytes
    files: list[bytes]
    keys: list[bytes]


def closed_trial(postgres: Any, versions: Path, commits: int, seed: int) -> Left:
    """A server's trial in PostgreSQL, from its first record to its end; then all files that are left."""
    address, master = postgres.database(), secrets.token_bytes(32)
    with patch.dict(os.environ, {"XDG_STATE_HOME": str(versions)}):
        store = Store.open(address, Vault([master]))
        service = Service(store, "main", Limits())
        service.create(plan_of().to_toml())
        for batch in range(commits):
            body = bytearray(json.dumps(people(batch, seed)).encode())
            (receipt,) = service.records.receive("target", [(body, Sent(JSON))])
            assert not isinstance(receipt, FoldawayError), receipt
            assert not receipt.pending
        service.end("target")
        store.close()
    postgres.execute("CHECKPOINT")  # as it does by itself in the end
    log = [_without_heads(file) for file in _contents(postgres.data / "pg_wal")]
    left = Left(master, log + _contents(postgres.data / "base"), _contents(versions))
    postgres.drop(address)
    return left


def _contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()]


def _without_heads(segment: bytes) -> bytes:
    """A segment of the log without what each of its pages begins with, in the midst of the records."""
    pages = range(0, len(segment), 8192)
    return b"".join(segment[at + (24 if at else 40) : at + 8192] for at in pages)


def states_in(left: Left, versions: int) -> list[bytes]:
    """All states of a trial that open, in their order: what was sealed lies there in pieces."""
    slots = [data[i : i + 32] for data in left.keys for i in range(0, len(data) - 31, 32)]
    slots = [slot for slot in dict.fromkeys(slots) if any(slot)]
    found: dict[int, bytes] = {}
    for sealed in dict.fromkeys(_sealed_in(left.files, left.master)):
        for version in range(1, versions + 1):
            plain = next(_opened(sealed, f"state:target:main:{version}", left.master, slots), None)
            if plain is not None:
                found[version] = plain
    return [found[version] for version in sorted(found)]


def _sealed_in(files: Sequence[bytes], master: bytes) -> Iterator[bytes]:
    """What looks as if it were sealed under the master key."""
    for file in files:
        for header in (form + bytes.fromhex(key_id(master)) for form in (b"\x01", b"\x02")):
            at = file.find(header)
            while at >= 12:
                chunk, part, length = struct.unpack("<III", file[at - 12 : at])
                length = (length >> 2) - 4
                if chunk and part == 0 and length == _CHUNK:
                    yield _joined(files, chunk)
                elif 0 < length < 2**20:
                    yield file[at : at + length]
                at = file.find(header, at + 1)


def _joined(files: Sequence[bytes], chunk: int) -> bytes:
    """The pieces of a long value, which all have its number before them."""
    pieces: dict[int, bytes] = {}
    mark = struct.pack("<I", chunk)
    for file in files:
        at = file.find(mark)
        while at >= 0 and at + 12 <= len(file):
            part, length = struct.unpack("<II", file[at + 4 : at + 12])
            length = (length >> 2) - 4
            if part < 2**16 and 0 < length <= _CHUNK:
                pieces.setdefault(part, file[at + 12 : at + 12 + length])
            at = file.find(mark, at + 1)
    return b"".join(pieces[part] for part in range(len(pieces)) if part in pieces)


def _opened(sealed: bytes, context: str, master: bytes, slots: Sequence[bytes]) -> Iterator[bytes]:
    """What the keys open of it."""
    keys, header = [master], 9
    if sealed[:1] == b"\x02":
        keys = [blake2b(slot, key=master, digest_size=32, person=b"foldaway-version").digest() for slot in slots]
        header = 21
    for key in keys:
        try:
            body = sealed[header:]
            yield AESGCM(key).decrypt(body[:12], body[12:], sealed[:header] + context.encode())
        except (InvalidTag, ValueError):
            continue


def amounts_in(states: Sequence[bytes], plan: fa.Plan) -> list[float]:
    """The amounts of units that are alone in what one state has more than the one before it."""
    trials = [fa.Trial(plan, key=TRIAL_KEY), *(fa.Trial.loads(state, plan) for state in states)]
    sums: list[Any] = [getattr(trial.tallies, "sums") for trial in trials]  # noqa: B009 - of a plan that keeps them
    found = []
    for before, after in pairwise(sums):
        alone = after.counts(0) - before.counts(0) == 1
        found += (after.totals(0) - before.totals(0))[alone].tolist()
    return found


def database_attack(postgres: Any, commits: int, seed: int) -> dict[str, int]:
    """States and amounts, to the cent, that the files of a trial that has ended give to whoever has the master key."""
    with tempfile.TemporaryDirectory(prefix="versions-") as versions:
        left = closed_trial(postgres, Path(versions), commits, seed)
    true = [row["amount"] for batch in range(commits) for row in people(batch, seed)]
    states = states_in(left, commits + 1)
    claimed = [round(amount, 2) for amount in amounts_in(states, plan_of())]
    right = sum(min(claimed.count(amount), true.count(amount)) for amount in set(claimed))
    return {STATES: len(states), AMOUNTS: right}


# Files.


def saved_trial(path: Path, batches: int, seed: int, **settings: Any) -> fa.Trial:
    """A trial of so many batches, saved under a key that another worker has a copy of."""
    trial = fa.Trial(plan_of(**settings), key=TRIAL_KEY)
    for batch in range(batches):
        trial.fold(people(batch, seed))
    trial.save(path)
    return trial


def _save_again(trial: fa.Trial, seed: int) -> None:
    trial.fold(people(100, seed))


def _end(trial: fa.Trial, seed: int) -> None:
    trial.end(without_effects=True)


def _release(trial: fa.Trial, seed: int) -> None:
    trial.conclude()


ENDINGS: dict[str, tuple[Callable[[fa.Trial, int], None], dict[str, Any]]] = {
    "saved once more": (_save_again, {}),
    "ended": (_end, {}),
    "released": (
        _release,
        {"release": 1.0, "outcomes": [fa.Mean("amount", bounds=(0, 500))], "records_per_unit": "one"},
    ),
}


def former_bytes(ending: str, seed: int) -> bool:
    """Whether the blocks of the former file, with a copy of its key, still give the tallies."""
    end, settings = ENDINGS[ending]
    with tempfile.TemporaryDirectory(prefix="former-") as folder:
        path = Path(folder, "state")
        trial = saved_trial(path, 10, seed, **settings)
        with path.open("rb") as blocks:  # as whoever reads the disk finds them
            end(trial, seed)
            trial.save(path)
            found = blocks.read()
    header = found[:24]
    try:
        saved = loads(AESGCM(Secret(TRIAL_KEY).of_files()).decrypt(found[24:36], found[36:], header))
    except (InvalidTag, ValueError):
        return False
    return fa.Trial.loads(saved.state, plan_of(**settings)).n == 10 * UNITS


# Keys.


@contextmanager
def _shared_folder() -> Iterator[Path]:
    """A folder in which a group may write."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        os.chmod(folder, 0o770)
        yield Path(folder)


def _plant_users_key() -> bool:
    planted = secrets.token_bytes(16)
    with _shared_folder() as home, patch.dict(os.environ, {"XDG_STATE_HOME": str(home)}):
        plan = plan_of()
        place = home / "foldaway" / "keys" / f"{plan.design[:32]}.key"
        place.parent.mkdir(parents=True)
        place.parent.chmod(0o770)
        place.write_text(planted.hex())
        trial = fa.Trial(plan)
        trial.fold(people(0, 1))
        trial.save(home / "state")
        return fa.Trial.load(home / "state", key=planted).n == UNITS


def _plant_given_key() -> bool:
    planted = secrets.token_bytes(16)
    with _shared_folder() as folder:
        (folder / "trial.key").write_text(planted.hex())
        return read_or_make_key(folder / "trial.key") == planted


def _plant_signing_key() -> bool:
    from foldaway.evidence.signing import Signer
    from foldaway.keeping.user_keys import user_signer

    planted = secrets.token_bytes(16)
    with _shared_folder() as home, patch.dict(os.environ, {"XDG_STATE_HOME": str(home)}):
        (home / "foldaway").mkdir(mode=0o770)
        (home / "foldaway").chmod(0o770)
        (home / "foldaway" / "signing.key").write_text(planted.hex())
        return user_signer().key == Signer(Secret(planted).of_signing()).key


def _plant_master_key() -> bool:
    planted = secrets.token_bytes(32)
    with _shared_folder() as folder:
        (folder / "master.key").write_text(planted.hex())
        return Vault.open(folder, environ={}).current == key_id(planted)


PLANTS: dict[str, Callable[[], bool]] = {
    "a user's key for a design": _plant_users_key,
    "a key that `--key` names": _plant_given_key,
    "the key that ledgers are signed with": _plant_signing_key,
    "a server's master key": _plant_master_key,
}


def planted(which: str) -> bool:
    """Whether a key that somebody has put into a folder in which they may write is used."""
    try:
        return PLANTS[which]()
    except TooEarly:
        raise
    except FoldawayError:
        return False


@contextmanager
def undefended() -> Iterator[None]:
    """With all of these defences off."""
    with (
        patch("foldaway.service.database.seals.PASSING", frozenset()),
        patch("foldaway.keeping.disk.destroy_file", lambda _: None),
        patch("foldaway.keeping.secret.require_own", lambda *_: None),
        patch("foldaway.service.keys.master_key.require_own", lambda *_: None),
    ):
        yield


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    from postgres import Postgres, programs

    options = options_of(NAME, arguments, commits=12, seed=1)
    found = programs()
    if found is None:
        sys.exit("This study needs PostgreSQL.")
    postgres = Postgres(found)
    try:
        postgres.start()
        with undefended():
            off = _figures(postgres, options.commits, options.seed)
        on = _figures(postgres, options.commits, options.seed)
    finally:
        postgres.remove()
    if any(on.values()):
        sys.exit(f"An attack succeeded: {on}")
    publish(_findings(off, on, options.commits), NAME, options)
    if options.write:
        page = findings.PAGES / f"{NAME}.md"
        same = "the seed makes it the same in every run."
        page.write_text(page.read_text("utf-8").replace(same, "keys, and so groups, differ from run to run."), "utf-8")


def _figures(postgres: Any, commits: int, seed: int) -> dict[str, int]:
    return {
        **database_attack(postgres, commits, seed),
        **{f"a state's former bytes, once it was {ending}": int(former_bytes(ending, seed)) for ending in ENDINGS},
        **{f"planted: {which}": int(planted(which)) for which in PLANTS},
    }


def _findings(off: dict[str, int], on: dict[str, int], commits: int) -> Findings:
    most = {STATES: commits, AMOUNTS: commits * UNITS}
    return Findings(
        "Disks",
        f"""Somebody has every key that is left when a trial has ended, and the disk. A server on PostgreSQL
        stores {commits} states of a trial, {UNITS} units apart, and ends it; then the attacker reads
        PostgreSQL's whole data folder with its write-ahead log, puts the pieces of what is sealed together,
        and tries the master key, alone and with every key in the file of version keys. Two states that open
        are subtracted from one another: who is alone in a group is found. Of a saved state, the attacker
        reads the blocks of the former file after the next write, and has a copy of the trial's key, as
        another worker of the trial does. A planted key lies in a folder that a group may write to.

        With the defences off, states are sealed under the master key alone, files are replaced without
        overwriting the former one, and a key is read wherever it lies.""",
        ["found", "defences off", "with the defences"],
        [[what, f"{off[what]:,} of {most.get(what, 1):,}", f"{on[what]:,} of {most.get(what, 1):,}"] for what in on],
        """A unit that shares its group with another of the same state is not alone, and not among the
        amounts. Blocks that a copy-on-write file system or a solid-state disk sets aside are out of the
        reach of this study, and of foldaway.""",
    )


if __name__ == "__main__":
    main(sys.argv[1:])

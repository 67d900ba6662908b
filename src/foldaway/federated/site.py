"""A site with many units and its own records: it folds them where they are and sends tallies of a crowd, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.errors import PlanError, RecordError, ServerError, SourceError
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import Received
from foldaway.plan import Plan
from foldaway.sources.folding import Progress, fold_files
from foldaway.sources.paths import Stdin, expand
from foldaway.tallies import UNITS
from foldaway.tallies.scores import UnitScores
from foldaway.trial import Trial

STATE = "application/octet-stream"


class SiteReport(NamedTuple):
    """What a site has sent.

    Attributes:
        units: By arm.
        records: By arm.
        bytes: The size of the tallies.
        repeated: Whether the coordinator had them already, from a run before.
        durable: Whether they are safe whatever crashes.
    """

    units: dict[str, int]
    records: dict[str, int]
    bytes: int
    repeated: bool
    durable: bool


def fold_site(plan: Plan, files: Sequence[str], *, progress: Progress | None = None) -> Trial:
    """The trial of a site's records, each unit a cluster; a unit's records may be anywhere in its file.

    Raises:
        PlanError: The plan is not one for sites.
        RecordError: Records are faulty, or there are fewer units than the plan's cohort.
    """
    if plan.federated != "one-message" or plan.unit is None or not plan.complete_units:
        raise PlanError(
            f'the plan {plan.name} is not for sites: it needs `federated` = "one-message", `unit`, and '
            "`complete_units` = true, a promise that all records of a unit are in one file."
        )
    trial = fold_files(list(files), plan, progress=progress)
    units = sum(units_of(trial).values())
    if units < plan.cohort:
        raise RecordError(
            f"the site has {units:,} units, and tallies of fewer than {plan.cohort:,} (the plan's `cohort`) stay here: "
            "they would say too much about each. Fold the records of several sites together."
        )
    return trial


def units_of(trial: Trial) -> dict[str, int]:
    """How many units there are, by arm."""
    counts = {}
    for name, arm in zip(trial.plan.arms, trial.arms, strict=True):
        tally = arm.tallies[UNITS]
        assert isinstance(tally, UnitScores)
        counts[name] = tally.clusters
    return counts


def send_site(trial: Trial, number: bytes, link: HttpLink) -> SiteReport:
    """Send a site's tallies; sent again under the same number, they are not counted again."""
    state = trial.dumps()
    headers = {"Content-Type": STATE, "Foldaway-Number": number.hex()}
    answer = link.ask("POST", "/tallies", content=state, headers=headers)
    try:
        received = msgspec.json.decode(answer, type=Received)
    except msgspec.MsgspecError:
        raise ServerError("the answer is not a coordinator's; is the address right?") from None
    return SiteReport(units_of(trial), trial.counts, len(state), received.repeated, received.durable)


def number_of(plan: Plan, files: Sequence[str]) -> bytes:
    """The number under which a site's tallies are counted once: it follows from the plan and the files' bytes.

    So it needs no place of its own: whatever is killed, the same command again has the same number, and so has a
    second run by mistake. (Files that were changed in between have another number, and count as another site.)
    """
    digests = []
    for path in expand(list(files)):
        if isinstance(path, Stdin):
            raise SourceError("standard input cannot be sent again after a break; give the site's records as files.")
        digests.append(_digest(path))
    whole = hashlib.blake2b(digest_size=16, key=bytes.fromhex(plan.fingerprint), person=b"foldaway-site")
    for digest in sorted(digests):
        whole.update(digest)
    return whole.digest()


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError as error:
        reason = error.strerror
    raise SourceError(f"{path} cannot be read: {reason}.")

"""A site with many units and its own records: it folds them where they are and sends tallies of a crowd.

Sent again as enrolment goes on, they take the place of those sent before, and units are dealt into groups anew.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldaway.errors import RecordError, ServerError, SourceError, StateError, instead_of, many
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import Received, new_number
from foldaway.federated.modes import site_baseline, site_mode_of, site_segments
from foldaway.federated.modes.mode import SentBefore
from foldaway.federated.modes.share import require_newcomers, units_of
from foldaway.keeping.cohort import least_to_publish, too_few_to_send
from foldaway.keeping.disk import destroy_file, make_file, replace_file
from foldaway.keeping.planted import require_private
from foldaway.keeping.secret import LENGTH
from foldaway.plan import Plan
from foldaway.records.faults import excess
from foldaway.sources.formats.paths import Stdin, expand
from foldaway.sources.runs.folding import OnBytes, fold_files
from foldaway.tallies import grouped_of
from foldaway.trial import Trial

STATE = "application/octet-stream"

# Refusals of a coordinator that has looked, and does not know the number: one that it knew would be acknowledged.
_NOT_TAKEN = (409, 410, 422)
# Refusals of one that has not looked: only a number that was never sent before is certainly not taken.
_NOT_READ = (400, 413, 415)


class SiteReport(NamedTuple):
    """What a site has sent.

    Attributes:
        units: By arm.
        records: By arm.
        bytes: The size of the tallies.
        dropped: Faulty records that were left out, by arm, column and rule.
        lacking: Records without an outcome that may be missing, by outcome and arm.
        repeated: Whether the coordinator had them already, from a run before.
        durable: Whether they are safe whatever crashes.
    """

    units: dict[str, int]
    records: dict[str, int]
    bytes: int
    dropped: list[dict[str, Any]]
    lacking: dict[str, dict[str, int]]
    repeated: bool
    durable: bool


def fold_site(
    plan: Plan, files: Sequence[str], folder: str | Path = "~/.foldaway", *, progress: OnBytes | None = None
) -> Trial:
    """The trial of a site's records, each unit a cluster; a unit's records may be anywhere in its file.

    In mode sums, where they may be in several files, units are dealt into groups under a key of the site's own.

    Args:
        plan: The plan.
        files: The site's files.
        folder: Where the site keeps its mark, and in it the key until its sums are safe.
        progress: As for `fold_files`.

    Raises:
        PlanError: The plan is not one for sites.
        RecordError: Records are faulty, more than the plan's `drop_limit`; or an arm has fewer units than its cohort.
    """
    site_mode_of(plan)
    key = SiteMark.key_of(plan, folder) if plan.keyed else None
    trial = fold_files(list(files), plan, key=key, progress=progress)
    if too_many := excess(trial.dropped, trial.n, plan.drop_limit):
        raise RecordError(f"nothing was sent: {too_many} Correct or remove these records.")
    units = units_of(trial)
    if few := too_few_to_send(plan.privacy, units):
        units_by_arm = " and ".join(f"{many(count, 'unit')} in the arm {arm}" for arm, count in few.items() if count)
        raise RecordError(
            f"nothing was sent: this site has {units_by_arm or 'no units at all'}. An arm needs "
            f"{least_to_publish(plan.privacy):,} units (the plan's `cohort` or `smallest_cell`), because sums of fewer "
            "would say too much about each. Run this again when more have come, or fold the records of several sites "
            "together."
        )
    _require_strata(trial)
    _require_outcomes(trial)
    return trial


def lacking(trial: Trial) -> dict[str, dict[str, int]]:
    """How many records lack an outcome that may be missing, by outcome and arm."""
    plan = trial.plan
    if not plan.lacking:
        return {}
    sums = grouped_of(trial.tallies).plain()
    absent = {each.name: (sums.records - sums.counts(plan.places(each)[0])).sum(axis=1) for each in plan.outcomes}
    return {
        name: dict(zip(plan.arms, counts.astype(int).tolist(), strict=True))
        for name, counts in absent.items()
        if plan.lackable.intersection(plan.outcome(name).columns)
    }


def _require_strata(trial: Trial) -> None:
    """Refuse a stratum in which an arm has only a few units."""
    plan, least = trial.plan, trial.plan.privacy.smallest_cell
    if plan.strata is None:
        return
    for place, units in enumerate(trial.seen.by_group(1)[0, :, 0].tolist()):
        if 0 < units < least:
            stratum, arm = (
                list(plan.strata.probabilities)[place // len(plan.arms)],
                list(plan.arms)[place % len(plan.arms)],
            )
            raise RecordError(
                f"nothing was sent: the stratum {stratum} has only {many(units, 'unit')} in the arm {arm} at this "
                f"site, and a sum over fewer than {least:,} (the plan's `smallest_cell`) would say too much about each."
            )


def _require_outcomes(trial: Trial) -> None:
    """Refuse an outcome that only a few units of an arm have: its sum would say too much about each."""
    plan, least = trial.plan, trial.plan.privacy.smallest_cell
    for value, counts in zip(
        trial.seen.values, trial.seen.by_group(1)[1:, :, 0] if trial.seen.values else (), strict=True
    ):
        for arm, units in zip(list(plan.arms) * trial.seen.strata, counts.tolist(), strict=True):
            if 0 < units < least:
                have = f"{many(units, 'unit')} of the arm {arm} at this site {'has' if units == 1 else 'have'}"
                raise RecordError(
                    f"nothing was sent: only {have} a value of {plan.values[value].column}, and a sum over fewer than "
                    f"{least:,} (the plan's `smallest_cell`) would say too much about each. Fold the records of "
                    "several sites together."
                )


def send_site(
    trial: Trial,
    files: Sequence[str],
    link: HttpLink,
    folder: str | Path = "~/.foldaway",
    *,
    replace: bool = False,
) -> SiteReport:
    """Send a site's tallies, of these files, under the number in its mark; sent again, they are not counted again.

    Args:
        trial: The records of the files, folded by `fold_site`.
        files: All of the site's files.
        link: The coordinator.
        folder: Where the site keeps its mark.
        replace: Whether tallies of other records, sent before, are to be replaced by these, which have more units.

    Raises:
        ServerError: The coordinator has another plan, refuses, or cannot be reached.
        StateError: The site has sent other records in this trial, and these are not to replace them; or its folder
            cannot be used.
        MessageError: Too few units have come since what is to be replaced.
    """
    _require_same_plan(trial.plan, link)
    path, key = _place(trial.plan, folder), trial.key if trial.plan.keyed else b""
    mark, fresh = SiteMark.of(trial, files, folder, key, replace=replace)
    mode = site_mode_of(trial.plan)
    before = None if mark.before is None else SentBefore(mark.before.exits, mark.before.levels)
    state = mode.from_site(trial, before)
    if mark.safe:
        return _report(trial, state, repeated=True, durable=True)
    headers = {"Content-Type": STATE, "Foldaway-Number": mark.number.hex()}
    headers |= {"Foldaway-Site": mark.site.hex(), "Foldaway-Sending": str(mark.sending)}
    try:
        answer = link.ask("POST", "/tallies", content=state, headers=headers)
    except ServerError as refused:
        if refused.status in _NOT_TAKEN or (fresh and refused.status in _NOT_READ):
            _forget(path, mark)  # the number was not used: the records may be put right, and sent under another
        raise
    with instead_of(msgspec.MsgspecError, ServerError("the answer is not a coordinator's; is the address right?")):
        received = msgspec.json.decode(answer, type=Received)
    if received.durable:
        gone = bytes(len(mark.key))
        exits = mode.exits_sent(trial.plan, state)
        if mark.before is not None:
            exits = [earlier + now for earlier, now in zip(mark.before.exits, exits, strict=True)]
        _write(path, msgspec.structs.replace(mark, key=gone, safe=True, before=None, exits=exits))
    return _report(trial, state, repeated=received.repeated, durable=received.durable)


def check_site(
    trial: Trial, files: Sequence[str], link: HttpLink, folder: str | Path = "~/.foldaway", *, replace: bool = False
) -> SiteReport:
    """What `send_site` would report, or why it would refuse. Sends nothing and leaves the site's mark as it is.

    Raises:
        ServerError: The coordinator has another plan, refuses, or cannot be reached.
        StateError: As for `send_site`.
        MessageError: Likewise.
    """
    _require_same_plan(trial.plan, link)
    if (path := _place(trial.plan, folder)).exists():
        _read(path).gives_way(trial, files, replace=replace)
    return _report(trial, b"", repeated=False, durable=False)


def _require_same_plan(plan: Plan, link: HttpLink) -> None:
    """Refuse a coordinator that has another plan."""
    if link.fingerprint() != plan.fingerprint:
        raise ServerError(
            f"the coordinator runs {plan.name} under another plan, so nothing was sent. A registered trial keeps "
            "its plan: take that plan, and correct or remove records that do not fit it; or give the changed plan "
            "another name, and register it as a new trial for all sites (foldaway trial create)."
        )


def _forget(path: Path, mark: SiteMark) -> None:
    """Go back to what was sent before, if anything was."""
    if mark.before is None:
        destroy_file(path)
    else:
        _write(path, mark.before)


def _require_more(trial: Trial, before: SiteMark) -> None:
    """Refuse tallies whose difference from what was sent before would be of a few units, wherever it can be seen."""
    plan, privacy = trial.plan, trial.plan.privacy
    now = _counted(trial)
    require_newcomers(privacy, plan.arms, before.units, now.units)
    least = privacy.smallest_cell
    if any(here - there < least for here, there in zip(now.cells, before.cells, strict=True) if here):
        raise RecordError(
            f"in some stratum, or of some outcome or trait that may be missing, an arm has fewer than {least:,} "
            "units more (the plan's `smallest_cell`) than when this site sent before: the difference would say too "
            "much about each. Send again when more have come."
        )


class _Counted(NamedTuple):
    """How many units there are by arm; by stratum and arm, of all and of those that have each outcome or trait.

    And by segment, level and arm, of which those are told that have enough.
    """

    units: list[int]
    cells: list[int]
    levels: list[list[int]]


def _counted(trial: Trial) -> _Counted:
    units = units_of(trial)
    cells = trial.seen.by_group(1).reshape(-1).tolist() if trial.seen.hashes else []
    by_arm = [units[arm] for arm in trial.plan.arms]
    return _Counted(by_arm, [*cells, *site_baseline.counted(trial)], site_segments.counted(trial))


def _report(trial: Trial, state: bytes, *, repeated: bool, durable: bool) -> SiteReport:
    dropped = [{name: getattr(fault, name) for name in fault.__struct_fields__} for fault in trial.dropped]
    return SiteReport(dict(units_of(trial)), trial.counts, len(state), dropped, lacking(trial), repeated, durable)


class SiteMark(msgspec.Struct, frozen=True):
    """What a site remembers of having sent its tallies in one trial: a random number, and which records it stands for.

    ``NAME.site``, in a folder for its owner alone, is made in one step before anything is sent. So whatever is killed,
    the same command again has the same number and is counted once; and nobody can try out, from what the coordinator
    keeps, which records a site has. (The records' digest is keyed with the number, and stays here with it.)

    Where units are dealt into groups, their key is in it too, until the coordinator has the sums: sent again, they are
    the same. Then the key is destroyed.

    Tallies that replace these have a number and a key of their own. Until they are safe, what is known of those before
    is kept beside: counts, and when how many left in each message, which say whether enough units have come since.
    """

    fingerprint: str
    number: bytes
    digest: bytes
    key: bytes = b""
    site: bytes = b""
    sending: int = 1
    safe: bool = False
    units: list[int] = []
    cells: list[int] = []
    levels: list[list[int]] = []
    exits: list[bytes] = []
    before: SiteMark | None = None

    @classmethod
    def key_of(cls, plan: Plan, folder: str | Path) -> bytes:
        """The key of groups under which sums are being sent, or a new one."""
        path = _place(plan, folder)
        key = _read(path).key if path.exists() else b""
        return key if any(key) else secrets.token_bytes(LENGTH)

    @classmethod
    def of(
        cls, trial: Trial, files: Sequence[str], folder: str | Path, key: bytes = b"", *, replace: bool = False
    ) -> tuple[SiteMark, bool]:
        """The mark that stands for these files, folded under this key, if under any; made if there is none.

        And whether this run has made it, so that nothing was sent under it before.

        Raises:
            StateError: The site has sent other records in this trial, and these are not to replace them; or its folder
                cannot be used.
            SourceError: A file cannot be read.
        """
        plan = trial.plan
        path, number = _place(plan, folder), new_number()
        require_private(path.parent)
        mine = cls(plan.fingerprint, number, _digest(number, files), key, new_number(), 1, False, *_counted(trial))
        with suppress(FileExistsError):
            make_file(path, msgspec.json.encode(mine))
            return mine, True
        before = _read(path)
        if before.gives_way(trial, files, replace=replace):
            most = list(map(max, mine.cells, before.cells))  # ever: a correction may empty one for a while
            levels = [list(map(max, *pair)) for pair in zip(mine.levels, before.levels, strict=True)]
            again = {"site": before.site, "sending": before.sending + 1, "before": before, "cells": most}
            again["levels"] = levels
            mine = msgspec.structs.replace(mine, **again)
            _write(path, mine)
            return mine, True
        if any(before.key) and before.key != key:
            raise StateError(f"another run is sending this site's sums for {plan.name}; wait until it has ended.")
        return before, False

    def gives_way(self, trial: Trial, files: Sequence[str], *, replace: bool) -> bool:
        """Whether these files hold other records than were sent, and are to replace them.

        Raises:
            StateError: They hold others and are not to replace them, or are of another plan.
            RecordError: Too few units have come since.
        """
        plan = trial.plan
        if self.fingerprint != plan.fingerprint:
            raise StateError(
                f"this site knows the trial {plan.name} under another plan, and a registered trial keeps its plan: "
                "take that plan, or give the changed one another name and register it as a new trial."
            )
        if self.digest == _digest(self.number, files):
            return False
        if not (replace and self.safe):
            raise StateError(_sent_others(plan, self))
        _require_more(trial, self)
        return True


def _sent_others(plan: Plan, before: SiteMark) -> str:
    """That other records were sent, and what to do."""
    if not before.safe:
        return (
            f"this site was sending tallies for {plan.name} of other records than are in these files, and the "
            "coordinator has not confirmed them: run the command again with the files as they were, then with these."
        )
    return (
        f"this site has already sent tallies for {plan.name}, and of other records than are in these files: nothing "
        "was sent. If these are all of the site's records, with those that have come since, send them with --replace: "
        "they take the place of what was sent before. If they are those of another site, give it a folder of its own "
        "with --folder."
    )


def _place(plan: Plan, folder: str | Path) -> Path:
    return Path(folder).expanduser() / f"{plan.name}.site"


def _read(path: Path) -> SiteMark:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=SiteMark)
    raise StateError(f"the site's file {path} cannot be read, or is damaged; without it nobody knows what was sent.")


def _write(path: Path, mark: SiteMark) -> None:
    """In one step, over the one before."""
    replace_file(path, msgspec.json.encode(mark), private=True)


def _digest(number: bytes, files: Sequence[str]) -> bytes:
    """Of the files' bytes, in whatever order they are named."""
    digests = []
    for path in expand(list(files)):
        if isinstance(path, Stdin):
            raise SourceError("standard input cannot be sent again after a break; give the site's records as files.")
        digests.append(_file_digest(path))
    whole = hashlib.blake2b(digest_size=32, key=number, person=b"foldaway-site")
    for digest in sorted(digests):
        whole.update(digest)
    return whole.digest()


def _file_digest(path: Path) -> bytes:
    unreadable = "{} cannot be read: {}."
    with (
        instead_of(OSError, lambda error: SourceError(unreadable.format(path, error.strerror))),
        path.open("rb") as file,
    ):
        return hashlib.file_digest(file, "blake2b").digest()

"""``foldaway audit``: attacks on one's own states, stores and answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import Authority, Reader, extra
from foldaway.cli.terminal.options import AsJson, KeyOfState
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.saved_trial import file_of, read_key
from foldaway.cli.terminal.served_trial import ServedTrial
from foldaway.cli.terminal.server_settings import VersionKeys
from foldaway.cli.terminal.where import ItsServer, find
from foldaway.cli.terminal.words import in_lines
from foldaway.errors import ServerError, StateError, many
from foldaway.table import text_table

if TYPE_CHECKING:
    from foldaway.auditing.finding import Audit
    from foldaway.client import Client

app = typer.Typer()

_TOO_EARLY = 425


@app.command()
def audit(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="WHERE",
            help="Saved states (earlier ones of a trial first), stores, a server's folder or database, or a trial on a "
            "server: its name, or its address https://HOST/v1/trials/NAME.",
        ),
    ],
    key: KeyOfState = None,
    key_file: Annotated[
        Path | None, typer.Option(help="The key of a server's folder, if it is not in its master.key.")
    ] = None,
    version_keys: VersionKeys = None,
    server: ItsServer = None,
    token: Reader = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="On a server: how many seconds to keep asking for new answers.")
    ] = 0.0,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Attack your own tallies and answers: who could be found?

    Says how many records' values could be worked out, from which numbers, and which setting prevents it. The exit code
    is 1 if there are any. States of one trial are attacked one by one, and so is what changed from each to the next.
    """
    if _is_database(targets[0]) or (Path(targets[0]) / "foldaway.db").exists():
        audits = list(_of_store(targets, key_file, version_keys))
    elif isinstance(trial := find(targets[0], key, server, token, ca), ServedTrial):
        if len(targets) > 1:
            raise ServerError("audit one trial of a server at a time.")
        audits = list(_of_answers(trial, seconds))
    else:
        audits = list(_of_states([Path(target) for target in targets], key))
    if json:
        print_json([{"what": what, "solved": found.solved, **msgspec.structs.asdict(found)} for what, found in audits])
    else:
        print("\n\n".join(_text(what, found) for what, found in audits) or "There is nothing to audit yet.")
    if any(found.solved for _, found in audits):
        raise typer.Exit(1)


def _is_database(place: str) -> bool:
    return "://" in place and not place.startswith(("http://", "https://"))


def _of_states(paths: list[Path], key: Path | None) -> Iterator[tuple[str, Audit]]:
    from foldaway.auditing.audit import audit

    before: fa.Trial | None = None
    for path in paths:
        trial = fa.Trial.load(file_of(path), key=read_key(key))
        yield str(path), audit(trial.plan, trial.tallies)
        if before is not None:
            if before.plan.fingerprint != trial.plan.fingerprint:
                raise StateError(f"{path} is a state of another plan than the state before it; audit them one by one.")
            yield f"{path} less the state before it", audit(trial.plan, trial.tallies, before.tallies)
        before = trial


def _of_store(targets: list[str], key_file: Path | None, version_keys: Path | None) -> Iterator[tuple[str, Audit]]:
    with extra():
        from foldaway.service.database.store import Store
        from foldaway.service.keys.vault import Vault
    from foldaway.auditing.audit import audit
    from foldaway.federated.modes.share import ServerShare

    (place,) = targets[:1]
    if len(targets) > 1:
        raise StateError("audit one store at a time.")
    folder = None if "://" in place else Path(place)
    store = Store.open(place, Vault.open(folder, key_file, os.environ), version_keys=version_keys)
    try:
        for row in store.trials():
            plan = fa.Plan.loads(row.plan)
            for shard in store.shards.all(row.name):
                if shard.state is not None:
                    federated = plan.federated is not None
                    held = ServerShare.of(plan, shard.state).trial if federated else fa.Trial.loads(shard.state, plan)
                    yield f"{row.name}, share of {shard.shard}", audit(plan, held.tallies)
    finally:
        store.close()


def _answer_of(client: Client, name: str) -> Any:
    """The effects that a reader gets; none while nothing may be told."""
    try:
        return client.effects(name)["effects"]
    except ServerError as error:
        if error.status != _TOO_EARLY:
            raise
        return None


def _of_answers(trial: ServedTrial, seconds: float) -> Iterator[tuple[str, Audit]]:
    from foldaway.auditing.answers import NAME, attack_answers
    from foldaway.auditing.finding import Audit

    answers: list[fa.Effects] = []
    end = time.monotonic() + seconds
    with trial.connect(patience=60.0) as client:
        while True:
            answer = _answer_of(client, trial.name)
            if answer is not None:
                effects = fa.Effects.from_json(msgspec.json.encode(answer))
                if not answers or effects.to_json() != answers[-1].to_json():
                    answers.append(effects)
            if time.monotonic() >= end:
                break
            time.sleep(min(1.0, max(end - time.monotonic(), 0.0)))
    if answers:
        records = sum(answers[-1].counts.values())
        found = Audit(trial=trial.name, records=records, findings=list(attack_answers(answers)), attacks=[NAME])
        yield f"{trial.name}, answers that were given: {len(answers):,}", found


def _text(what: str, found: Audit) -> str:
    head = in_lines(f"{what}: {many(found.records, 'record')}. {found.verdict()}")
    if not found.findings:
        return head
    rows = [
        [each.attack, each.outcome, f"{each.exact:,}", f"{each.near:,}", f"{each.claims:,}"] for each in found.findings
    ]
    table = text_table(["attack", "outcome", "exact", "within 10 %", "claims"], rows, left=2)
    about = []
    for each in found.findings:
        needs = f" together with {each.needs}" if each.needs else ""
        about.append(in_lines(f"· {each.attack}: from {each.numbers}{needs}. {each.remedy}", indent="  "))
    return "\n\n".join([head, table, "\n".join(dict.fromkeys(about))])

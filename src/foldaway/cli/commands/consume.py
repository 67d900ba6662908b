"""``foldaway consume``: a stream into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.options import KeyFile, PlanFile, WithoutEffects, flag, given
from foldaway.cli.terminal.saved_trial import finish, tell_from
from foldaway.cli.terminal.words import tell
from foldaway.errors import EndedError, SourceError, TooEarly, Unreleased
from foldaway.keeping.secret import read_or_make_key

app = typer.Typer()

AsJson = Annotated[bool, flag("json", "Print JSON for machines, one object per line.")]


@app.command()
def consume(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="Such as nats://HOST:PORT/STREAM, redis://HOST:PORT/STREAM or kafka://HOST:PORT/TOPIC. Put "
            "a password into FOLDAWAY_BROKER_PASSWORD.",
        ),
    ],
    plan: PlanFile,
    store: Annotated[Path, given("FOLDER", "Where the tallies and the position are stored.")],
    key: KeyFile = None,
    until_empty: Annotated[
        bool, flag("until-empty", "Stop when the stream has been read, instead of waiting for more.")
    ] = False,
    delete: Annotated[
        bool, flag("delete", "Delete messages at the broker once the state that includes them is stored.")
    ] = False,
    skip_faulty: Annotated[
        bool, flag("skip-faulty", "Skip and count messages that the plan rejects, instead of stopping.")
    ] = False,
    end: Annotated[bool, flag("end", "When the stream is empty, end the trial and destroy its key.")] = False,
    without_effects: WithoutEffects = False,
    json: AsJson = False,
) -> None:
    """Fold a stream into a store, exactly once, even after a crash. No record is kept."""
    from foldaway.account.stream_file import STATE, StreamFile, has_ended
    from foldaway.cli.terminal.consumer import show_end, shown_progress, stop_asked
    from foldaway.forgetting.harden import without_dumps
    from foldaway.sources.brokers.broker import parse
    from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions

    if sentence := without_dumps():
        tell(sentence)
    where = parse(address)
    the_plan = fa.Plan.load(plan)
    broker = where.broker(the_plan.name)
    ended = has_ended(store)
    if ended and not end:
        raise EndedError(f"the trial in {store} has ended: `foldaway effects {store}` prints its effects.")
    secret = None if ended else _secret(key, store)
    options = ConsumerOptions(until_empty, delete, skip_faulty, end, without_effects)
    with StreamFile(store, the_plan, where.stream, key=secret) as opened:
        with stop_asked() as stop, shown_progress(str(where), json) as show:
            consumer = Consumer(broker, opened, options=options, told=show, stopping=stop)
            trial = consumer.run()
        head = finish(store / STATE, key) if trial.ended or ended else ""
    show_end(trial, consumer, _told(store / STATE, trial, secret), delete=delete, json=json)
    if head:
        tell(head)


def _told(file: Path, trial: fa.Trial, key: bytes | None) -> fa.Effects | str:
    """What others are told of the trial in the store, or why they are told nothing yet."""
    from foldaway.keeping.cohort import too_early

    try:
        if not file.exists():
            raise too_early(trial.plan.privacy)
        return tell_from(file, key)
    except (TooEarly, Unreleased) as error:
        return str(error)


def _secret(file: Path | None, store: Path) -> bytes | None:
    """The key in a file that does not lie with the tallies (promise P3); none if it is the user's own."""
    from foldaway.account.stream_file import STATE

    if file is None:
        return None
    if file.resolve().is_relative_to(store.resolve()):
        raise SourceError("the key must be kept apart from the tallies: name a file outside the store.")
    return read_or_make_key(file, new=not (store / STATE).exists())

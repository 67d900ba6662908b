"""Commands around a stream: consume it into a store, and read the store's effects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldaway.cli.terminal.options import AllKinds, PlanFile
from foldaway.cli.terminal.words import tell
from foldaway.errors import SourceError, StateError, TooEarly

if TYPE_CHECKING:  # each command imports what it needs, so that --help is quick
    from foldaway.plan import Plan
    from foldaway.sources.brokers.stream_file import StreamState

app = typer.Typer()

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines, an object to a line.")]


@app.command()
def consume(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="Such as nats://HOST:PORT/STREAM, redis://HOST:PORT/STREAM or kafka://HOST:PORT/TOPIC; a password is "
            "better given in FOLDAWAY_BROKER_PASSWORD.",
        ),
    ],
    plan: PlanFile,
    store: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the tallies and the position are kept.")],
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The trial's secret key, outside the store, if not this user's own."),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when the stream has been read; else go on for ever.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete messages at the broker once the state that holds them is durable.")
    ] = False,
    skip_faulty: Annotated[
        bool, typer.Option("--skip-faulty", help="Pass over messages that the plan refuses, counted; else stop there.")
    ] = False,
    close: Annotated[
        bool, typer.Option("--close", help="When the stream is empty, end the trial and destroy its key.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Fold a stream into a store, exactly once, even after a crash. No record is kept."""
    from foldaway.cli.terminal.consumer import show_end, shown_progress, stop_asked
    from foldaway.forgetting.harden import without_dumps
    from foldaway.plan import Plan
    from foldaway.sources.brokers.broker import parse
    from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions
    from foldaway.sources.brokers.stream_file import StreamFile

    if sentence := without_dumps():
        tell(sentence)
    where = parse(address)
    the_plan = Plan.load(plan)
    broker = where.broker(the_plan.name)
    with StreamFile(store) as opened:
        secret = _secret(the_plan, key, opened.folder, opened.read())
        options = ConsumerOptions(until_empty=until_empty, delete=delete, skip_faulty=skip_faulty, close=close)
        with stop_asked() as stop, shown_progress(str(where), json) as show:
            consumer = Consumer(
                broker, where.stream, the_plan, opened, key=secret, options=options, told=show, stopping=stop
            )
            trial = consumer.run()
        if trial.sealed and key is not None:
            _destroy(key)
    show_end(trial, consumer, delete=delete, json=json)


@app.command()
def effects(
    store: Annotated[Path, typer.Argument(metavar="FOLDER", help="The store of a consumer, running or not.")],
    json: AsJson = False,
    all_kinds: AllKinds = False,
    save: Annotated[
        Path | None, typer.Option(metavar="STATE", help="Write the tallies to this file, to be merged with others.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Let --save replace another state.")] = False,
) -> None:
    """The effects in the store of a consumer, as far as it is durable."""
    from foldaway.cli.commands.state import require_savable
    from foldaway.cli.terminal.consumer import effects_of
    from foldaway.sources.brokers.stream_file import read
    from foldaway.trial import Trial

    require_savable(save, None, overwrite)
    stored = read(store)
    if stored is None or not stored.trial:
        raise StateError(f"the store {store} holds no records yet.")
    trial = Trial.loads(stored.trial)
    if save is not None:
        trial.save(save)
    try:
        durable = effects_of(trial)
    except TooEarly as error:
        if save is None:
            raise
        # A part of a trial may be too small for effects of its own: it is saved to be merged with the others.
        tell(f"The tallies are in {save}; {error}")
        return
    print(durable.to_json() if json else durable.to_string(all_kinds=all_kinds))


def _secret(plan: Plan, file: Path | None, store: Path, stored: StreamState | None) -> bytes | None:
    """The key in a file that does not lie with the tallies (promise P3); none if it is the user's own."""
    from foldaway.keeping.secret import read_or_make_key

    if file is None or not plan.keyed:
        return None
    if file.resolve().is_relative_to(store.resolve()):
        raise SourceError("the key must be kept apart from the tallies: name a file outside of the store.")
    if stored is not None and stored.reached.closed:
        return None  # it is destroyed
    return read_or_make_key(file, new=stored is None or not stored.trial)


def _destroy(file: Path) -> None:
    """Overwrite the key, then remove its file."""
    from foldaway.keeping.disk import destroy_file

    try:
        destroy_file(file)
    except OSError as error:
        tell(f"The trial is closed, but its key {file} cannot be destroyed: {error.strerror}.")

"""``foldaway send``: files to a trial on a server, batch by batch, resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import Authority, Server, Token, TrialName, connect
from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.options import Delimiter
from foldaway.cli.terminal.progress import file_progress
from foldaway.cli.terminal.words import in_lines
from foldaway.errors import ServerError, SourceError, instead_of, many
from foldaway.keeping.secret import read_or_make_key
from foldaway.keeping.user_keys import state_home
from foldaway.sources.formats.paths import Stdin, expand

if TYPE_CHECKING:
    from foldaway.client import Client
    from foldaway.sources.formats.chunk import Chunk

app = typer.Typer()

# Cells in a batch at most, of 8 bytes each: a quarter of what a server accepts, unless it was told otherwise.
_CELLS = 2**20

# Statuses with which a server refuses a batch for what is in it.
_FAULTY = (400, 422)


@app.command()
def send(
    name: TrialName,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files or globs of records.")],
    server: Server,
    token: Token,
    ca: Authority = None,
    delimiter: Delimiter = None,
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="FOLDAWAY_SENDER_KEY",
            metavar="FILE",
            help="The sender's secret key, which recognises files that were sent before; created if it does not exist.",
        ),
    ] = None,
) -> None:
    """Send files of records to a trial. Safe to repeat: it resumes after the last batch that the server has stored."""
    paths = expand(files)
    with (
        interruptible("stopped; repeat the command to resume after what the server has."),
        connect(server, token, ca) as client,
        file_progress(paths, "sending") as progress,
    ):
        outcome = send_files(client, name, paths, progress, key=_own_key(key), delimiter=delimiter)
    said = f"{many(outcome.sent, 'record')} sent."
    if outcome.ended:
        said += (
            f" {name} has ended. {many(outcome.known, 'record')} of these files came before that; those that were not "
            f"part of a cohort at the end were left out. `foldaway trial status {name}` shows how many."
        )
    elif outcome.known:
        said += f" {outcome.known:,} {'was' if outcome.known == 1 else 'were'} there already."
    if outcome.pending:
        said += (
            "\nThe last records are pending: the server holds them in memory alone until their cohort is full. If it "
            "stops before that, send the same files again."
        )
    print(in_lines(said))


class SentRecords(NamedTuple):
    """What became of the records of some files.

    Attributes:
        sent: Records that the server has folded now.
        known: Records that it had from an earlier run.
        pending: Whether it has records, of any producer, that it has not yet made durable.
        ended: Whether the trial has ended.
    """

    sent: int
    known: int
    pending: bool
    ended: bool


def send_files(
    client: Client,
    trial: str,
    paths: Sequence[Path | Stdin],
    progress: Callable[[Path | Stdin, int], None],
    *,
    key: bytes,
    delimiter: str | None = None,
) -> SentRecords:
    """Send files to a trial, each under a producer's name of its own.

    The name is made from the file's name, size, time of last change and place on the disk, under the sender's key. The
    server keeps it, so nothing in it is made from the file's content, and without the key nobody can test a guess.
    The k-th record of a file has the number k, so a second run knows what the server has, however it cuts the file; but
    where units must come together, a file is one batch.
    """
    from foldaway.keeping.folded_files import FilePositions, FoldedFiles
    from foldaway.sources.formats.chunk import slices, wanted_by
    from foldaway.sources.formats.files import ReadOptions, read, require_wanted

    if any(isinstance(path, Stdin) for path in paths):
        raise ServerError("standard input cannot be sent again after a break; send a file.")
    plan = fa.Plan.loads(msgspec.json.encode(client.plan(trial)).decode())
    wanted, options = wanted_by(plan), ReadOptions(None, delimiter)
    marks = FoldedFiles(FilePositions(key, {}))
    sent, known, pending, ended = 0, 0, False, False
    for path in paths:
        assert isinstance(path, Path)
        client.producer = f"file-{marks.mark(path).hex()}"
        there = client.progress(trial)
        durable, ended = there["durable"], there["ended"]
        batches = read(path, wanted, options, whole=plan.whole_units, progress=partial(progress, path))
        if not plan.whole_units:
            most = max(1, _CELLS // len(wanted.names))
            batches = (piece for batch in batches for piece in slices(batch, most))
        last = 0
        for batch in batches:
            require_wanted(path, wanted, batch, delimiter)
            if batch.ragged and not plan.drops:
                lines = many(batch.ragged, "line")
                raise ServerError(f"{path}{batch.place(None)}: {lines} cannot be read as records. Correct them first.")
            rows = batch.records.num_rows
            first, last = last + 1, last + (1 if plan.whole_units else rows)
            if last <= durable or not rows:
                known += rows
                continue
            skipped = max(0, durable + 1 - first)
            known += skipped
            with instead_of(ServerError, partial(_in_file, path, plan, batch)):
                receipt = client.send(trial, batch.records.slice(skipped), numbers=(first + skipped, last))
            known += rows - skipped - receipt["folded"] if receipt["repeated"] else 0
            sent += receipt["folded"]
            pending = receipt["pending"]
    return SentRecords(sent, known, pending, ended)


def _own_key(path: Path | None) -> bytes:
    """This sender's key, which no server has: by default in the user's folder for the state of programs."""
    if path is None:
        path = state_home() / "sender.key"
        unusable = f"the sender's key cannot be stored as {path}; name another file with --key FILE."
        with instead_of(OSError, SourceError(unusable)):
            path.parent.mkdir(parents=True, exist_ok=True)
    return read_or_make_key(path)


def _in_file(path: Path, plan: fa.Plan, batch: Chunk, error: ServerError) -> ServerError:
    """A refusal with the file and the line of its first faulty record, which the server cannot know."""
    from foldaway.records.check import check
    from foldaway.records.faults import FaultyBatch

    where = ""
    if batch.line is not None and error.status in _FAULTY:
        try:
            check(batch.records, plan, text=True)
        except FaultyBatch as faulty:
            where = batch.place(faulty.first)
    return ServerError(f"{path}{where}: {error}", error.status, error.expected)

"""``foldaway run``: from files of records to effects; and ``foldaway demo``, the same with simulated records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foldaway as fa
from foldaway.cli.commands.state import require_savable, tell_saved
from foldaway.cli.terminal.connecting import extra
from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.merging import merged, states_among
from foldaway.cli.terminal.options import (
    AllEffects,
    AsJson,
    Database,
    Delimiter,
    KeyFile,
    Overwrite,
    PlanFile,
    Query,
    Save,
    flag,
    given,
)
from foldaway.cli.terminal.printing import print_effects, save_report
from foldaway.cli.terminal.progress import file_progress
from foldaway.cli.terminal.words import tell
from foldaway.errors import RecordError, SourceError, many
from foldaway.keeping.secret import read_or_make_key
from foldaway.report.page.document import require_place

if TYPE_CHECKING:
    from foldaway.cli.terminal.sums import DatabaseSums
    from foldaway.keeping.saved import Positions
    from foldaway.sources.formats.files import ReadOptions
    from foldaway.sources.runs.backlog import Backlog, RunOutcome

app = typer.Typer()


@app.command()
def run(
    plan: PlanFile,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Files of records, or globs; - for standard input. Or states of trials that ran separately, to merge.",
        ),
    ] = None,
    sums: Annotated[
        str | None,
        given("FILE", "In place of records, the answer to the statement of `foldaway sql`; - for standard input."),
    ] = None,
    database: Database = None,
    query: Query = None,
    label: Annotated[
        str | None, given("LABEL", "What sums or a query's records are called, such as their day. Each is folded once.")
    ] = None,
    save: Save = None,
    resume: Annotated[
        Path | None, given("STATE", "Continue from these tallies, and skip files that are already in them.")
    ] = None,
    overwrite: Overwrite = False,
    delete_after: Annotated[
        bool, flag("delete-after", "Delete each file once its records are safely in the saved state.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Distribute the files to this many processes.")] = 1,
    key: KeyFile = None,
    format: Annotated[
        str | None,
        typer.Option(help="csv, tsv, parquet, arrow or ndjson; by default, from the file's name or first bytes."),
    ] = None,
    delimiter: Delimiter = None,
    report: Annotated[Path | None, given("FILE", "Write a report as well: one HTML page.")] = None,
    exact: Annotated[bool, flag("exact", "Do not round the report. It is then for yourself, not for others.")] = False,
    json: AsJson = False,
    everything: AllEffects = False,
    hardened: Annotated[
        bool, flag("harden", "Overwrite memory as it is freed, as a server does. This is slower.")
    ] = False,
) -> None:
    """Fold records into a trial and print its effects. No record is kept."""
    if hardened:
        from foldaway.forgetting.harden import harden

        for sentence in harden():  # starts the process again, so it comes first
            tell(sentence)
    from foldaway.records.faults import excess
    from foldaway.sources.formats.files import ReadOptions
    from foldaway.sources.runs.backlog import Backlog

    if save is None and delete_after:
        raise SourceError("--delete-after needs --save STATE, to store the tallies of the deleted files.")
    require_savable(save, resume, overwrite)
    if report is not None:
        require_place(report)
    the_plan, options = fa.Plan.load(plan), ReadOptions(format, delimiter)
    summed = None
    if sums is not None or database is not None or query is not None:
        if files or delete_after or processes > 1:
            raise SourceError("sums and a database take the place of files, and of the options for files.")
        from foldaway.cli.terminal.sums import DatabaseSums

        summed = DatabaseSums(sums, database, query, label, options)
    elif not files:
        raise SourceError("nothing to fold: name files, an answer (--sums), or a --database and a --query.")
    states = [] if summed is not None else states_among(files or ())
    going_on = resume is not None and (resume.exists() or resume != save)  # a first run may name what is yet to be
    secret = None if key is None else read_or_make_key(key, new=not (going_on or states))
    backlog: Backlog | None = None
    if states and (resume is not None or delete_after):
        raise SourceError("states are merged into a new one: name all of them, without --resume and --delete-after.")
    if states:
        trial, positions = merged(the_plan, states, secret), None
        if save is not None and trial.n:
            trial.save(save)
            tell(f"It holds the ledgers of all {len(states):,} states.")
    elif summed is not None:
        trial, positions = _fold_sums(summed, the_plan, save, resume, secret)
    elif save is None:
        trial = _fold(files or (), the_plan, options, resume=resume, key=secret, processes=processes)
        positions = None
    else:
        with Backlog(the_plan, save, resume=resume, delete_after=delete_after, key=secret) as backlog:
            _fold_backlog(backlog, files or (), options, processes)
        trial, positions = backlog.outcome.trial, backlog.files.positions
    with nullcontext() if save is None else interruptible(f"stopped after {save} was written."):
        if backlog is not None and save is not None:
            _tell_rest(backlog.outcome, the_plan, save)
        elif save is not None:
            tell_saved(save)
        print_effects(trial, json=json, everything=everything)
        if report is not None:
            told = None if exact else trial.told()
            if save is not None and not exact:
                trial.save(save, positions=positions)  # which remembers what was told
            save_report(trial.report(positions=positions, told=told), report)
    if resume is not None and save is None:
        tell(f"Nothing was saved: {resume} is unchanged. To add these records to it, add --save {resume}.")
    if too_many := excess(trial.dropped, trial.n, the_plan.drop_limit):
        raise RecordError(too_many)


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=1_000, help="How many records to simulate.")] = 200_000,
    seed: Annotated[int, typer.Option(help="The simulation's seed.")] = 0,
    report: Annotated[Path, given("FILE", "Where to write the report.")] = Path("foldaway-demo.html"),
    live: Annotated[
        bool, flag("live", "Start a server on this machine instead, and stream simulated records into its dashboard.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.01, help="With --live: for how long.")] = 10.0,
) -> None:
    """Simulate a trial, beside kept rows or live.

    It compares the effects with an analysis of kept rows, and writes a report.
    """
    if live:
        with extra():
            from foldaway.simulation.live import stream_live

        stream_live(60 * minutes, seed, lambda sentence: print(sentence, flush=True))
        return
    from foldaway.simulation.demo import demonstrate

    require_place(report)
    trial = demonstrate(records, seed, file_progress)
    save_report(trial.report(), report)


def _fold_sums(
    sums: DatabaseSums, plan: fa.Plan, save: Path | None, resume: Path | None, key: bytes | None
) -> tuple[fa.Trial, Positions | None]:
    """Fold a database's sums into a trial, which is saved if so wished."""
    if save is not None:
        return sums.save(plan, save, resume, key)
    into = fa.Trial(plan, key=key) if resume is None else fa.Trial.opened(resume, plan, key=key)[0]
    return sums.into(into), None


def _fold(
    files: Sequence[str], plan: fa.Plan, options: ReadOptions, *, resume: Path | None, key: bytes | None, processes: int
) -> fa.Trial:
    """Fold files into a trial that is saved nowhere."""
    from foldaway.sources.runs.backlog import files_of, not_in
    from foldaway.sources.runs.folding import fold_paths, started

    into, positions = (None, None) if resume is None else fa.Trial.opened(resume, plan, key=key)
    paths = not_in(files_of(positions), files)
    with file_progress(paths) as progress:
        return fold_paths(started(plan, key=None if into else key, into=into), paths, options, processes, progress)


def _fold_backlog(backlog: Backlog, patterns: Sequence[str], options: ReadOptions, processes: int) -> None:
    """Fold files into a saved state, and say what became of them even if one of them stops it."""
    try:
        paths = backlog.find(patterns)
        with file_progress(paths) as progress:
            backlog.fold(paths, options, processes=processes, progress=progress)
    except BaseException:
        if backlog.outcome.deleted:
            _tell_saved(backlog.outcome, backlog.save)
        raise
    finally:
        for path, count in backlog.outcome.dropped.items():
            tell(f"{path}: {many(count, 'faulty record')} left out")
        for path in backlog.outcome.barren:
            tell(f"{path}: no record of it was folded" + ("; it was not deleted" if backlog.delete_after else ""))


def _tell_rest(outcome: RunOutcome, plan: fa.Plan, save: Path) -> None:
    """Say what was not folded, where the state is, and what was deleted."""
    for pattern in outcome.absent:
        tell(
            f"{pattern}: matches no file any more; the state contains what was folded before"
            if has_magic(pattern)
            else f"{pattern}: no longer exists; the state already includes it"
        )
    if outcome.known:
        whose = "its" if len(outcome.known) == 1 else "their"
        tell(f"{many(len(outcome.known), 'file')} skipped: {save} already includes {whose} records.")
    if outcome.waiting_records:
        tell(
            f"Not in the effects until the next run: {many(outcome.waiting_records, 'record')} "
            f"({many(len(outcome.waiting), 'file')}). A saved state grows by at least the plan's cohort of "
            f"{many(plan.privacy.cohort, 'unit')}."
        )
    _tell_saved(outcome, save)


def _tell_saved(outcome: RunOutcome, save: Path) -> None:
    """Say where the state is, and which files were deleted once their records were in it."""
    from foldaway.trial import fixed_by

    tell_saved(save)
    if outcome.fixed:
        sentence = fixed_by(outcome.trial.n)
        tell(sentence[0].upper() + sentence[1:])
    for path in outcome.deleted:
        tell(f"deleted {path}")

"""Commands that work on files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli.commands import report as reporting
from foldaway.cli.commands.report import ReportFile
from foldaway.cli.terminal.delimiter import Delimiter
from foldaway.cli.terminal.printing import AsJson, Printing, prints_effects
from foldaway.errors import SourceError, StateError

app = typer.Typer()
plan_app = typer.Typer(help="Look at plans.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")

# Each command imports what it needs, so that --help is quick.

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml or .json file.")]
Save = Annotated[Path | None, typer.Option(metavar="STATE", help="Write the tallies to this file.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Let --save replace a state it did not resume from.")]


@app.command()
@prints_effects
def run(
    plan: PlanFile,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files or globs; - for standard input.")],
    printing: Printing,
    save: Save = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="STATE", help="Go on from these tallies, and skip files that are in them."),
    ] = None,
    overwrite: Overwrite = False,
    delete_after: Annotated[
        bool, typer.Option("--delete-after", help="Delete each file once its records are in --save, on the disk.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Share the files out to so many processes.")] = 1,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The bootstrap's secret key: read, or made if not there yet.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, tsv, parquet, arrow or ndjson, if it cannot be told.")
    ] = None,
    delimiter: Delimiter = None,
    report: ReportFile = None,
) -> None:
    """Fold files of records into a trial and print its effects. No record is kept."""
    from foldaway.cli.commands.saving import fold_and_save, fold_only, require_savable
    from foldaway.cli.terminal.key_file import read_or_make
    from foldaway.plan import Plan
    from foldaway.report.page.document import require_place
    from foldaway.sources.runs.shares import ReadOptions

    if save is None and delete_after:
        raise SourceError("--delete-after needs --save STATE: where the tallies of what is deleted are to be.")
    require_savable(save, resume, overwrite)
    if report is not None:
        require_place(report)
    the_plan, options = Plan.load(plan), ReadOptions(format, delimiter)
    going_on = resume is not None and (resume.exists() or resume != save)  # a first run may name what is yet to be
    if save is not None and the_plan.bootstrap is not None and key is None:
        print("Without --key the state can be read and merged later, but not resumed.", file=sys.stderr)
    secret = None if key is None or the_plan.bootstrap is None else read_or_make(key, new=not going_on)
    if save is None:
        trial = fold_only(files, the_plan, options, resume=resume, key=secret, processes=processes)
        positions = None
    else:
        trial, positions = fold_and_save(
            files, the_plan, save, options, resume=resume, delete_after=delete_after, key=secret, processes=processes
        )
    printing.effects(trial)
    if report is not None:
        reporting.save(trial.report(adjust=printing.adjust, positions=positions), report)


@app.command()
@prints_effects
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE", help="States of trials of one plan.")],
    printing: Printing,
    save: Save = None,
    overwrite: Overwrite = False,
) -> None:
    """Merge the tallies of trials that ran apart, and print the effects of the whole."""
    from foldaway.cli.commands.saving import require_savable, tell_saved
    from foldaway.trial import Trial

    require_savable(save, None, overwrite)
    seen: dict[bytes, Path] = {}
    whole: Trial | None = None
    for path in states:
        part = Trial.load(path)
        if twin := seen.get(data := part.dumps()):
            raise StateError(f"{path} and {twin} are the same state; merging it twice would count its records twice.")
        seen[data] = path
        whole = part if whole is None else whole.merge(part)
    assert whole is not None  # the command line insists on one state
    if save is not None and whole.n:
        whole.save(save)
        tell_saved(save)
    printing.effects(whole)


@plan_app.command("check")
def check(plan: PlanFile, json: AsJson = False) -> None:
    """Say what a plan will do, or what is wrong with it."""
    import msgspec

    from foldaway.federated.modes.described import described
    from foldaway.plan import Plan
    from foldaway.report.page.plan_summary import summary

    the_plan = Plan.load(plan)
    if json:
        about = {"fingerprint": the_plan.fingerprint, "plan": the_plan}
        print(msgspec.json.encode(about).decode())
    else:
        print(summary(the_plan, described(the_plan)))


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=1_000, help="How many records to simulate.")] = 200_000,
    seed: Annotated[int, typer.Option(help="The simulation's seed.")] = 0,
) -> None:
    """Simulate a trial, fold it away, and compare with an analysis that kept every row."""
    from foldaway.cli.terminal.progress import file_progress
    from foldaway.simulation.demo import demonstrate

    demonstrate(records, seed, file_progress)

"""Commands that work on files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldaway.cli import reporting
from foldaway.cli.reporting import ReportFile
from foldaway.errors import RecordError, StateError

if TYPE_CHECKING:  # each command imports what it needs, so that --help is quick
    from foldaway.effects import Effects
    from foldaway.trial import Trial

app = typer.Typer()
plan_app = typer.Typer(help="Look at plans.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml or .json file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines in place of tables.")]
AllKinds = Annotated[bool, typer.Option("--all", help="Show every kind of standard error, not just the best one.")]
Adjust = Annotated[
    str | None, typer.Option(help="Adjust p-values for several comparisons: holm or benjamini-hochberg.")
]
Save = Annotated[Path | None, typer.Option(metavar="STATE", help="Write the tallies to this file.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Let --save replace a state it did not resume from.")]


@app.command()
def run(
    plan: PlanFile,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files or globs; - for standard input.")],
    json: AsJson = False,
    all_kinds: AllKinds = False,
    adjust: Adjust = None,
    save: Save = None,
    overwrite: Overwrite = False,
    resume: Annotated[Path | None, typer.Option(metavar="STATE", help="Go on from the tallies in this file.")] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The bootstrap's secret key: read, or made if not there yet.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, tsv, parquet, arrow or ndjson, if it cannot be told.")
    ] = None,
    report: ReportFile = None,
) -> None:
    """Fold files of records into a trial and print its effects. No record is kept."""
    from foldaway.cli.key_file import read_or_make
    from foldaway.cli.progress import file_progress
    from foldaway.cli.saving import require_savable
    from foldaway.plan import Plan
    from foldaway.report.document import require_place
    from foldaway.sources import expand
    from foldaway.sources.folding import fold_files
    from foldaway.trial import Trial

    require_savable(save, resume, overwrite)
    if report is not None:
        require_place(report)
    the_plan = Plan.load(plan)
    if save is not None and the_plan.resampling is not None and key is None:
        print("Without --key the state can be read and merged later, but not resumed.", file=sys.stderr)
    secret = None if key is None or the_plan.resampling is None else read_or_make(key, new=resume is None)
    started = Trial(the_plan, key=secret) if resume is None else Trial.load(resume, the_plan, key=secret)
    with file_progress(expand(files)) as progress:
        trial = fold_files(files, the_plan, into=started, format=format, progress=progress)
    _finish(trial, save=save, json=json, all_kinds=all_kinds, adjust=adjust)
    if report is not None:
        reporting.save(trial.report(adjust=adjust), report)


@app.command()
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE", help="States of trials of one plan.")],
    json: AsJson = False,
    all_kinds: AllKinds = False,
    adjust: Adjust = None,
    save: Save = None,
    overwrite: Overwrite = False,
) -> None:
    """Merge the tallies of trials that ran apart, and print the effects of the whole."""
    from foldaway.cli.saving import require_savable
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
    _finish(whole, save=save, json=json, all_kinds=all_kinds, adjust=adjust)


@plan_app.command("check")
def check(plan: PlanFile, json: AsJson = False) -> None:
    """Say what a plan will do, or what is wrong with it."""
    import msgspec

    from foldaway.plan import Plan
    from foldaway.report.plan_summary import summary

    the_plan = Plan.load(plan)
    if json:
        about = {"fingerprint": the_plan.fingerprint, "plan": the_plan}
        print(msgspec.json.encode(about).decode())
    else:
        print(summary(the_plan))


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=1_000, help="How many records to simulate.")] = 200_000,
    seed: Annotated[int, typer.Option(help="The simulation's seed.")] = 0,
) -> None:
    """Simulate a trial, fold it away, and compare with an analysis that kept every row."""
    from foldaway.cli.demo import demonstrate

    demonstrate(records, seed)


def _finish(trial: Trial, *, save: Path | None, json: bool, all_kinds: bool, adjust: str | None) -> None:
    import warnings

    from foldaway.errors import SampleRatioWarning

    if not trial.n:
        raise RecordError("no records were folded, so there is nothing to report.")
    if save is not None:
        trial.save(save)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleRatioWarning)  # the table says it
        effects: Effects = trial.effects(adjust=adjust)
    print(effects.to_json() if json else effects.to_string(all_kinds=all_kinds))
    if save is not None:
        print(f"\nState written to {save} ({save.stat().st_size:,} bytes).", file=sys.stderr)

"""``foldaway site run``: a site that keeps its records, and sends only tallies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import Authority, Server, Token
from foldaway.cli.terminal.options import AsJson, PlanFile
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.progress import file_progress
from foldaway.cli.terminal.words import in_lines, tell_waiting
from foldaway.errors import many
from foldaway.sources.formats.paths import expand
from foldaway.table import text_table

app = typer.Typer(name="site", help="Run a site that keeps its records.", no_args_is_help=True)


@app.command("run")
def run(
    plan: PlanFile,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="The site's files of records, or globs.")],
    server: Server,
    token: Token,
    folder: Annotated[
        str,
        typer.Option(
            help="A folder where this site writes NAME.site: a random number and a digest of the files, so that they "
            "are counted once; in mode sums also the key of its groups, until the sums are stored. Each site needs its "
            "own."
        ),
    ] = "~/.foldaway",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Send all of the site's records again, with those that have come since, in place of what was sent "
            "before.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Send nothing. Only print what would be left out, and check that enough units have come and that the "
            "coordinator has the same plan.",
        ),
    ] = False,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Fold a site's records here and send its tallies. Each unit is a cluster.

    Before it sends anything, it prints which faulty records it leaves out. If
    they are more than the plan's `drop_limit`, it sends nothing. What was sent is
    marked in ~/.foldaway, or the folder that --folder names; no record is in it.

    The same files again are counted once. As enrolment goes on, send all of the
    site's records again with --replace, once `cohort` more units of each arm came.
    """
    from foldaway.federated.link import HttpLink, trial_address
    from foldaway.federated.site.site import check_site, fold_site, send_site

    the_plan = fa.Plan.load(plan)
    address, _ = trial_address(server, the_plan.name)
    with file_progress(expand(files)) as progress:
        trial = fold_site(the_plan, files, folder, progress=progress)
    if not json:
        _print_lost(trial)
    link = HttpLink(address, token, verify=True if ca is None else str(ca), told=tell_waiting)
    try:
        sent = (check_site if check else send_site)(trial, files, link, folder, replace=replace)
    finally:
        link.close()
    if json:
        print_json(sent._asdict())
        return

    tallies = f"{sent.bytes:,} bytes of tallies were sent"
    if sent.repeated:
        tallies = "the coordinator already has these tallies from an earlier run, and did not count them again"
    if check:
        tallies = "this was a check, and nothing was sent"
    print(in_lines(f"{the_plan.name}: the site's records stay here; {tallies}."))
    print()
    rows = [[arm, f"{units:,}", f"{sent.records[arm]:,}"] for arm, units in sent.units.items()]
    print(text_table(["arm", "units", "records"], rows))
    print()
    if check:
        print(in_lines("The coordinator has the same plan. To send these tallies, run the command without --check."))
        return
    if sent.durable:
        print(in_lines("The coordinator has stored these tallies, and they are safe there even after a crash."))
    else:
        print(in_lines("They are not stored yet. Run the same command again later: they are counted only once."))
    mark = f"{the_plan.name}.site in {folder}"
    print(in_lines(f"Keep {mark} until the trial has ended. Without it, another run would count the site twice."))


def _print_lost(trial: fa.Trial) -> None:
    """Print which records are left out, and which lack an outcome."""
    from foldaway.federated.site.site import lacking

    dropped = trial.dropped
    if dropped:
        share = f"{dropped.total / (dropped.total + trial.n):.2%}".replace("%", " %")
        allowed = f"{100 * trial.plan.drop_limit:g} %"
        said = f"{many(dropped.total, 'record')} of {dropped.total + trial.n:,} are faulty and left out: {share}"
        print(in_lines(f"{said}, where the plan allows {allowed}."))
    if rows := [[each.arm or "unknown", each.column, each.rule, f"{each.records:,}"] for each in dropped]:
        print()
        print(text_table(["arm", "column", "fault", "records"], rows))
        print()
    if absent := [[o, arm, f"{n:,}"] for o, by_arm in lacking(trial).items() for arm, n in by_arm.items()]:
        print("Records without an outcome, which count for the others:")
        print()
        print(text_table(["outcome", "arm", "records"], absent))
        print()
    sys.stdout.flush()  # before anything is sent

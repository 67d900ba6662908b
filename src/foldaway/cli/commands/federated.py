"""Commands of federated trials: a site that keeps its records, and a simulation of very many devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import Authority, Server, Token, extra
from foldaway.cli.terminal.options import AsJson, PlanFile
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.progress import file_progress, progress_bar
from foldaway.cli.terminal.words import in_lines, tell_waiting
from foldaway.errors import FoldawayError
from foldaway.sources.formats.paths import expand
from foldaway.table import text_table

app = typer.Typer()
site_app = typer.Typer(help="Run a site that keeps its records.", no_args_is_help=True)
federated_app = typer.Typer(help="Trials whose records stay on devices.", no_args_is_help=True)
app.add_typer(site_app, name="site")
app.add_typer(federated_app, name="federated")


@site_app.command("run")
def site_run(
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
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Fold a site's records here and send its tallies, once. Each unit is a cluster.

    What was sent is marked in ~/.foldaway, or the folder that --folder names; no record is in it.
    """
    from foldaway.federated.link import HttpLink, trial_address
    from foldaway.federated.site.site import fold_site, send_site

    the_plan = fa.Plan.load(plan)
    address, _ = trial_address(server, the_plan.name)
    with file_progress(expand(files)) as progress:
        trial = fold_site(the_plan, files, folder, progress=progress)
    link = HttpLink(address, token, verify=True if ca is None else str(ca), told=tell_waiting)
    try:
        sent = send_site(trial, files, link, folder)
    finally:
        link.close()
    if json:
        print_json(sent._asdict())
        return

    tallies = f"{sent.bytes:,} bytes of tallies were sent"
    if sent.repeated:
        tallies = "the coordinator already has these tallies from an earlier run, and did not count them again"
    print(in_lines(f"{the_plan.name}: the site's records stay here; {tallies}."))
    print()
    rows = [[arm, f"{units:,}", f"{sent.records[arm]:,}"] for arm, units in sent.units.items()]
    print(text_table(["arm", "units", "records"], rows))
    print()
    if sent.durable:
        print(in_lines("The coordinator has stored these tallies, and they are safe there even after a crash."))
    else:
        print(in_lines("They are not stored yet. Run the same command again later: they are counted only once."))
    mark = f"{the_plan.name}.site in {folder}"
    print(in_lines(f"Keep {mark} until the trial is closed. Without it, another run would count the site twice."))


@federated_app.command("simulate")
def simulate(
    clients: Annotated[int, typer.Option(min=10, help="How many devices take part.")] = 10_000,
    mode: Annotated[str, typer.Option(help="What devices send: a mode, as in a plan.")] = "one-message",
    drop_out: Annotated[float, typer.Option(min=0, max=0.9, help="The share of devices that never report.")] = 0.0,
    late: Annotated[float, typer.Option(min=0, max=0.9, help="The share that report after the end.")] = 0.0,
    processes: Annotated[int, typer.Option(min=1, help="Processes to run devices in.")] = 2,
    seed: Annotated[int, typer.Option(help="The simulation's seed.")] = 0,
    json: AsJson = False,
) -> None:
    """Run very many simulated devices against a real coordinator. Compares the effects with those of kept rows."""
    with extra():
        from foldaway.plan.vocabulary import MODES
        from foldaway.simulation.federated.population import World
        from foldaway.simulation.federated.run import simulate

    if mode not in MODES:
        raise FoldawayError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    if drop_out + late > 0.95:
        raise FoldawayError("too few devices would report: --drop-out and --late must add up to at most 0.95.")
    world = World(clients, mode, drop_out, late, seed)
    with _progress(clients) as progress:
        summary = simulate(world, processes=processes, progress=progress)
    print(summary.to_json() if json else summary)


@contextmanager
def _progress(clients: int) -> Iterator[Callable[[str, int], None]]:
    """Counts clients, in each part of the simulation anew."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        tasks = {}

        def progress(what: str, done: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=clients)
            bar.advance(tasks[what], done)

        yield progress

"""``foldaway report``: a page for people, from a saved state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foldaway.report.page.document import Report

app = typer.Typer()

ReportFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as well: one HTML page.")]


@app.command()
def report(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The tallies, as --save wrote them.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; STATE.html by default, - to print.")
    ] = None,
    adjust: Annotated[
        str | None, typer.Option(help="Adjust p-values for several comparisons: holm or benjamini-hochberg.")
    ] = None,
) -> None:
    """Write what a trial found as one HTML page, to read or to send: no other file, no network."""
    from foldaway.report.page.document import require_place
    from foldaway.trial import open_saved

    target = state.with_name(f"{state.name}.html") if output is None else output
    printed = str(target) == "-"
    if not printed:
        require_place(target)  # before the work
    trial, positions = open_saved(state)
    page = trial.report(adjust=adjust, positions=positions)
    print(page) if printed else save(page, target)


def save(page: Report, target: Path) -> None:
    """Write a report, and say so."""
    page.save(target)
    print(f"Report written to {target} ({target.stat().st_size:,} bytes). Open it in a browser.", file=sys.stderr)

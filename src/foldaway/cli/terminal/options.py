"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text  # a tab is hard to type


PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml or .json file.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        parser=_character,
        help="The delimiter of CSV files, if their first line does not tell: ';', or '\\t' for a tab.",
    ),
]


def _key(help: str) -> Any:
    return typer.Option("--key", metavar="FILE", envvar="FOLDAWAY_TRIAL_KEY", help=help)


KeyFile = Annotated[
    Path | None, _key("A file with the trial's secret key, if it is not this user's own; created if it does not exist.")
]
KeyOfState = Annotated[Path | None, _key("The key that the state was saved with, if it is not this user's own.")]


def given(metavar: str, help: str) -> Any:
    """An option of the parameter's name, and what is written after it."""
    return typer.Option(metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    """An option that is said or not said: there is no ``--no-…``, which Typer would add."""
    return typer.Option(f"--{name}", help=help)


def written(by_default: str) -> Any:
    """The option that names the file of what a command writes."""
    return typer.Option("--output", "-o", metavar="FILE", help=f"Where to write it; {by_default}.")


Yes = Annotated[bool, flag("yes", "Do not ask for confirmation.")]

WithoutEffects = Annotated[
    bool,
    flag("without-effects", "End it although effects would be withheld, be it all or some: these are lost for good."),
]

# How effects are printed.
AsJson = Annotated[bool, flag("json", "Print JSON for machines instead of tables.")]
AllEffects = Annotated[bool, flag("all", "Show every estimator, kind of standard error and segment as well.")]

# Where the tallies go.
Save = Annotated[Path | None, given("STATE", "Write the tallies to this file.")]
Replace = Annotated[bool, flag("overwrite", "Replace the file if it exists.")]
Overwrite = Annotated[bool, flag("overwrite", "Let --save replace an existing state.")]


Database = Annotated[
    str | None,
    given("ADDRESS", "In place of files, a database: postgresql://…, mysql://…, duckdb:///FILE, sqlite:///FILE."),
]
Query = Annotated[str | None, given("QUERY", "What to select there: a query, or a table's name.")]

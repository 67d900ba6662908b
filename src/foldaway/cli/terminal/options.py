"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text  # a tab is hard to type


PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml or .json file.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        parser=_character,
        help="The delimiter of CSV files, if it is not a comma: ';', or '\\t' for a tab.",
    ),
]

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="FOLDAWAY_TRIAL_KEY",
        help="A file with the trial's secret key, if it is not this user's own; created if it does not exist.",
    ),
]
KeyOfState = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="FOLDAWAY_TRIAL_KEY",
        help="The key that the state was saved with, if it is not this user's own.",
    ),
]

# How effects are printed.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
AllEffects = Annotated[
    bool, typer.Option("--all", help="Show every estimator, kind of standard error and segment as well.")
]

# Where the tallies go.
Save = Annotated[Path | None, typer.Option(metavar="STATE", help="Write the tallies to this file.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Let --save replace a state that it did not resume from.")]

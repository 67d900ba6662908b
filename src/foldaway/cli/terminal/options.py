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
        help="What separates cells of CSV, if not a comma: ';', or '\\t' for a tab.",
    ),
]

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="FOLDAWAY_TRIAL_KEY",
        help="The trial's secret key, if not this user's own; made if there is no such file yet.",
    ),
]
KeyOfState = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="FOLDAWAY_TRIAL_KEY",
        help="The key the state was saved with, if not this user's own.",
    ),
]

# How effects are printed.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines in place of tables.")]
AllEffects = Annotated[
    bool, typer.Option("--all", help="Show every estimator, kind of standard error and segment as well.")
]

# Where the tallies go.
Save = Annotated[Path | None, typer.Option(metavar="STATE", help="Write the tallies to this file.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Let --save replace a state it did not resume from.")]

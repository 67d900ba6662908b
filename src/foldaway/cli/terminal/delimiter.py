"""What stands between two cells of a CSV file, as an option."""

from __future__ import annotations

from typing import Annotated

import typer


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text  # a tab is hard to type


Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        parser=_character,
        help="What separates cells of CSV, if not a comma: ';', or '\\t' for a tab.",
    ),
]

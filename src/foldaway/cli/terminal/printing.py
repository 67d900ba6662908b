"""What commands that print effects have in common: their options, and the printing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from foldaway.trial import Trial

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines in place of tables.")]
AllKinds = Annotated[bool, typer.Option("--all", help="Show every kind of standard error, not just the best one.")]
Adjust = Annotated[
    str | None, typer.Option(help="Adjust p-values for several comparisons: holm or benjamini-hochberg.")
]


@dataclass(frozen=True)
class Printing:
    """How effects are to be printed."""

    json: AsJson = False
    all_kinds: AllKinds = False
    adjust: Adjust = None

    def effects(self, trial: Trial) -> None:
        """Print the trial's effects.

        Raises:
            RecordError: There is nothing to print.
        """
        import warnings

        from foldaway.errors import RecordError, SampleRatioWarning
        from foldaway.records.faults import none_folded

        if not trial.n:
            raise RecordError(none_folded(trial.dropped, "report"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SampleRatioWarning)  # the table says it
            effects = trial.effects(adjust=self.adjust)
        print(effects.to_json() if self.json else effects.to_string(all_kinds=self.all_kinds))


def prints_effects(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Printing` in place of its parameter ``printing``."""
    given = inspect.signature(command, eval_str=True)
    options = list(inspect.signature(Printing, eval_str=True).parameters.values())
    own = [parameter for name, parameter in given.parameters.items() if name != "printing"]
    names = [option.name for option in options]

    @wraps(command)
    def with_options(**values: Any) -> None:
        printing = Printing(**{name: values.pop(name) for name in names})
        command(**values, printing=printing)

    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options)]
    with_options.__signature__ = given.replace(parameters=shown)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return with_options

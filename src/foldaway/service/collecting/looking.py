"""Planned looks of a server: each is taken as soon as its information is durable, and kept before it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from foldaway.effects import Effects
from foldaway.effects.looks import look_at
from foldaway.effects.looks_taken import Look
from foldaway.errors import EstimateError, TooEarly
from foldaway.plan import Plan
from foldaway.service.database.look_table import require_looks
from foldaway.service.database.store import Store
from foldaway.service.database.tables import Change


def looks_of(store: Store, plan: Plan, exact: Callable[[], Effects], units: int | None = None) -> tuple[Look, ...]:
    """The looks that were taken of a trial, after the one that is due, if one is: of what is durable by now.

    Args:
        store: Where they are kept.
        plan: The plan.
        exact: Gives the effects of what is durable, exactly; asked only if the plan has looks.
        units: How many units these are of, where each may have several records.

    Raises:
        TrialEnded: Its final effects name its looks.
    """
    if plan.looks is None:
        return ()
    taken = store.looks.read(plan.name)
    if (look := _due(exact, taken, units)) is None:
        return taken
    store.looks.take(plan.name, len(taken), look)
    return store.looks.read(plan.name)


def last_looks(
    store: Store, plan: Plan, exact: Callable[[], Effects], units: int | None = None
) -> tuple[tuple[Look, ...], Change]:
    """The same at the end of a trial, with a last look that spends what is left; it is kept with the final effects.

    Returns:
        The looks, and what makes sure, in the transaction that ends the trial, that no server has taken another since.

    Raises:
        TrialEnded: Another server was faster.
    """
    taken = () if plan.looks is None else store.looks.read(plan.name)
    last = None if plan.looks is None else _due(exact, taken, units, last=True)
    unless_looked = partial(require_looks, trial=plan.name, taken=len(taken))
    return taken if last is None else (*taken, last), unless_looked


def _due(exact: Callable[[], Effects], taken: Sequence[Look], units: int | None, *, last: bool = False) -> Look | None:
    # Effects without an error, or that cannot be trusted, take no look.
    with suppress(TooEarly, EstimateError):
        return look_at(exact(), taken, last=last, units=units)
    return None

"""Planned looks of a server: each is taken as soon as its information is durable, and kept before it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from foldaway.effects import Effects
from foldaway.effects.looks import look_at
from foldaway.effects.looks_taken import Look
from foldaway.errors import EstimateError, TooEarly
from foldaway.plan import Plan
from foldaway.service.database.store import Store


def looks_of(store: Store, plan: Plan, exact: Callable[[], Effects]) -> tuple[Look, ...]:
    """The looks that were taken of a trial, after the one that is due, if one is: of what is durable by now.

    Args:
        store: Where they are kept.
        plan: The plan.
        exact: Gives the effects of what is durable, exactly; asked only if the plan has looks.
    """
    if plan.looks is None:
        return ()
    taken = store.looks.read(plan.name)
    if (look := _due(exact, taken)) is None:
        return taken
    store.looks.take(plan.name, len(taken), look)
    return store.looks.read(plan.name)


def last_looks(store: Store, plan: Plan, exact: Callable[[], Effects]) -> tuple[Look, ...]:
    """The same at the end of a trial, with a last look that spends what is left; it is kept with the final effects."""
    if plan.looks is None:
        return ()
    taken = store.looks.read(plan.name)
    last = _due(exact, taken, last=True)
    return taken if last is None else (*taken, last)


def _due(exact: Callable[[], Effects], taken: Sequence[Look], *, last: bool = False) -> Look | None:
    # Effects without an error, or that cannot be trusted, take no look.
    with suppress(TooEarly, EstimateError):
        return look_at(exact(), taken, last=last)
    return None

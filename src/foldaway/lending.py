"""What rooms lend to those below, which import nothing from above them: the front door says who lends what.

A plan writes its statement in SQL and takes coefficients from earlier records, by what is itself made of plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lender = Callable[[], Callable[..., Any]]

_LENDERS: dict[str, Lender] = {}


def lend(**lenders: Lender) -> None:
    """Say how each of these is had: it is asked for only once it is needed."""
    _LENDERS.update(lenders)


def lent(name: str) -> Callable[..., Any]:
    """What is lent under a name."""
    return _LENDERS[name]()

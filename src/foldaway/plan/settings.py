"""The settings of a plan: read from text, brought to their types, made unchangeable."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from foldaway.errors import PlanError
from foldaway.plan.vocabulary import ERRORS, MODES, either

MUST_BE = {
    "name": "text",
    "arm": "the name of a column",
    "arms": "a table of arms with their probabilities",
    "outcomes": "a list of column names",
    "covariates": "a list of column names",
    "levels": "a table that lists the levels of each categorical covariate",
    "unit": "the name of a column",
    "weight": "the name of a column",
    "confidence": "a number",
    "complete_units": "true or false",
    "on_fault": '"refuse" or "drop"',
    "estimators": "a list of estimators",
    "errors": "a list of kinds of standard error",
    "anytime_n": "a whole number",
    "cohort": "a whole number",
    "max_wait": "a number of seconds",
    "min_per_arm": "a whole number",
    "remainder": '"leave_out" or "include"',
    "federated": either(MODES),
    "reply_deadline": "a number of seconds",
    "reply_share": "a number",
    "retention": "a number of seconds",
    "leverage": either(name for name, word in ERRORS.items() if word.setting == "leverage"),
    "bootstrap": "a number of replicates, or a table with `replicates` and `weights` (poisson or double-or-nothing)",
}
"""Every setting, and what it must be."""

REQUIRED = ("name", "arm", "arms", "outcomes")


class Fixed(dict[str, Any]):
    """A dict that cannot change, so that a plan cannot either."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("a plan never changes: make another plan")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Fixed, (dict(self),)  # pickle and copy would otherwise set the items one by one


def parsed(text: str) -> dict[str, Any]:
    """The settings in TOML or JSON text.

    Raises:
        PlanError: The text is neither, or a setting is missing or unknown.

    Example:
        >>> parsed("name = 'demo'")
        Traceback (most recent call last):
        foldaway.errors.PlanError: `arm` is missing.
        `arms` is missing.
        `outcomes` is missing.
    """
    text = text.removeprefix("\ufeff")  # some editors begin a file with this mark
    try:
        is_json = text.lstrip().startswith("{")
        settings = json.loads(text, object_pairs_hook=_unrepeated) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the plan is neither TOML nor JSON: {error}.") from None
    faults = [_unknown(field) for field in settings if field not in MUST_BE]
    faults += [f"`{field}` is missing." for field in REQUIRED if field not in settings]
    if faults:
        raise PlanError("\n".join(faults))
    return settings


def typed(value: Any, kind: Any) -> Any:
    """The value in the type it is declared with, as one that cannot change.

    Raises:
        msgspec.ValidationError: It is of another type.
    """
    return _fixed(msgspec.convert(_plain(value), kind))


def _plain(value: Any) -> Any:
    """The value in Python's own types."""
    if hasattr(value, "tolist"):  # NumPy's numbers, texts and arrays
        return value.tolist()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        raise msgspec.ValidationError("a set has no order")
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _fixed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Fixed({key: _fixed(item) for key, item in value.items()})
    return tuple(value) if isinstance(value, list) else value


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of which no key comes twice; the parser would take the last in silence."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key comes twice in one object")
    return dict(pairs)


def _unknown(field: str) -> str:
    alike = difflib.get_close_matches(field, MUST_BE, n=1)
    return f"{field!r} is not a setting of a plan" + (f"; is it `{alike[0]}`?" if alike else ".")

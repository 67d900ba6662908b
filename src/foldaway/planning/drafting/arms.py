"""The arms that a column names: which values are one arm, which are misspellings, and which arm is the control."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foldaway.errors import PlanError

FEWEST_RECORDS = 2
"""A value that fewer records have is not shown: it might be somebody's name."""

# A value that fewer than this share of all records have, and fewer than a tenth of those of any arm, is rare: no arm
# where there are two without it.
_RARE = 0.01

# What people call the arm that the others are compared with.
_CONTROLS = ("control", "ctrl", "placebo", "baseline", "base", "default", "off", "old", "a", "0", "false", "no")


class SeenArms(NamedTuple):
    """The arms of a column.

    Attributes:
        values: What the column says for each arm, the arm's name first if it is among them; the control comes first.
        rare: Values that are taken for misspellings of nobody knows what, with their numbers of records.
        renamed: Whether the arms have names of ours, since those in the column are numbers or truth values.
    """

    values: dict[str, list[str]]
    rare: dict[str, int]
    renamed: bool

    @property
    def codes(self) -> dict[str, int]:
        """The number of the arm that each value stands for."""
        return {value: code for code, values in enumerate(self.values.values()) for value in values}


def arms_in(column: str, counts: Mapping[str, int], control: str | None = None) -> SeenArms:
    """The arms that a column names, given how many records have each value of it.

    Values that differ in capitals and blanks alone are one arm, and so is a value that is rare, or ten times rarer than
    another, and differs by a slip of the finger.

    Raises:
        PlanError: The column does not look like one of arms, or has no such control.

    Example:
        >>> arms_in("arm", {"new": 500, "control": 480, "Control ": 9, "contorl": 2, "else": 3}).values
        {'control': ['control', 'Control ', 'contorl'], 'new': ['new']}
        >>> arms_in("arm", {"new": 500, "control": 480, "contorl": 20}).values
        {'control': ['control', 'contorl'], 'new': ['new']}
    """
    spelled: dict[str, dict[str, int]] = {}
    for value, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        spelled.setdefault(_plain(value), {})[value] = n
    totals = {plain: sum(values.values()) for plain, values in spelled.items()}
    asked = None if control is None else _plain(control)
    rare = _rare(totals, asked)
    for plain in [each for each in totals if each != asked]:
        seldom = plain in rare or totals[plain] < FEWEST_RECORDS
        least = totals[plain] * (1 if seldom else 10)  # a slip of more records must be among far more still
        near = [each for each in totals if each not in rare and totals[each] > least and _is_slip(plain, each)]
        if len(near) == 1:
            spelled[near[0]] |= spelled.pop(plain)
            totals[near[0]] += totals.pop(plain)
            rare.discard(plain)
    found = {_shown(values): list(values) for plain, values in spelled.items() if plain not in rare}
    _require_arms(column, [totals[plain] for plain in spelled if plain not in rare])
    first = _control(column, found, control)
    values = {arm: found[arm] for arm in [first, *sorted(found.keys() - {first})]}
    names = _names(list(values))
    unclear = {value: n for plain in rare if plain in spelled for value, n in spelled[plain].items()}
    return SeenArms(dict(zip(names or values, values.values(), strict=True)), unclear, bool(names))


def spellings(values: Sequence[str]) -> list[str]:
    """Of the values that stand for one arm, the usual one and those that differ from it by capitals and blanks alone.

    Example:
        >>> spellings(["control", "Control ", "contorl"])
        ['control', 'Control ']
    """
    return [value for value in values if _plain(value) == _plain(values[0])]


def _plain(value: str) -> str:
    return " ".join(value.split()).casefold()


def _shown(values: Mapping[str, int]) -> str:
    """The usual spelling, without blanks around it."""
    return " ".join(next(iter(values)).split())


def _rare(totals: Mapping[str, int], control: str | None) -> set[str]:
    records = sum(totals.values())
    common = [n for n in totals.values() if n >= _RARE * records]
    if len(common) < 2:
        return set()
    most = min(_RARE * records, min(common) / 10)
    return {plain for plain, n in totals.items() if n < most and plain != control}


def _is_slip(typed: str, meant: str) -> bool:
    """Whether a word of some length has two letters swapped, or one too many, too few or wrong; digits are not letters.

    Example:
        >>> _is_slip("tretament", "treatment"), _is_slip("nwe", "new")
        (True, True)
        >>> _is_slip("treatment b", "treatment a"), _is_slip("variant1", "variant2"), _is_slip("now", "new")
        (False, False, False)
    """
    words = typed.split(), meant.split()
    differing = [(a, b) for a, b in zip(*words, strict=False) if a != b]
    if len(words[0]) != len(words[1]) or len(differing) != 1:
        return False
    (wrong, right) = differing[0]
    if not (wrong.isalpha() and right.isalpha()):
        return False
    start = next(
        (i for i, (a, b) in enumerate(zip(wrong, right, strict=False)) if a != b), min(map(len, (wrong, right)))
    )
    a, b = wrong[start:], right[start:]
    swapped = len(right) > 2 and a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return swapped or (len(right) > 4 and (a[1:] == b[1:] or a[1:] == b or a == b[1:]))


def _require_arms(column: str, counts: list[int]) -> None:
    if len(counts) > 2 and sorted(counts)[:2] != [1, 1] and 1 in counts:
        raise PlanError(f"one value of {column!r} occurs only once; if it is a typo, correct it in the file.")
    if len(counts) < 2 or min(counts) < FEWEST_RECORDS:
        raise PlanError(
            f"{column!r} does not look like the column of the arm: it should have two or more different values, each "
            f"in {FEWEST_RECORDS} records or more."
        )


def _control(column: str, found: Mapping[str, list[str]], control: str | None) -> str:
    """The control, by its name, by any of its spellings, or as a guess."""
    if control is None:
        plain = {_plain(arm): arm for arm in sorted(found)}
        return next((plain[word] for word in _CONTROLS if word in plain), min(found))
    named = [arm for arm, values in found.items() if control in (arm, *values)]
    if not named:
        raise PlanError(f"there is no arm {control!r} in {column!r}; there are {', '.join(sorted(found))}.")
    return named[0]


def _names(arms: list[str]) -> list[str]:
    """Names for arms that are numbers or truth values, by which nobody knows them; none if they have names."""
    if not all(re.fullmatch(r"-?\d+|true|false", arm, re.IGNORECASE) for arm in arms):
        return []
    return ["control", *(["treatment"] if len(arms) == 2 else [f"treatment {n}" for n in range(1, len(arms))])]

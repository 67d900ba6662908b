"""What was kept: every number in a state by kind and size, taken from the very bytes of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foldaway.effects.numbers import bytes_text
from foldaway.evidence.ledger import Ledger
from foldaway.keeping.folded_files import FilePositions
from foldaway.keeping.saved import Saved, StreamPositions
from foldaway.keeping.state import HEADER, unpack
from foldaway.plan import Plan
from foldaway.plan.vocabulary import RECORDS, REPLICATES, UNITS
from foldaway.report.drawing.markup import html, tag
from foldaway.report.page.document import Section, details, table
from foldaway.tallies import empty_holding
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.sums import ARRAYS

_FIELDS = {
    "plan": ("Plan", "the question, as text"),
    "dropped": ("Records left out", "how many, by arm"),
    "faults": ("Reasons", "how many records were left out, by arm, column and rule"),
    "key_mark": ("Mark of the key", "shows whether two states share a secret key; the key itself is not here"),
    "sealed": ("End", "whether further records can be folded"),
    "told": ("Effects for others", "what was last shown to others, and the number of records behind it, by group"),
}

TALLIES = {
    RECORDS: ("Error sums", "sums behind robust standard errors, over all records of an arm"),
    UNITS: ("Error sums by unit", "the same over units, for errors that allow for units with several records"),
    REPLICATES: ("Bootstrap sums", "the same sums again, once for each replicate, under its own secret weights"),
}

_ARMS = TALLIES | {
    "frame": ("Scales", "typical size of each column, by arm, so that no digits are lost"),
    "factor": ("Counts, means and spreads", "sums of products of two columns, over all records of an arm"),
}

_SPREADS = ("Spreads", "sums of squares of each outcome, by arm, for errors that assume independent records")

SUMS = {
    "records": ("Counts", "the number of records, by arm and group of units"),
    "present": ("Counts", "the number of records, by arm and group of units"),
    "weight": ("Weights", "sums of weights, by arm and group of units"),
    "total": (
        "Sums",
        "sums of each outcome and, with covariates, of each outcome minus what they predict, by arm and group of units",
    ),
    "level": ("Levels", "round numbers that are subtracted before summing, so that no digits are lost"),
    "mass": _SPREADS,
    "first": _SPREADS,
    "square": _SPREADS,
    "cross": _SPREADS,
    "joint": (
        "Products",
        "sums of products of the two columns of a ratio, by arm, for errors that assume independent records",
    ),
    "absolute": ("Sizes", "sums of each outcome without its sign, by arm: whether any-time intervals can be computed"),
}

_GROUPED = {
    "moments": (
        "Moments",
        "sums of products of two columns, by arm and group of units; deleted when the trial is saved",
    ),
    "center": ("Coefficients", "how covariates predict each outcome, to three digits"),
    "slopes": ("Coefficients", "how covariates predict each outcome, to three digits"),
    "released": ("Release", "counts and sums with noise, by arm and group; the exact ones are gone"),
    "segments": ("Segments", "the same counts and sums, by value of each segment"),
    "strata": ("Strata", "counts, sums and spreads, by arm and stratum; of survival also exits by time"),
    "histograms": (
        "Histograms",
        "how many records have a value in each bin, by arm and group of units: for quantiles and survival",
    ),
    "baseline": (
        "Baseline",
        "counts, sums and sums of squares of each characteristic, by arm, for the table of baseline characteristics",
    ),
    "why": ("Reason", "why outcomes are not adjusted, if they are not"),
}

_POSITIONS = {
    FilePositions: ("List of files", "salted hashes of names, sizes and times, so that no file is folded twice"),
    StreamPositions: ("Positions", "how far each source has been read, so that nothing is folded twice"),
}


class Item(NamedTuple):
    """One kind of thing in a state: how many numbers it is, and how many bytes."""

    name: str
    what: str
    numbers: int
    size: int


def inventory(saved: Saved) -> list[Item]:
    """Everything in a saved file, by kind. The sizes add up to that of what is encrypted there."""
    parts: dict[tuple[str, str], tuple[int, int]] = {}
    for name, what, part in _parts(unpack(saved.state, dict)):
        numbers, size = parts.get((name, what), (0, 0))
        parts[name, what] = numbers + _numbers(part), size + len(msgspec.msgpack.encode(part))
    items = [Item(*about, *sizes) for about, sizes in parts.items()]
    items.append(Item("Header", "a mark of the file type, its format and a checksum", 0, HEADER))
    rest = len(saved.state) - sum(item.size for item in items)
    items.append(Item("Names of the parts", "the names of the above", 0, rest))
    if saved.ledger:
        bare = msgspec.structs.replace(saved, ledger=Ledger())
        what = "what happened and when, signed; rounded counts, and no other number from records"
        items.append(Item("Ledger", what, 0, len(saved.dumps()) - len(bare.dumps())))
        saved = bare
    if saved.positions is not None:
        items.append(Item(*_POSITIONS[type(saved.positions)], 0, len(saved.dumps()) - len(saved.state)))
    return items


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    yield *_FIELDS["plan"], body["plan"]
    yield from _in_groups(body["tallies"]) if isinstance(body["tallies"], dict) else _in_arms(body["tallies"])
    for name, part in body.items():
        if name not in ("plan", "tallies") and part is not None:
            yield *_FIELDS.get(name, (name, "")), part


def _in_arms(arms: list[Any]) -> Iterator[tuple[str, str, Any]]:
    for arm in arms:
        parts = {"frame": [arm["frame_n"], arm["frame"]], "factor": arm["factor"], **arm["tallies"]}
        for name, part in parts.items():
            yield *_ARMS[name], part


def _in_groups(tallies: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, part in tallies.items():
        if name == "arms":
            yield from _in_arms(part or [])
        elif name != "sums" and part:
            kind, what = _GROUPED[name]
            if name in ("center", "slopes"):
                center, slopes = (np.frombuffer(tallies[each][1], dtype="<f8") for each in ("center", "slopes"))
                what = f"{what}; digest {Predictor(center, slopes).digest[:12]}"
            yield kind, what, part
    for name, array in zip(ARRAYS, tallies["sums"] or (), strict=False):
        if array is not None:
            yield *SUMS[name], array


def planned(plan: Plan) -> list[tuple[str, str, int]]:
    """Every kind of number that a trial of this plan will keep, what it is, and how many of it there are."""
    tallies = empty_holding(plan)
    about = SUMS | _GROUPED | {f"moments.{name}": words for name, words in _ARMS.items()}
    parts = [(*about[name], numbers) for name, numbers in tallies.kept().items()]
    if tallies.unfixed:
        parts.append((*_GROUPED["slopes"], (len(plan.predictors) - 1) * (1 + len(plan.values))))
    if any(column not in plan.levels for column in plan.segments):  # as many again for each level that comes
        segments = _GROUPED["segments"][0]
        parts = [(f"{name}, at least" if name == segments else name, what, n) for name, what, n in parts]
    counts = Counter[tuple[str, str]]()
    for name, what, numbers in parts:
        counts[name, what] += numbers
    return [(*about, numbers) for about, numbers in counts.items()]


def _numbers(part: Any) -> int:
    """The numbers in a part of a state; an array is its shape, which is none of the data's, and its bytes."""
    if part is None or isinstance(part, bool | str | bytes):
        return 0
    if isinstance(part, int | float):
        return 1
    if isinstance(part, dict):
        return sum(map(_numbers, part.values()))
    if len(part) == 2 and isinstance(part[1], bytes):
        return math.prod(part[0])
    return sum(map(_numbers, part))


def kept(saved: Saved, n: int) -> Section:
    """The table of all that exists."""
    items, total = inventory(saved), len(saved.dumps())
    numbers = sum(each.numbers for each in items)
    rows = [[each.name, each.what, f"{each.numbers:,}" if each.numbers else "–", f"{each.size:,}"] for each in items]
    rows.append(["In all", "", f"{numbers:,}", f"{total:,}"])
    size = f"{numbers:,} numbers, {bytes_text(total)} in all"
    past = f"{n:,} records were" if n != 1 else "1 record was"
    history = f"{past} folded into {size}, and forgotten. " if n else f"No record has arrived yet. There are {size}. "
    body = html(
        tag(
            "p",
            tag("strong", "No record was kept. "),
            history,
            "The table below is everything that exists; further records would change these numbers, but add no new "
            "ones.",
        ),
        table("Everything in the state", ["kind", "what it is", "numbers", "bytes"], rows, left=2),
        details(
            "What can these numbers reveal about a person?",
            tag(
                "p",
                "They are sums over all records of an arm, or over the units that a secret key dealt into one of its "
                "groups. Nothing in them is tied to an identifier. In an arm of a "
                "handful of records, or to someone who holds two states that differ by few, sums still reveal much "
                "about those few: share states as you would share totals.",
            ),
            tag(
                "p",
                "This report holds none of these sums by group, and of a bootstrap's replicates only their spread, "
                "rounded: they never leave the state.",
            ),
        ),
    )
    return Section("kept", "What was kept", body)

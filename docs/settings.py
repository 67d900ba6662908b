"""Writes the tables of docs/reference/plan.md: every setting of a plan as it is declared. Run by `make goldens`.

The page is text, so that it can be read without a built site. Between `<!-- settings of Mean -->` and `<!-- end -->`
stand the settings of that class; the rest is written by hand. A test asks whether the page is what the code declares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import griffe
import msgspec

import foldaway as fa
from foldaway.plan import (
    Bootstrap,
    Characteristic,
    Coefficients,
    Covariate,
    Estimand,
    Federated,
    Flow,
    Information,
    Looks,
    Moments,
    Privacy,
    Release,
    Segment,
    Strata,
)
from foldaway.plan.outcomes import KINDS, Bounded, Outcome
from foldaway.plan.part import Part, Setting, settings_of
from foldaway.plan.written import Written

PAGE = Path(__file__).parent / "reference/plan.md"
_TABLE = re.compile(r"(<!-- settings of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

PARTS: tuple[type[Part], ...] = (
    Written,
    Outcome,
    *KINDS.values(),
    Bounded,
    Covariate,
    Segment,
    Characteristic,
    Coefficients,
    Strata,
    Privacy,
    Federated,
    Looks,
    Information,
    Moments,
    Bootstrap,
    Release,
    Estimand,
    Flow,
)

# What a required setting is written out as; of one with few words for it, the first.
EXAMPLES: dict[str, Any] = {
    "information": {"units": 900},
    "at": [0.5, 0.75, 1.0],
    "replicates": 1000,
    "epsilon": 1.0,
    "center": {"before": 12.0},
    "slopes": {"revenue": {"before": 0.8}},
    "column": "site",
    "probabilities": {"lyon": {"control": 0.5, "treatment": 0.5}},
}


def filled(page: str) -> str:
    """The page with every table as the code declares it."""
    parts = {part.__name__: part for part in PARTS}
    return _TABLE.sub(lambda found: f"{found[1]}\n{page_of(parts[found[2]])}\n\n{found[3]}", page)


def _described(part: type[Part]) -> tuple[str, dict[str, str]]:
    """What the docstring says of a part, and of each of its settings."""
    text, *sections = griffe.Docstring(part.__doc__ or "").parse("google")
    meanings = {
        attribute.name: " ".join(attribute.description.split())
        for section in sections
        if section.kind is griffe.DocstringSectionKind.attributes
        for attribute in section.value
    }
    return str(text.value), meanings


def page_of(part: type[Part]) -> str:
    """What a part is, its settings as a table, and all of it written out in Python."""
    text, meanings = _described(part)
    rows = [
        f"| `{setting.name}` | {_default(setting)} | {setting.must_be} | {meanings[name]} |"
        for name, setting in settings_of(part).items()
        if name in meanings  # those that all kinds of outcome have are told once
    ]
    table = "\n".join(["| setting | default | must be | meaning |", "|---|---|---|---|", *rows])
    if not part.TABLE or part.LISTED:
        return f"{text}\n\n{table}"
    return f"{text}\n\n{table}\n\n```python\n{in_python(part)}\n```"


def in_python(part: type[Part]) -> str:
    """The part with every setting, as an expression."""
    settings = f"({', '.join(f'{name}={value!r}' for name, value in _values(part))})".replace("'", '"')
    name = part.__name__
    return f"fa.{name}{settings}" if name in fa.__all__ else f"from foldaway.plan import {name}\n\n{name}{settings}"


def _values(part: type[Part]) -> Iterator[tuple[str, Any]]:
    """Each setting with its default, or else an example."""
    for name, setting in settings_of(part).items():
        if setting.default is not msgspec.NODEFAULT:
            yield name, setting.default
        else:
            yield name, get_args(setting.plain)[0] if get_origin(setting.plain) is Literal else EXAMPLES[name]


def _default(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return "required"
    if setting.part is not None and setting.default is not None:
        return "its defaults"
    if setting.default is None or setting.default in ((), {}, ""):
        return "none"
    return f"`{json.dumps(setting.default)}`"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")

"""A page as the tests read it: a tree of elements, with what they say, and the numbers in that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Element:
    """An element, its attributes and what is in it."""

    def __init__(self, name: str, attributes: dict[str, str | None]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element | str] = []

    def find(self, name: str | None = None, **attributes: str) -> Iterator[Element]:
        """Every element below with this name and these attributes, in order; ``class_`` is one of its classes."""
        for child in self.children:
            if isinstance(child, Element):
                if (name is None or child.name == name) and child._has(attributes):
                    yield child
                yield from child.find(name, **attributes)

    def one(self, name: str | None = None, **attributes: str) -> Element:
        found = list(self.find(name, **attributes))
        assert len(found) == 1, f"{len(found)} elements {name} {attributes}"
        return found[0]

    def _has(self, wanted: dict[str, str]) -> bool:
        for key, value in wanted.items():
            given = self.attributes.get(key.rstrip("_").replace("_", "-")) or ""
            if value not in (given.split() if key == "class_" else [given]):
                return False
        return True

    @property
    def text(self) -> str:
        """What it says, blanks closed up."""
        return re.sub(r"[ \n]+", " ", self.raw).strip()

    @property
    def raw(self) -> str:
        """What it says, blanks and line ends as they are."""
        return "".join(self._texts())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()

    def percent(self, attribute: str) -> float:
        value = self.attributes[attribute] or ""
        assert value.endswith("%")
        return float(value[:-1])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attrs}) == len(attrs), f"an attribute of {tag} comes twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(html: str) -> Element:
    """The page; every element must be closed."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert len(reader.open) == 1, f"{reader.open[-1].name} is left open"
    return reader.open[0]


class Table(NamedTuple):
    caption: str
    header: list[str]
    rows: list[list[str]]


def tables(element: Element) -> list[Table]:
    return [
        Table(
            table.one("caption").text,
            [cell.text for cell in table.one("thead").find("th")],
            [
                [cell.text for cell in row.children if isinstance(cell, Element)]
                for row in table.one("tbody").find("tr")
            ],
        )
        for table in element.find("table")
    ]


_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


class Shown(NamedTuple):
    """A number as it is written, and by how much rounding may have moved it."""

    value: float
    rounding: float


def shown(text: str) -> Shown:
    """A number as the page sets it: a true minus, powers of ten, separated thousands, per cent."""
    found = re.fullmatch(r"([+−-]?)([\d,]+)(?:\.(\d+))?(?:\u202f×\u202f10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))?(\u202f%)?", text)
    assert found, f"{text!r} is no number"
    sign, whole, decimals, power, percent = found.groups(default="")
    scale = 10.0 ** int(power.translate(_DIGITS) or 0) / (100 if percent else 1)
    value = float(f"{whole.replace(',', '')}.{decimals or 0}") * scale
    return Shown(value if sign in ("", "+") else -value, 0.5000001 * 10.0 ** -len(decimals) * scale)


def matches(text: str, value: float | None) -> bool:
    """Whether the text is the value, rounded; what does not exist is a dash."""
    if value is None:
        return text == "–"
    if value in (float("inf"), float("-inf")):
        return text in ("∞", "−∞")
    number = shown(text)
    return abs(number.value - value) <= number.rounding + 1e-9 * abs(value)


def interval_matches(text: str, lower: float | None, upper: float | None) -> bool:
    if text == "–":
        return lower is upper is None
    low, high = text.removeprefix("[").removesuffix("]").split(", ")
    return matches(low, lower) and matches(high, upper)

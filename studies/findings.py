"""What a study found: a table with words around it, printed, or kept as a page under docs/validation/."""

from __future__ import annotations

import argparse
import csv
import io
import platform
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TypeVar

from foldaway.table import text_table

PAGES = Path(__file__).parents[1] / "docs" / "validation"

T = TypeVar("T")


class Table(NamedTuple):
    """Columns, cells as text, and how many of the columns are text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int


@dataclass(frozen=True)
class Findings:
    """A study's result.

    Attributes:
        title: The heading of the page.
        question: What was asked and how it was simulated, paragraphs of Markdown.
        header: The table's columns.
        rows: Its cells, as text.
        answer: What the table says, paragraphs of Markdown.
        left: How many of the columns are text.
        details: Markdown that follows the answer as it is: further tables.
        summary: What the page shows where the table is too long for it; all of it is then a CSV file beside the page.
        figure: What the picture shows, for those who do not see it; none if empty.
        files: What is kept beside the page, by the end of its name: the picture is "svg".
        packages: Those whose versions the numbers may depend on.
    """

    title: str
    question: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    answer: str
    left: int = 1
    details: str = ""
    summary: Table | None = None
    figure: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()

    def text(self) -> str:
        """For a terminal."""
        return f"{self.title}\n\n{text_table(self.header, self.rows, self.left)}\n\n{filled(self.answer)}"

    def page(self, name: str, command: str) -> str:
        """As Markdown, with the command that makes it again."""
        parts = [f"# {self.title}", filled(self.question)]
        if self.figure:
            parts.append(f"![{self.figure}]({name}.svg)")
        parts.append(markdown_table(*(self.summary or Table(self.header, self.rows, self.left))))
        if self.summary:
            parts.append(f"Every cell: [{name}.csv]({name}.csv).")
        parts += [filled(self.answer), self.details]
        made = f"Made by `{command}`; the seed makes it the same in every run."
        if self.packages:
            versions = ", ".join(f"{package} {version(package)}" for package in self.packages)
            made += f" Python {platform.python_version()}, {versions}."
        return "\n\n".join(part for part in [*parts, made] if part) + "\n"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """A table in Markdown, its first columns to the left and the others to the right."""
    sides = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, sides, *rows])


def filled(text: str) -> str:
    r"""Paragraphs in lines of equal length, however they were broken.

    Example:
        >>> print(filled("One\nline.\n\nAnother."))
        One line.
        <BLANKLINE>
        Another.
    """
    return "\n\n".join(
        textwrap.fill(" ".join(part.split()), 118, break_on_hyphens=False) for part in text.split("\n\n")
    )


def publish(findings: Findings, name: str, options: argparse.Namespace) -> None:
    """Print the findings; keep them as a page if the options say so."""
    print(findings.text(), flush=True)
    if options.write:
        PAGES.mkdir(parents=True, exist_ok=True)
        sizes = {option: value for option, value in vars(options).items() if option != "write"}
        words = " ".join(f"--{option} {value}" for option, value in sizes.items())
        page = findings.page(name, f"python -m studies {name} {words}")
        long = {"csv": csv_text(findings.header, findings.rows)} if findings.summary else {}
        for ending, text in {"md": page, **long, **findings.files}.items():
            (PAGES / f"{name}.{ending}").write_text(text, encoding="utf-8")


def options_of(name: str, arguments: Sequence[str], **defaults: int) -> argparse.Namespace:
    """The options of a study: whole numbers with their defaults, and whether to keep the page."""
    parser = argparse.ArgumentParser(prog=f"python -m studies {name}")
    for option, default in defaults.items():
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--write", action="store_true", help=f"keep the findings as docs/validation/{name}.md")
    return parser.parse_args(list(arguments))


def counted(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, with a count of them on standard error every few seconds."""
    began = told = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - told >= 5:
            told = now
            print(f"{what}: {done:,} of {total:,}, {now - began:.0f} s", file=sys.stderr, flush=True)
        yield item
    print(f"{what}: {total:,} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

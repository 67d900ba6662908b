"""What a study found: a table with words around it, printed, or kept as a page under docs/validation/."""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from foldaway.table import text_table

PAGES = Path(__file__).parents[1] / "docs" / "validation"

T = TypeVar("T")


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
    """

    title: str
    question: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    answer: str
    left: int = 1

    def text(self) -> str:
        """For a terminal."""
        return f"{self.title}\n\n{text_table(self.header, self.rows, self.left)}\n\n{filled(self.answer)}"

    def page(self, command: str) -> str:
        """As Markdown, with the command that makes it again."""
        sides = ["---"] * self.left + ["---:"] * (len(self.header) - self.left)
        lines = [self.header, sides, *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        made = f"Made by `{command}`; the seed makes it the same in every run."
        return "\n\n".join([f"# {self.title}", filled(self.question), table, filled(self.answer), made]) + "\n"


def filled(text: str) -> str:
    r"""Paragraphs in lines of equal length, however they were broken.

    Example:
        >>> print(filled("One\nline.\n\nAnother."))
        One line.
        <BLANKLINE>
        Another.
    """
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 118) for part in text.split("\n\n"))


def publish(findings: Findings, name: str, options: argparse.Namespace) -> None:
    """Print the findings; keep them as a page if the options say so."""
    print(findings.text(), flush=True)
    if options.write:
        PAGES.mkdir(parents=True, exist_ok=True)
        sizes = {option: value for option, value in vars(options).items() if option != "write"}
        words = " ".join(f"--{option} {value}" for option, value in sizes.items())
        (PAGES / f"{name}.md").write_text(findings.page(f"python -m studies {name} {words}"), encoding="utf-8")


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

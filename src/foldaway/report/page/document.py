"""A page that stands alone: no script, no other file, nothing from a network, and a policy that forbids all three."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from foldaway.errors import ReportError, instead_of
from foldaway.report.drawing.markup import Child, Html, html, tag

MARK = '<meta name="generator" content="foldaway">'
"""Stands near the beginning of every report, so that a report can be told from other files."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Report:
    """A report as one HTML file."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | Path) -> None:
        """Write it to a file; one that is there is replaced if it is a report, and nothing else is."""
        path = Path(path)
        require_place(path)
        unwritten = "the report cannot be written to {}: {}."
        with instead_of(OSError, lambda error: ReportError(unwritten.format(path, error.strerror))):
            path.write_text(self.html, encoding="utf-8")

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"Report: {len(self.html.encode()):_} bytes of HTML | report.save('report.html')"

    def _repr_html_(self) -> str:
        """In a frame of its own, so that its style does not leak into the notebook."""
        return f'<iframe srcdoc="{escape(self.html)}" title="Report" style="width:100%;height:48em;border:0"></iframe>'


def require_place(path: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something other than a report."""
    if not path.parent.is_dir():
        raise ReportError(f"the report cannot be written to {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise ReportError(f"{path} is a folder; give the report a name in it.")
    if path.exists() and path.stat().st_size and not _is_report(path):
        raise ReportError(f"{path} exists and is not a report; choose another name.")
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise ReportError(
            f"the report is an HTML page, so {path} must end in .html. For a PDF, open the page in a browser and print "
            "it."
        )


def _is_report(path: Path) -> bool:
    unread = "{} exists and cannot be read: {}; choose another name."
    with instead_of(OSError, lambda error: ReportError(unread.format(path, error.strerror))), path.open("rb") as file:
        return MARK.encode() in file.read(1000)


class Section(NamedTuple):
    """A part of the page with a heading, and a place that links can point to."""

    place: str
    title: str
    body: Html


def document(title: str, lead: Child, sections: Sequence[Section], end: Child) -> Report:
    """The page."""
    head = html(
        Html('<meta charset="utf-8">'),
        Html(MARK),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{title}: report of a trial"),
        tag("style", Html(stylesheet())),
    )
    links = [tag("li", tag("a", section.title, href=f"#{section.place}")) for section in sections]
    contents = tag("nav", tag("ul", links), aria_label="Contents")
    masthead = tag("header", tag("p", "Report of a trial", class_="kind"), tag("h1", tag("bdi", title)), lead)
    body = [
        tag(
            "section",
            tag("h2", section.title, id=f"{section.place}-title"),
            section.body,
            id=section.place,
            aria_labelledby=f"{section.place}-title",
        )
        for section in sections
    ]
    page = tag("body", masthead, contents, tag("main", body), tag("footer", end))
    return Report(f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{page}</html>\n')


@cache
def stylesheet() -> str:
    """How the page looks."""
    return files("foldaway.report.page").joinpath("report.css").read_text(encoding="utf-8")


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[Child]], *, left: int = 1) -> Html:
    """A table that scrolls in its own box where the screen is narrow; the first ``left`` columns are text."""
    head = tag("tr", [tag("th", cell, scope="col", class_=None if c >= left else "t") for c, cell in enumerate(header)])
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_="t"),
            [tag("td", cell, class_=None if c >= left else "t") for c, cell in enumerate(row[1:], 1)],
        )
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def card(title: Child, *body: Child, kind: str = "card") -> Html:
    """A part of a section with a heading of its own."""
    return tag("article", tag("h3", title), *body, class_=kind)


def notes(sentences: Iterable[Child]) -> Html | None:
    """What else there is to know, one below the other; nothing if there is nothing."""
    items = [tag("li", each) for each in sentences]
    return tag("ul", items, class_="notes") if items else None


def details(summary: Child, *body: Child) -> Html:
    """Something that is one click away."""
    return tag("details", tag("summary", summary), tag("div", *body, class_="within"))


State = Literal["passes", "look", "fails", "open"]

_WORDS: dict[State, tuple[str, str]] = {
    "passes": ("✓", "Passes"),
    "look": ("?", "Look into this"),
    "fails": ("!", "Fails"),
    "open": ("–", "Cannot be told"),
}


def badge(state: State) -> Html:
    """How a check came out, in a word with a sign of its own: colour alone says nothing."""
    sign, word = _WORDS[state]
    return tag("span", tag("span", sign, aria_hidden="true"), " ", word, class_=f"badge {state}")

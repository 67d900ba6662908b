"""Markup that escapes, and files that are not overwritten by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.errors import ReportError
from foldaway.report.drawing.markup import html, listed, named, tag
from foldaway.report.page.document import Report
from fuzzing import fuzz
from pages import parsed
from reported import case

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)


@fuzz(max_examples=100)
@given(texts, texts)
def test_text_and_attributes_come_back_as_they_were(text: str, attribute: str) -> None:
    element = parsed(tag("p", text, [named(text), None], title=attribute)).one("p")
    assert element.raw == text + text
    assert element.attributes == {"title": attribute}
    assert [child.name for child in element.find()] == ["bdi"]


def test_lists_in_sentences() -> None:
    assert listed([]) == ""
    assert listed(["<"]) == "&lt;"
    assert listed(["a", tag("b", "&")], "or") == "a or <b>&amp;</b>"
    assert html("a", None, ["b", ["<"]]) == "ab&lt;"


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    report = case("small").report()
    target, other = tmp_path / "report.html", tmp_path / "other.html"
    report.save(target)
    report.save(str(target))
    assert target.read_text(encoding="utf-8") == report.html == str(report)
    other.write_text("<!doctype html><p>years of work")
    with pytest.raises(ReportError, match="exists and is not a report; choose another name"):
        report.save(other)
    assert other.read_text() == "<!doctype html><p>years of work"
    with pytest.raises(ReportError, match="there is no folder"):
        report.save(tmp_path / "none" / "report.html")
    with pytest.raises(ReportError, match="is a folder"):
        report.save(tmp_path)
    (tmp_path / "fresh.html").touch()
    report.save(tmp_path / "fresh.html")


def test_in_a_notebook_it_has_a_frame_of_its_own() -> None:
    report = Report('<p class="a">&amp;</p>')
    frame = parsed(report._repr_html_()).one("iframe")
    assert frame.attributes["srcdoc"] == report.html
    assert repr(report) == "Report: 22 bytes of HTML | report.save('report.html')"

"""The report in a real browser: quiet, alone, accessible, and never wider than the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser import Scheme, page_at, serious_findings, sideways_scroll
from reported import case
from sizes import mostly_slow

OPEN_ALL = "document.querySelectorAll('details').forEach(each => { each.open = true })"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


def written(folder: Path, name: str) -> Path:
    file = folder / f"{name}.html"
    if not file.exists():
        case(name).report().save(file)
    return file


@pytest.mark.parametrize("name", mostly_slow(["empty", "failing", "faulty", "resampled", "hostile"], "resampled"))
def test_quiet_alone_and_accessible(browser: Browser, reports: Path, name: str) -> None:
    with page_at(browser, written(reports, name), width=1200) as watched:
        watched.page.evaluate(OPEN_ALL)
        schemes: tuple[Scheme, ...] = ("light", "dark")
        for scheme in schemes:
            watched.page.emulate_media(color_scheme=scheme)
            assert serious_findings(watched.page) == []
        watched.require_quiet()
        assert watched.page.evaluate("document.scripts.length") == 0


@pytest.mark.parametrize("name", mostly_slow(["empty", "many", "extreme", "hostile"], "many", "hostile"))
def test_never_wider_than_the_screen(browser: Browser, reports: Path, name: str) -> None:
    with page_at(browser, written(reports, name)) as watched:
        for opened in (False, True):
            if opened:
                watched.page.evaluate(OPEN_ALL)
            for width in (320, 400, 1200, 1920):
                watched.page.set_viewport_size({"width": width, "height": 900})
                assert sideways_scroll(watched.page) == 0, width


def test_the_statistics_are_one_click_away_by_mouse_and_keyboard(browser: Browser, reports: Path) -> None:
    with page_at(browser, written(reports, "small"), width=400) as watched:
        page = watched.page
        table = page.get_by_role("table", name="revenue: treatment against control")
        assert not table.is_visible()
        page.get_by_text("All numbers").first.click()
        assert table.is_visible()
        page.get_by_text("All numbers").first.press("Enter")
        assert not table.is_visible()


def test_links_lead_to_their_sections(browser: Browser, reports: Path) -> None:
    with page_at(browser, written(reports, "small")) as watched:
        watched.page.get_by_role("link", name="What was kept").click()
        assert watched.page.get_by_role("region", name="What was kept").is_visible()
        assert watched.page.evaluate("location.hash") == "#kept"


def test_on_paper_everything_is_open_and_dark_on_white(browser: Browser, reports: Path) -> None:
    colours = "['color', 'backgroundColor'].map(each => getComputedStyle(document.body)[each])"
    with page_at(browser, written(reports, "small")) as watched:
        light = watched.page.evaluate(colours)
        watched.page.emulate_media(color_scheme="dark")
        dark = watched.page.evaluate(colours)
        watched.page.emulate_media(media="print", color_scheme="dark")
        ink, paper = watched.page.evaluate(colours)
        assert ink == light[0] != dark[0]
        assert paper == "rgb(255, 255, 255)"
        heights = watched.page.evaluate(
            "[...document.querySelectorAll('details .within')].map(each => each.getBoundingClientRect().height)"
        )
        assert heights
        assert min(heights) > 0
        assert not watched.page.get_by_role("navigation").is_visible()


def test_pages_of_paper_are_filled(browser: Browser, reports: Path) -> None:
    """A letter has 703 by 943 points within its margins; a tenth is lost to what stays together."""
    with page_at(browser, written(reports, "many"), width=703) as watched:
        watched.page.emulate_media(media="print")
        height = watched.page.evaluate("document.body.scrollHeight")
        assert watched.page.pdf().count(b"/Type /Page\n") <= 1.1 * height / 943 + 1


def test_the_counts_of_the_arms_fit_a_telephone(browser: Browser, reports: Path) -> None:
    """Nothing of the table that says whether to trust the rest is cut off."""
    with page_at(browser, written(reports, "small"), width=400) as watched:
        watched.page.evaluate(OPEN_ALL)
        box = watched.page.get_by_role("region", name="Arms", exact=True).first
        assert box.evaluate("each => each.scrollWidth - each.clientWidth") <= 0

"""The browser that other tests rely on can say no."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from browser import page_at, serious_findings, sideways_scroll

GOOD = "<!doctype html><html lang=en><head><title>A</title></head><body><main><h1>A</h1></main></body></html>"


def test_a_good_page_is_quiet(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "good.html"
    file.write_text(GOOD)
    with page_at(browser, file, width=400, scheme="dark") as watched:
        watched.require_quiet()
        assert serious_findings(watched.page) == []
        assert sideways_scroll(watched.page) == 0
        assert watched.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert watched.page.evaluate("innerWidth") == 400


def test_a_request_to_another_host_is_refused_and_noted(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "stray.html"
    file.write_text(GOOD.replace("</main>", "<img alt='' src='http://192.0.2.1/pixel.png'></main>"))
    with page_at(browser, file) as watched:
        assert watched.strays == ["http://192.0.2.1/pixel.png"]


def test_other_files_are_strangers_too(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "stray.html"
    (tmp_path / "other.css").write_text("")
    file.write_text(GOOD.replace("</head>", "<link rel=stylesheet href=other.css></head>"))
    with page_at(browser, file) as watched:
        assert [stray.rpartition("/")[2] for stray in watched.strays] == ["other.css"]


def test_errors_are_noted(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(GOOD.replace("</main>", "</main><script>console.error('one'); nothing.here</script>"))
    with page_at(browser, file) as watched:
        assert len(watched.errors) == 2


def test_findings_name_the_rule(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(GOOD.replace("</main>", "<img src='data:,'><p style='color:#ccc'>faint</p></main>"))
    with page_at(browser, file) as watched:
        assert {finding.partition(":")[0] for finding in serious_findings(watched.page)} == {
            "image-alt",
            "color-contrast",
        }


def test_a_page_that_is_too_wide_shows(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "wide.html"
    file.write_text(GOOD.replace("</main>", "<div style='width:900px'>wide</div></main>"))
    with page_at(browser, file, width=400) as watched:
        assert sideways_scroll(watched.page) > 400

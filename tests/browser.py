"""A real browser for the tests of pages: Debian's Chromium, one for each module that asks.

A page may only talk to the host it came from, or to nobody if it came from a file. Whatever else it asks for is refused
and written down, together with what it complains of in the console.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Route

# Without windows it takes a third of the time for a page.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or "/usr/bin/chromium"

Scheme = Literal["light", "dark"]


class Watched:
    """A page in the browser, and what it did that it should not.

    Attributes:
        page: Playwright's page.
        errors: What it wrote to the console as an error, and exceptions that nobody caught.
        strays: Addresses on other hosts that it asked for, in vain.
    """

    def __init__(self, page: Page, target: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.strays: list[str] = []
        self._home = urlsplit(target)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", self._route)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _route(self, route: Route) -> None:
        asked = urlsplit(route.request.url)
        # A page from a file has the file itself and nothing else.
        at_home = asked[:3] == self._home[:3] if self._home.scheme == "file" else asked[:2] == self._home[:2]
        if at_home or asked.scheme in ("data", "blob"):
            route.continue_()
        else:
            self.strays.append(route.request.url)
            route.abort()

    def require_quiet(self) -> None:
        """Fail if the page complained, or asked for anything on another host."""
        assert self.errors == []
        assert self.strays == []


# Playwright holds the thread's event loop for as long as it runs: over a whole session, it would keep other modules'
# tests from `asyncio.run`.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright  # most test runs need no browser

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def page_at(
    browser: Browser, target: str | Path, *, width: int = 1200, height: int = 900, scheme: Scheme = "light"
) -> Iterator[Watched]:
    """A page of its own, with an empty cache and no cookies, at an address or a file."""
    address = target.resolve().as_uri() if isinstance(target, Path) else target
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        watched = Watched(context.new_page(), address)
        watched.page.goto(address)
        yield watched
    finally:
        context.close()


def serious_findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical, one line for each rule: its name, what it wants, and where."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{found['id']}: {found['help']} at {'; '.join(str(node['target']) for node in found['nodes'][:5])}"
        for found in violations
        if found["impact"] in ("serious", "critical")
    ]


def sideways_scroll(page: Page) -> int:
    """By how many pixels the page is wider than its window; content that scrolls in a box of its own does not count."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

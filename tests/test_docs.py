"""Every page's snippets run, in order, in an empty folder; every command shown exists; the site builds."""

from __future__ import annotations

import html
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from litestar.testing import TestClient
from mkdocs.config import load_config
from typer.main import get_command

import foldaway as fa
from browser import sideways_scroll
from foldaway import paper
from foldaway.cli import app
from foldaway.plan.outcomes import KINDS
from foldaway.plan.part import settings_of
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.http.app import make_app
from foldaway.sources.formats.body import Limits
from plans import LISTED, PARTS, WITHIN
from sizes import mostly_slow
from snippets import Reader, snippets
from stores import VAULT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/foldaway"
PAGES = sorted(p.relative_to(ROOT) for p in (ROOT / "docs").rglob("*.md"))
RUN = [page for page in PAGES if page.parts[1] != "validation" and page != Path("docs/index.md")]

# These start Spark, servers or devices, or run for long, and their calls are those of tests/engines, tests/service,
# tests/federated, tests/cli and tests/planning.
LONG = {"engines.md", "federated.md", "service.md", "release.md", "tutorial.md", "power.md"}


@pytest.mark.parametrize("page", mostly_slow(RUN, *(page for page in RUN if page.name not in LONG)), ids=str)
def test_the_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FOLDAWAY_SERVER", "FOLDAWAY_TOKEN"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("BROKER", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    with Reader(str(page), tmp_path, dict(os.environ)) as reader:
        found = list(snippets((ROOT / page).read_text(encoding="utf-8")))
        for snippet in found:
            reader.run(snippet)
        excused = sum(snippet.not_run is not None or snippet.language == "text" for snippet in found)
        assert reader.ran == len(found) - excused


@pytest.mark.parametrize("page", [*PAGES, Path("README.md")], ids=str)
def test_every_block_is_known_and_those_that_are_not_run_say_why(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = list(snippets(text))
    fences = re.findall(r"^ *(?:```|~~~)", text, flags=re.MULTILINE)
    assert len(fences) == 2 * sum(not snippet.hidden for snippet in shown)
    for snippet in shown:
        assert snippet.not_run is None or len(snippet.not_run) > 10, f"{page}, line {snippet.line}"


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("```\nfoldaway demo\n```", "untagged"),
        ("```yaml\na: 1\n```", "yaml"),
        ("```sh\nfoldaway serve --data trials\nfoldaway demo\n```", "alone"),
        ("```sh\nfalse\n```", "line 2"),
    ],
)
def test_a_block_that_would_be_passed_over_fails(block: str, told: str, tmp_path: Path) -> None:
    [snippet] = snippets(f"{block}\n")
    with Reader("page", tmp_path, dict(os.environ)) as reader, pytest.raises(AssertionError, match=told):
        reader.run(snippet)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(  # not --quiet: it silences the warnings that --strict counts
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_navigation_and_the_site_builds(site: Path) -> None:
    navigation = load_config(str(ROOT / "mkdocs.yml")).nav
    assert sorted(named(navigation)) == [str(page.relative_to("docs")) for page in PAGES]
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        fetched = re.findall(r'<(?:script|link|img)\b[^>]*?(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8"))
        assert not [address for address in fetched if "canonical" not in address], page


def test_the_navigation_is_visible_on_a_laptop_and_pages_fit_a_phone(browser: Browser, site: Path) -> None:
    for width, visible in ((400, False), (1200, True)):
        page = browser.new_page(viewport={"width": width, "height": 900})
        for name in ("index.html", "install/index.html", "drawings/index.html", "moving/index.html"):
            page.goto((site / name).as_uri())
            reach = page.locator(".md-sidebar--primary").bounding_box() or {"x": -1}
            assert (reach["x"] >= 0) is visible, name
            assert sideways_scroll(page) <= 0, name
        page.close()


def test_the_front_page_shows_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = list(snippets((ROOT / "docs/index.md").read_text(encoding="utf-8")))
    with Reader("docs/index.md", tmp_path, dict(os.environ)) as reader:
        for snippet in found:
            reader.run(snippet)
    assert [each.text for each in found if each.language == "text"] == [capsys.readouterr().out]


def test_the_reference_of_the_plan_is_what_the_code_declares() -> None:
    done = run_path(str(ROOT / "docs/settings.py"))
    page = done["PAGE"].read_text("utf-8")
    assert done["filled"](page) == page, "write it anew: make goldens"


def test_the_statements_of_the_reference_are_those_that_are_written() -> None:
    for path, statement in run_path(str(ROOT / "docs/statements.py"))["statements"]().items():
        assert path.read_text("utf-8") == statement, "write it anew: make goldens"


def test_the_reference_of_the_plan_has_every_setting_as_it_is_declared(site: Path) -> None:
    page = (site / "reference/plan/index.html").read_text("utf-8")
    rows = (re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL))
    shown = {plain(cells[0]): list(map(plain, cells[1:])) for cells in rows if cells}
    parts = (fa.Plan, *LISTED, *KINDS.values(), *PARTS.values(), *WITHIN)
    declared = {setting.name: setting for part in parts for setting in settings_of(part).values()}
    assert set(shown) == set(declared)
    for name, setting in declared.items():
        default, must_be, meaning = shown[name]
        assert must_be == setting.must_be.replace("`", ""), name
        assert meaning
        if setting.default is msgspec.NODEFAULT:
            assert default == "required", name
        elif setting.default or isinstance(setting.default, float):
            assert default == ("its defaults" if setting.part else json.dumps(setting.default)), name
        else:
            assert default == ("false" if setting.default is False else "none"), name


def test_the_reference_of_the_plan_writes_each_part_out(site: Path) -> None:
    page = (site / "reference/plan/index.html").read_text("utf-8")
    blocks = re.findall(r'<div class="language-python[^>]*>.*?<code>(.*?)</code>', page, re.DOTALL)
    named = {part.__name__: part for part in (*PARTS.values(), *WITHIN)}
    ends = [plain(text).splitlines()[-1] for text in blocks]
    objects = [eval(end, {"fa": fa, **named}) for end in ends if re.match(r"(fa\.)?[A-Z]\w+\(", end)]
    assert {type(each) for each in objects} == {*PARTS.values(), *WITHIN}


def plain(markup: str) -> str:
    """The text of some HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()


def named(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from named(part)


def test_files_that_the_pages_name_exist() -> None:
    rooms = "|".join(sorted(folder.name for folder in PACKAGE.iterdir() if folder.is_dir()))
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        for name in re.findall(r"`((?:tests|src|studies|benchmarks|examples)/[\w/.-]*)`", text):
            assert (ROOT / name).exists(), f"{page} names {name}"
        for name in re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text):
            assert (PACKAGE / name).exists(), f"{page} names {name}"


def test_the_method_maps_every_function_of_the_paper() -> None:
    table = (ROOT / "docs/method.md").read_text("utf-8").split("## From the paper to the code")[1].split("\n## ")[0]
    mapped = {
        name for row in table.splitlines() if row.count("|") > 3 for name in re.findall(r"`(\w+)`", row.split("|")[2])
    }
    public = {name for name, value in vars(paper).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert mapped == {name for name in public if getattr(paper, name).__module__ == paper.__name__}


def test_the_http_reference_names_every_request(tmp_path: Path) -> None:
    service = Service(Store.open(tmp_path, VAULT), "main", Limits())
    with TestClient(make_app(service, quiet=True)) as client:
        paths = client.get("/schema/openapi.json").json()["paths"]
    asked = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    page = (ROOT / "docs/reference/http.md").read_text("utf-8")
    assert set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`]*)`", page)) == asked


def test_the_command_line_reference_names_every_command() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    for words in commands(get_command(app)):
        assert f"`foldaway {' '.join(words)}" in page or f"`{words[-1]}`" in page, words


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    subcommands = getattr(command, "commands", {})
    if not subcommands:
        yield words
    for name, each in subcommands.items():
        yield from commands(each, (*words, name))

"""What the README of the npm package shows works, in Node and in a page, with a real server's addresses and tokens."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from node_package import NODE
from served import Served
from servers import Nursery
from shop import HEAD, shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage

SHOWN = re.compile(r"^```js\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A server without others' devices to wait for.
ALONE: dict[str, Any] = {"arm": "variant", "arms": {"old": 0.5, "new": 0.5}, "outcomes": ["revenue"]}
ALONE["privacy"] = {"cohort": 1, "smallest_cell": 1}


def shown(package: Path) -> list[str]:
    found: list[str] = SHOWN.findall((package / "README.md").read_text(encoding="utf-8"))
    assert len(found) == 4
    return found


def with_server(blocks: list[str], server: Served) -> str:
    """The snippets, one after the other, with true addresses and tokens."""
    tokens = {
        "checkout": server.create("checkout", **ALONE, federated="sums")["ingest_token"],
        "orders": server.create("orders", **ALONE)["ingest_token"],
    }
    address = re.compile(r'"https://trials\.example(/v1/trials/(\w+))", { token: "…"')
    text, count = address.subn(
        lambda found: f'"{server.url}{found[1]}", {{ token: "{tokens[found[2]]}"', "".join(blocks)
    )
    assert count == len([block for block in blocks if "trials.example" in block])
    plan = server.ask("GET", "/v1/trials/checkout/plan", tokens["checkout"])
    (server.folder / "checkout.plan.json").write_bytes(plan.content)
    return text


def test_in_node(node_package: Path, served_from: Nursery, tmp_path: Path) -> None:
    with Served(tmp_path / "server", served_from) as server:
        script = node_package / "dist" / f"readme-{os.getpid()}.mjs"  # there, the package is known by its name
        script.write_text(with_server(shown(node_package), server), encoding="utf-8")
        done = subprocess.run(
            [str(NODE), str(script)],
            cwd=server.folder,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["counted", "2"]
    (kept,) = (tmp_path / ".foldaway").iterdir()
    assert "forgotten" in kept.read_text()


@pytest.mark.once
def test_in_a_page(browser: Browser, node_package: Path, served_from: Nursery, tmp_path: Path) -> None:
    said: list[str] = []
    errors: list[str] = []
    folder = tmp_path / "shop"
    folder.mkdir()
    with (
        shop(folder, node_package) as origin,
        Served(tmp_path / "server", served_from, "--allow-origin", origin) as server,
    ):
        script = with_server([block for block in shown(node_package) if "node:" not in block], server)
        names = '<script type="importmap">{"imports": {"foldaway-device": "./dist/src/index.js"}}</script>'
        ended = "document.title = 'ended'"
        page_text = f'{HEAD}{names}<script type="module">\n{script}\n{ended}</script>'
        (folder / "index.html").write_text(page_text, encoding="utf-8")
        context = browser.new_context()
        page = context.new_page()

        def listen(told: ConsoleMessage) -> None:
            (errors if told.type == "error" else said).append(told.text)

        page.on("console", listen)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(origin)
        page.wait_for_function("document.title === 'ended'")
        context.close()
    assert errors == []
    assert said == ["counted", "2"]

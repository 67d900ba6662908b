"""What programs and people can ask for: the service's OpenAPI document, and the help of every command."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from litestar.testing import TestClient
from typer.main import get_command

from foldaway import cli
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.http.app import make_app
from foldaway.sources.formats.body import Limits
from stores import VAULT


def openapi() -> Any:
    """The service's OpenAPI document."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Store.open(Path(folder), VAULT), "main", Limits())
        with TestClient(make_app(service, quiet=True)) as client:
            return client.get("/schema/openapi.json").json()


def helps() -> Iterator[str]:
    """What `--help` says of every command, on a terminal of 80 columns without colours."""
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    command: Any = get_command(cli.app)
    for words in _every(command):
        shown = runner.invoke(command, [*words, "--help"], terminal_width=80, prog_name="foldaway")
        yield f"$ foldaway {' '.join([*words, '--help'])}\n{shown.output}"


def _every(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from _every(each, (*words, name))

"""Where a command finds a trial: at an address, in a file or folder, or by its name on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldaway.cli.terminal.saved_trial import SavedTrial
from foldaway.cli.terminal.served_trial import ServedTrial
from foldaway.cli.terminal.where import find
from foldaway.errors import FoldawayError, ServerError, StateError

SERVER = "http://localhost:1"


def test_an_address_is_a_server_whatever_else_is_said(tmp_path: Path) -> None:
    found = find("https://here.example/v1/trials/checkout", server=SERVER, token="t", ca=tmp_path)
    assert found == ServedTrial("checkout", "https://here.example", "t", tmp_path)


def test_what_is_there_as_a_file_is_a_file_and_what_is_not_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("checkout", server=SERVER) == ServedTrial("checkout", SERVER)
    Path("checkout").touch()
    assert find("checkout", Path("key"), SERVER) == SavedTrial(Path("checkout"), Path("key"))
    assert find(str(tmp_path), server=SERVER) == SavedTrial(tmp_path)


@pytest.mark.parametrize(
    ("where", "server", "error"),
    [
        ("nothing", None, StateError),
        ("folder/nothing", SERVER, StateError),
        ("https://here.example", SERVER, ServerError),
    ],
)
def test_what_is_nowhere_is_refused(where: str, server: str | None, error: type[FoldawayError]) -> None:
    with pytest.raises(error, match=r"state|address"):
        find(where, server=server)

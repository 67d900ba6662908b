"""A server from its start to its stop, and the key of what it stores."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import foldaway
from registered import plan_file, register
from served import Served, eventually
from servers import Nursery


def test_rotate_changes_the_key_and_loses_nothing(tmp_path: Path, folder: Path, served_from: Nursery) -> None:
    server = Served(tmp_path, served_from, measured=True)
    with server:
        envs = register(server, plan_file(tmp_path, "kept"))
        foldaway("send", "kept", folder / "day1.parquet", env=envs["ingest"])
    key = tmp_path / "key"
    key.write_text(bytes(range(32)).hex() + "\n")
    key.chmod(0o600)
    done = foldaway("rotate", "--data", server.data, "--key-file", key)
    assert "new key" in done.stdout
    assert bytes(range(32)).hex() not in key.read_text()
    server._arguments += ["--key-file", str(key)]
    with server:
        assert "2,000" in foldaway("trial", "status", "kept", env=envs["read"]).stdout
    assert foldaway("rotate", code=1).stderr.startswith("error: say where")


def test_serve_as_anybody_would(tmp_path: Path) -> None:
    """In its own process from beginning to end: hardened, a key made beside the data, stopped by control-C."""
    words = [sys.executable, "-m", "foldaway", "serve", "--data", str(tmp_path / "trials"), "--port", "0"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        serving = subprocess.Popen(words, stdout=out, stderr=err)
    try:
        said = eventually(
            lambda: re.search(
                r"Listening on (http://127.0.0.1:\d+)\nadmin token, shown this once: (fa_\S+)\n",
                (tmp_path / "out").read_text(),
            ),
            90,
        )
        export = "Export them as FOLDAWAY_SERVER and FOLDAWAY_TOKEN for the other commands.\n"
        assert eventually(lambda: (tmp_path / "out").read_text().endswith(export) or None)
        exported = {"FOLDAWAY_SERVER": said[1], "FOLDAWAY_TOKEN": said[2]}
        assert "There are no trials yet" in foldaway("trial", "list", env=exported).stdout
        assert (tmp_path / "trials").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "trials" / "master.key").stat().st_mode & 0o777 == 0o600
        time.sleep(0.2)
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0
    finally:
        serving.kill()
    log = (tmp_path / "err").read_text()
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
    assert said[2] not in log


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("litestar", ["serve", "--data", "x"]),
        ("sqlalchemy", ["rotate", "--data", "x"]),
        ("httpx", ["trial", "list", "--server", "http://x", "--token", "x"]),
    ],
)
def test_without_the_extra_it_says_what_to_install(missing: str, words: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[0] = 'foldaway'; from foldaway.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {missing} is not installed: pip install 'foldaway[serve]', or '.[serve]' in a checkout.\n"
    )

"""A server from its start to its stop, and the key of what it stores."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commands import foldaway
from postgres import free_port
from registered import plan_file, register
from served import Served, eventually
from servers import KEY, Nursery

SECRET = "SECRET-31622"
PAGES = ("https://shop.example", "http://localhost:5173")


def test_rotate_changes_the_key_and_loses_nothing(tmp_path: Path, folder: Path, served_from: Nursery) -> None:
    server = Served(tmp_path, served_from, measured=True)
    with server:
        envs = register(server, plan_file(tmp_path, "kept"))
        foldaway("send", "kept", folder / "day1.parquet", env=envs["ingest"])
    key = tmp_path / "key"
    key.write_text(bytes(range(32)).hex() + "\n")
    key.chmod(0o600)
    done = foldaway("key", "rotate", "--data", server.data, "--key-file", key)
    assert "new key" in done.stdout
    assert bytes(range(32)).hex() not in key.read_text()
    server._arguments += ["--key-file", str(key)]
    with server:
        assert "2,000" in foldaway("trial", "status", "kept", env=envs["read"]).stdout
    assert foldaway("key", "rotate", code=1).stderr.startswith("error: say where")


def test_serve_as_anybody_would(tmp_path: Path) -> None:
    """In its own process from beginning to end: hardened, a key made beside the data, stopped by control-C."""
    words = [sys.executable, "-m", "foldaway", "serve", "--data", str(tmp_path / "trials"), "--port", "0"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        serving = subprocess.Popen(words, stdout=out, stderr=err)
    try:
        said = eventually(
            lambda: re.search(
                r"^Loading and compiling kernels …\nListening on (http://127.0.0.1:\d+)\n"
                r"The admin token is in (.+/trials/admin.token), which",
                (tmp_path / "out").read_text(),
            ),
            90,
        )
        export = "For the other commands, export the address as FOLDAWAY_SERVER and the token as FOLDAWAY_TOKEN.\n"
        assert eventually(lambda: (tmp_path / "out").read_text().endswith(export) or None)
        assert Path(said[2]).stat().st_mode & 0o777 == 0o600
        admin = Path(said[2]).read_text().strip()
        exported = {"FOLDAWAY_SERVER": said[1], "FOLDAWAY_TOKEN": admin}
        assert "There are no trials yet" in foldaway("trial", "status", env=exported).stdout
        assert (tmp_path / "trials").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "trials" / "master.key").stat().st_mode & 0o777 == 0o600
        time.sleep(0.2)
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0
    finally:
        serving.kill()
    log = (tmp_path / "err").read_text()
    last = json.loads(log.splitlines()[-1])
    assert (last["event"], last["level"]) == ("stopped", "info")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(last["time"])) < timedelta(minutes=1)
    assert admin not in log + (tmp_path / "out").read_text()


def test_a_start_that_is_interrupted_is_quiet_and_stores_no_token_that_nobody_saw(tmp_path: Path) -> None:
    # Compiled code makes another error of an exception that comes from within it.
    stuck = (
        "import time, foldaway.service.server as server\n"
        "def compile():\n"
        "    try: print('compiling', flush=True); time.sleep(60)\n"
        "    except KeyboardInterrupt: raise RuntimeError\n"
        "server.rehearse = compile\n"
    )
    main = "from foldaway.cli import main; main()"
    words = ["serve", "--data", str(tmp_path / "trials"), "--port", "0", "--quiet"]
    environment = {**os.environ, "FOLDAWAY_HARDENED": "1"}
    for program, until, ended in (
        (stuck + main, b"compiling\r\n", -signal.SIGINT),
        (main, b"FOLDAWAY_TOKEN.", 0),
    ):
        control, terminal = pty.openpty()
        command = [sys.executable, "-c", program, *words]
        with subprocess.Popen(command, stdout=terminal, stderr=subprocess.STDOUT, env=environment) as serving:
            os.close(terminal)
            shown = b""
            while until not in shown:
                shown += os.read(control, 4096)
            serving.send_signal(signal.SIGINT)
            assert serving.wait(30) == ended
            with suppress(OSError):  # the other end is closed
                shown += os.read(control, 4096)
        os.close(control)
        assert (b"admin token, shown this once: fa_" in shown) == (program == main)
        assert b"rror" not in shown


def test_settings_come_from_flags_then_the_environment_then_a_file(tmp_path: Path, served_from: Nursery) -> None:
    """And an admin token that was preset is the one; all others are lost, until it is recovered."""
    preset = foldaway("token", "issue", "admin", "--preset").stdout.strip()
    file, address = tmp_path / "foldaway.toml", "http://127.0.0.1:{}".format
    ports = [free_port() for _ in range(3)]
    file.write_text(f'data = "{tmp_path}/trials"\nport = {ports[0]}\nadmin-token = "{preset}"\nquiet = true\n')
    with file.open("a") as more:
        more.write(f"allow-origin = {json.dumps(PAGES[:1])}\n")
    server = Served(tmp_path, served_from)
    for port, flags, environment in (
        (ports[0], [], {}),
        (ports[1], [], {"FOLDAWAY_PORT": str(ports[1]), "FOLDAWAY_ALLOW_ORIGIN": " ".join(PAGES)}),
        (ports[2], ["--port", str(ports[2])], {"FOLDAWAY_PORT": str(ports[1])}),
    ):
        server.url, server._environment = address(port), environment
        server._arguments = ["serve", "--config", str(file), *flags]
        with server:
            exported = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": preset}
            assert "There are no trials yet" in foldaway("trial", "status", env=exported).stdout
            let_in = [_lets_in(server, origin) for origin in PAGES]
            assert let_in == [True, "FOLDAWAY_ALLOW_ORIGIN" in environment]
            if flags:
                _manage_tokens(exported, file)
    assert preset not in server.log() + server.out.read_text()
    assert server.out.read_text().startswith("Listening on")  # and quiet about what comes before


def _lets_in(server: Served, origin: str) -> bool:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return server.ask("OPTIONS", "/v1/trials/any/records", "", headers=asked).status_code == 204


def _manage_tokens(exported: dict[str, str], file: Path) -> None:
    issued = foldaway("token", "issue", "metrics", env=exported).stdout.strip()
    assert "no trial" in foldaway("token", "issue", "read", "unknown", code=1, env=exported).stderr
    unnamed = foldaway("token", "issue", "read", code=1, env=exported).stderr
    assert unnamed == "error: name the trial that the token is for: foldaway token issue read TRIAL.\n"
    rows = json.loads(foldaway("token", "list", "--json", env=exported).stdout)
    assert (
        "this is the only valid admin token" in foldaway("token", "revoke", rows[0]["id"], code=1, env=exported).stderr
    )
    assert [row["scope"] for row in rows] == ["admin", "metrics"]
    assert rows[1]["id"] in issued
    assert "revoked" in foldaway("token", "revoke", rows[1]["id"], env=exported).stdout
    assert "`foldaway token list` shows" in foldaway("token", "revoke", "nonsense", code=1, env=exported).stderr
    shown = foldaway("token", "list", env=exported).stdout
    assert [line.split()[1] for line in shown.splitlines()[2:]] == ["never", "revoked"]
    assert max(map(len, shown.splitlines())) <= 80
    again = ("token", "issue", "admin", "--config", file)
    assert "needs the server's database" in foldaway(*again[:3], "--revoke-others", code=1, env=exported).stderr
    assert "name the server" in foldaway(*again[:3], code=1).stderr
    lost = foldaway(*again, "--revoke-others", env={"FOLDAWAY_KEY": KEY}).stdout.strip()
    recovered = exported | {"FOLDAWAY_TOKEN": lost}
    time.sleep(1.1)  # for as long as a server trusts a token without another look
    assert "an admin token was sent, which was revoked" in foldaway("token", "list", code=1, env=exported).stderr
    assert "metrics" in foldaway("token", "list", env=recovered).stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prot = 1", "has a line 'prot', which is not a setting; did you mean 'port'?"),
        ("port = [1]", "`port` in the configuration"),
        ('allow-origin = "https://a.example"', "must be a list of text"),
        ('data = "x"\nallow-origin = ["https://a.example/"]', "write an origin as browsers do"),
        (f'admin-token = "{SECRET}', "is not TOML"),
        (f'data = "x"\nadmin-token = "{SECRET}"', "make it with `foldaway token issue admin --preset`"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_said_without_its_secrets(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "foldaway.toml").write_text(text)
    words = ["serve", "--config", "foldaway.toml", "--port", "0"]
    refused = foldaway(*words, folder=tmp_path, code=1, env={"FOLDAWAY_HARDENED": "1"})
    assert sentence in refused.stderr
    assert SECRET not in refused.stderr + refused.stdout


def test_a_key_is_made_with_a_command_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    foldaway("key", "new", file)
    assert re.fullmatch("[0-9a-f]{64}\n", file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text()
    assert "cannot be made: File exists" in foldaway("key", "new", file, code=1).stderr
    assert file.read_text() == before
    assert re.fullmatch("[0-9a-f]{64}\n", foldaway("key", "new", "-").stdout)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("litestar", ["serve", "--data", "x"]),
        pytest.param("sqlalchemy", ["key", "rotate", "--data", "x"], marks=pytest.mark.slow),
        ("httpx", ["trial", "status", "--server", "http://x", "--token", "x"]),
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

"""The files of deploy/ agree with each other, with the server's settings, and with what its scripts make."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml  # type: ignore[import-untyped]

from foldaway.cli.commands.serve import app
from postgres import free_port
from proxies import DEPLOY, changed
from servers import wait_for as until

ROOT = DEPLOY.parent


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What deploy/secrets.sh makes in a bare folder."""
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    for _ in range(2):  # a second time it changes nothing
        before = {file.name: file.read_bytes() for file in folder.glob("*")}
        subprocess.run([DEPLOY / "secrets.sh", folder, "trials.example"], check=True, capture_output=True)
        assert all((folder / name).read_bytes() == content for name, content in before.items())
    assert folder.stat().st_mode & 0o777 == 0o700
    return folder


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    with (DEPLOY / "compose.yaml").open() as file:
        return dict(yaml.safe_load(file))


def variables() -> set[str]:
    """The environment variables of `foldaway serve`."""
    command = typer.main.get_command(app)
    return {variable for each in command.params for variable in ([each.envvar] if isinstance(each.envvar, str) else [])}


def test_compose_names_what_is_there(compose: dict[str, Any], secrets: Path) -> None:
    made = {f"secrets/{file.name}" for file in secrets.iterdir()}
    assert {secret["file"] for secret in compose["secrets"].values()} == made
    for service in compose["services"].values():
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert set(service["networks"]) <= set(compose["networks"])
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose["volumes"]
        named = [value for value in service.get("environment", {}).values() if value.startswith("/run/secrets/")]
        assert {Path(value).name for value in named} == set(service.get("secrets", ())) - {"tls.crt", "tls.key"}
        assert service["ulimits"]["core"] == 0
    build = compose["services"]["foldaway"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_every_setting_is_one_of_the_servers(compose: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    given = set(compose["services"]["foldaway"]["environment"]) | set(re.findall(r"(FOLDAWAY_\w+)=", dockerfile))
    assert given
    assert given <= variables()


def test_nginx_and_the_server_mean_the_same(compose: dict[str, Any], secrets: Path) -> None:
    nginx, services = (DEPLOY / "nginx.conf").read_text(), compose["services"]
    assert re.findall(r"server (\w+):8321;", nginx) == ["foldaway"]
    assert set(services["proxy"]["networks"]) & set(services["foldaway"]["networks"])
    (size,) = re.findall(r"client_max_body_size (\d+)m;", nginx)
    assert size == services["foldaway"]["environment"]["FOLDAWAY_MAX_BODY"]
    (port,) = re.findall(r"listen (\d+) ssl;", nginx)
    assert [each.partition(":")[2] for each in services["proxy"]["ports"]] == [port]
    assert {Path(each).name for each in re.findall(r"/run/secrets/\S+(?=;)", nginx)} == {"tls.crt", "tls.key"}


def test_the_image_has_what_it_copies_and_runs_as_nobody_special() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    ]
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
    last = lines.index("USER foldaway")
    assert not any(line.startswith(("USER", "RUN", "COPY")) for line in lines[last + 1 :])


def test_the_unit_starts_a_server_on_a_bare_folder(secrets: Path, tmp_path: Path) -> None:
    """The command of the systemd unit, with its paths below a folder."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "foldaway.service")
    words = shlex.split(unit["Service"]["ExecStart"])
    port = free_port()
    changes = {
        r"/var/lib/foldaway": str(tmp_path / "data"),
        r"/etc/foldaway/secrets": str(secrets),
        r"port = 8321": f"port = {port}",
    }
    config = tmp_path / "foldaway.toml"
    config.write_text(changed((DEPLOY / "foldaway.toml").read_text(), changes))
    assert words[0] == "/opt/foldaway/bin/foldaway"
    assert words[-2:] == ["--config", "/etc/foldaway/foldaway.toml"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "foldaway", *words[1:-1], str(config)], stdout=log, stderr=log)
    try:
        until(lambda: answers(port), 240, "the start")
        assert (tmp_path / "data" / "admin.token").read_text().startswith("fa_")
    finally:
        server.terminate()
        assert server.wait(60) == 0


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_install_makes_a_server_from_a_bare_folder(tmp_path: Path) -> None:
    """The whole script, but for the download: the packages are those of this environment."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", str(ROOT)]
    folder = tmp_path / "opt"
    done = subprocess.run([DEPLOY / "install.sh", folder, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Installed: foldaway ")
    compiled = {file.name.partition(".")[0] for file in (folder / "kernels").rglob("*.nbi")}
    assert {"accumulate", "json_lines", "moments", "siphash", "sums", "weights"} <= compiled

"""A coordinator in a process of its own, as anybody would start it, on a free port of this machine."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldaway.errors import ServerError
from foldaway.federated.link import HttpLink
from foldaway.plan import Plan


class Coordinator(NamedTuple):
    """A running coordinator, and a trial on it.

    Attributes:
        pid: Its process.
        address: The trial's address.
        token: The devices' token.
        admin: The administrator's token.
        data: Where it keeps its database.
    """

    pid: int
    address: str
    token: str
    admin: str
    data: Path

    def ask(self, method: str, path: str = "", **request: Any) -> dict[str, Any]:
        """Ask about the trial, as its administrator."""
        link = HttpLink(self.address, self.admin)
        try:
            return dict(msgspec.json.decode(link.ask(method, path, **request)))
        finally:
            link.close()

    def resident(self) -> int | None:
        """Bytes of memory that it has, where that can be told."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def worked(self) -> float:
        """Seconds of processor time that it has used; not a number where that cannot be told."""
        try:
            # The name of the program, in brackets, may have spaces in it.
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return math.nan

    def stored(self) -> int:
        """Bytes on its disk."""
        return sum(file.stat().st_size for file in self.data.rglob("*") if file.is_file())


@contextmanager
def coordinating(folder: Path, plan: Plan) -> Iterator[Coordinator]:
    """A coordinator with this plan registered; it ends with the block.

    Args:
        folder: Where it keeps its SQLite file.
        plan: The plan.
    """
    command = [sys.executable, "-m", "foldaway", "serve", "--data", str(folder / "trials"), "--port", "0", "--quiet"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        url, admin = _hello(process, folder / "log")
        link = HttpLink(url, admin)
        made = msgspec.json.decode(
            link.ask("POST", "/v1/trials", content=plan.to_json(), headers={"Content-Type": "application/json"})
        )
        link.close()
        yield Coordinator(process.pid, f"{url}/v1/trials/{plan.name}", made["ingest_token"], admin, folder / "trials")
    finally:
        process.terminate()
        process.communicate()


def _hello(process: subprocess.Popen[str], log: Path) -> tuple[str, str]:
    """Its address and its administrator's token, which it prints."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if hello := re.search(r"Listening on (\S+)\s.*: (fa_\S+)", said, re.DOTALL):
            return hello[1], hello[2]
    raise ServerError(f"the coordinator did not start: {log.read_text(errors='replace').strip()[-500:]}")

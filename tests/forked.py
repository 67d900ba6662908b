"""A `foldaway` in one process that runs in another: its words, folder, environment and streams are sent there.

It imports next to nothing, since as a program it stands in for `foldaway` where a shell starts it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence

_PATIENCE = 120.0


def ask(address: str, words: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[int]) -> int:
    """Have a command run to its end; its exit code."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_PATIENCE)
        line.connect(address)
        asked = json.dumps([list(words), dict(environment), folder]).encode() + b"\n"
        sent = socket.send_fds(line, [asked], streams)
        line.sendall(asked[sent:])
        with line.makefile() as answer:
            return int(answer.readline())


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2:], os.getcwd(), os.environ, [0, 1, 2]))

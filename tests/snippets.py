"""The snippets of a page, in order, and a way to run them all as its reader would, in an empty folder.

A fenced block is run by its language:

- `python`: all of a page's blocks share their names;
- `sh`: by bash, which stops at the first command that fails; a block that begins with `foldaway serve` is a server,
  left running while the rest of the page does, with its address and admin token in the environment;
  `https://trials.example` in later blocks is that server;
- any with a `title`: written to a file of that name;
- `text`: what something prints, or a part of it, which is only shown.

A block of another kind is an error, unless `<!-- not run: reason -->` stands before it. One after
`<!-- needs: package -->` is run where that package is installed.

What a page takes for granted, such as a file of the reader's own, stands in comments that are not shown:
`<!-- first: python` or `<!-- first: sh`, then the lines, then `-->`. In Python ones, `afterwards(call)` has something
called when the page has been read.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commands import program_in
from postgres import free_port

_FENCE = re.compile(
    r"^(?P<skip> *<!-- (?:not run: (?P<why>.+?)|needs: (?P<needs>\w+)) -->\n+)?"
    r"(?P<indent> *)```(?P<language>\w*)(?P<about>[^\n]*)\n"
    r"(?P<text>.*?)^(?P=indent)```$"
    r"|^<!-- first: (?P<set_up>python|sh)\n(?P<lines>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Snippet:
    """A fenced block, or a hidden one that comes first."""

    language: str
    title: str | None
    text: str
    line: int
    not_run: str | None
    hidden: bool = False


def snippets(page: str) -> Iterator[Snippet]:
    """The fenced blocks of a page."""
    for found in _FENCE.finditer(page):
        if found["set_up"]:
            line = page.count("\n", 0, found.start("lines")) + 1
            yield Snippet(found["set_up"], None, found["lines"], line, None, hidden=True)
            continue
        title = _TITLE.search(found["about"])
        indent = len(found["indent"])
        text = "\n".join(line[indent:] for line in found["text"].splitlines()) + "\n"
        line = page.count("\n", 0, found.start("text")) + 1
        missing = found["needs"] and importlib.util.find_spec(found["needs"]) is None
        why = f"{found['needs']} is not installed" if missing else found["why"]
        yield Snippet(found["language"], title and title[1], text, line, why)


class Reader:
    """Runs snippets in a folder, one after the other."""

    def __init__(self, name: str, folder: Path, environ: dict[str, str]) -> None:
        self._name = name
        self._folder = folder
        self._stack = ExitStack()
        self.ran = 0
        self._names: dict[str, Any] = {"__name__": "__main__", "afterwards": self._stack.callback}
        programs = Path(self._stack.enter_context(TemporaryDirectory()))
        program_in(programs)
        path = os.pathsep.join(map(str, (programs, Path(sys.executable).parent, environ["PATH"])))
        self._environ = {**environ, "PATH": path}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, snippet: Snippet) -> None:
        """Run one; an error names its line in the page."""
        if snippet.not_run is not None:
            return
        self.ran += snippet.title is not None or snippet.language in ("python", "sh")
        if snippet.title is not None:
            (self._folder / snippet.title).write_text(snippet.text, encoding="utf-8")
        elif snippet.language == "python":
            exec(compile("\n" * (snippet.line - 1) + snippet.text, self._name, "exec"), self._names)
        elif snippet.language == "sh":
            if snippet.text.startswith("foldaway serve"):
                assert len(snippet.text.splitlines()) == 1, f"{self._name}, line {snippet.line}: a server stands alone"
                self._serve(snippet.text)
            else:
                self._shell(snippet)
        else:
            known = f"run it, title it, tag it text, or say why not: {snippet.language or 'untagged'}"
            assert snippet.language == "text", f"{self._name}, line {snippet.line}: {known}"

    def _shell(self, snippet: Snippet) -> None:
        text = snippet.text.replace("https://trials.example", self._environ.get("FOLDAWAY_SERVER", ""))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env={**self._environ, **{name: os.environ[name] for name in ("BROKER",) if name in os.environ}},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{self._name}, line {snippet.line}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    def _serve(self, command: str) -> None:
        port, token = free_port(), self._folder / "admin.token"
        words = [sys.executable, "-m", *command.split("#")[0].split(), "--port", str(port)]
        process = subprocess.Popen(
            [*words, "--admin-token-file", str(token)],
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)
        deadline = time.monotonic() + 60
        while not token.exists():
            assert process.poll() is None, f"{self._name}: the server has ended"
            assert time.monotonic() < deadline, f"{self._name}: the server says nothing"
            time.sleep(0.05)
        told = {"FOLDAWAY_SERVER": f"http://127.0.0.1:{port}", "FOLDAWAY_TOKEN": token.read_text().strip()}
        self._environ |= told
        os.environ.update(told)  # the test puts them back

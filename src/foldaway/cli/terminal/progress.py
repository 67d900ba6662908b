"""A progress bar over files, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from foldaway.sources.formats.paths import Stdin, size


@contextmanager
def file_progress(
    paths: Sequence[Path | Stdin], verb: str = "folding"
) -> Iterator[Callable[[Path | Stdin, int], None]]:
    """Shows bytes read, of all files together, on standard error; nothing where that is no terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    sizes = [size(path) for path in paths]
    total = None if None in sizes else sum(s or 0 for s in sizes)
    done: dict[Path | Stdin, int] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(verb, total=total)

        def show(path: Path | Stdin, used: int) -> None:
            done[path] = used
            more = f" ({len(done):,} of {len(paths):,})" if len(paths) > 1 else ""
            name = escape(getattr(path, "name", str(path)).encode(errors="backslashreplace").decode())
            bar.update(task, completed=sum(done.values()), description=f"{verb} {name}{more}")

        yield show

"""A progress bar over files, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from foldaway.sources.paths import Stdin, size


@contextmanager
def file_progress(
    paths: Sequence[Path | Stdin], verb: str = "folding"
) -> Iterator[Callable[[Path | Stdin, int], None]]:
    """Shows bytes read, of all files together, on standard error; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    sizes = [size(path) for path in paths]
    total = None if None in sizes else sum(s or 0 for s in sizes)
    before = dict(zip(paths, _running(sizes), strict=True))
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(verb, total=total)

        def told(path: Path | Stdin, used: int) -> None:
            bar.update(task, completed=before[path] + used, description=f"{verb} {getattr(path, 'name', path)}")

        yield told


def _running(sizes: Sequence[int | None]) -> list[int]:
    """For each file, the bytes of those before it."""
    sums = [0]
    for s in sizes[:-1]:
        sums.append(sums[-1] + (s or 0))
    return sums

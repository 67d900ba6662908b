"""Progress bars for a person at a terminal, and the reading of files that they are shown for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foldaway.sources.formats.paths import Stdin, size

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from foldaway.calibrating import Calibration, Earlier
    from foldaway.plan import Plan


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on standard error, with what else to show right of it; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    first = TextColumn("{task.description}"), BarColumn()
    return Progress(*first, *columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def file_progress(
    paths: Sequence[Path | Stdin], verb: str = "folding"
) -> Iterator[Callable[[Path | Stdin, int], None]]:
    """Shows bytes read, of all files together."""
    from rich.markup import escape
    from rich.progress import DownloadColumn, TimeRemainingColumn

    sizes = [size(path) for path in paths]
    total = None if None in sizes else sum(s or 0 for s in sizes)
    done: dict[Path | Stdin, int] = {}
    with progress_bar(DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(verb, total=total)

        def show(path: Path | Stdin, used: int) -> None:
            done[path] = used
            more = f" ({len(done):,} of {len(paths):,})" if len(paths) > 1 else ""
            name = escape(getattr(path, "name", str(path)).encode(errors="backslashreplace").decode())
            bar.update(task, completed=sum(done.values()), description=f"{verb} {name}{more}")

        yield show


def fold_earlier(
    into: Calibration | Earlier,
    plan: Plan,
    paths: Sequence[Path | Stdin],
    delimiter: str | None,
    without: set[str | None],
) -> None:
    """Fold files of earlier records, which need not have some of the plan's columns."""
    from foldaway.sources.formats.chunk import wanted_by
    from foldaway.sources.formats.files import ReadOptions
    from foldaway.sources.runs.shares import fold_columns

    columns = wanted_by(plan)
    wanted = replace(columns, text=tuple(name for name in columns.text if name not in without))
    with file_progress(paths, "reading") as progress:
        for path in paths:
            fold_columns(into, path, wanted, ReadOptions(None, delimiter), progress=partial(progress, path))

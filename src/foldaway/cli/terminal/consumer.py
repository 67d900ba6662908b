"""What a person or a program sees of a consumer: progress, the end, and a stop in good order."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

import msgspec

from foldaway.effects import Effects
from foldaway.errors import SampleRatioWarning, TooEarly
from foldaway.keeping.cohort import require_enough
from foldaway.sources.brokers.consumer import Consumer, Progress
from foldaway.trial import Trial

_EVERY = 1.0


class Stop:
    """Whether SIGTERM or SIGINT has come; the consumer looks between two steps."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._asked

    def __enter__(self) -> Self:
        self._before = {each: signal.signal(each, self._ask) for each in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


@contextmanager
def shown_progress(stream: str, json: bool) -> Iterator[Callable[[Progress], None]]:
    """Shows progress: JSON lines on standard output, or a line that changes on a terminal's standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if json:
        yield _json_lines()
    elif console.is_terminal:
        with console.status(f"connecting to {stream}") as status:
            yield lambda progress: status.update(sentence(progress))
    else:
        yield _outages(stream)


def sentence(progress: Progress) -> str:
    """The progress in one line.

    Example:
        >>> sentence(Progress(records=1200, pending=34, lag=5, rate=810.0, skipped=0, missed=0, left_out=0))
        '1,200 records | 34 pending | 5 messages waiting | 810 records/s'
    """
    parts = [f"{progress.records:,} records", f"{progress.pending:,} pending"]
    if progress.away is not None:
        parts.append(f"the broker is away, next attempt in {progress.away:.1f} s")
    else:
        parts += [] if progress.lag is None else [f"{progress.lag:,} messages waiting"]
        parts.append(f"{progress.rate:,.0f} records/s")
    parts += [f"{progress.skipped:,} faulty messages skipped"] if progress.skipped else []
    parts += [f"{progress.missed:,} messages missed"] if progress.missed else []
    return " | ".join(parts)


def _json_lines() -> Callable[[Progress], None]:
    """A line a second at most, and one for every attempt to reach a broker that is away."""
    said = -_EVERY

    def tell(progress: Progress) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= _EVERY or progress.away is not None:
            said = now
            _print_line("progress", progress)

    return tell


def _outages(stream: str) -> Callable[[Progress], None]:
    """For a log: when the broker goes away, and when it is back."""
    away = False

    def tell(progress: Progress) -> None:
        nonlocal away
        if (progress.away is not None) != away:
            away = not away
            words = "cannot be reached; trying again until it can" if away else "is back"
            print(f"{stream} {words}.", file=sys.stderr, flush=True)

    return tell


def show_end(trial: Trial, consumer: Consumer, *, delete: bool, json: bool) -> None:
    """What has become of the stream, and the effects, if there are enough records for them."""
    progress = consumer.progress
    found, early = None, ""
    try:
        found = effects_of(trial)
    except TooEarly as error:
        early = str(error)
    if json:
        _print_line("end", progress, effects=None if found is None else msgspec.Raw(found.to_json().encode()))
    elif found is not None:
        print(found)
    if delete and not consumer.can_delete:
        print("The broker does not let us delete messages; shorten its own retention.", file=sys.stderr)
    if json:
        return
    print(f"\n{progress.records:,} records are in the store." if found else f"{early}", file=sys.stderr)
    if progress.pending:
        print(
            f"{progress.pending:,} more wait at the broker until a cohort of {trial.plan.privacy.cohort:,} has come.",
            file=sys.stderr,
        )
    for count, what in (
        (progress.left_out, "records were left out at the close: they were fewer than a cohort"),
        (progress.skipped, "faulty messages were passed over"),
        (progress.missed, "messages were gone from the broker before they could be read"),
    ):
        if count:
            print(f"{count:,} {what}.", file=sys.stderr)


def effects_of(trial: Trial) -> Effects:
    """The effects, if every arm has the plan's minimum of records.

    Raises:
        TooEarly: It has not.
    """
    require_enough(trial.plan.privacy, trial.counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleRatioWarning)  # the table says it
        return trial.effects()


def _print_line(event: str, progress: Progress, **more: Any) -> None:
    line = {"event": event, **msgspec.to_builtins(progress), **more}
    print(msgspec.json.encode(line).decode(), flush=True)

"""What a person or a program sees of a consumer: progress, the end, and a stop in good order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM
from typing import Any

import msgspec

from foldaway.cli.terminal.words import tell
from foldaway.effects import Effects
from foldaway.errors import many
from foldaway.sources.brokers.consumer import Consumer, ConsumerProgress
from foldaway.trial import Trial

_EVERY = 1.0


@contextmanager
def stop_asked() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or SIGINT has come; the consumer looks between two steps."""
    asked: list[int] = []
    before = {each: signal.signal(each, lambda number, _: asked.append(number)) for each in (SIGTERM, SIGINT)}
    try:
        yield lambda: bool(asked)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def shown_progress(stream: str, json: bool) -> Iterator[Callable[[ConsumerProgress], None]]:
    """Shows progress: JSON lines on standard output, or a line that changes on a terminal's standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if json:
        yield _json_lines()
    elif console.is_terminal:
        with console.status(f"connecting to {stream}") as status:
            yield lambda progress: status.update(in_one_line(progress))
    else:
        yield _outages(stream)


def in_one_line(progress: ConsumerProgress) -> str:
    """The progress in one line.

    Example:
        >>> in_one_line(ConsumerProgress(records=1200, pending=34, lag=5, rate=810.0, skipped=0, missed=0))
        '1,200 records | 34 pending | 5 messages waiting | 810 records/s'
    """
    parts = [many(progress.records, "record"), f"{progress.pending:,} pending"]
    if progress.away is not None:
        parts.append(f"the broker is away, next attempt in {progress.away:.1f} s")
    else:
        parts += [] if progress.lag is None else [f"{many(progress.lag, 'message')} waiting"]
        parts.append(f"{progress.rate:,.0f} records/s")
    parts += [f"{many(progress.skipped, 'faulty message')} skipped"] if progress.skipped else []
    parts += [f"{many(progress.missed, 'message')} missed"] if progress.missed else []
    return " | ".join(parts)


def _json_lines() -> Callable[[ConsumerProgress], None]:
    """A line a second at most, and one for every attempt to reach a broker that is away."""
    said = -_EVERY

    def show(progress: ConsumerProgress) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= _EVERY or progress.away is not None:
            said = now
            _print_line("progress", progress)

    return show


def _outages(stream: str) -> Callable[[ConsumerProgress], None]:
    """For a log: when the broker goes away, and when it is back."""
    away = False

    def show(progress: ConsumerProgress) -> None:
        nonlocal away
        if (progress.away is not None) != away:
            away = not away
            words = "cannot be reached; trying again until it can" if away else "is back"
            tell(f"{stream} {words}.")

    return show


def show_end(trial: Trial, consumer: Consumer, effects: Effects | str, *, delete: bool, json: bool) -> None:
    """What has become of the stream, and the effects as others are told them, or why there are none."""
    progress = consumer.progress
    sentence = f"\n{progress.records:,} records are in the store."
    if trial.ended:
        sentence = "\nThe trial has ended: the store holds its effects, and its tallies and its key are destroyed."
    if isinstance(effects, str):
        sentence = effects
    if json:
        told = None if isinstance(effects, str) else msgspec.Raw(effects.to_json().encode())
        _print_line("end", progress, effects=told)
    elif not isinstance(effects, str):
        print(effects)
    if delete and not consumer.can_delete:
        tell("The broker does not let us delete messages; shorten its own retention.")
    if json:
        return
    tell(sentence)
    for count, what in (
        (progress.pending, f"more wait at the broker until there is a cohort of {trial.plan.privacy.cohort:,}"),
        (progress.skipped, "faulty messages were skipped"),
        (progress.missed, "messages were gone from the broker before they could be read"),
    ):
        if count:
            tell(f"{count:,} {what}.")


def _print_line(event: str, progress: ConsumerProgress, **more: Any) -> None:
    line = {"event": event, **msgspec.to_builtins(progress), **more}
    print(msgspec.json.encode(line).decode(), flush=True)

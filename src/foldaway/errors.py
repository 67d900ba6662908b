"""The errors people see. Each is one sentence or more with what to do next, and never holds a record's value.

All of them can be pickled, so that they reach the user from a worker process or a cluster.
"""

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any


class instead_of:
    """Raises an error of ours instead of one that may quote a record, and lets nothing of that one hang on ours.

    ``raise … from None`` only hides the first error: it stays in ``__context__``, with its traceback and all that the
    frames in it hold. Here it is gone.

    Args:
        kinds: The errors that are replaced; all others pass.
        ours: The error to raise, or a function that makes it from the first one; what this gives back is raised as it
            is, or the first error itself, with all that hangs on it, where it gives None. Do not give the error a name
            in the calling function: a frame that names its own error lives until garbage is collected.

    Example:
        >>> with instead_of(ValueError, lambda error: RecordError(f"not a number ({type(error).__name__}).")):
        ...     float("forty-two")
        Traceback (most recent call last):
        foldaway.errors.RecordError: not a number (ValueError).
    """

    def __init__(
        self,
        kinds: type[BaseException] | tuple[type[BaseException], ...],
        ours: Exception | Callable[[Any], Exception | None],
    ) -> None:
        self._kinds = kinds
        self._ours = ours

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, self._kinds):
            return
        refusal = self._ours if isinstance(self._ours, Exception) else self._ours(error)
        if refusal is None:
            return
        del self, error, trace  # this frame is part of the traceback of ours, and would hold what these hold
        try:
            raise refusal
        finally:
            refusal.__context__ = None
            del refusal


def not_installed(package: str, extra: str) -> str:
    """What to say where a package is missing that comes with an extra.

    Example:
        >>> not_installed("polars", "polars")
        "polars is not installed: pip install 'foldaway[polars]', or '.[polars]' in a checkout."
    """
    return f"{package} is not installed: pip install 'foldaway[{extra}]', or '.[{extra}]' in a checkout."


def many(count: int, what: str, plural: str = "") -> str:
    """So many of something.

    Example:
        >>> many(1, "record"), many(1_200, "record"), many(2, "reply", "replies")
        ('1 record', '1,200 records', '2 replies')
    """
    return f"{count:,} {what if count == 1 else plural or f'{what}s'}"


def joined(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence.

    Example:
        >>> joined(["a", "b", "c"]), joined(["a"])
        ('a, b and c', 'a')
    """
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that nobody knows: with the nearest one that is known, if one is near.

    Example:
        >>> "no column 'revenu'" + did_you_mean("revenu", ["group", "revenue"])
        "no column 'revenu'; did you mean 'revenue'?"
        >>> "no column 'age'" + did_you_mean("age", ["group", "revenue"])
        "no column 'age'."
    """
    import difflib  # only where something is wrong

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


class FoldawayError(Exception):
    """Base of every error that foldaway raises on purpose."""


class PlanError(FoldawayError, ValueError):
    """A plan that cannot be run; one sentence per fault."""


class RecordError(FoldawayError, ValueError):
    """A batch that was refused whole; counts by column and rule, no values."""


class EstimateError(FoldawayError, ValueError):
    """A question that the tallies cannot answer, with the reason."""


class StateError(FoldawayError, ValueError):
    """A saved state that is damaged, truncated, or made under another plan."""


class SourceError(FoldawayError):
    """A file or stream that cannot be read."""


class WorkerError(FoldawayError):
    """A worker process that ended before its work did, or failed in a way that nobody foresaw."""


class ReportError(FoldawayError):
    """A report that cannot be written where it is to go."""


class ServerWarning(UserWarning):
    """A server does not answer, or holds what was sent to it in its memory alone."""


class SampleRatioWarning(UserWarning):
    """The arms' counts do not fit the plan's probabilities."""


class LossWarning(SampleRatioWarning):
    """The arms lost different shares of their records or outcomes, or too many records were dropped."""


class KeyWarning(UserWarning):
    """The end of a trial destroys a key that opens other states, too."""


class FixedWarning(UserWarning):
    """Saving a trial has fixed its coefficients."""


class StreamedWarning(UserWarning):
    """Rows have left their database, which could not sum them."""


class EndedError(FoldawayError):
    """A fold that needs a key which was destroyed or is not here."""


class SequenceGap(FoldawayError):
    """A batch that does not begin where the one before it has ended."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"batches are missing, or overlap: send sequence {expected} first, then those after it.")
        self.expected = expected

    def __reduce__(self) -> tuple[Any, ...]:
        return SequenceGap, (self.expected,)


class TooEarly(FoldawayError):
    """An answer that would say too much about few records."""


class Unreleased(TooEarly):
    """A question about a trial whose effects are told once, with noise, before that was done: always the same words."""

    def __init__(self) -> None:
        super().__init__(
            "the effects of this trial are published once, with noise, as its plan says (`release`); until then, "
            "foldaway shows neither effects nor counts. To publish them, end the trial: trial.end(), or "
            "foldaway end WHERE."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Unreleased, ()


class ServerError(FoldawayError):
    """What a server refused, or that it cannot be reached."""

    def __init__(self, detail: str, status: int | None = None, expected: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.expected = expected

    @property
    def passes(self) -> bool:
        """Whether the same may be taken later: the server is away, busy, restarting, or has lost a race."""
        return self.status in (None, 408, 429, 500, 502, 503, 504)


class UntrustedServer(ServerError):
    """A server that no encrypted connection can be made to: its certificate is not trusted, or it has none."""


class IngestError(FoldawayError):
    """A request that was refused before any of it was folded; `status` is the HTTP status to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, str(self))


class MessageError(FoldawayError, ValueError):
    """A message of a device or a site that was refused; nothing of it was counted, and none of its numbers is told."""


class UnknownNumber(FoldawayError):
    """A report whose number was never enrolled."""


class VaultError(FoldawayError):
    """A key that cannot be had, or sealed bytes that do not open under the keys given."""


class StoreError(FoldawayError):
    """A request that the store of trials refused."""


class Unavailable(StoreError):
    """The database is gone, full, locked or read-only; the same request may succeed later."""


class UnknownTrial(StoreError):
    """There is no trial of this name."""


class TrialExists(StoreError):
    """The name is taken by a trial with another plan."""


class TrialEnded(StoreError):
    """The trial has ended and takes no more records."""


class Conflict(StoreError):
    """Someone else has written in between; nothing was changed, and what was built upon is out of date."""


UNREADABLE = (FoldawayError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading effects may raise that somebody else has written, in no form that we know."""

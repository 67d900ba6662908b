"""The errors people see. Each is one sentence or more with what to do next, and never holds a record's value."""


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


class SampleRatioWarning(UserWarning):
    """The arms' counts do not fit the plan's probabilities."""


class SealedError(FoldawayError):
    """A fold that needs a key which was destroyed or is not here."""

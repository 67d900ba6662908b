"""A plan and its tallies, with the key they are folded under, whose records have come, and what happened."""

from foldaway.trial.ending import finish_ending
from foldaway.trial.kept import fixed_by
from foldaway.trial.trial import Trial, opened_too

__all__ = ["Trial", "finish_ending", "fixed_by", "opened_too"]

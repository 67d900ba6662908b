"""Inverse probabilities, normalised: the arms' means under weights 1/π_arm (Hájek 1971).

It is y on an indicator per arm, each record weighted by 1/π of its arm. With one probability for each arm these weights
cancel from means and from robust errors, so that the estimate is the difference of means, however far the arms' counts
are from the plan's; the paper's own form, which does not normalise, is `horvitz_thompson`.
"""

from __future__ import annotations

from foldaway.inference.contrast import Question
from foldaway.inference.estimators.difference import MeanDifference, mean_difference, replicated

__all__ = ["fitted", "replicated"]


def fitted(question: Question) -> MeanDifference:
    """The weighted regression, and its contrast."""
    return mean_difference(question, [1 / pi for pi in question.probabilities])

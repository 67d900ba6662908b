"""Inverse probabilities, normalised: the arms' means under weights 1/π_arm (Hájek 1971).

It is y on an indicator per arm, each record weighted by 1/π of its arm. With one probability for each arm these weights
cancel from means and from robust errors, so that the estimate is the difference of means, however far the arms' counts
are from the plan's; the paper's own form, which does not normalise, is `horvitz_thompson`.
"""

from __future__ import annotations

from foldaway.inference.contrast import Question
from foldaway.inference.estimators.difference import DifferenceOfMeans


class InverseProbabilities(DifferenceOfMeans):
    """The arms' means, each record weighted by 1/π of its arm."""

    def weights(self, question: Question) -> list[float]:
        """1/π."""
        return [1 / pi for pi in question.probabilities]


ESTIMATOR = InverseProbabilities()

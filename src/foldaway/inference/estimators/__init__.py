"""The estimators, a file each: the one called ``regression`` in the vocabulary is computed in ``regression.py``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import ArmReplicates, Distribution, Replicated, replicates_in
from foldaway.inference.contrast import Contrast, Question, common_frame


class Computation(Protocol):
    """What an estimator's file has in it. Nothing else needs to know of an estimator, but for its declaration."""

    def fitted(self, question: Question) -> Contrast:
        """The estimator on the arms' tallies."""
        ...

    def replicated(self, question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
        """The estimator on every replicate of the bootstrap at once, outcomes being centred."""
        ...


def computation(name: str) -> Computation:
    """The file of an estimator."""
    return cast(Computation, import_module(f"{__name__}.{name}"))


def estimator(name: str, question: Question) -> Contrast:
    """The estimator's answer to a question."""
    if not question.arms[0].n or not question.arms[question.arm].n:
        raise EstimateError("an arm has no records yet.")
    return computation(name).fitted(question)


def distribution(name: str, question: Question) -> Distribution:
    """The bootstrap distribution of an estimator's effect."""
    frame, center = common_frame(question)
    arms = [replicates_in(frame, arm, question.outcome) for arm in question.arms]
    with np.errstate(divide="ignore", invalid="ignore"):
        effects, levels, good = computation(name).replicated(question, arms, center)
    good &= np.isfinite(effects) & np.isfinite(levels)
    return Distribution(effects[good], levels[good], int(np.sum(~good)))

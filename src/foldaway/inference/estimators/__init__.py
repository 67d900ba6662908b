"""The estimators, a file each: the one called ``regression`` in the vocabulary is `ESTIMATOR` in ``regression.py``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import ArmReplicates, Distribution, Replicated, replicates_in
from foldaway.inference.contrast import Contrast, Question, common_frame


class Computation(Protocol):
    """How an estimator is computed, mostly as a `Regression`: all that is to know of it beside its declaration."""

    def fitted(self, question: Question) -> Contrast:
        """The estimator on the arms' tallies."""
        ...

    def replicated(self, question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
        """The estimator on every replicate of the bootstrap at once, outcomes being less the center."""
        ...


def computation(name: str) -> Computation:
    """The estimator of a name."""
    return cast(Computation, import_module(f"{__name__}.{name}").ESTIMATOR)


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

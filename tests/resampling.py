"""The bootstrap for tests: plans with one, the weights that a key gives, and the replicates of every estimator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import foldaway as fa
from foldaway.inference.bootstrap import Distribution
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import distribution
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.numerics.kernels.weights import Kind
from foldaway.plan import Bootstrap
from foldaway.tallies import arms_of
from foldaway.tallies.moments.kinds import REPLICATES
from foldaway.tallies.moments.replicates import Replicates
from plans import replaced
from trials import make_trial
from written_weights import weights

KEY = bytes(range(16))
OTHER_KEY = KEY[::-1]

# Replicates in the small trials.
B = 200

Weights = NDArray[np.uint8]


def with_bootstrap(plan: fa.Plan, replicates: int, kind: Kind = "poisson", **changes: Any) -> fa.Plan:
    """The plan with a bootstrap."""
    return replaced(plan, bootstrap=Bootstrap(replicates, kind), **changes)


def unit_weights(plan: fa.Plan, units: Iterable[Any], key: bytes = KEY) -> Weights:
    """The weights that a trial under this key gives to the records of these units, one row per record."""
    assert plan.bootstrap is not None
    numbers = hash_identifiers(pa.array(list(units)), Secret(key).of_units(plan.fingerprint))
    return weights(numbers, plan.bootstrap.replicates, plan.bootstrap.weights)


def tallies_of(trial: fa.Trial) -> list[Replicates]:
    """Each arm's replicates, in the arm's own frame."""
    return [cast(Replicates, arm.tallies[REPLICATES]) for arm in arms_of(trial.tallies)]


def replicates_of(trial: fa.Trial, estimator: str, arm: str, outcome: str) -> Distribution:
    """The bootstrap distribution of one effect."""
    plan = trial.plan
    number = list(plan.arms).index(arm)
    question = Question(arms_of(trial.tallies), list(plan.arms.values()), number, list(plan.measured).index(outcome))
    return distribution(estimator, question)


def close(ours: Floats, theirs: Floats, rounding: float = 1e-9) -> bool:
    """Whether two sets of replicates are the same, next to their size or to their spread, whichever is larger."""
    theirs = np.asarray(theirs)
    scale = np.maximum(np.abs(theirs), np.std(theirs, axis=0))
    return ours.shape == theirs.shape and bool(np.all(np.abs(ours - theirs) <= rounding * scale))


def of_units(**options: Any) -> tuple[fa.Plan, pd.DataFrame]:
    """Records of units that come whenever they come."""
    plan, rows = make_trial(11, **({"n": 900, "covariates": 2, "outcomes": 2, "units": True} | options))
    return with_bootstrap(plan, B, records_per_unit="many"), rows


def of_records(**options: Any) -> tuple[fa.Plan, pd.DataFrame]:
    """Records without a unit."""
    plan, rows = make_trial(12, **({"n": 900, "covariates": 1} | options))
    return with_bootstrap(plan, B), rows


def folded(plan: fa.Plan, *batches: Any, key: bytes = KEY) -> fa.Trial:
    """The trial of these batches under a key."""
    trial = fa.Trial(plan, key=key)
    for batch in batches:
        trial.fold(batch)
    return trial


def total_weights(trial: fa.Trial) -> Any:
    """Each replicate's total weight: what shows whose weights they are."""
    return sum(tally.totals[:, 0] for tally in tallies_of(trial))


def assert_same_replicates(one: fa.Trial, other: fa.Trial) -> None:
    """Asserts it of every replicate of every estimator, and every number of the rows made of them."""
    for estimator in ("ipw", "difference", "regression", "interacted"):
        for outcome in one.plan.measured:
            ours, theirs = (replicates_of(trial, estimator, "arm1", outcome) for trial in (one, other))
            assert ours.left_out == theirs.left_out
            assert close(ours.effects, theirs.effects)
            assert close(ours.levels, theirs.levels)
    rows, others = (trial.effects().filter(se_kind="bootstrap").to_pandas() for trial in (one, other))
    assert len(rows) == (4 if one.plan.covariates else 2) * len(one.plan.outcomes)  # regressions need covariates
    pd.testing.assert_frame_equal(rows, others, rtol=1e-9, atol=1e-12)

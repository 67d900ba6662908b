"""Do the intervals of a federated trial cover when some devices never reply?

Devices are missing at random. In mode scores the coefficients hold everyone's records and only the error is
estimated from those who have replied, scaled up; in mode one-message the missing devices are in nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import foldaway as fa
from foldaway.federated.messages import PublishedCoefficients, unpacked
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices as Who
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.models import readings, segments
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Block, Floats
from foldaway.numerics.linalg import frame_rows
from studies.findings import Findings, counted, options_of, publish

NAME = "federated_dropout"
EFFECT = 0.5
DROP_OUT = (0.0, 0.1, 0.3)
MODES = ("scores", "one-message")
ESTIMATORS = ("difference", "regression")
ARMS = ("control", "treatment")


class Interval(NamedTuple):
    """The interval of one trial."""

    mode: str
    drop_out: float
    estimator: str
    estimate: float
    std_error: float
    covers: bool


class Devices(NamedTuple):
    """All devices of a trial.

    Attributes:
        arm: Each device's arm.
        first: Where each device's rows begin.
        rows: The rows z = [1, x, y] of all devices, one after the other.
    """

    arm: NDArray[np.intp]
    first: NDArray[np.intp]
    rows: Floats

    @property
    def sizes(self) -> NDArray[np.intp]:
        """How many rows each device has."""
        return np.diff(self.first, append=len(self.rows))


def simulate(rng: np.random.Generator, devices: int) -> Devices:
    """Devices with one to some 30 records, five on average, that share the device's disposition."""
    sizes = 1 + rng.poisson(4 * rng.gamma(2, 0.5, devices))
    arm = rng.integers(0, 2, devices)
    of = np.repeat(np.arange(devices), sizes)
    u, d = rng.normal(size=devices)[of], arm[of]
    x = 0.5 * u + rng.normal(size=len(of))
    y = 10 + EFFECT * d + u + 0.5 * x + rng.normal(size=len(of)) * (1 + 0.3 * d)
    rows = np.column_stack([np.ones(len(of)), x, y])
    return Devices(arm, np.cumsum(sizes) - sizes, rows)


def plan_of(mode: str) -> fa.Plan:
    """The plan in one of the modes."""
    arms = dict.fromkeys(ARMS, 0.5)
    return fa.Plan(
        name="dropout",
        arm="arm",
        arms=arms,
        outcomes=["y"],
        covariates=["x"],
        moments=fa.Moments(estimators=ESTIMATORS),
        federated=mode,  # type: ignore[arg-type]
    )


def triangles(devices: Devices) -> Floats:
    """The factor of each device's rows, which is what it sends of them."""
    sizes = devices.sizes
    padded = np.zeros((len(sizes), max(int(sizes.max()), 3), 3))
    place = np.arange(len(devices.rows)) - np.repeat(devices.first, sizes)
    padded[np.repeat(np.arange(len(sizes)), sizes), place] = devices.rows
    return np.asarray(np.linalg.qr(padded, mode="r"), dtype=np.float64)


def replies(plan: fa.Plan, published: PublishedCoefficients, devices: Devices) -> Floats:
    """What each device replies, one per row, for all devices of an arm at once."""
    k, parts = len(plan.regressors), segments(published.models)
    scores = np.empty((len(devices.arm), sum(part.q * part.r for part in parts)))
    row_arm = np.repeat(devices.arm, devices.sizes)
    K = len(plan.columns)
    F = np.zeros((K, K), order="F")
    F[np.triu_indices(K)] = unpacked(published.frame, K * (K + 1) // 2)
    for arm in range(len(ARMS)):
        mine = devices.arm == arm
        sizes = devices.sizes[mine]
        framed = frame_rows(F, np.asfortranarray(devices.rows[row_arm == arm]))
        for segment in parts:
            X, E = readings(segment, arm, F, framed, k)
            products = (X[:, :, None] * E[:, None, :]).reshape(len(X), -1)
            scores[mine, segment.place] = np.add.reduceat(products, np.cumsum(sizes) - sizes)
    return scores


def intervals(devices: Devices, stays: Floats) -> Iterator[Interval]:
    """Every interval for one trial's effect; a device replies if its number is above the share that drops out."""
    factors = triangles(devices)
    scores_plan, one_plan = (plan_of(mode) for mode in MODES)
    everyone = np.ones(len(devices.arm), dtype=bool)
    whole = _share(scores_plan, devices, factors, everyone)
    published = Published.of(whole.trial)
    sent = replies(scores_plan, published.message("replying", 0.0), devices)
    for drop_out in DROP_OUT:
        here = stays >= drop_out
        who = Who(_by_arm(devices, everyone), _by_arm(devices, here))
        share = whole.copy()
        share.replies = [
            none.fold(Block(sent[here & (devices.arm == arm)].T)) for arm, none in enumerate(published.no_replies())
        ]
        yield from _read("scores", drop_out, mode_of(scores_plan).results(share, who, published)[0])
        only = _share(one_plan, devices, factors, here)
        yield from _read("one-message", drop_out, mode_of(one_plan).results(only, who, None)[0])


def _share(plan: fa.Plan, devices: Devices, factors: Floats, here: NDArray[np.bool_]) -> ServerShare:
    trial = fa.Trial(plan)
    sizes = devices.sizes[here].astype(np.int64)
    trial.fold_clusters(devices.arm[here], sizes, factors[here])
    return ServerShare(trial, devices=np.bincount(devices.arm[here], minlength=len(ARMS)).tolist())


def _by_arm(devices: Devices, here: NDArray[np.bool_]) -> dict[str, int]:
    return {name: int(np.sum(devices.arm[here] == arm)) for arm, name in enumerate(ARMS)}


def _read(mode: str, drop_out: float, effects: fa.Effects) -> Iterator[Interval]:
    for row in effects:
        if row.se_kind == "CR1":
            assert row.estimate is not None
            assert row.std_error is not None
            assert row.ci_lower is not None
            assert row.ci_upper is not None
            covers = row.ci_lower <= EFFECT <= row.ci_upper
            yield Interval(mode, drop_out, row.estimator, row.estimate, row.std_error, covers)


def study(trials: int, devices: int, seed: int) -> list[Interval]:
    """Every interval of every trial."""
    found: list[Interval] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        for number in counted(range(trials), trials, f"trials of {devices} devices"):
            rng = np.random.default_rng([seed, number])
            found += intervals(simulate(rng, devices), rng.random(devices))
    return found


def summary(found: Sequence[Interval]) -> list[tuple[str, float, str, float, float]]:
    """By mode, share that drops out, and estimator: the errors' ratio to the truth, and coverage."""
    rows = []
    for mode in MODES:
        for drop_out in DROP_OUT:
            for estimator in ESTIMATORS:
                of = [each for each in found if each[:3] == (mode, drop_out, estimator)]
                spread = float(np.std([each.estimate for each in of], ddof=1))
                ratio = math.sqrt(float(np.mean([each.std_error**2 for each in of]))) / spread
                rows.append((mode, drop_out, estimator, ratio, float(np.mean([each.covers for each in of]))))
    return rows


def findings(found: Mapping[int, Sequence[Interval]], trials: int) -> Findings:
    """The table and what it says; ``found`` by the number of devices."""
    error = math.sqrt(0.95 * 0.05 / trials)
    rows, told = [], []
    for devices, intervals in found.items():
        shares = []
        for mode, drop_out, estimator, ratio, covers in summary(intervals):
            away = f"{covers:.1%} ({(covers - 0.95) / error:+.1f})"
            rows.append([mode, estimator, f"{devices}", f"{drop_out:.0%}", f"{ratio:.3f}", away])
            shares.append(covers)
        within = sum(0.94 <= share <= 0.96 for share in shares)
        told.append(
            f"""With {devices} devices, {within} of the {len(shares)} kinds of interval cover between 94 and 96 %; all
            cover between {100 * min(shares):.1f} and {100 * max(shares):.1f} %."""
        )
    return Findings(
        "Devices that never reply",
        f"""Some devices join and are never heard of again, because they are switched off, lost or offline. In mode
        scores, their records are in the coefficients, and the middle part of the sandwich variance is scaled up, arm by
        arm, by the number of devices in the coefficients divided by the number that have replied. In mode one-message,
        they contribute nothing.

        We simulated {trials:,} trials of {" and of ".join(map(str, found))} devices each, half of them treated; a
        device has five records on average. The outcome is y = 10 + {EFFECT} d + u + x/2 + e, where d is the treatment,
        u is standard normal for each device, x is u/2 plus standard normal noise, and e is normal with a standard
        deviation of 1 in the control and 1.3 under treatment. Devices drop out at random. The coordinator's own
        functions estimate the effect of d from the messages, without a network: as a difference in means and by
        regression on x, with CR1 errors and intervals from Student's t with one degree of freedom fewer than devices
        that have replied.

        “Ratio” is the root mean square of the standard errors, divided by the standard deviation of the estimate over
        the trials. “Covers” is how often the 95 % interval contains the true effect, with the distance from 95 % in
        Monte Carlo standard errors (one is {100 * error:.2f} points) in brackets.""",
        ["mode", "estimator", "devices", "drop out", "ratio", "covers"],
        rows,
        f"""{" ".join(told)} With few devices, CR1 errors are somewhat too small, whether or not any drop out. All this
        holds for devices that drop out at random. If dropping out depends on the outcome or on the arm, no rescaling
        helps, and the results say so.""",
        left=2,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=8_000, devices=300, few=30, seed=1)
    found = {devices: study(options.trials, devices, options.seed) for devices in (options.devices, options.few)}
    publish(findings(found, options.trials), NAME, options)

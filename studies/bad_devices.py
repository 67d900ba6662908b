"""What bad devices do to a trial: how far they shift the effects, plain and robust, and whether a group stands out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import foldaway as fa
from foldaway.effects.reading import effects_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.vocabulary import DIFFERENCE, MEDIAN_OF_MEANS
from foldaway.records.faults import Faults
from foldaway.tallies import grouped_of
from foldaway.trial import Trial
from studies.findings import Findings, counted, options_of, publish

NAME = "bad_devices"

DEVICES = 2_000
BAD = (1, 10, 100)
FAR = 1_000.0
"""How many times the upper bound devices send that are far beyond it."""


class World(NamedTuple):
    """What honest devices record: draws the means of devices with so many records, which lie within the bounds."""

    draw: Callable[[np.random.Generator, Any], Floats]
    bounds: tuple[float, float]


def _minutes(rng: np.random.Generator, n: Any) -> Floats:
    return np.asarray(np.clip(rng.normal(10, 1, len(n)) + rng.normal(0, 2, len(n)) / np.sqrt(n), 0, 30))


def _share(rng: np.random.Generator, n: Any) -> Floats:
    return np.asarray(rng.binomial(n, 0.1) / n)


def _revenue(rng: np.random.Generator, n: Any) -> Floats:
    return np.minimum(rng.lognormal(3, 1, len(n)) * (rng.random(len(n)) < 0.2), 1_000)


WORLDS = {
    "minutes, normal": World(_minutes, (0.0, 30.0)),
    "clicks, 10 % of records": World(_share, (0.0, 1.0)),
    "revenue, bought by 20 %, skewed": World(_revenue, (0.0, 1_000.0)),
}


class Case(NamedTuple):
    """A world, how many devices of one arm are bad, and how many times the upper bound each reports as its mean."""

    world: str
    bad: int
    times: float


class Trials(NamedTuple):
    """By trial: both estimates, the robust one's error, whether its interval has 0 in it, whether a group is named."""

    plain: Floats
    robust: Floats
    error: Floats
    covers: Floats
    named: Floats


def plan() -> Plan:
    """The plan of all trials."""
    return fa.Plan(
        name="bad-devices",
        arm="arm",
        arms={"old": 0.5, "new": 0.5},
        outcomes=["y"],
        federated="sums",
        expected_units=DEVICES,
    )


def simulate(case: Case, trials: int, seed: int) -> Trials:
    """Trials without an effect, as the coordinator has them: it is told sums, in groups that devices draw at random."""
    world, its = WORLDS[case.world], plan()
    rng = np.random.default_rng([seed, *map(ord, case.world)])  # the same honest devices, whoever is bad
    found = []
    for _ in range(trials):
        arm, n = np.arange(DEVICES) % 2, rng.integers(1, 6, DEVICES)
        means, group = world.draw(rng, n), rng.integers(0, its.groups, DEVICES)
        means[1 : 2 * case.bad : 2] = case.times * world.bounds[1]
        trial = Trial(its)
        trial.fold_totals(arm, group, n, (n * means)[:, None])
        effects = effects_of(its, Faults(), sums=grouped_of(trial.tallies))
        (plain,), (robust,) = (effects.filter(estimator=name) for name in (DIFFERENCE, MEDIAN_OF_MEANS))
        assert robust.ci_lower is not None
        assert robust.ci_upper is not None
        covers = robust.ci_lower <= 0 <= robust.ci_upper
        found.append((plain.estimate, robust.estimate, robust.std_error, covers, effects.alarm is not None))
    return Trials(*np.array(found, dtype=np.float64).T)


def row(case: Case, found: Trials, honest: Trials) -> list[str]:
    """A line of the table; shifts in standard deviations of the plain estimate without bad devices."""
    unit = float(np.std(honest.plain))
    shifts = [f"{_shift(float(np.mean(now - was)) / unit)}" for now, was in zip(found[:2], honest[:2], strict=True)]
    sent = "" if not case.bad else "the bound" if case.times == 1 else f"{case.times:,.0f} × the bound"
    spread = f"{np.std(honest.robust) / unit:.2f}" if not case.bad else ""
    shares = [f"{100 * np.mean(each):.1f} %" for each in (found.covers, found.named)]
    return [case.world, f"{case.bad}", sent, *(shifts if case.bad else ["0", "0"]), spread, *shares]


def _shift(deviations: float) -> str:
    return f"{deviations:.2f}" if abs(deviations) < 100 else f"{deviations:,.0f}"


def findings(found: dict[Case, Trials], trials: int) -> Findings:
    """The page."""
    rows = [row(case, those, found[Case(case.world, 0, 1.0)]) for case, those in found.items()]
    groups = plan().groups
    half = math.ceil(groups * math.log(2))
    return Findings(
        "Bad devices: what they shift, and whether they are seen",
        f"""{DEVICES:,} devices of mode `sums` in two arms without an effect, one to five records each, in the {groups}
        groups that the plan's `expected_units` gives. Some devices of one arm are bad: they report the upper bound as
        the mean of their records, or {FAR:,.0f} times that. A coordinator of mode `sums` rejects what lies beyond the
        plan's `bounds`: the second case is a plan without them, or mode `shares`, which cannot see the number. Each
        line is {trials:,} trials, with the same honest devices.

        Shifts are in standard deviations of the plain difference without bad devices. “Width” is the standard deviation
        of the median of means over that of the plain difference. “Covers” is how often the robust 95 % interval has the
        true effect in it, “named” how often the check names a group; without bad devices that is a false alarm.""",
        ["outcome", "bad", "each sends", "plain shift", "robust shift", "width", "robust covers", "named"],
        rows,
        f"""A single device far beyond the bounds decides the plain estimate and is named; the robust one does not
        notice. Bounds limit what a device can do, and a device at its bound is one that an honest one could be: it is
        named only where no honest device comes near the bound. The robust estimate holds while fewer than half of an
        arm's groups have a bad device: with random groups, up to about {half} bad devices of an arm. A hundred are in
        most groups of their arm. Then no group stands out, and both estimates are wrong: what helps is that a stranger
        cannot enrol a hundred devices, and a proof that each report lies within the bounds.""",
        left=1,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=1_000, processes=2, seed=1)
    cases = [
        Case(world, bad, times)
        for world in WORLDS
        for bad, times in [(0, 1.0), *((bad, times) for times in (1.0, FAR) for bad in BAD)]
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        running = pool.map(partial(simulate, trials=options.trials, seed=options.seed), cases)
        found = dict(zip(cases, counted(running, len(cases), "cases"), strict=True))
    publish(findings(found, options.trials), NAME, options)

"""What do answers and saved states give away? Attacks on simulated people, with the defences off and on.

Every function plays somebody who has some of the numbers and none of the records: it returns claims, which are then
held against the people. `tests/test_attacks.py` runs them small.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import foldaway as fa
from foldaway.auditing.answers import told_by
from foldaway.auditing.audit import audit
from foldaway.auditing.finding import NEAR, Finding
from foldaway.effects import Effect, Effects
from foldaway.effects.door import OWN, TOLD
from foldaway.errors import SampleRatioWarning, TooEarly
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.keeping.cohort import GROWTH, Census, may_tell
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.tallies import arms_of
from studies.claims import Score, held
from studies.findings import Findings, counted, filled, markdown_table, options_of, publish
from studies.site_attacks import SITES, STILL, site_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from written_weights import weights

NAME = "attacks"
PEOPLE = 5_000
SHARES = (0.01, 0.02, 0.05, 0.2)
BATCHES = (50, 250, 1000)
LEVELS = {"country": list("abcdefgh"), "device": list("abcdef"), "age": list("abcde"), "plan": list("abcd")}
KEPT_OF = (200, 1_000, 5_000)
KEY = bytes(range(16))
COHORT, CELL = fa.Privacy().cohort, fa.Privacy().smallest_cell


# People, and trials of them.


def people(n: int, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """People in two arms with four categorical covariates, and amounts, to the cent, that a share of them has spent."""
    rows = pd.DataFrame({"arm": rng.choice(["control", "treatment"], n), "who": np.arange(n)})
    for name, levels in LEVELS.items():
        odds = 0.6 ** np.arange(len(levels))
        rows[name] = rng.choice(levels, n, p=odds / odds.sum())
    rows["amount"] = np.where(rng.random(n) < share, np.round(rng.lognormal(3, 1, n), 2), 0.0)
    return rows


def plan_of(**settings: Any) -> fa.Plan:
    """A plan for these people."""
    arms = {"control": 0.5, "treatment": 0.5}
    return fa.Plan(**{"name": "target", "arm": "arm", "arms": arms, "outcomes": ["amount"], **settings})


WITH_LEVELS = {"covariates": [{"column": name, "levels": levels} for name, levels in LEVELS.items()]}


def folded(plan: fa.Plan, rows: pd.DataFrame) -> fa.Trial:
    """The trial of these records."""
    trial = fa.Trial(plan, key=KEY) if plan.keyed else fa.Trial(plan)
    trial.fold(rows)
    return trial


def effects_of(trial: fa.Trial, rounded: bool) -> Effects:
    """As told, or exactly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleRatioWarning)
        return trial.read(TOLD if rounded else OWN)


class Answer(NamedTuple):
    """An answer, and how many had come by then."""

    seen: int
    effects: Effects


def polled(plan: fa.Plan, rows: pd.DataFrame, batch: int, *, defended: bool) -> list[Answer]:
    """The answers that whoever asks after every batch gets: with the defences off, whenever a cohort has come."""
    trial, answers, last = fa.Trial(plan), list[Answer](), 0
    for start in range(0, len(rows), batch):
        trial.fold(rows.iloc[start : start + batch])
        if defended:
            effects = told(trial)
            if effects is not None and (not answers or effects.to_json() != answers[-1].effects.to_json()):
                answers.append(Answer(trial.n, effects))
        elif trial.n - last >= COHORT:
            answers.append(Answer(trial.n, effects_of(trial, rounded=False)))
            last = trial.n
    return answers


def told(trial: fa.Trial) -> Effects | None:
    """What others are told now: the last answer until the trial has grown enough for another."""
    try:
        return trial.told()
    except TooEarly:
        return None


# Differencing of answers.


class Claim(NamedTuple):
    """Somebody between two answers has this amount."""

    arm: str
    first: int
    last: int
    amount: float


def differenced(answers: Sequence[Answer]) -> Iterator[Claim]:
    """Subtract each answer from the next: where one person has something, the sum is theirs.

    The means give Σy of the records in between. Welch's error and its degrees of freedom give Σy² of each arm, unless
    they are rounded. If that is the square of Σy, one person has spent it all; where that is unknown, all are claimed.
    """
    for before, now in pairwise(answers):
        told, then = told_by(now.effects), told_by(before.effects)
        squares, earlier = _squares(now.effects), _squares(before.effects)
        for (outcome, arm), this in told.items():
            if (last := then.get((outcome, arm))) is None:  # nobody had spent anything by then
                continue
            total = this.records * this.mean - last.records * last.mean
            # To each answer two pairs of Σy² fit, since the arms may be taken for each other.
            added = [a - b for a in squares.get(arm, []) for b in earlier.get(arm, [])]
            sole = not added or any(abs(each - total**2) < 1e-4 * total**2 for each in added)
            if total > 0.005 and sole:
                yield Claim(arm, before.seen, now.seen, total)


def _squares(effects: Effects) -> dict[str, list[float]]:
    """Σy² of each arm as Welch's error V = u + w and its degrees of freedom, V²/(u²/(n−1) + w²/(m−1)), give it."""
    row = next((row for row in effects if row.se_kind == "welch" and row.std_error), None)
    if row is None or effects.rounded or not row.df or row.std_error is None:
        return {}
    n, m, V = (row.n_arm or 0) - 1, (row.n_control or 0) - 1, row.std_error**2
    a, b, c = 1 / n + 1 / m, -2 * V / m, V**2 / m - V**2 / row.df
    root = math.sqrt(max(b * b - 4 * a * c, 0.0))
    shares = [(-b + sign * root) / (2 * a) for sign in (-1, 1)]
    told = told_by(effects)
    found = {}
    for arm, records, parts in ((row.arm, n + 1, shares), (row.control, m + 1, [V - u for u in shares])):
        mean = told[row.outcome, arm].mean
        found[arm] = [records * (records - 1) * part + records * mean**2 for part in parts]
    return found


def score(claims: Sequence[Claim], rows: pd.DataFrame) -> Score:
    """Hold claims against the people."""
    guess = float(rows.loc[rows["amount"] > 0, "amount"].median())
    found = Score()
    for claim in claims:
        there = rows.iloc[claim.first : claim.last]
        amounts = there.loc[(there["arm"] == claim.arm) & (there["amount"] > 0), "amount"]
        found += held(claim.amount, amounts, guess)
    return found


def only_ones(answers: Sequence[Answer]) -> Iterator[Claim]:
    """The amount of the only one who has spent anything: the other arm's level is zero, and this one's is its error.

    Of one value a among n, the mean is a/n and so is its error. To be right about this takes no second answer.
    """
    for answer in answers:
        row = next((row for row in answer.effects if row.estimator == "difference" and row.std_error), None)
        if row is None or row.estimate is None or row.control_level is None or row.std_error is None:
            continue
        levels = {row.control: (row.n_control or 0, row.control_level)}
        levels[row.arm] = row.n_arm or 0, row.control_level + row.estimate
        for arm, (n, level) in levels.items():
            others = [abs(mean) for other, (_, mean) in levels.items() if other != arm]
            if max(others) < 0.01 * row.std_error and 0.9 < level / row.std_error < 1.1:
                yield Claim(arm, 0, answer.seen, n * row.std_error)


# Replicates, with the key and every identifier.


def sparse_solution(trial: fa.Trial, rows: pd.DataFrame, key: bytes) -> dict[int, float]:
    """Amounts by person: the non-negative solution of the replicates' equations with the smallest sum."""
    from scipy.optimize import linprog

    found: dict[int, float] = {}
    for arm, tally in zip(trial.plan.arms, arms_of(trial.tallies), strict=True):
        replicates: Any = tally.tallies["replicates"]
        F = tally.frame.F
        sums = F[0, -1] * replicates.totals[:, 0] + F[-1, -1] * replicates.totals[:, -1]
        who = rows.loc[rows["arm"] == arm, "who"].to_numpy()
        hashes = hash_identifiers(pa.array([str(each) for each in who]), Secret(key).of_units(trial.plan.fingerprint))
        W = weights(hashes, len(sums), "poisson").astype(float)
        solved = linprog(np.ones(len(who)), A_eq=W.T, b_eq=sums, bounds=(0, None), method="highs")
        if solved.x is not None:
            found |= {int(w): float(x) for w, x in zip(who, solved.x, strict=True) if x > 0.005}
    return found


# Others.


def whale(effects: Effects, arm: str = "treatment") -> float:
    """The largest amount, from one answer: where one value makes nearly all of the spread, it is n times the error."""
    row: Effect = next(row for row in effects if row.estimator == "difference" and row.std_error)
    return float(((row.n_arm if arm == row.arm else row.n_control) or 0) * (row.std_error or 0.0))


def last_user(rows: pd.DataFrame, user: pd.DataFrame, *, defended: bool) -> float | None:
    """A user with many records comes alone between two answers: their sum, if there is a second answer."""
    trial = fa.Trial(plan_of(unit="who"), key=KEY)
    trial.fold(rows)
    before = trial.told() if defended else effects_of(trial, rounded=False)
    trial.fold(user)
    after = trial.told() if defended else effects_of(trial, rounded=False)
    if after.to_json() == before.to_json():
        return None
    now, then = (told_by(each)["amount", user["arm"].iloc[0]] for each in (after, before))
    return now.records * now.mean - then.records * then.mean


def two_plans(rows: pd.DataFrame, *, defended: bool) -> float:
    """The same records under two plans, one of which drops a record without a covariate: what the difference tells."""
    with_age = plan_of(covariates=["years"], drop_limit=0.05)
    one, two = (told_by(effects_of(folded(plan, rows), defended)) for plan in (plan_of(), with_age))
    arm = rows.loc[rows["years"].isna(), "arm"].iloc[0]
    now, then = one["amount", arm], two["amount", arm]
    return now.records * now.mean - then.records * then.mean


def multiples(effects: Effects, factors: Sequence[float]) -> tuple[float, float]:
    """The control's mean as outcomes that are multiples of one another narrow it down: its middle and half width.

    Each is rounded to a step of its own, a quarter of its error, which the told error gives up to two digits.
    """
    low, high = -np.inf, np.inf
    for row in effects:
        if row.estimator != "difference" or row.control_level is None or row.std_error is None:
            continue
        factor = factors[int(row.outcome.removeprefix("y"))]
        half = row.std_error / math.sqrt(2) / 8 * 1.1 if effects.rounded else 1e-9
        low = max(low, (row.control_level - half) / factor)
        high = min(high, (row.control_level + half) / factor)
    return (low + high) / 2, (high - low) / 2


def silences(amounts: Floats, *, by_dominance: bool) -> list[int]:
    """After how many people answers come. A gate that withholds what one value dominates tells of it by its silence."""
    times, last, biggest, total = list[int](), None, 0.0, 0.0
    for n, amount in enumerate(amounts.tolist(), 1):
        biggest, total = max(biggest, amount), total + amount
        dominated = by_dominance and total > 0 and biggest > 0.1 * total
        census = Census({"a": [n - n // 2], "b": [n // 2]})
        if may_tell(fa.Privacy(), census, last) and not dominated:
            times.append(n)
            last = census
    return times


# Liveness: when answers come.


class Course(NamedTuple):
    """After what share of the records the first answer comes, how many come, the longest wait, and the last one."""

    first: float
    answers: int
    widest: float
    last: float


def course(arm: NDArray[np.int64], unit: NDArray[np.int64], groups: int = 128) -> Course | None:
    """Both doors, record by record: written after a cohort of distinct units, told by groups that have grown."""
    group = np.random.default_rng(1).integers(0, groups, int(unit.max()) + 1)[unit]
    cells, last, since, times = np.zeros((2, groups), int), None, set[int](), list[int]()
    for n, (a, u, g) in enumerate(zip(arm.tolist(), unit.tolist(), group.tolist(), strict=True), 1):
        cells[a, g] += 1
        since.add(u)
        if len(since) >= COHORT:  # it is written
            since.clear()
            census = Census(dict(zip("ab", cells.tolist(), strict=True)), by_group=True)
            if may_tell(fa.Privacy(), census, last):
                times.append(n)
                last = census
    if not times:
        return None
    ends = [0, *times, len(arm)]
    widest = max(b - a for a, b in pairwise(ends[1:]))
    return Course(times[0] / len(arm), len(times), widest / len(arm), times[-1] / len(arm))


def arrivals(units: int, rng: np.random.Generator, *, kind: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Arm and unit of each record, in the order in which they come."""
    share = 0.01 if kind == "an arm of 1 %" else 0.5
    who = np.arange(units)
    if kind == "returning units":
        who = rng.permutation(np.repeat(who, 5))
    if kind == "one whale":
        who = rng.permutation(np.concatenate([who, np.zeros(units // 2, int)]))
    return (rng.random(units) < share).astype(np.int64)[who], who.astype(np.int64)


# The page.


def answers_table(trials: int, seed: int) -> tuple[list[list[str]], float, dict[str, Score]]:
    """Whoever sees all answers, before and after; and how much wider told intervals are."""
    rows, widths, total = [], list[float](), {"before": Score(), "after": Score()}
    cells = [(share, batch) for share in SHARES for batch in BATCHES]
    for share, batch in counted(cells, len(cells), "answers"):
        found = {"before": Score(), "after": Score()}
        buyers = given = 0
        for trial in range(trials):
            who = people(PEOPLE, share, np.random.default_rng([seed, trial, round(1000 * share)]))
            buyers += int((who["amount"] > 0).sum())
            for name, defended in (("before", False), ("after", True)):
                answers = polled(plan_of(), who, batch, defended=defended)
                found[name] += score(list(differenced(answers)), who)
                given += defended * len(answers)
            widths.append(_width(effects_of(folded(plan_of(), who), True), effects_of(folded(plan_of(), who), False)))
        for name in found:
            total[name] += found[name]
        before, after = found["before"], found["after"]
        rows.append(
            [
                f"{100 * share:g} %",
                f"{batch:,}",
                f"{buyers:,}",
                *(f"{each:,}" for each in before),
                *(f"{each:,}" for each in after),
            ]
        )
    return rows, float(np.mean(widths)), total


def _width(told: Effects, exact: Effects) -> float:
    """How much wider the told interval is."""
    wide, narrow = (next(row for row in each if row.se_kind == "welch") for each in (told, exact))
    assert wide.ci_upper is not None
    assert wide.ci_lower is not None
    assert narrow.ci_upper is not None
    assert narrow.ci_lower is not None
    return (wide.ci_upper - wide.ci_lower) / (narrow.ci_upper - narrow.ci_lower) - 1


STATES: dict[str, dict[str, Any]] = {
    "moments, as in memory": {"moments": {}, **WITH_LEVELS},
    "moments, as saved: pooled": {"moments": {}, **WITH_LEVELS},
    "sums by arm (default)": WITH_LEVELS,
    "sums, 128 groups of units": {"unit": "who", **WITH_LEVELS},
    "sums, 16 groups of units": {"unit": "who", "expected_units": 320, **WITH_LEVELS},
}


def states_table(seed: int) -> list[list[str]]:
    """Whoever sees one saved state in the clear."""
    rows = []
    for name, settings in counted(STATES.items(), len(STATES), "states"):
        plan = plan_of(**settings)
        found, size, error = [], 0, 0.0
        for share in (1.0, *SHARES):
            who = people(PEOPLE, share, np.random.default_rng([seed, 9]))
            trial = folded(plan, who)
            if "memory" not in name:
                trial.fix()
            size = len(trial.exchanged())
            found.append(audit(plan, trial.tallies))
            if share == 1:
                error = _adjusted_error(plan, who, saved="memory" not in name)
        rows.append([name, f"{size:,}", f"{error:.4f}", *(f"{each.solved:,}" for each in found)])
    return rows


def _adjusted_error(plan: fa.Plan, who: pd.DataFrame, *, saved: bool) -> float:
    """The error of an effect adjusted for covariates whose levels matter as much as all else together."""
    rng = np.random.default_rng(3)
    effects = {name: dict(zip(levels, rng.normal(size=len(levels)), strict=True)) for name, levels in LEVELS.items()}
    predicted = sum(who[name].map(effect) for name, effect in effects.items()) / 2
    trial = folded(plan, who.assign(amount=predicted + rng.normal(size=len(who))))
    if saved:
        trial.fix()
    estimator = "adjusted" if plan.moments is None else "regression"
    row = next(row for row in effects_of(trial, False) if row.estimator == estimator and row.std_error)
    assert row.std_error is not None
    return row.std_error


def others_table(trials: int, seed: int) -> list[list[str]]:
    """The other attacks: found, of how many, with the defence off and on."""
    found: dict[str, list[list[int]]] = {}

    def note(attack: str, off: tuple[int, int], on: tuple[int, int]) -> None:
        found.setdefault(attack, []).append([*off, *on])

    for trial in counted(range(trials), trials, "others"):
        rng = np.random.default_rng([seed, 77, trial])
        few = people(1200, 0.02, rng)
        buyers = dict(zip(few["who"], few["amount"], strict=True))
        resampled = folded(plan_of(unit="who", moments={"bootstrap": 200}), few)
        of = int((few["amount"] > 0).sum())
        hits = [
            sum(abs(buyers[w] - a) < 0.01 for w, a in sparse_solution(resampled, few, key).items())
            for key in (KEY, bytes(16))
        ]
        note("replicates, three times as many people, with the key; without", (hits[0], of), (hits[1], of))

        crowd = people(2000, 0.5, rng)
        user = crowd.sample(130, random_state=trial).assign(who=10**6, arm="treatment")
        sums = [last_user(crowd, user, defended=on) for on in (False, True)]
        note("one user with 130 records alone between two answers", *[_hit(s, user["amount"].sum()) for s in sums])

        crowd["years"] = rng.normal(40, 10, len(crowd))
        crowd.loc[crowd.index[crowd["amount"] > 0][0], "years"] = np.nan
        target = float(crowd.loc[crowd["years"].isna(), "amount"].iloc[0])
        note(
            "two plans, one of which drops a record",
            *[_hit(two_plans(crowd, defended=on), target) for on in (False, True)],
        )

        sparse = people(PEOPLE, 0.01, rng)
        alone = [score(list(only_ones(polled(plan_of(), sparse, 50, defended=on)))[:1], sparse) for on in (False, True)]
        note("the only one of an arm with an amount, from one answer", *[(each.near, each.claims) for each in alone])

        rich = people(1000, 0.2, rng)
        large = float(10 ** rng.uniform(4.5, 5.5))
        rich.loc[0, "arm"], rich.loc[0, "amount"] = "treatment", large
        sizes = [whale(effects_of(folded(plan_of(), rich), on)) for on in (False, True)]
        note("one amount that outweighs all, from one answer", *[_hit(each, large) for each in sizes])

        factors = np.arange(1, 11) * 1.0
        many = crowd.assign(**{f"y{i}": crowd["amount"] * f for i, f in enumerate(factors)})
        several = folded(plan_of(outcomes=[f"y{i}" for i in range(10)]), many)
        mean = crowd.loc[crowd["arm"] == "control", "amount"].mean()
        half = [multiples(effects_of(several, on), factors.tolist()) for on in (False, True)]
        sold = (crowd["arm"] == "control").sum()
        # Whether the arm's sum is known as well as to a tenth of a median amount, so that a difference would tell one.
        good = [(int(abs(m - mean) * sold < 2.0 and h * sold < 2.0), 1) for m, h in half]
        note("ten outcomes that are multiples of one another", good[0], good[1])

        calm = rng.lognormal(3, 1, 2000)
        loud = calm.copy()
        loud[rng.integers(500, 1500)] = 10_000.0
        silent = [silences(calm, by_dominance=on) != silences(loud, by_dominance=on) for on in (True, False)]
        note("a large amount, from when answers come", *[(int(s), 1) for s in silent])
    return [
        [attack, *(f"{sum(r[at] for r in rows):,} of {sum(r[at + 1] for r in rows):,}" for at in (0, 2))]
        for attack, rows in found.items()
    ]


def _hit(claim: float | None, truth: float) -> tuple[int, int]:
    return int(claim is not None and abs(claim - truth) <= NEAR * truth), 1


def liveness_table(seed: int) -> list[list[str]]:
    """When answers come, and whether the last one does."""
    rows = []
    for kind in ("one record each", "an arm of 1 %", "returning units", "one whale"):
        for units in (200, 1000, 100_000):
            found = course(*arrivals(units, np.random.default_rng([seed, 5, units]), kind=kind))
            told = ["never", "0", "–", "–"]
            if found is not None:
                told = [
                    f"{100 * found.first:.1f} %",
                    f"{found.answers:,}",
                    f"{100 * found.widest:.1f} %",
                    f"{100 * found.last:.1f} %",
                ]
            rows.append([kind, f"{units:,}", *told])
    return rows


_COLUMNS = ("claims", "exact", "near", "guess")


def kept_table(seed: int) -> list[list[str]]:
    """By kind of number that is kept, how many people's values the audit tells exactly, and to within 10 %."""
    rows: dict[str, list[str]] = {}
    for n in KEPT_OF:
        for kind, found in _told_by_kind(n, np.random.default_rng([seed, n])).items():
            exact, near = (sum(getattr(each, what) for each in found) for what in ("exact", "near"))
            rows.setdefault(kind, [kind]).append(f"{exact:,} / {near:,}")
    return list(rows.values())


def _told_by_kind(n: int, rng: np.random.Generator) -> dict[str, Sequence[Finding]]:
    """What the audit finds in each kind of number, of trials of the same people, with a record each."""
    who = people(n, 1.0, rng).assign(age=rng.normal(50, 12, n).round(), time=rng.exponential(300, n).round())
    who["event"] = (who["time"] < 365).astype(float)
    by_unit: dict[str, Any] = {"unit": "who", "outcomes": ["amount"], "covariates": []}
    exits = {"kind": "survival", "time": "time", "event": "event", "until": 365, "bins": 73}
    plans = {
        "sums by arm and group, 128 groups": plan_of(**by_unit),
        "the same, with `expected_units`": plan_of(**by_unit, expected_units=n),
        "baseline sums by arm": plan_of(**by_unit, expected_units=n, baseline=["age", WITH_LEVELS["covariates"][0]]),
        "histogram of exits by arm and group": plan_of(**{**by_unit, "outcomes": [exits]}, expected_units=n),
    }
    found: dict[str, Sequence[Finding]] = {}
    for kind, plan in plans.items():
        told = audit(plan, folded(plan, who).tallies).findings
        if "baseline" in kind:
            told = [each for each in told if each.outcome.endswith("(baseline)")]
        found[kind] = [each for each in told if "histogram" not in kind or each.attack == "histograms"]
    site = plan_of(**by_unit, federated="sums", privacy={"cohort": CELL, "smallest_cell": CELL})
    sent = site_mode_of(site).from_site(folded(site, who))
    coordinator = site_mode_of(site).site(ServerShare.of(site), sent).trial
    found["sums of one site, groups of at least 10 units"] = audit(site, coordinator.tallies).findings
    return found


def findings(trials: int, seed: int) -> Findings:
    """The tables and what they say."""
    answers, width, total = answers_table(trials, seed)
    states, others, live = states_table(seed), others_table(trials, seed), liveness_table(seed)
    details = "\n\n".join(
        [
            "## One saved state, in the clear",
            markdown_table(
                ["state", "bytes", "error of the adjusted effect", "all have it", *(f"{100 * s:g} %" for s in SHARES)],
                states,
                1,
            ),
            "## What each kept number reveals",
            filled(
                f"""Every one of {", ".join(f"{n:,}" for n in KEPT_OF)} people has an amount, an age and a time. How
                many of their values the audit tells exactly / to within 10 %, from one state in the clear. An attacker
                who also knows all others of a cell learns the last one whatever is kept."""
            ),
            markdown_table(["kept", *(f"{n:,} people" for n in KEPT_OF)], kept_table(seed), 1),
            "## Other attacks",
            markdown_table(["attack", "defence off", "on"], others, 1),
            "## What a site sends",
            filled(SITES),
            markdown_table(
                ["attack", *(f"{each}: {what}" for each in ("off", "on") for what in _COLUMNS)],
                site_table(trials, seed),
                1,
            ),
            filled(STILL),
            "## When answers come",
            markdown_table(
                ["units", "number", "first after", "answers", "longest wait", "last one before the end"], live, 1
            ),
        ]
    )
    before, after = total["before"], total["after"]
    return Findings(
        "What answers and states give away",
        f"""We simulated {trials} trials of each kind, with {PEOPLE:,} people in two arms. A share of them has spent an
        amount (log-normal, to the cent), and they arrive in batches of 50, 250 or 1,000.

        The first table is about answers. An attacker asks for effects after every batch and subtracts each answer from
        the next. “Before” means without the defences: exact answers, one for every {COHORT} records. “After” means with
        them: levels are rounded to a quarter of their error, and an answer comes after growth by {COHORT} records and
        {100 * GROWTH:g} %, with at least {CELL} new ones in each arm or none. In each claim, the attacker says how much
        somebody who came to an arm between two answers has spent. A claim is exact if it is right to the cent, and near
        if it is within 10 %. “Guess” is how many claims would be near if each were the median amount.

        The second table is about states of {PEOPLE:,} people with four categorical covariates (8, 6, 5 and 4 levels,
        each 0.6 times as common as the one before). It shows how many people could be solved for, exactly or to within
        10 %, by someone who reads the state in the clear. Saved states are encrypted: this is what the key
        protects.""",
        ["share", "batch", "buyers", *(f"{each}{what}" for each in ("before: ", "after: ") for what in _COLUMNS)],
        answers,
        f"""Without the defences, {before.exact:,} of {before.claims:,} claims are right to the cent. With them,
        {after.exact:,} of {after.claims:,} are, and {after.near:,} are within 10 %, where guessing gives
        {after.guessed:,}. The intervals shown are {100 * width:.2f} % wider than exact ones.""",
        left=0,
        details=details,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=20, seed=1)
    publish(findings(options.trials, options.seed), NAME, options)

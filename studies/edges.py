"""Do numbers stay right, or come with a reason, at the extremes: sizes, scales, levels, weights, batches?

Random plans and data sets of all kinds that cost digits. Each is folded in several ways, into sums or moments, and
compared with the same analysis in extended precision on kept rows. A fault is a warning that leaks, a number that is
none, a number missing without a reason, or a difference from the one batch or from the kept rows.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.from_sums import SumsRead
from foldaway.inference.levels import difference_of
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.plan import Bootstrap
from foldaway.tallies import grouped_of
from studies.findings import Findings, counted, options_of, publish

NAME = "edges"
KEY = bytes(range(16))
ARMS = ("a", "b", "c")
GROUPS = 16

# How far numbers may be apart, in standard errors.
MOST = {"ordinary": 1e-9, "hard": 1e-7}

Long = NDArray[np.longdouble]
Columns = dict[str, Any]


# Data sets.


@dataclass(frozen=True)
class Case:
    """A plan, its records, and whether they are such as cost digits."""

    seed: int
    plan: fa.Plan
    data: Columns
    hard: bool
    population: bool

    @property
    def n(self) -> int:
        """The number of records."""
        return len(self.data["arm"])

    def part(self, start: int, stop: int, step: int = 1) -> Columns:
        """Some of the records."""
        return {name: column[start:stop:step] for name, column in self.data.items()}


class Drawn(NamedTuple):
    """A column, and whether it costs digits."""

    values: Floats
    hard: bool


def covariate(rng: np.random.Generator, n: int, before: Sequence[Floats]) -> Drawn:
    """A covariate, such as there are and such as there should not be."""
    kind = rng.integers(10)
    normal = rng.normal(size=n)
    if kind == 0:
        return Drawn((rng.random(n) < rng.choice([0.5, 0.02])).astype(float), False)
    if kind == 1:
        return Drawn(10.0 ** rng.integers(-30, 30) * (rng.normal() + normal), False)
    if kind == 2:
        return Drawn(10.0 ** rng.integers(3, 9) + normal, True)
    if kind == 3 and before:  # nearly another one
        return Drawn(before[-1] + rng.choice([1e-3, 1e-6]) * np.std(before[-1]) * normal, True)
    if kind == 4 and before:  # quite another one
        return Drawn(rng.choice([1.0, -3.0]) * before[int(rng.integers(len(before)))], False)
    if kind == 5 and before and 1e-15 < np.abs(before[-1]).max() < 1e15:
        return Drawn(before[-1] ** 2, True)
    if kind == 6:
        return Drawn(np.full(n, rng.choice([0.0, 0.1, -1e9])), False)
    if kind == 7:
        return Drawn(rng.lognormal(0, 3, n), True)
    if kind == 8:
        return Drawn(np.where(rng.random(n) < 0.03, 100 + normal, 0.0), False)
    return Drawn(5 + normal, False)


def outcome(rng: np.random.Generator, x: Sequence[Floats], treated: Floats) -> Drawn:
    """An outcome of any level, scale and kind."""
    n = len(treated)
    kind = rng.integers(9)
    y = treated * rng.choice([0.0, 0.3]) + rng.normal(size=n)
    for column in x:
        spread = np.std(column)
        y += (column - column.mean()) * (rng.normal() / spread if spread else 0.0)
    if kind == 0:
        return Drawn((y > 0.5).astype(float), False)
    if kind == 1:
        return Drawn(10.0 ** rng.integers(-35, 30) * y, False)
    if kind == 2:
        return Drawn(rng.choice([-1, 1]) * 10.0 ** rng.integers(3, 12) + y, True)
    if kind == 3:
        return Drawn(np.exp(rng.choice([1.0, 3.0]) * y / max(1.0, float(np.std(y)))), True)
    if kind == 4:
        return Drawn(np.full(n, rng.choice([0.0, 0.1, 1e12, -7.0])), False)
    if kind == 5:
        return Drawn(y * 10.0 ** rng.choice([-60, -120, -300, -312]), True)
    if kind == 6:
        return Drawn(np.where(rng.random(n) < 0.05, rng.lognormal(3, 1, n), 0.0), False)
    return Drawn(3 + y, False)


def observation_weights(rng: np.random.Generator, n: int) -> Drawn | None:
    """Weights, if any, from harmless to absurd."""
    match rng.integers(8):
        case 0:
            return Drawn(rng.uniform(0.5, 2, n), False)
        case 1:
            return Drawn(10.0 ** rng.uniform(-3, 3, n), True)
        case 2:
            return Drawn(10.0 ** rng.integers(-35, 35) * rng.uniform(0.5, 2, n), False)
        case 3:
            return Drawn(np.where(np.arange(n) == rng.integers(n), 10.0 ** rng.integers(3, 39), 1.0), True)
        case _:
            return None


def draw(seed: int, most: int = 400) -> Case:
    """A random case of at most so many records."""
    rng = np.random.default_rng([seed, 14])
    n = int(rng.integers(1, 12)) if rng.random() < 0.15 else int(np.exp(rng.uniform(np.log(8), np.log(most))))
    arms = ARMS[: int(rng.choice([2, 2, 3]))]
    shares = np.full(len(arms), 1 / len(arms)) if rng.random() < 0.7 else rng.dirichlet(np.full(len(arms), 20.0))
    keep: Literal["sums", "moments"] = "sums" if rng.choice(["sums", "moments"]) == "sums" else "moments"
    unit = np.sort(rng.integers(0, max(1, n // int(rng.choice([1, 1, 4]))), n)) if rng.random() < 0.4 else np.arange(n)
    arm = rng.choice(len(arms), n, p=shares)[unit]  # a unit is in one arm
    hard = False
    x: list[Floats] = []
    y: list[Floats] = []
    for _ in range(int(rng.integers(0, 5))):
        drawn = covariate(rng, n, x)
        x.append(np.clip(drawn.values, -1e39, 1e39))
        hard |= drawn.hard
    for _ in range(int(rng.choice([1, 1, 2]))):
        drawn = outcome(rng, x, (arm == 1).astype(float))
        y.append(drawn.values)
        hard |= drawn.hard
    data: Columns = {"arm": np.array(arms)[arm]}
    data |= {f"x{i}": column for i, column in enumerate(x)} | {f"y{i}": column for i, column in enumerate(y)}
    settings: dict[str, Any] = {"weight": None, "unit": None}
    if (weight := observation_weights(rng, n)) is not None:
        data["w"], settings["weight"], hard = weight.values, "w", hard or weight.hard
    if rng.random() < 0.5:
        data["unit"], settings["unit"] = np.char.add("u", unit.astype(str)), "unit"
        settings |= {"records_per_unit": "together"} if keep == "moments" else {"expected_units": 2 * 10 * GROUPS}
        if keep == "moments" and rng.random() < 0.05:
            settings["moments"] = fa.Moments(bootstrap=Bootstrap(replicates=20))
    names = [name for name in data if name.startswith("x")]
    outcomes = [name for name in data if name.startswith("y")]
    if names and keep == "sums" and rng.random() < 0.3:
        slope = {name: float(1 / (np.std(data[name]) or 1.0)) for name in names}
        center = {name: float(np.mean(data[name])) for name in names}
        settings["coefficients"] = fa.Coefficients(center=center, slopes=dict.fromkeys(outcomes, slope))
    if keep == "moments":
        settings.setdefault("moments", fa.Moments())
    plan = fa.Plan(
        name="edges",
        arm="arm",
        arms=dict(zip(arms, (shares / shares.sum()).tolist(), strict=True)),
        outcomes=outcomes,
        covariates=names,
        **settings,
    )
    few = n < 8 * (2 + len(names)) * len(arms)  # records hardly more than coefficients
    return Case(seed, plan, data, hard or few, population=bool(rng.random() < 0.5))


# Ways to fold them.


def cuts(case: Case, rng: np.random.Generator, pieces: int) -> list[int]:
    """Where to cut the records, never through a unit."""
    places = np.arange(1, case.n)
    if "unit" in case.data:
        unit = case.data["unit"]
        places = places[unit[1:] != unit[:-1]]
    chosen = rng.choice(places, min(pieces - 1, len(places)), replace=False) if len(places) else places
    return [0, *sorted(chosen.tolist()), case.n]


def folded(case: Case, at: Sequence[int], trial: fa.Trial | None = None) -> fa.Trial:
    """The records between the first and the last cut, in a batch from each to the next."""
    trial = trial or fa.Trial(case.plan, key=KEY)
    for start, stop in pairwise(at):
        trial.fold(case.part(start, stop))
    return trial


def _backwards(case: Case, at: Sequence[int]) -> fa.Trial:
    last = list(reversed(at))
    trial = fa.Trial(case.plan, key=KEY)
    for stop, start in pairwise(last):
        trial.fold({name: column[::-1] for name, column in case.part(start, stop).items()})
    return trial


def _shards(case: Case, at: Sequence[int]) -> fa.Trial:
    parts = [folded(case, [start, stop]) for start, stop in pairwise(at)]
    whole = parts[len(parts) // 2]
    for part in parts[: len(parts) // 2] + parts[len(parts) // 2 + 1 :]:
        whole = whole + part
    return whole


def _handed_on(case: Case, at: Sequence[int]) -> fa.Trial:
    """As workers of one run exchange it: what is saved for others fixes coefficients and joins rare levels."""
    trial = fa.Trial(case.plan, key=KEY)
    for start, stop in pairwise(at):
        trial = fa.Trial.loads(folded(case, [start, stop], trial).exchanged(), case.plan, key=KEY)
    return trial


def ways(case: Case) -> dict[str, Callable[[], fa.Trial]]:
    """Two other ways than one batch."""
    rng = np.random.default_rng([case.seed, 15])
    some = cuts(case, rng, int(rng.integers(2, 9)))
    every = {
        "batches": lambda: folded(case, some),
        "backwards": lambda: _backwards(case, some),
        "shards": lambda: _shards(case, some),
        "handed on": lambda: _handed_on(case, some),
    }
    if case.n <= 40:
        every["one by one"] = lambda: folded(case, cuts(case, rng, case.n))
    return {way: every[way] for way in rng.permutation(list(every))[:2].tolist()}


# The same on kept rows, with more digits.


def kept_rows(case: Case) -> dict[tuple[str, str, str, str], tuple[float, float | None]]:
    """Estimates and, where they are at hand, standard errors by outcome, arm, estimator and kind."""
    plan, data = case.plan, case.data
    code = np.array([list(plan.arms).index(name) for name in data["arm"]])
    w = np.asarray(data.get("w", np.ones(case.n)), dtype=np.longdouble)
    x = [_about(data[name], w) for name in plan.covariates]
    found: dict[tuple[str, str, str, str], tuple[float, float | None]] = {}
    for name in (outcome.name for outcome in plan.outcomes):
        y = data[name].astype(np.longdouble) - np.longdouble(data[name][0])
        for a, arm in enumerate(list(plan.arms)[1:], 1):
            if not np.any(code == 0) or not np.any(code == a):
                continue
            if plan.moments is not None:
                for estimator in ("difference", "regression", "interacted"):
                    for kind, numbers in _regressions(case, estimator, code, a, x, y, w).items():
                        found[name, arm, estimator, kind] = numbers
                continue
            estimate, variance = _welch(code, a, y, w)
            found[name, arm, "difference", "welch"] = estimate, variance
            if plan.unit is not None:
                found[name, arm, "difference", "jackknife"] = estimate, _by_group(case, code, a, y, w)
            if plan.covariates and plan.coefficients is None:
                own = w * _counted(code, w, len(plan.arms))
                effect = _regressions(case, "regression", code, a, x, y, own)["classical"][0]
                found |= {(name, arm, "adjusted", kind): (effect, None) for kind in ("welch", "jackknife")}
    return found


def _about(column: Floats, w: Long) -> Long:
    """About its mean, at unit length; zeros if it is constant, or as good as that."""
    long = column.astype(np.longdouble) - np.longdouble(column[0])
    about: Long = long - (w @ long) / w.sum()
    length = np.sqrt(about @ about)
    return about / length if length > 1e-13 * np.sqrt(np.sum(column.astype(np.longdouble) ** 2)) else 0 * about


def _regressions(
    case: Case, estimator: str, code: NDArray[np.intp], arm: int, x: Sequence[Long], y: Long, w: Long
) -> dict[str, tuple[float, float | None]]:
    n, arms, names = case.n, len(case.plan.arms), case.plan.covariates if x else ()
    dummies = [(code == a).astype(np.longdouble) for a in range(arms)]
    columns = list(dummies)
    contrast = [float(a == arm) - float(a == 0) for a in range(arms)]
    if estimator == "regression":
        columns += x
        contrast += [0.0] * len(x)
    if estimator == "interacted":  # the covariates are about their mean over all records
        columns += [column * dummy for dummy in dummies for column in x]
        contrast += [0.0] * (arms * len(x))
    root = np.sqrt(w)
    # Thirteen digits of a column as it came, and ten of what its mean leaves of it, are counted on.
    levels = [float(np.linalg.norm(case.data[name]) / (np.std(case.data[name]) * n**0.5 or 1)) for name in names]
    least = [0.0] * arms + [1e-13 * level for level in levels] * (arms if estimator == "interacted" else 1)
    Q, R, used = _qr(np.column_stack(columns) * root[:, None], least)
    response = y * root
    coef_q = Q.T @ response
    residuals = response - Q @ coef_q
    extra = Q.T @ residuals
    residuals = residuals - Q @ extra
    direction = _solve_lower(R.T, np.array(contrast, dtype=np.longdouble)[used])  # R⁻ᵀ c
    estimate, df = float(direction @ (coef_q + extra)), n - len(used)
    if df < 1:
        return {"classical": (estimate, None)}
    weights = Q @ direction
    scores = weights * residuals
    hc0 = float(np.sqrt(scores @ scores))
    classical = float(np.sqrt(direction @ direction * (residuals @ residuals) / df))
    found: dict[str, tuple[float, float | None]] = {"classical": (estimate, classical), "HC0": (estimate, hc0)}
    found["HC1"] = estimate, hc0 * math.sqrt(n / df)
    if estimator == "interacted" and case.population:
        return dict.fromkeys(found, (estimate, None))
    if estimator == "difference":
        each = np.bincount(code, minlength=arms).astype(np.longdouble)
        factor = each / np.maximum(each - 1, 1)
        found["HC2"] = estimate, float(np.sqrt(np.sum(scores**2 * factor[code])))
    if case.plan.unit is not None:
        number = np.unique(case.data["unit"], return_inverse=True)[1]
        by_unit = np.zeros(number.max() + 1, dtype=np.longdouble)
        np.add.at(by_unit, number, scores)
        found["CR0"] = estimate, float(np.sqrt(by_unit @ by_unit))
    return found


def _qr(columns: Long, least: Sequence[float]) -> tuple[Long, Long, list[int]]:
    """Q, R and the columns of which more than the least share adds a direction, by Gram–Schmidt done twice."""
    Q: list[Long] = []
    R, used = np.zeros((columns.shape[1],) * 2, np.longdouble), []
    for j, column in enumerate(columns.T):
        rest, length = column.copy(), np.sqrt(column @ column)
        for _ in range(2):
            for i, q in enumerate(Q):
                share = q @ rest
                R[i, len(Q)] += share
                rest -= share * q
        left = np.sqrt(rest @ rest)
        if left > max(1e-10, least[j]) * length:
            R[len(Q), len(Q)] = left
            Q.append(rest / left)
            used.append(j)
        else:
            R[:, len(Q)] = 0
    r = len(used)
    return np.array(Q).T.reshape(len(columns), r), R[:r, :r], used


def _solve_lower(L: Long, right: Long) -> Long:
    solution = np.zeros_like(right)
    for i in range(len(right)):
        solution[i] = (right[i] - L[i, :i] @ solution[:i]) / L[i, i]
    return solution


def _counted(code: NDArray[np.intp], w: Long, arms: int) -> Long:
    """How much each record counts for the slopes: all alike if arms are nearly equal, else by Σw²/(Σw)³ of its arm."""
    weight, mass = (np.array([each[code == a].sum() for a in range(arms)]) for each in (w, w**2))
    if weight.min() >= np.longdouble(0.8 - 1e-9) * weight.max():
        return np.ones(len(code), dtype=np.longdouble)
    there = np.where(weight > 0, weight, 1)
    times = np.array([arms - 1, *[1] * (arms - 1)]) * (mass / there) * (weight.max() / there) ** 2
    counted: Long = (times / times.max())[code]
    return counted


def _welch(code: NDArray[np.intp], arm: int, y: Long, w: Long) -> tuple[float, float | None]:
    means, variance = [], np.longdouble(0)
    for a in (arm, 0):
        here = code == a
        n, total = int(here.sum()), w[here].sum()
        means.append(w[here] @ y[here] / total)
        if n < 2:
            variance = np.longdouble(np.nan)
            continue
        variance += n / np.longdouble(n - 1) * np.sum(w[here] ** 2 * (y[here] - means[-1]) ** 2) / total**2
    return float(means[0] - means[1]), float(np.sqrt(variance))


def _by_group(case: Case, code: NDArray[np.intp], arm: int, y: Long, w: Long) -> float | None:
    from foldaway.numerics.kernels.siphash import hash_identifiers

    group = hash_identifiers(pa.array(case.data["unit"].tolist()), Secret(KEY).of_groups()) % np.uint64(GROUPS)
    without = []
    for g in range(GROUPS):
        means = []
        for a in (arm, 0):
            here = (code == a) & (group != g)
            if not here.any():
                return None
            means.append(w[here] @ y[here] / w[here].sum())
        without.append(means[0] - means[1])
    away = np.array(without) - np.mean(without)
    return float(np.sqrt((GROUPS - 1) / np.longdouble(GROUPS) * (away @ away)))


# What is wrong with them.

_NUMBERS = ("estimate", "std_error", "statistic", "p_value", "ci_lower", "ci_upper", "control_level")
_RELATIVE = ("relative", "relative_std_error", "relative_ci_lower", "relative_ci_upper")


def faults_of(row: Effect) -> Iterator[str]:
    """Numbers that are none, and numbers missing without a reason."""
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, float) and not math.isfinite(value) and not (name == "df" and value == math.inf):
            yield f"{name} is {value}"
    reasons = {"why": ("std_error", "p_value", "ci_lower", "df"), "relative_why": _RELATIVE, "anytime_why": ()}
    for reason, names in reasons.items():
        missing = [name for name in names if getattr(row, name) is None]
        if missing and getattr(row, reason) is None:
            yield f"no {missing[0]} and no {reason}"
    if row.reliable != (row.why is None):
        yield "reliable, with a reason why not"
    if row.anytime_why is None and row.anytime_ci_lower is None:
        yield "no anytime interval and no reason"


def apart(one: Effect, other: Effect) -> float:
    """How far two rows are apart, in standard errors; infinite if one of them is withheld."""
    if (one.why, one.relative_why) != (other.why, other.relative_why):
        return math.inf
    if one.std_error is None or other.std_error is None:
        return 0.0
    pairs = [("estimate", one.std_error), ("std_error", one.std_error)]
    if one.relative_std_error is not None and one.control_level:
        scale = max(one.relative_std_error, one.std_error / abs(one.control_level))
        pairs += [("relative", scale), ("relative_std_error", scale)]
    return max(float(abs(getattr(one, name) - getattr(other, name))) / scale for name, scale in pairs)


@dataclass
class Tally:
    """What was compared, and what was found."""

    cases: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    withheld: Counter[str] = field(default_factory=Counter)
    worst: dict[tuple[str, str], float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def compare(self, case: Case, what: str, kind: str, difference: float) -> None:
        """Take in a difference, in standard errors."""
        sort = "hard" if case.hard else "ordinary"
        self.worst[kind, sort] = max(self.worst.get((kind, sort), 0.0), difference)
        if not difference <= MOST[sort]:
            self.faults.append(f"seed {case.seed}, {sort}: {what}: {difference:.1e} standard errors")


Rows = Mapping[tuple[str, str, str, str], Effect]


def rows_of(case: Case, trial: Callable[[], fa.Trial]) -> Rows:
    """The effects; every warning is an error, but for arms of unequal size."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        effects = trial().effects(population=case.population)
    return {(row.outcome, row.arm, row.estimator, row.se_kind): row for row in effects}


def check(case: Case, tally: Tally) -> None:
    """Take a case in."""
    tally.cases += 1
    try:
        once = folded(case, [0, case.n])
        whole = rows_of(case, lambda: once)
        for name, row in whole.items():
            tally.rows[row.se_kind] += 1
            tally.withheld[row.se_kind] += not row.reliable
            tally.faults += [f"seed {case.seed}: {'/'.join(name)}: {fault}" for fault in faults_of(row)]
        for way, trial in ways(case).items():
            for name, row in rows_of(case, trial).items():
                tally.faults += [f"seed {case.seed}, {way}: {'/'.join(name)}: {fault}" for fault in faults_of(row)]
                tally.compare(case, f"{way}: {'/'.join(name)}", row.se_kind, apart(whole[name], row))
        for name, (estimate, error) in kept_rows(case).items():
            if name not in whole:
                continue
            row = whole[name]
            if row.std_error is None or row.estimate is None:
                continue
            tally.compare(
                case, f"kept rows: {'/'.join(name)}", row.se_kind, abs(row.estimate - estimate) / row.std_error
            )
            if error is not None:
                off = abs(_shown_error(once, row) - error) / row.std_error
                tally.compare(case, f"kept rows: error of {'/'.join(name)}", row.se_kind, off)
    except Exception as error:
        tally.faults.append(f"seed {case.seed}: {type(error).__name__}: {error}")


def _shown_error(trial: fa.Trial, row: Effect) -> float:
    """The error that the arms have shown, which the one-look rules for few carriers and small arms make larger."""
    if row.se_kind not in ("welch", "jackknife"):
        return row.std_error or 0.0
    outcome = next(each for each in trial.plan.outcomes if each.name == row.outcome)
    levels = SumsRead.of(grouped_of(trial.tallies)).exact((row.estimator, row.se_kind), outcome)
    return math.sqrt(float(difference_of(levels, list(trial.plan.arms).index(row.arm)).variance))


def study(cases: int, seed: int, most: int) -> Tally:
    """So many random cases."""
    tally = Tally()
    for number in counted(range(cases), cases, "plans and data sets"):
        before = len(tally.faults)
        check(draw(seed + number, most), tally)
        for fault in tally.faults[before : before + 3]:
            print(fault, file=sys.stderr, flush=True)
    return tally


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, cases=10_000, seed=1, most=400)
    tally = study(options.cases, options.seed, options.most)
    publish(_findings(tally), NAME, options)
    if tally.faults:
        sys.exit(f"{len(tally.faults):,} faults in {tally.cases:,} cases.")


def _findings(tally: Tally) -> Findings:
    rows = []
    for kind in sorted(tally.rows):
        worst = [tally.worst.get((kind, sort)) for sort in MOST]
        numbers = ["–" if each is None else f"{each:.0e}" for each in worst]
        rows.append([kind, f"{tally.rows[kind]:,}", f"{tally.withheld[kind] / tally.rows[kind]:.0%}", *numbers])
    return Findings(
        "At the edges",
        f"""The study folds {tally.cases:,} random data sets with random plans, into sums or moments. They have one to a
        few hundred records in two or three arms, and up to four covariates: of all scales from 10⁻³⁰ to 10³⁰, far from
        zero, constant, rare, repeated, nearly repeated (to one part in a million) or squared. Outcomes have levels of
        up to 10¹² standard deviations, scales down to denormal numbers, heavy tails, or are constant. Weights range
        from none to one record that has all of the weight. There are units with one record or several.

        Each data set is folded in one batch, and in two of these other ways: in random batches; backwards; in shards
        that are merged; one record at a time, if there are few; or saved to bytes and loaded between batches. All rows
        of effects must be the same: estimate, standard error, interval, relative effect, what is withheld, and why. For
        the difference in means and both regressions, estimates and standard errors are also compared with the same
        analysis of kept rows in extended precision. foldaway may raise no warning, no number may be infinite or NaN,
        and none may be missing without a reason.

        The table gives the largest difference found, in standard errors, for ordinary and for hard data. Hard data cost
        digits: columns that lie far from zero or nearly repeat others, heavy tails, very unequal weights, or hardly
        more records than coefficients. The difference must not exceed {MOST["ordinary"]:.0e} for ordinary data and
        {MOST["hard"]:.0e} for hard data.""",
        ["kind of error", "rows", "withheld", "ordinary", "hard"],
        rows,
        f"""{len(tally.faults):,} faults.""",
        packages=["numpy", "scipy"],
    )

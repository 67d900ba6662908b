"""Attacks by somebody who holds all messages that a site has sent: a part of the study `attacks`.

With the defences off, the site sends what it has folded, whenever it likes. With them on, it is a site: `send_site`,
and a coordinator that keeps whatever it hears.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import foldaway as fa
from foldaway.errors import MessageError, RecordError
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import Received
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.modes.site_groups import site_groups
from foldaway.federated.site.site import fold_site, send_site
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.records.check import hashes
from foldaway.tallies import Grouped, grouped_of
from foldaway.tallies.sums import group_of
from studies.claims import Score, held
from studies.findings import counted

PATIENTS, LATER, STEP = 400, 200, 5
UNTIL, BINS = 360, 72
PRIVACY = fa.Privacy(cohort=30, smallest_cell=10)
DEALT = "group", "group of exits"
CENTER, SLOPES = 50, {"amount": 0.1, "pain": 0.2}

SITES = f"""Somebody holds every message of a site whose plan has a mean, survival, an outcome that may be
missing and a baseline, with `cohort` {PRIVACY.cohort} and `smallest_cell` {PRIVACY.smallest_cell}. The site has
{PATIENTS} patients in two arms. “Off” means that it sends its groups as they are dealt, exits in every bin, and
again after one more patient. “On” means that it runs `foldaway site run`, and tries to send again after every
{STEP} of {LATER} more patients. “Guess” is how many claims would be near if each were the median."""

STILL = """When the site may send again, at least 30 newcomers of every arm have come, and each claim is their mean.
It is no nearer to one of them than the median is, and exact only by chance. If every newcomer has an outcome,
the messages show that.

The last four attacks succeed although the defence is on. None of them tells who the patient is. A histogram of
exits tells when the patients of a group left, to within a few stretches of time. The sum of a group may be the bill
of its only patient who has one, and nearly is that of a patient who outweighs all others: no rule can stop this,
because it would depend on values, but `bounds` limit what one patient adds. And where a plan has coefficients and
an outcome that may be missing, the sums of all patients of a group and of those who have the outcome differ by the
covariate of the only one who lacks it. A larger `smallest_cell` makes that, and the only bill, rarer."""


def patients(rng: np.random.Generator, *, paying: float = 1.0, large: bool = False) -> pd.DataFrame:
    """Patients with a bill, to the cent, that a share of them has; a tenth of them lacks an answer about pain.

    One of them has a rare trait, and, if one is to be large, a bill that outweighs all others.
    """
    n = PATIENTS + LATER
    bill = np.where(rng.random(n) < paying, np.round(rng.lognormal(3, 1, n), 2), 0.0)
    bill[0] = 10 ** rng.uniform(4.5, 5.5) if large else bill[0]
    pain = np.where(rng.random(n) < 0.1, np.nan, np.round(rng.lognormal(2, 0.5, n), 2))
    time = np.ceil(rng.exponential(300, n))
    columns = {"amount": bill, "pain": pain, "age": rng.normal(50, 12, n).round(), "time": np.minimum(time, UNTIL)}
    columns["titre"] = np.where(np.arange(n) == 0, np.round(rng.lognormal(5, 1, n), 2), np.nan)
    arms = rng.choice(["control", "treatment"], n)
    return pd.DataFrame({"patient": np.arange(n), "arm": arms, **columns, "event": (time < UNTIL).astype(int)})


def site_plan(**settings: Any) -> fa.Plan:
    """A plan for sites, with every kind of number that they send."""
    arms = {"control": 0.5, "treatment": 0.5}
    survival = fa.Survival("time", "event", until=UNTIL, bins=BINS)
    outcomes = [fa.Mean("amount"), fa.Mean("pain", missing="allowed"), survival]
    usual = {"outcomes": outcomes, "unit": "patient", "baseline": ["age", "titre"]}
    site = {"federated": "sums", "privacy": PRIVACY}
    return fa.Plan(**{"name": "ward", "arm": "arm", "arms": arms, **usual, **site, **settings})


class Listener(HttpLink):
    """A coordinator that acknowledges and keeps all that a site sends."""

    def __init__(self, plan: fa.Plan) -> None:
        self._plan = plan
        self.heard: list[bytes] = []

    def plan(self) -> fa.Plan:
        """The trial's plan."""
        return self._plan

    def fingerprint(self) -> str:
        """Its fingerprint."""
        return self._plan.fingerprint

    def ask(self, method: str, path: str, **request: Any) -> bytes:
        """Take the tallies."""
        self.heard.append(request["content"])
        return msgspec.json.encode(Received(repeated=False, durable=True))


class Message(NamedTuple):
    """What somebody has who holds a message; and, to score their claims, the records with their groups in it.

    Attributes:
        tallies: What it says.
        rows: The records.
        joined: Whether it tells only the times between which enough have left.
    """

    tallies: Grouped
    rows: pd.DataFrame
    joined: bool


def messages(
    plan: fa.Plan, rows: pd.DataFrame, sizes: list[int], rng: np.random.Generator, *, defended: bool
) -> list[Message]:
    """The messages of a site that sends whenever so many of its patients have come, unless it refuses to."""
    found, listener = list[Message](), Listener(plan)
    # Keys of groups come from the seed, so that every run of the study has the same.
    with TemporaryDirectory() as place, patch.object(secrets, "token_bytes", rng.bytes):
        file = Path(place) / "records.parquet"
        for size in sizes:
            here = rows.iloc[:size]
            here.to_parquet(file)
            site = fold_site(plan, [str(file)], place)
            tallies = grouped_of(site.tallies)
            if defended:
                try:
                    send_site(site, [str(file)], listener, place, replace=True)
                except (MessageError, RecordError):  # too few have come
                    continue
                share = site_mode_of(plan).site(ServerShare.of(plan), listener.heard[-1])
                tallies = grouped_of(share.own.tallies)
            groups = [tallies.plain().records.shape[1], *(each.counts.shape[1] for each in tallies.histograms)]
            dealt = {name: _dealt(site, here, n, joined=defended) for name, n in zip(DEALT, groups, strict=False)}
            found.append(Message(tallies, here.assign(**dealt), joined=defended))
    return found


def _dealt(site: fa.Trial, rows: pd.DataFrame, groups: int, *, joined: bool) -> NDArray[np.int64]:
    """Each patient's group, of so many; as the site's key deals them, or as they are joined before they are sent."""
    keys = hashes(pa.array(rows["patient"]), len(rows), Secret(site.key).of_groups())
    dealt = group_of(np.asarray(keys), groups)
    return site_groups(site, groups)[dealt] if joined else dealt


# What a message says, by arm.


def _total(column: str) -> Callable[[Message], tuple[Floats, Floats]]:
    def read(message: Message) -> tuple[Floats, Floats]:
        sums = message.tallies.plain()
        place = ["amount", "pain"].index(column)
        return sums.totals(place).sum(axis=1), sums.counts(place).sum(axis=1)

    return read


def _answered(message: Message) -> tuple[Floats, Floats]:
    sums = message.tallies.plain()
    return sums.counts(1).sum(axis=1), sums.records.sum(axis=1)


def _age(message: Message) -> tuple[Floats, Floats]:
    held = message.tallies.baseline
    assert held is not None
    baseline = held.sums
    return baseline.totals(0).sum(axis=1), baseline.counts(0).sum(axis=1)


# Attacks: each gives claims and, of each, the values of those whom it may be about.


class Claim(NamedTuple):
    """One of some people has this value."""

    value: float
    of: Any


def subtracted(read: Callable[[Message], tuple[Floats, Floats]], column: str) -> Callable[..., Iterator[Claim]]:
    """Each newcomer has the mean of all newcomers, which is the difference of two messages that follow each other."""

    def attack(sent: list[Message]) -> Iterator[Claim]:
        for before, now in pairwise(sent):
            (total, count), (earlier, fewer) = read(now), read(before)
            new = now.rows.iloc[len(before.rows) :]
            for arm, more in enumerate(count - fewer):
                values = new.loc[new["arm"] == _arm(arm), column].dropna()
                if more > 0:
                    yield Claim((total - earlier)[arm] / more, values)

    return attack


def alike(sent: list[Message]) -> Iterator[Claim]:
    """Whether newcomers have an answer, where all of them have one or none has."""
    for before, now in pairwise(sent):
        (have, of), (had, were) = _answered(now), _answered(before)
        new = now.rows.iloc[len(before.rows) :]
        for arm, (more, all_) in enumerate(zip(have - had, of - were, strict=True)):
            if all_ and more in (0, all_):
                yield Claim(more / all_, new.loc[new["arm"] == _arm(arm), "pain"].notna().astype(float))


def left_between(sent: list[Message]) -> Iterator[Claim]:
    """A newcomer's time, where one more has left between two times that both of any two messages tell."""
    for before, now in combinations(sent, 2):
        new = now.rows.iloc[len(before.rows) :]
        then, here = _left(before), _left(now)
        told = (then.any(axis=0) | (np.cumsum(then.sum(axis=0)) == then.sum())) & here.any(axis=0)
        ends = np.flatnonzero(told | (not now.joined))
        more = np.diff(np.cumsum(here - then, axis=1)[:, ends], axis=1, prepend=0)
        for arm, place in zip(*np.nonzero(more == 1), strict=True):
            times = new.loc[new["arm"] == _arm(arm), "time"]
            first = ends[place - 1] + 1 if now.joined and place else ends[place] * (not now.joined)
            yield Claim(_middle(first, ends[place]), _bins(times))


def alone(column: str) -> Callable[..., Iterator[Claim]]:
    """The sum of a group of an arm in which one patient has the outcome is that patient's."""
    place = ["amount", "pain"].index(column)

    def attack(sent: list[Message]) -> Iterator[Claim]:
        sums = sent[0].tallies.plain()
        for arm, group in zip(*np.nonzero(sums.counts(place) == 1), strict=True):
            yield Claim(sums.totals(place)[arm, group], _of(sent[0], arm, group)[column])

    return attack


def only_payer(sent: list[Message]) -> Iterator[Claim]:
    """The sum of a group is one patient's, where few have anything."""
    sums = sent[0].tallies.plain()
    for arm, group in zip(*np.nonzero(sums.totals(0) > 0.005), strict=True):
        yield Claim(sums.totals(0)[arm, group], _of(sent[0], arm, group)["amount"])


def largest(sent: list[Message]) -> Iterator[Claim]:
    """The largest sum of a group is the bill of one patient."""
    total = sent[0].tallies.plain().totals(0)
    arm, group = np.unravel_index(np.argmax(total), total.shape)
    yield Claim(total[arm, group], _of(sent[0], int(arm), int(group))["amount"])


def only_trait(sent: list[Message]) -> Iterator[Claim]:
    """The baseline's sum of a trait that one patient of an arm has."""
    held = sent[0].tallies.baseline
    assert held is not None
    baseline = held.sums
    for arm in np.flatnonzero(baseline.counts(1)[:, 0] == 1):
        yield Claim(baseline.totals(1)[arm, 0], sent[0].rows["titre"].dropna())


def only_one_without(sent: list[Message]) -> Iterator[Claim]:
    """The age of the only one of a group without an answer: adjusted sums tell Σage of all, and of those with one."""
    sums = sent[0].tallies.plain()
    lacking = sums.records - sums.counts(1)
    ages = [(sums.totals(place) - sums.totals(2 + place)) / SLOPES[name] for place, name in enumerate(SLOPES)]
    for arm, group in zip(*np.nonzero(lacking == 1), strict=True):
        there = _of(sent[0], arm, group)
        yield Claim((ages[0] - ages[1])[arm, group] + CENTER, there.loc[there["pain"].isna(), "age"])


def each_exit(sent: list[Message]) -> Iterator[Claim]:
    """Of a group's times, from the first to the last, each is the middle of those that were told as one."""
    (histogram,) = sent[0].tallies.histograms
    counts = histogram.counts.reshape(*histogram.counts.shape[:2], -1, 2).sum(axis=-1)
    ends = np.flatnonzero(counts.any(axis=(0, 1))).tolist()
    firsts = [0, *(end + 1 for end in ends[:-1])] if sent[0].joined else ends
    middles = [_middle(first, end) for first, end in zip(firsts, ends, strict=True)]
    for arm, group in np.ndindex(*counts.shape[:2]):
        times = np.sort(_bins(_of(sent[0], arm, group, DEALT[1])["time"]))
        claims = np.repeat(middles, counts[arm, group, ends].astype(int))
        yield from (Claim(claim, [time]) for claim, time in zip(claims, times, strict=True))


def _arm(place: int) -> str:
    return ["control", "treatment"][place]


def _of(message: Message, arm: int, group: int, dealt: str = DEALT[0]) -> pd.DataFrame:
    return message.rows[(message.rows["arm"] == _arm(arm)) & (message.rows[dealt] == group)]


def _left(message: Message) -> Floats:
    (histogram,) = message.tallies.histograms
    found: Floats = histogram.counts.sum(axis=1).reshape(2, -1, 2).sum(axis=-1)
    return found


def _middle(first: float, last: float) -> float:
    """Of the ends of stretches of time."""
    return (first + last) / 2 * UNTIL / BINS


def _bins(times: pd.Series) -> Floats:
    """Times as a histogram of every bin tells them: as the end of their stretch."""
    ends: Floats = np.ceil(times.to_numpy() * BINS / UNTIL) * UNTIL / BINS
    return ends


# The table.


class Attack(NamedTuple):
    """An attack, and which messages it is carried out on.

    Attributes:
        carried_out: What is claimed.
        column: Whose median is what somebody guesses who has no message; empty for “has an answer”.
        again: Whether the site sends again as patients come.
        people: What is particular about the patients.
        plan: The plan's settings, where they are not the usual ones.
    """

    carried_out: Callable[[list[Message]], Iterator[Claim]]
    column: str
    again: bool = False
    people: Mapping[str, Any] = {}
    plan: Mapping[str, Any] = {}


_ADJUSTED: dict[str, Any] = {
    "outcomes": [fa.Mean("amount"), fa.Mean("pain", missing="allowed")],
    "covariates": ["age"],
    "coefficients": {"center": {"age": CENTER}, "slopes": {name: {"age": slope} for name, slope in SLOPES.items()}},
    "baseline": [],
}

ATTACKS: dict[str, Attack] = {
    "sent again after one more patient: the bill": Attack(subtracted(_total("amount"), "amount"), "amount", again=True),
    "the same: an outcome that may be missing": Attack(subtracted(_total("pain"), "pain"), "pain", again=True),
    "the same: whether it is missing": Attack(alike, "", again=True),
    "the same: age, in the baseline": Attack(subtracted(_age, "age"), "age", again=True),
    "the same: the time, in the histogram": Attack(left_between, "time", again=True),
    "the only one of a group and arm: the bill": Attack(alone("amount"), "amount"),
    "the only one of a group and arm with an answer": Attack(alone("pain"), "pain"),
    "the only one of an arm with a trait, in the baseline": Attack(only_trait, "titre"),
    "each one's time, from the histogram": Attack(each_exit, "time"),
    "the only one of a group with a bill, if 5 % have one": Attack(only_payer, "amount", people={"paying": 0.05}),
    "a bill that outweighs all others of its group": Attack(largest, "amount", people={"large": True}),
    "the only one of a group without an answer: age, from adjusted sums": Attack(
        only_one_without, "age", plan=_ADJUSTED
    ),
}


def scored(attack: Attack, rng: np.random.Generator, *, defended: bool) -> Score:
    """One site's messages attacked, and the claims held against its patients."""
    rows = patients(rng, **attack.people)
    steps = range(PATIENTS + 1, len(rows) + 1, STEP) if defended else [PATIENTS + 1]
    sizes = [PATIENTS, *(steps if attack.again else [])]
    known = rows.loc[rows["amount"] > 0, attack.column].dropna() if attack.column else None
    guess = 1.0 if known is None else float(known.median())
    sent = messages(site_plan(**attack.plan), rows, sizes, rng, defended=defended)
    return sum((held(claim, of, guess) for claim, of in attack.carried_out(sent)), Score())


def site_table(trials: int, seed: int) -> list[list[str]]:
    """Each attack's claims, and how many are right, with the defence off and on."""
    rows = []
    for place, (name, attack) in enumerate(counted(ATTACKS.items(), len(ATTACKS), "sites")):
        cells = [name]
        for defended in (False, True):
            chances = (np.random.default_rng([seed, 91, place, trial]) for trial in range(trials))
            found = sum((scored(attack, rng, defended=defended) for rng in chances), Score())
            cells += [f"{each:,}" for each in found]
        rows.append(cells)
    return rows

"""Do certificates, public arms, moments and rare levels give anybody away? More attacks, defences off and on.

Like `studies.attacks`, but about what is told beside the effects. `tests/test_attacks.py` runs them small.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd

import foldaway as fa
from foldaway.auditing.audit import audit
from foldaway.auditing.finding import NEAR
from foldaway.effects.door import OWN, TOLD
from foldaway.errors import FoldawayError
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.records import check
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Limits
from foldaway.tallies import arms_of
from foldaway.tallies.moments import raw_scores
from foldaway.tallies.moments.vech import lift
from studies.findings import Findings, counted, options_of, publish

NAME = "told_attacks"
ARMS = {"control": 0.5, "treatment": 0.5}


# A released trial: everything that is told beside the effects, of two data sets that one person tells apart.

Record = dict[str, Any]

# What differs between any two runs, whatever was folded; and counts that contain noise.
_BY_CHANCE = {"effects", "tallies", "key", "ledger", "fingerprint", "version", "package"}


def beside(plan: fa.Plan, records: Sequence[Record]) -> str:
    """What a server's trial tells of itself: how it stands, why it refuses, its ledger, what it leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Store.open(folder, Vault([bytes(32)])), "main", Limits())
        service.create(plan.canonical().decode())
        service.records.receive(plan.name, [(bytearray(json.dumps(list(records)).encode()), Sent("application/json"))])
        service.tick()
        questions: list[Callable[[], Any]] = [
            lambda: service.effects(plan.name).left_out,
            lambda: service.effects(plan.name, exact=True).left_out,
            lambda: service.outlook(plan.name).records,
            lambda: service.report(plan.name) and None,
            lambda: service.end(plan.name).left_out,
            lambda: service.end(plan.name, EndRequest(without_effects=True)).left_out,
        ]
        said = [_status(service, plan), *map(_answer, questions), _status(service, plan)]
        certificate = json.loads(service.certificate(plan.name))
    entries = [line["entry"] for line in certificate["certificate"]["ledger"]]
    for entry in entries:
        kept = {name: value for name, value in entry["content"].items() if name not in _BY_CHANCE}
        if entry["kind"] == "trial ended":  # a release's count of records has noise
            kept = {"without effects": kept["records"] is None}
        said.append([entry["kind"], kept])
    return msgspec.json.encode(said).decode()


def _status(service: Service, plan: fa.Plan) -> Any:
    status = service.status(plan.name)
    noisy = status.status == "ended"
    return [status.status, status.left_out, None if noisy else status.records]


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except FoldawayError as refusal:
        return str(refusal)


def crowd(n: int, rng: np.random.Generator) -> list[Record]:
    """People of whom nobody has spent anything."""
    return [{"who": str(i), "arm": str(rng.choice(list(ARMS))), "amount": 0.0} for i in rng.permutation(n)]


# The person who is in one of the two data sets and not in the other.
SOMEBODY = {"who": "somebody", "arm": "treatment", "amount": 1.0}

NEIGHBOURS = {
    "the only one who has spent anything": 400,
    "the one who completes a cohort": fa.Privacy().cohort - 1,
    "the one by whom the progress grows": 1_024,
    "the only one": 0,
}
"""How many others there are."""


def release_plan(epsilon: float | None) -> fa.Plan:
    """A trial that is released with noise, or told as usual."""
    settings: dict[str, Any] = {} if epsilon is None else {"release": epsilon}
    about: dict[str, Any] = {
        "name": "released",
        "arm": "arm",
        "arms": ARMS,
        "outcomes": [fa.Mean("amount", bounds=(0, 1))],
    }
    return fa.Plan(**about, unit="who", records_per_unit="one", **settings)


def told_apart(others: int, epsilon: float | None, seed: int) -> bool:
    """Whether what is told beside the effects differs by whether somebody took part."""
    records, plan = crowd(others, np.random.default_rng(seed)), release_plan(epsilon)
    return beside(plan, records) != beside(plan, [*records, SOMEBODY])


def releases_table(trials: int, seed: int) -> list[list[str]]:
    """Of so many pairs of data sets, how many are told apart without a release and with one."""
    rows = []
    for who, others in NEIGHBOURS.items():
        found = [sum(told_apart(others, epsilon, seed + i) for i in range(trials)) for epsilon in (None, 1.0)]
        rows.append([f"a released trial, beside its effects: {who}", *(f"{n} of {trials}" for n in found), "0"])
    return rows


# Arms, worked out from what a certificate says: the plan, and so the design.

WHO = [f"user-{i}" for i in range(1_000)]
"""Identifiers that the attacker knows."""


def arms_from(certified: str) -> list[str]:
    """The arms of these people as the plan in a certificate gives them."""
    plan = fa.Plan.loads(certified)
    return [plan.assign(who) for who in WHO]


def arms_found(seed: int, *, secret: bool) -> int:
    """How many arms of an ended trial are worked out from its plan, drawn under its key or not."""
    plan = fa.Plan(name="concealed", arm="arm", arms=ARMS, outcomes=["amount"], unit="who")
    trial = fa.Trial(plan, key=np.random.default_rng(seed).bytes(16))
    drawn = [(trial if secret else plan).assign(who) for who in WHO]
    trial.end(without_effects=True)
    return sum(found == arm for found, arm in zip(arms_from(plan.canonical().decode()), drawn, strict=True))


def arms_table(trials: int, seed: int) -> list[list[str]]:
    """The arms of all people, of all trials."""
    off, on = (sum(arms_found(seed + i, secret=secret) for i in range(trials)) for secret in (False, True))
    of = f"{trials * len(WHO):,}"
    return [["arms, from the plan in a certificate", f"{off:,} of {of}", f"{on:,} of {of}", "1 in 2"]]


# Moments of numeric covariates: whoever alone has a value, and whoever's value outweighs all others'.

PATIENTS = 600
COVARIATES = {
    "1 of 2 values": (1.0, 2.0),
    "1 of 3 values": (0.0, 1.0, 2.0),
    "1 of 4 values": (0.0, 1.0, 2.0, 5.0),
    "one very large value": None,
}
"""What somebody has alone: the last of these values, or a value that outweighs all others'."""


def patients(values: Sequence[float] | None, rng: np.random.Generator) -> pd.DataFrame:
    """People with a numeric covariate, and amounts to the cent; the first stands out."""
    x = rng.normal(50, 10, PATIENTS) if values is None else rng.choice(values[:-1], PATIENTS)
    x[0] = 2_000.0 if values is None else values[-1]
    arm = rng.permutation(np.resize(list(ARMS), PATIENTS))
    return pd.DataFrame({"arm": arm, "x": x, "amount": np.round(rng.lognormal(3, 1, PATIENTS), 2)})


def first_amount(plan: fa.Plan, trial: fa.Trial, rows: pd.DataFrame, values: Sequence[float] | None) -> float:
    """The amount of the first, from the moments of their arm alone, by somebody who knows which values there are.

    Of the values v, Π (x − v_j)/(v_i − v_j) is 1 for the one person and 0 for all others. Where one value outweighs
    all, the amount is about Σ(x − c)³ y / (x_max − c)³, with c the mean of the others.
    """
    arm = arms_of(trial.tallies)[list(plan.arms).index(rows["arm"][0])]
    scores = raw_scores(arm)
    assert scores is not None
    one, x = np.eye(2)
    if values is None:
        middle, value = 50.0, 2_000.0
        factors = [(x - middle * one) / (value - middle)] * 3
    else:
        factors = [(x - v * one) / (values[-1] - v) for v in values[:-1]]
        factors += [one] * (3 - len(factors))
    return float(lift(factors[0], factors[1]) @ scores.vs[0] @ factors[2])


def amounts_found(what: str, seed: int, *, saved: bool) -> tuple[bool, int]:
    """Whether the first's amount is found, to the cent or, by a large value, within 10 %; and what the audit says."""
    rows = patients(COVARIATES[what], np.random.default_rng(seed))
    plan = fa.Plan(name="dosed", arm="arm", arms=ARMS, outcomes=["amount"], covariates=["x"], moments=fa.Moments())
    trial = fa.Trial(plan)
    trial.fold(rows)
    if saved:
        trial = fa.Trial.loads(trial.dumps())
    true, found = rows["amount"][0], first_amount(plan, trial, rows, COVARIATES[what])
    near = 0.005 if COVARIATES[what] is not None else NEAR * true
    return bool(abs(found - true) < near), audit(plan, trial.tallies).solved


def moments_table(trials: int, seed: int) -> list[list[str]]:
    """By covariate, in memory and in the saved state: who is found, and of how many the audit says so."""
    rows = []
    for what in COVARIATES:
        found = [[amounts_found(what, seed + i, saved=saved) for i in range(trials)] for saved in (False, True)]
        cells = [
            f"{sum(right for right, _ in each)} of {trials} (audit: {sum(solved > 0 for _, solved in each)})"
            for each in found
        ]
        rows.append([f"moments, {what}: the amount", *cells, "0"])
    return rows


# Levels that few have, in what is held in memory and in a rich state.

TOWNS = 60
"""Towns of which each has a few people, beside three large ones."""


def townspeople(seed: int) -> pd.DataFrame:
    """People in towns, with one covariate, so that the trial is rich."""
    rng = np.random.default_rng(seed)
    town = np.where(rng.random(2_000) < 0.9, rng.choice(["north", "south", "west"], 2_000), "")
    small = np.flatnonzero(town == "")
    town = town.astype(object)
    town[small] = [f"hamlet-{i}" for i in rng.integers(0, TOWNS, len(small))]
    rows = pd.DataFrame({"arm": rng.choice(list(ARMS), 2_000), "town": town, "x": rng.normal(size=2_000)})
    return rows.assign(amount=rng.lognormal(3, 1, 2_000), who=np.arange(2_000))


def names_found(seed: int, *, marked: bool) -> tuple[int, int]:
    """How many names of small towns are in memory or in the state, of how many; with levels held by mark, or not."""
    rows = townspeople(seed)
    plan = fa.Plan(
        name="towns", arm="arm", arms=ARMS, outcomes=["amount"], covariates=["x"], unit="who", segments=["town"]
    )
    trial = fa.Trial(plan, key=bytes(range(16)))
    for start in range(0, len(rows), 250):
        batch = rows.iloc[start : start + 250]
        if marked:
            trial.fold(batch)
        else:  # past the marks
            trial.tallies = trial.tallies.fold(check(batch, plan, key=trial.secret.for_records())[0])
    held = repr(trial.tallies).encode() + trial.exchanged()
    names = {town for town in rows["town"] if town.startswith("hamlet")}
    return sum(re.search(rf"{name}(?!\d)".encode(), held) is not None for name in names), len(names)


def levels_table(trials: int, seed: int) -> list[list[str]]:
    """Names of small towns, of all trials."""
    found = [[names_found(seed + i, marked=marked) for i in range(trials)] for marked in (False, True)]
    cells = [f"{sum(n for n, _ in each):,} of {sum(of for _, of in each):,}" for each in found]
    return [["names of levels that few have, in memory and in the state", *cells, "0"]]


# What a reason says of few people.

FEW = {"nobody": 0, "one": 1, "nine": 9, "all but one": 999, "all": 1_000}
"""How many of a thousand treated people are above a threshold, or relapsed."""


def reasons_told(few: str, seed: int, *, others: bool) -> tuple[Any, ...]:
    """What the row of a share says of the treated; a third of the control are above the threshold."""
    rng = np.random.default_rng(seed)
    plan = fa.Plan(name="threshold", arm="arm", arms=ARMS, outcomes=[fa.Share("amount", above=100)])
    treated = np.where(np.arange(1_000) < FEW[few], 150.0, 50.0)
    amounts = np.concatenate([np.where(rng.random(1_000) < 1 / 3, 150.0, 50.0), rng.permutation(treated)])
    trial = fa.Trial(plan)
    trial.fold({"arm": np.repeat(list(ARMS), 1_000), "amount": amounts})
    [row] = trial.read(TOLD if others else OWN)
    return row.estimate, row.control_level, row.std_error, row.why, row.relative_why, row.odds_ratio_why


def reasons_table(trials: int, seed: int) -> list[list[str]]:
    """How often two of these data sets are told apart by an answer."""
    rows = []
    for one, two in (("nobody", "one"), ("one", "nine"), ("all but one", "all")):
        apart = [
            sum(reasons_told(one, s, others=on) != reasons_told(two, s, others=on) for s in range(seed, seed + trials))
            for on in (False, True)
        ]
        rows.append([f"{one} or {two} of an arm above a threshold", *(f"{n} of {trials}" for n in apart), "0"])
    return rows


# The page.

TABLES = releases_table, arms_table, moments_table, levels_table, reasons_table


def findings(trials: int, seed: int) -> Findings:
    """The table and what it says."""
    rows = [row for table in counted(TABLES, len(TABLES), NAME) for row in table(trials, seed)]
    return Findings(
        "What is told beside effects, and what rests in a state",
        f"""Each row is an attack by somebody who has no records, in {trials} simulated trials. “Off” is the same attack
        where the defence does not reach, so that it is seen to have teeth.

        A released trial: two data sets differ in one person. We compare everything that a server tells of them except
        numbers that contain noise: status, refusals, what is left out, and the entries of the certificate’s ledger.
        “Off” is the same plan without `release`.

        Arms: with an ended trial’s certificate and a list of 1,000 identifiers, we compute each person’s arm from the
        plan. “Off” are public arms (`plan.assign`), “on” those drawn under the trial’s key (`trial.assign`).

        Moments: of {PATIENTS} people one alone has the last of few values of a numeric covariate, or a value of it that
        outweighs all others. From sums of its powers we compute this person’s amount: to the cent or, by the large
        value, to within 10 %. “Off” is what is in memory, “on” what is saved; beside it is in how many trials
        `foldaway audit` says that somebody could be solved for.

        Levels: of 2,000 people a tenth live in {TOWNS} small towns, a segment whose levels the plan does not list. We
        look for the towns’ names in what a rich trial holds and in its state. “Off” is a trial that holds levels by
        name.

        Thresholds: of 1,000 people in an arm nobody, a few, or all are above a threshold. “Off” is the owner’s answer,
        “on” what others are told.""",
        ["attack", "off", "on", "by chance"],
        rows,
        "With the defences on, no attack does better than chance.",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=10, seed=1)
    publish(findings(options.trials, options.seed), NAME, options)

"""What says whether to trust effects: the sample ratio under many looks, losses, and words on guardrails."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import foldaway as fa
from studies.judgement.design import Design, Found, Law
from studies.judgement.reading import CONTROL, TREATED, Columns, Simulate, folded, leads, named, plan

LOOKS = 135
FALSE_ALARM = Law("false alarm", 0.001)
FOUND = Law("alarm", 0.99, least=True)
HIDDEN = Law("harm hidden", 0.0, never=True)
UNFLAGGED = Law("loss passes", 0.0, never=True)


def counts(n: int, treated: float, each: int = 1) -> Simulate:
    """Units that come with this probability in the treatment."""

    def simulate(rng: np.random.Generator) -> Columns:
        units = n // each
        d = rng.random(units) < treated
        unit = rng.permutation(np.repeat(np.arange(units), 1 + rng.poisson(each - 1, units) if each > 1 else 1))
        return {"arm": named(d[unit]), "unit": unit, "y": rng.normal(size=len(unit))}

    return simulate


def watched(of: fa.Plan, simulate: Simulate) -> Any:
    """A trial that is looked at many times: whether it ever alarms, and whether verdicts ever vanish for it."""

    def trial(rng: np.random.Generator) -> Found:
        columns = simulate(rng)
        ends = np.linspace(0, len(columns["arm"]), LOOKS + 1).astype(int)
        made = fa.Trial(of, key=rng.bytes(16))
        alarm = vanished = False
        for start, stop in itertools.pairwise(ends):
            made.fold({name: column[start:stop] for name, column in columns.items()})
            effects = made.effects()
            if effects.sample_ratio.state in ("look", "fails"):
                alarm = True
                vanished = any(said.verdict == "no verdict" for said in effects.verdicts())
                break
        return {"": {"false alarm": alarm, "verdicts vanish": vanished}}

    return trial


def broken(of: fa.Plan, simulate: Simulate) -> Any:
    """A trial whose randomisation is broken: whether it alarms."""

    def trial(rng: np.random.Generator) -> Found:
        return {"": {"alarm": folded(of, simulate(rng), rng).effects().sample_ratio.state in ("look", "fails")}}

    return trial


def guardrail(rng: np.random.Generator) -> Found:
    """Complaints rise by less than their margin, and for certain: whether the verdict's words say that they rise."""
    d = np.arange(40_000) % 2 == 1
    y = rng.normal(size=len(d))
    y[d] += 0.08 - (y[d].mean() - y[~d].mean())  # z = 8 for harm, and 2 for harm below the margin
    of = plan(0.5, [fa.Mean("y", better="lower", margin=0.1)])
    ((said, _),) = leads(folded(of, {"arm": named(d), "y": y}, rng).effects())
    return {"": {"harm hidden": said.anytime == "worse" and "worse" not in said.words.replace("not worse", "")}}


def losses(of: fa.Plan) -> Any:
    """Arms of 2,000 records that lose 7.7 and 10 % (p = .01): whether the check of losses passes."""

    def trial(rng: np.random.Generator) -> Found:
        d, y = np.arange(4_000) % 2 == 1, rng.normal(size=4_000)
        for arm, lost in ((False, 154), (True, 200)):
            y[np.flatnonzero(d == arm)[:lost]] = np.nan
        (loss,) = folded(of, {"arm": named(d), "y": y}, rng).effects().losses
        assert loss.lost == {CONTROL: 154, TREATED: 200}
        return {"": {"loss passes": loss.state == "passes", "p": loss.p_value}}

    return trial


def designs() -> Iterator[Design]:
    """All of them."""
    of, by_unit = plan(0.5, ["y"]), plan(0.5, ["y"], unit="unit")
    false = (FALSE_ALARM,)
    yield Design("sample ratio", f"13,500 records, {LOOKS} looks", watched(of, counts(13_500, 0.5)), false, part=0.15)
    name = f"2,700 units of about 5, {LOOKS} looks"
    yield Design("sample ratio", name, watched(by_unit, counts(13_500, 0.5, 5)), false, part=0.15)
    yield Design("sample ratio", "20,000 records, 47/53", broken(of, counts(20_000, 0.47)), (FOUND,), part=0.1)
    yield Design(
        "sample ratio", "4,000 units of about 5, 44/56", broken(by_unit, counts(20_000, 0.44, 5)), (FOUND,), part=0.1
    )
    yield Design("words", "a guardrail that is harmed within its margin", guardrail, (HIDDEN,), part=0.001)
    allowed = plan(0.5, [fa.Mean("y", missing="allowed")])
    yield Design("words", "outcomes lost by 7.7 and 10 %", losses(allowed), (UNFLAGGED,), part=0.001)
    dropped = plan(0.5, ["y"], drop_limit=0.2)
    yield Design("words", "records dropped by 7.7 and 10 %", losses(dropped), (UNFLAGGED,), part=0.001)

"""Estimators by inverse probabilities: what they say where the arms' counts contradict the plan's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.effects.headline import comparisons
from plans import replaced
from trials import folded, known

# Classes of Project STAR are small, regular, or regular with an aide, and not in equal numbers.
ARMS = {"regular": 2194, "small": 1733, "aide": 2217}
PLAN = fa.Plan(
    name="star", arm="class", arms=dict.fromkeys(ARMS, 1 / 3), outcomes=["score"],
    moments=fa.Moments(estimators=["horvitz_thompson", "ipw", "difference"]),
)  # fmt: skip


def star(counts: dict[str, int]) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    arm = np.repeat(list(counts), list(counts.values()))
    return pd.DataFrame({"class": arm, "score": 920 + 5.1 * (arm == "small") + rng.normal(0, 73, len(arm))})


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_probabilities_that_were_assumed_do_not_lead_astray() -> None:
    effects = folded(PLAN, star(ARMS)).effects()
    rows = {row.estimator: row for row in effects.filter(arm="small", se_kind="HC1")}
    assert known(rows["horvitz_thompson"].estimate) < -150  # the outcome's level, taken for an effect
    assert rows["ipw"].estimate == pytest.approx(known(rows["difference"].estimate), rel=1e-12)
    assert rows["ipw"].std_error == pytest.approx(known(rows["difference"].std_error), rel=1e-12)
    for name in ("ipw", "horvitz_thompson"):
        note = rows[name].note
        assert note == (
            f"{name} relies on the plan's probabilities, which the arms' counts contradict: prefer another estimator."
        )
        assert note in " ".join(effects.to_string(all=True).split())
    assert rows["difference"].note is None
    assert {found.lead.estimator for found in comparisons(effects)} == {"difference"}  # though named last


def test_where_the_counts_fit_there_is_nothing_to_note() -> None:
    effects = folded(PLAN, star(dict.fromkeys(ARMS, 2000))).effects()
    assert {row.note for row in effects} == {None}
    assert {found.lead.estimator for found in comparisons(effects)} == {"horvitz_thompson"}


def test_the_papers_own_form_must_be_named() -> None:
    rows = folded(replaced(PLAN, estimators=()), star(dict.fromkeys(ARMS, 50))).effects()
    assert {row.estimator for row in rows} == {"difference", "ipw"}

"""The attacks of `studies/attacks.py`, small: with a defence off they find people, with it on they do not.

Where one still does, that is said here and in docs/privacy.md. Attacks on replicates and membership are in
`test_attacker.py`, on successive states in `service/collecting/test_differencing.py`, on saved states in
`auditing/test_audit.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foldaway as fa
from foldaway.errors import RecordError
from foldaway.federated.site.site import fold_site, send_site
from studies import attacks as a
from studies import site_attacks as s
from studies import told_attacks as t


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_differencing_finds_buyers_in_exact_answers_and_none_in_told_ones() -> None:
    who = a.people(3000, 0.02, rng())
    exact, told = (
        a.score(list(a.differenced(a.polled(a.plan_of(), who, 50, defended=on))), who) for on in (False, True)
    )
    assert exact.exact > 5  # of few buyers no relative effect is told any more, which told some
    assert exact.exact >= 0.95 * exact.claims
    assert told.exact == 0
    assert told.near <= told.guessed + 2 * np.sqrt(told.claims)


def test_exact_answers_a_share_apart_still_tell_somebody() -> None:
    """The rounding is needed: growth alone leaves single buyers between two answers."""
    who = a.people(2000, 0.01, rng(2))
    spaced = [answer.seen for answer in a.polled(a.plan_of(), who, 50, defended=True)]
    answers, trial = [], fa.Trial(a.plan_of())
    for start, stop in zip([0, *spaced], spaced, strict=False):
        trial.fold(who.iloc[start:stop])
        answers.append(a.Answer(stop, a.effects_of(trial, rounded=False)))
    assert a.score(list(a.differenced(answers)), who).exact > 3


def test_replicates_name_every_buyer_to_whoever_has_the_key_and_nobody_else() -> None:
    who = a.people(600, 0.03, rng(3))
    trial = a.folded(a.plan_of(unit="who", moments={"bootstrap": 100}), who)
    assert len(who) > 2 * 2 * 100
    amounts = dict(zip(who["who"], who["amount"], strict=True))
    for key, share in ((a.KEY, 1.0), (bytes(16), 0.0)):
        found = a.sparse_solution(trial, who, key)
        right = sum(abs(amounts[each] - amount) < 0.01 for each, amount in found.items())
        assert right == share * (who["amount"] > 0).sum()


def test_one_user_with_many_records_is_not_a_cohort() -> None:
    who = a.people(2000, 0.5, rng(4))
    user = who.sample(130, random_state=1).assign(who=10**6, arm="treatment")
    assert a.last_user(who, user, defended=False) == pytest.approx(user["amount"].sum())
    assert a.last_user(who, user, defended=True) is None


def test_two_plans_on_the_same_records_tell_the_one_that_they_differ_in() -> None:
    who = a.people(2000, 0.5, rng(5)).assign(years=40.0)
    who["years"] += np.arange(len(who)) % 30
    target = who.index[who["amount"] > 20][0]
    who.loc[target, "years"] = np.nan
    amount = who.loc[target, "amount"]
    assert a.two_plans(who, defended=False) == pytest.approx(amount)
    assert abs(a.two_plans(who, defended=True) - amount) > 0.1 * amount


def test_outcomes_that_are_multiples_of_one_another_narrow_a_level_down_but_not_to_a_person() -> None:
    who, factors = a.people(2000, 0.5, rng(6)), np.arange(1.0, 11.0)
    many = who.assign(**{f"y{i}": who["amount"] * factor for i, factor in enumerate(factors)})
    trial = a.folded(a.plan_of(outcomes=[f"y{i}" for i in range(10)]), many)
    control = who.loc[who["arm"] == "control", "amount"]
    _, exact = a.multiples(a.effects_of(trial, rounded=False), factors.tolist())
    middle, told = a.multiples(a.effects_of(trial, rounded=True), factors.tolist())
    alone = a.multiples(a.effects_of(a.folded(a.plan_of(outcomes=["y0"]), many), rounded=True), [1.0])[1]
    assert exact * len(control) < 0.01
    assert abs(middle - control.mean()) < told < alone  # it does work …
    assert told * len(control) > control[control > 0].median()  # … and leaves more doubt than a person's amount


def test_when_answers_come_tells_nothing_of_an_outcome() -> None:
    calm = rng(7).lognormal(3, 1, 2000)
    loud = calm.copy()
    loud[700] = 10_000.0
    assert a.silences(calm, by_dominance=False) == a.silences(loud, by_dominance=False)
    assert a.silences(calm, by_dominance=True) != a.silences(loud, by_dominance=True)


def test_the_error_of_one_amount_that_outweighs_all_others_is_the_amount_unless_it_is_told_coarsely() -> None:
    who = a.people(1000, 0.2, rng(8))
    near = np.zeros(2)
    for large in np.geomspace(50_000, 500_000, 20):
        who.loc[0, "arm"], who.loc[0, "amount"] = "treatment", large
        trial = a.folded(a.plan_of(), who)
        near += [abs(a.whale(a.effects_of(trial, rounded=on)) - large) <= 0.1 * large for on in (False, True)]
    assert near[0] == 20
    assert near[1] <= 5


@pytest.mark.parametrize("kind", ["one record each", "returning units", "one whale"])
def test_answers_keep_coming(kind: str) -> None:
    found = a.course(*a.arrivals(2000, rng(9), kind=kind))
    assert found is not None
    assert found.first < 0.2
    assert found.widest < 0.2
    assert found.last > 0.85


# What a site sends: `studies/site_attacks.py`.


@pytest.mark.parametrize("name", s.ATTACKS)
def test_messages_of_a_site_tell_of_nobody_unless_the_page_says_so(name: str) -> None:
    off, on = (s.scored(s.ATTACKS[name], rng(10), defended=each) for each in (False, True))
    assert off.claims
    assert off.near >= 0.9 * off.claims
    if name in list(s.ATTACKS)[-4:]:  # which the page names
        assert on.claims
        assert on.near >= max(0.6 * on.claims, on.guessed)
    else:
        assert on.exact <= 1  # by chance
        assert on.near <= on.guessed


def test_attacks_on_a_site_are_the_same_in_every_run() -> None:
    plan, rows = s.site_plan(), s.patients(rng(12))
    first, second = (s.messages(plan, rows, [400], rng(13), defended=True)[0].rows["group"] for _ in range(2))
    assert (first == second).all()


def test_a_stratum_that_a_correction_empties_for_a_while_is_no_way_to_a_difference_of_one(tmp_path: Path) -> None:
    """Nor does a trait that one patient has, which is not sent, keep a site from sending again."""
    rows = s.patients(rng(11)).assign(arm=lambda each: np.where(each["patient"] % 2, "control", "treatment"))
    plan = s.site_plan(strata=fa.Strata("ward", levels=["a", "b"]), outcomes=["amount"])
    listener, file = s.Listener(plan), tmp_path / "records.parquet"

    def send(size: int, in_a: int) -> None:
        rows.head(size).assign(ward=lambda each: np.where(each["patient"] < in_a, "a", "b")).to_parquet(file)
        send_site(fold_site(plan, [str(file)], tmp_path), [str(file)], listener, tmp_path, replace=True)

    send(200, 24)
    send(400, 0)
    with pytest.raises(RecordError, match="in some stratum"):
        send(600, 26)
    send(600, 44)
    assert len(listener.heard) == 3


# What is told beside the effects, and what rests in a state: `studies/told_attacks.py`.


@pytest.mark.parametrize("who", t.NEIGHBOURS)
def test_of_a_release_nothing_that_is_told_beside_effects_depends_on_one_person(who: str) -> None:
    others = t.NEIGHBOURS[who]
    assert t.told_apart(others, None, 1)  # without a release counts move, and the audit finds whoever is alone
    assert not t.told_apart(others, 1.0, 1)


def test_a_certificate_gives_public_arms_and_no_others() -> None:
    assert t.arms_found(1, secret=False) == len(t.WHO)
    assert abs(t.arms_found(1, secret=True) / len(t.WHO) - 0.5) < 5 * 0.5 / np.sqrt(len(t.WHO))


@pytest.mark.parametrize("what", t.COVARIATES)
def test_a_numeric_covariate_by_which_somebody_stands_out_is_audited_and_not_saved(what: str) -> None:
    assert t.amounts_found(what, 1, saved=False) == (True, 1)
    assert t.amounts_found(what, 1, saved=True) == (False, 0)


def test_no_name_of_a_level_that_few_have_is_held() -> None:
    found, names = t.names_found(1, marked=False)
    assert found == names > 40
    assert t.names_found(1, marked=True) == (0, names)


def test_no_answer_says_whether_anybody_of_an_arm_is_above_a_threshold() -> None:
    own, told = ([t.reasons_told(few, 1, others=on) for few in t.FEW] for on in (False, True))
    assert len(set(own)) == len(t.FEW)
    assert len(set(told)) == 1

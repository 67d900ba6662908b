"""Every word is declared once: what is declared is computed, kept and offered, and nothing else is."""

from __future__ import annotations

import pkgutil
from typing import Any, get_args

import pytest

import foldaway as fa
from foldaway.federated.modes import MODES as MODE_OBJECTS
from foldaway.inference import estimators
from foldaway.inference.estimators import computation
from foldaway.inference.reading import OWN_READERS, READERS
from foldaway.inference.variance import KINDS as COMPUTED_ERRORS
from foldaway.plan.outcomes import KINDS
from foldaway.plan.reported import errors_of, estimators_of
from foldaway.plan.vocabulary import (
    BOOTSTRAP,
    DIFFERENCE,
    ERRORS,
    ESTIMATORS,
    JACKKNIFE,
    MODES,
    MOMENTS,
    SUMS,
    UNRANKED,
    WELCH,
    ModeName,
    Word,
)
from foldaway.report.page.kept import TALLIES as TALLIES_IN_WORDS
from foldaway.tallies.moments.kinds import KINDS as TALLIES

WORDS: list[Word] = [word for words in (ESTIMATORS, ERRORS, MODES) for word in words.values()]


def plan(**settings: Any) -> fa.Plan:
    return fa.Plan(**{"name": "words", "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"], **settings})


def test_every_estimator_has_a_file_and_every_file_an_estimator() -> None:
    from_moments = plan(covariates=["x"], moments={})
    named = [name for name, word in ESTIMATORS.items() if word.suits(from_moments) and MOMENTS in word.sources]
    assert {module.name for module in pkgutil.iter_modules(estimators.__path__)} == set(named)
    for name in named:
        assert callable(computation(name).fitted)
        assert callable(computation(name).replicated)


def test_no_estimator_is_read_from_sums_as_if_it_were_another() -> None:
    plans = plan(covariates=["x"], received="d"), plan(federated="sums")
    from_sums = {name for name, word in ESTIMATORS.items() if any(map(word.suits, plans))}
    read_by_kind = {name for name in from_sums if ESTIMATORS[name].own} | {"difference", "adjusted"}
    assert from_sums == read_by_kind | set(OWN_READERS)
    assert not read_by_kind & set(OWN_READERS)
    assert set(KINDS) == set(READERS)


def test_every_kind_of_error_is_computed_and_every_tally_kept_that_is_declared() -> None:
    assert set(COMPUTED_ERRORS) == set(ERRORS) - {BOOTSTRAP, WELCH, JACKKNIFE}
    assert set(TALLIES_IN_WORDS) == set(TALLIES)
    assert {word.tally for word in ERRORS.values()} == {"", *TALLIES}
    assert {name for word in ERRORS.values() for name in word.only_for} <= set(ESTIMATORS)
    assert {word.residuals_of for word in ESTIMATORS.values()} - {""} <= set(ESTIMATORS)


def test_every_mode_has_a_report_and_is_what_a_plan_may_say() -> None:
    assert set(MODE_OBJECTS) == set(MODES) == set(get_args(ModeName))
    assert {tally for word in MODES.values() for tally in word.collects} <= {word.tally for word in ERRORS.values()}


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_every_word_says_what_it_is(word: Word) -> None:
    assert word.phrase
    assert word.sentence
    assert all(need.fault.endswith(".") for need in word.needs)


@pytest.mark.parametrize("words", [ESTIMATORS, ERRORS], ids=["estimators", "errors"])
def test_no_two_words_share_a_rank(words: dict[str, Word]) -> None:
    ranks = sorted(word.rank for word in words.values() if word.rank != UNRANKED)
    assert ranks == list(range(1, len(ranks) + 1))


@pytest.mark.parametrize("covariates", [[], ["x"]])
@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("unit", [None, "u"])
@pytest.mark.parametrize("bootstrap", [None, 10])
def test_what_is_offered_can_be_asked_for_and_what_is_not_is_refused_with_a_reason(
    covariates: list[str], weight: str | None, unit: str | None, bootstrap: int | None
) -> None:
    settings: dict[str, Any] = {
        "covariates": covariates,
        "weight": weight,
        "unit": unit,
        "records_per_unit": "many" if unit is None else "together",
    }

    def asking(**named: Any) -> fa.Plan:
        return plan(**settings, moments=fa.Moments(bootstrap=bootstrap, **named))

    several = unit is not None  # then what allows for it is never left out
    everything = asking()
    offered = estimators_of(everything)
    for name, estimator in ESTIMATORS.items():
        if name in offered or (estimator.by_name and estimator.suits(everything)):
            beside = [DIFFERENCE] if several and SUMS not in estimator.sources else []
            assert estimators_of(asking(estimators=[name])) == [name, *beside]
            continue
        with pytest.raises(fa.PlanError) as refused:
            asking(estimators=[name])
        assert set(estimator.faults(everything)) <= set(str(refused.value).splitlines())
    for kind, error in ERRORS.items():
        if error.setting != "errors":
            continue
        if kind in errors_of(everything) or (error.by_name and error.suits(everything)):
            asked = asking(estimators=["difference"], errors=[kind])
            beside = [JACKKNIFE] * several + [BOOTSTRAP] * (bootstrap is not None)
            assert errors_of(asked, "difference") == [known for known in ERRORS if known in (kind, *beside)]
            continue
        with pytest.raises(fa.PlanError) as refused:
            asking(estimators=["difference"], errors=[kind])
        assert list(error.faults(everything)) == str(refused.value).splitlines()

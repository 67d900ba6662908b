"""There is a report for every plan that can be run: whatever its errors leave of the tallies, and for devices."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations
from typing import Any

import pytest

import foldaway as fa
from clustered import answer, devices_of, everyone, federated, report, results, share_of, with_replies
from foldaway.errors import PlanError
from foldaway.federated.replies.published import Published
from foldaway.plan.vocabulary import ERRORS
from foldaway.report.page.page import effects_page
from pages import parsed
from plans import replaced
from sizes import mostly_slow
from trials import folded, make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

KINDS = [name for name, word in ERRORS.items() if word.setting == "errors"]


def asked(plan: fa.Plan, kinds: Iterable[str], **settings: Any) -> fa.Plan | None:
    """The plan with these errors, if there can be such a plan."""
    with suppress(PlanError):
        return replaced(plan, errors=list(kinds), **settings)
    return None


@pytest.mark.parametrize("weighted", mostly_slow([False, True], True))
@pytest.mark.parametrize("setting", ["records", "units", "complete units", "bootstrap"])
def test_whatever_errors_the_plan_asks_for(setting: str, weighted: bool) -> None:
    plan, rows = make_trial(3, n=120, units=True, weighted=weighted)
    settings: dict[str, Any] = {"records_per_unit": "together" if setting == "complete units" else "many"}
    if setting == "records":
        settings["unit"] = None
    if setting == "bootstrap":
        settings["bootstrap"] = 20
    possible = [kind for kind in KINDS if asked(plan, {"HC0", kind}, **settings)]
    subsets = [kinds for size in (0, 1, 2, len(possible)) for kinds in combinations(possible, size)]
    plans = [found for kinds in subsets if (found := asked(plan, kinds, **settings)) is not None]
    for each in plans:
        page = parsed(folded(each, rows).report().html)
        assert "Were the arms alike beforehand?" in [title.text for title in page.find("h3")]
    assert len(plans) >= (7 if weighted else 14)


@pytest.mark.parametrize("mode", ["one-message", "delta", "scores", "sums"])
def test_trials_on_devices(mode: str) -> None:
    given, rows = make_trial(4, n=600, covariates=0 if mode == "delta" else 1, units=True)
    plan = federated(given, mode)
    kept = devices_of(plan, rows)
    published = None
    share = share_of(plan, [report(plan, each) for each in kept])
    if mode == "scores":
        published = Published.of(share.trial)
        share = with_replies(share, published, [answer(plan, published, each) for each in kept])
    effects, _ = results(plan, share, everyone(plan, kept), published)
    page = parsed(effects_page(effects).html)
    assert any(words in page.text for words in ("Devices that have reported", "Devices: 150 enrolled"))
    assert next(title.text for title in page.find("h3")) == "y0"

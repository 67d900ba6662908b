"""What is said of a federated plan: the sizes are those of the messages that devices send."""

from __future__ import annotations

import re

import pytest

import foldaway as fa
from clustered import answer, devices_of, federated, moments, report, share_of
from foldaway.federated.messages import DeviceMessage, encoded
from foldaway.federated.modes import described, most_bytes
from foldaway.federated.replies.published import Published
from foldaway.plan.vocabulary import MODES
from plans import SMALL
from trials import make_trial

# A count of up to 10¹² records has 13 digits in a message and a small one has one, and a group has up to three.
_DIGITS = 14


def sizes(plan: fa.Plan) -> list[int]:
    return [int(size.replace(",", "")) for size in re.findall(r"at most ([\d,]+) bytes", described(plan)[0])]


@pytest.mark.parametrize("outcomes", [1, 2])
@pytest.mark.parametrize("mode", [mode for mode, word in MODES.items() if not word.two_servers])
def test_devices_send_as_many_bytes_as_is_said(mode: str, outcomes: int) -> None:
    plan, rows = make_trial(7, n=200, units=True, covariates=0 if mode == "delta" else 2, outcomes=outcomes)
    plan = federated(plan, mode)
    kept = devices_of(plan, rows)
    sent: list[list[DeviceMessage]] = [[report(plan, each) for each in kept]]
    if mode == "scores":
        published = Published.of(share_of(plan, [moments(each) for each in kept]).trial)
        sent = [[moments(each) for each in kept], [answer(plan, published, each) for each in kept]]
    said = sizes(plan)
    for messages, most in zip(sent, said, strict=True):
        longest = max(len(encoded(message)) for message in messages)
        assert longest <= most <= longest + _DIGITS
    assert max(said) <= most_bytes(plan)


def test_nothing_is_said_of_other_plans() -> None:
    assert described(fa.Plan(**SMALL)) == []


@pytest.mark.parametrize(
    ("mode", "what"),
    [("one-message", "tallies"), ("sums", "counts and sums by arm and group, of at least 10 units each,")],
)
def test_what_sites_send_is_said_where_they_may_take_part(mode: str, what: str) -> None:
    devices = federated(fa.Plan(**SMALL), mode, covariates=[], cohort=30)
    sites = federated(
        fa.Plan(**SMALL),
        mode,
        covariates=[],
        cohort=30,
        unit="u",
        records_per_unit="many" if mode == "sums" else "together",
    )
    assert "A site" not in described(devices)[0]
    rule = "only if every arm that has units at the site has at least 30 units; and again"
    assert f"A site sends {what} {rule}" in described(sites)[0]

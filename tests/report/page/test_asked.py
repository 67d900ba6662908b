"""What was asked, in words."""

from __future__ import annotations

import foldaway as fa
from foldaway.report.page.asked import asked
from pages import parsed


def test_what_is_to_be_shown_is_a_sentence() -> None:
    guards = fa.Quantile("ms", (0.5, 0.95), bounds=(1, 60_000), better="lower", margin=1_050)
    better, alike = fa.Mean("y", better="higher", question="better"), fa.Mean("x", question="alike", margin=2)
    plan = fa.Plan(name="p", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["z", better, guards, alike], unit="u")
    assert (
        "that an arm is better than the control in y; "
        "that an arm is not worse than the control by more than 1,050 in ms p50 and ms p95; "
        "that an arm is within 2 of the control in x"
    ) in parsed(asked(plan).body).text

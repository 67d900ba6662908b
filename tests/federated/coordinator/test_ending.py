"""The stages of a ending trial, without a network, a database or a clock: what happens in, what to do out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.errors import IngestError
from foldaway.federated.coordinator.ending import (
    Course,
    End,
    Ending,
    EndRequest,
    Situation,
    WaitOn,
)
from foldaway.federated.modes import MODES
from foldaway.federated.modes.share import Devices
from plans import SHARED, SMALL, in_parts

NOW = 1_000_000.0


def plan_of(mode: str, **others: Any) -> fa.Plan:
    settings = {"federated": mode, **others}
    if mode == "shares":
        settings = {**SHARED, "federated": {**SHARED["federated"], **others}}
    return fa.Plan(**in_parts({**SMALL, "cohort": 3, "smallest_cell": 2, **settings}))


def seen(
    ending: Ending | None,
    reported: tuple[int, int] = (0, 0),
    enrolled: tuple[int, int] = (10, 10),
    *,
    stage: Any = None,
    pending: tuple[int, int] = (0, 0),
    now: float = NOW,
) -> Situation:
    joined, sent, waiting = (dict(zip("ab", counts, strict=True)) for counts in (enrolled, reported, pending))
    stage = stage or ("open" if ending is None else "replying")
    return Situation(stage, ending, Devices(joined, sent), Counter(waiting), now)


def never() -> list[int]:
    raise AssertionError("nobody needs to know who is in the coefficients")


# Somebody asks.


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_with_replies_waits_for_them_and_the_others_only_if_asked(mode: str) -> None:
    course = Course(plan_of(mode, reply_deadline=500.0, reply_share=0.9))
    plain = course.asked(EndRequest(), seen(None, (5, 5)))
    assert plain == Ending(NOW + (500.0 if MODES[mode].replies else 0.0), 0.9, False)
    assert course.asked(EndRequest(share=0.5), seen(None)) == Ending(NOW + 500.0, 0.5, False)
    assert course.asked(EndRequest(deadline=7.0), seen(None)) == Ending(NOW + 7.0, 0.9, False)


def test_when_a_release_ends_depends_on_no_count_of_devices() -> None:
    course = Course(fa.Plan(**{**SMALL, "outcomes": [fa.Mean("y", bounds=(0, 1))]}, federated="sums", release=1.0))
    for reported in ((0, 0), (9, 10), (10, 10)):
        assert course.asked(EndRequest(), seen(None, reported)) == Ending(NOW, 1.0, False)
        waiting = Ending(NOW + 5.0, 1.0, False)
        assert course.asked(EndRequest(deadline=5.0), seen(None, reported)) == waiting
        assert course.looked(seen(waiting, reported), never) is None
        assert course.looked(seen(waiting, reported, now=NOW + 5.0), never) == End()
        assert course.ends(seen(waiting, reported), reported, published=False) == End()
        assert course.outlook(seen(waiting, reported, now=NOW + 6.0)) is None
    with pytest.raises(IngestError, match="Leave out the share"):
        course.asked(EndRequest(share=0.5), seen(None))


def test_what_a_request_does_not_say_stays_but_for_the_wish_to_end_it_for_nothing() -> None:
    course, before = Course(plan_of("delta")), Ending(NOW + 100.0, 0.5, True)
    assert course.asked(EndRequest(), seen(before)) is None
    assert course.asked(EndRequest(deadline=7.0), seen(before)) == Ending(NOW + 7.0, 0.5, False)
    assert course.asked(EndRequest(share=0.7), seen(before)) == Ending(NOW + 100.0, 0.7, False)
    again = course.asked(EndRequest(without_effects=True), seen(before._replace(without_effects=False)))
    assert again == before


def test_too_few_sites_end_a_trial_only_without_effects() -> None:
    course = Course(plan_of("sums", unit="unit", federated=fa.Federated("sums", sites=2)))
    for sites, enough in (({"a": 10}, False), ({"a": 10, "b": 10}, True)):
        at = seen(Ending(NOW, 1.0, False), (10, 10))
        at = at._replace(devices=Devices(at.devices.enrolled, at.devices.reported, sites))
        ended = course.ends(at, (10, 10), published=False)
        assert ended == (End() if enough else WaitOn(course.too_few_reports(at.devices) or ""))
        assert course.looked(at, never) == ended
        if not enough:
            with pytest.raises(IngestError, match=r"2 sites .*, and 1 site reported"):
                course.asked(EndRequest(deadline=9.0), at._replace(stage="open", ending=None))
            wanted = at._replace(ending=Ending(NOW, 1.0, True))
            assert course.ends(wanted, (10, 10), published=False).why


def test_a_trial_that_has_ended_is_not_ended_once_more() -> None:
    for ending in (None, Ending(NOW, 1.0, False)):
        request = EndRequest(deadline=5.0, without_effects=True)
        assert Course(plan_of("scores")).asked(request, seen(ending, stage="ended")) is None


def test_haste_is_refused_where_it_leaves_no_effects() -> None:
    one_round, two_rounds = Course(plan_of("one-message")), Course(plan_of("scores"))
    now = EndRequest(deadline=0.0)
    with pytest.raises(IngestError, match="b has 1"):
        one_round.asked(now, seen(None, (5, 0), pending=(0, 1)))
    with pytest.raises(IngestError, match="that takes time"):
        two_rounds.asked(now, seen(None, (5, 5)))
    assert one_round.asked(now, seen(None, (5, 1), pending=(0, 1))) is not None  # what waits here will be in it
    for course in (one_round, two_rounds):
        assert course.asked(EndRequest(deadline=0.0, without_effects=True), seen(None)) is not None


@pytest.mark.parametrize(
    ("enrolled", "others", "hope"),
    [
        ((4, 4), {}, True),
        ((1, 9), {}, False),  # the arm is too small whoever reports
        ((3, 3), {"cohort": 6}, True),
        ((3, 3), {"cohort": 7}, False),  # no cohort can come together any more
    ],
)
def test_time_is_not_given_in_vain(enrolled: tuple[int, int], others: dict[str, Any], hope: bool) -> None:
    course, request = Course(plan_of("delta", **others)), EndRequest(deadline=100.0)
    if hope:
        assert course.asked(request, seen(None, enrolled=enrolled)) is not None
    else:
        with pytest.raises(IngestError, match="with all that can still come"):
            course.asked(request, seen(None, enrolled=enrolled))


# It begins.


def test_moments_of_a_few_are_not_published() -> None:
    ending = Ending(NOW + 100.0, 1.0, False)
    course = Course(plan_of("scores", cohort=3, smallest_cell=2))
    assert course.began(ending, [3, 3], 0, NOW) == (ending, True)
    with pytest.raises(IngestError, match=r"moments of 3 of them.*b has 2\. Messages that wait here.*: 5\."):
        course.began(ending, [3, 2], 5, NOW)
    for_nothing = ending._replace(without_effects=True)
    assert course.began(for_nothing, [3, 2], 5, NOW) == (for_nothing._replace(deadline=NOW), False)
    assert Course(plan_of("delta")).began(ending, [0, 0], 0, NOW) == (ending, False)


# A server looks.


def test_nothing_happens_before_its_time() -> None:
    course, ending = Course(plan_of("delta")), Ending(NOW + 1.0, 1.0, True)
    assert course.looked(seen(None), never) is None
    assert course.looked(seen(ending, stage="ended", now=NOW + 2), never) is None
    assert course.looked(seen(ending, (9, 10)), never) is None
    assert course.looked(seen(ending, (9, 10), now=NOW + 1.0), never) == End()


@pytest.mark.parametrize("share", [i / 100 for i in range(1, 101)])
def test_a_share_is_reached_by_exactly_so_many(share: float) -> None:
    """Whatever floating point makes of 0.28 times 25."""
    course, ending = Course(plan_of("delta")), Ending(NOW + 100.0, share, True)
    enough = round(share * 100)
    for count in (enough - 1, enough):
        step = course.looked(seen(ending, (min(count, 50), max(count - 50, 0)), (50, 50)), never)
        assert (step == End()) == (count >= enough)


def test_whoever_is_not_in_the_coefficients_is_not_waited_for() -> None:
    course, ending = Course(plan_of("scores")), Ending(NOW + 100.0, 1.0, False)
    assert course.looked(seen(ending, (4, 3)), lambda: [4, 4]) is None
    assert course.looked(seen(ending, (4, 4)), lambda: [4, 4]) == End()
    assert course.looked(seen(ending, (4, 4)), lambda: [0, 0]) is None
    # With more in the moments than are enrolled nobody else can reply either.
    assert course.looked(seen(ending, (4, 4), (4, 4)), lambda: [9, 9]) == End()
    assert course.looked(seen(ending, (4, 4), now=NOW + 100.0), never) == End()


def test_what_waits_here_is_enough() -> None:
    course, ending = Course(plan_of("delta")), Ending(NOW + 100.0, 1.0, False)
    assert course.looked(seen(ending, (9, 9), pending=(1, 0)), never) is None
    assert course.looked(seen(ending, (9, 9), pending=(1, 1)), never) == End()


def test_a_trial_without_devices_is_not_complete() -> None:
    ending = Ending(NOW + 100.0, 1.0, True)
    assert Course(plan_of("delta")).looked(seen(ending, enrolled=(0, 0)), never) is None


def test_a_trial_that_would_end_for_nothing_waits_on() -> None:
    course, ending = Course(plan_of("delta", cohort=5)), Ending(NOW, 1.0, False)
    for reported, why in (((5, 1), "and b has 1"), ((2, 2), "and there are 4")):
        step = course.looked(seen(ending, reported), never)
        assert isinstance(step, WaitOn)
        assert step.why.endswith(why)
        assert course.looked(seen(ending._replace(without_effects=True), reported), never) == End()
        late = seen(ending, reported, pending=(0, 1), now=NOW + 500.0)  # whoever reports then is enough
        assert course.looked(late, never) == End()


# It ends, and what is said until then.


def test_it_ends_without_effects_only_if_that_is_wanted() -> None:
    ending = Ending(NOW, 1.0, False)
    wanted = ending._replace(without_effects=True)
    course = Course(plan_of("delta"))
    assert course.ends(seen(ending, (2, 2)), [2, 2], published=False) == End()
    for few in (seen(ending, (2, 1)), seen(wanted, (2, 1))):
        step = course.ends(few, [2, 1], published=False)
        assert isinstance(step, End if few.ending == wanted else WaitOn)
        assert step.why is not None
        assert step.why.endswith("and b has 1")
    scores = Course(plan_of("scores"))
    assert scores.ends(seen(ending, (2, 2)), [3, 3], published=True) == End()
    assert scores.ends(seen(wanted, (2, 2)), [3, 3], published=False) == End("nothing was published to devices")


def test_the_outlook_is_told_where_it_is_bleak() -> None:
    course, ending = Course(plan_of("delta")), Ending(NOW + 10.0, 1.0, False)
    assert course.outlook(seen(None)) is None
    assert course.outlook(seen(ending)) is None
    assert course.outlook(seen(ending, (2, 2), now=NOW + 10.0)) is None
    assert "waits on" in (course.outlook(seen(ending, now=NOW + 10.0)) or "")
    assert "even without effects" in (course.outlook(seen(ending._replace(without_effects=True))) or "")


# The whole way, whatever happens on it.

steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "reports", "time", "look"]),
        st.builds(
            EndRequest,
            deadline=st.none() | st.sampled_from([0.0, 5.0, 50.0]),
            share=st.none() | st.sampled_from([0.3, 1.0]),
            without_effects=st.booleans(),
        ),
        st.integers(0, 4),
    ),
    max_size=25,
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(MODES)), steps)
def test_no_trial_ends_for_nothing_unless_that_was_the_last_wish(mode: str, happens: list[Any]) -> None:
    """A driver does what the course says, as the service does; every law of the stages holds at every step."""
    course = Course(plan_of(mode))
    now, ending, stage, reported, wish = NOW, None, "open", [0, 0], False
    for what, request, count in happens:
        here = seen(ending, (reported[0], reported[1]), stage=stage, now=now)
        if what == "time":
            now += 10.0 * count
        elif what == "reports" and stage != "ended":
            reported[count % 2] = min(reported[count % 2] + count, 10)
        elif what == "ask":
            try:
                changed = course.asked(request, here)
                if changed is not None and stage == "open":
                    changed, publish = course.began(changed, [10, 10], 0, now)
                    assert publish == MODES[mode].replies
            except IngestError:
                assert not request.without_effects
                continue  # and nothing has changed
            if changed is not None:
                stage, ending, wish = "replying", changed, request.without_effects
                assert ending.without_effects == wish
                assert request.deadline is None or ending.deadline == now + request.deadline
        elif what == "look":
            step = course.looked(here, lambda: [10, 10])
            assert step is None or stage == "replying"
            if step is None or ending is None:
                continue
            if isinstance(step, WaitOn):
                assert not wish
            else:
                end = course.ends(here, [10, 10], published=MODES[mode].replies)
                assert isinstance(end, End)
                assert end.why is None or wish
                assert (end.why is None) == (min(reported) >= 2)
                stage = "ended"

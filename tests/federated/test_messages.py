"""What travels: there and back, and refused in our own words whatever it is."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from clustered import answer, devices_of, federated, moments, share_of
from foldaway.errors import MessageError
from foldaway.federated.messages import (
    MOST_BYTES,
    DeviceMoments,
    DeviceSums,
    Enrolment,
    GroupSums,
    PublishedCoefficients,
    ScoreReply,
    SplitSums,
    decoded,
    encoded,
    new_number,
    packed,
    unpacked,
)
from foldaway.federated.modes import MODES, mode_of, most_bytes
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.models import in_one_frame, models_of
from foldaway.federated.replies.published import Published
from foldaway.plan import vocabulary
from foldaway.tallies import arms_of
from plans import SMALL
from trials import make_trial

KINDS: tuple[Any, ...] = (Enrolment, DeviceMoments, DeviceSums, GroupSums, ScoreReply, PublishedCoefficients)
NUMBER = bytes(range(16))


def test_there_and_back() -> None:
    R = np.triu(np.arange(9.0).reshape(3, 3))
    message = DeviceMoments.of(NUMBER, "a", 7, R)
    again = decoded(encoded(message), DeviceMoments)
    assert again == message
    assert np.array_equal(again.triangle(3), R)
    scores = decoded(encoded(ScoreReply(NUMBER, "a", packed(R[0]))), ScoreReply).scores
    assert np.array_equal(unpacked(scores, 3), R[0])
    assert decoded(encoded(Enrolment(NUMBER, "ä")), Enrolment).arm == "ä"


def test_sums_become_a_factor_with_the_same_count_and_sums() -> None:
    R = DeviceSums(NUMBER, "a", 5, packed(np.array([10.0, -3.0]))).triangle(3)
    np.testing.assert_allclose((R.T @ R)[0], [5, 10, -3], rtol=1e-15)


def test_numbers_are_of_16_bytes_and_never_the_same() -> None:
    assert {len(new_number()) for _ in range(100)} == {16}
    assert len({new_number() for _ in range(1000)}) == 1000


def test_a_message_is_its_numbers_and_little_else() -> None:
    """A device's cost: k or p numbers, and a fixed overhead."""
    for K in (2, 5, 20):
        size = len(encoded(DeviceMoments.of(NUMBER, "treated", 1000, np.eye(K))))
        assert size - 8 * K * (K + 1) // 2 * 4 / 3 <= 105


GOOD = {"number": b64encode(NUMBER).decode(), "arm": "a", "n": 1, "factor": "", "sums": ""}
BAD: dict[str, Any] = {
    "short number": {"number": b64encode(NUMBER[:15]).decode()},
    "long number": {"number": b64encode(NUMBER + b"x").decode()},
    "no base64": {"number": "x" * 16},
    "no number": {"number": None},
    "no arm": {"arm": ""},
    "an arm without end": {"arm": "a" * 1001},
    "no records": {"n": 0},
    "fewer than none": {"n": -1},
    "half a record": {"n": 1.5},
    "records without end": {"n": 2**60},
    "text for a count": {"n": "1"},
    "numbers in digits": {"factor": [1.0], "sums": [1.0]},
    "too much": {"sender": "me"},
}


@pytest.mark.parametrize(("kind", "field"), [(DeviceMoments, "factor"), (DeviceSums, "sums")])
def test_what_is_no_message_is_refused(kind: Any, field: str) -> None:
    good = {name: value for name, value in GOOD.items() if name not in {"factor", "sums"} - {field}}
    assert decoded(msgspec.json.encode(good), kind).arm == "a"
    for case, change in BAD.items():
        bad = {name: value for name, value in {**good, **change}.items() if name not in {"factor", "sums"} - {field}}
        with pytest.raises(MessageError, match="is not a message of the kind"):
            print(case, decoded(msgspec.json.encode(bad), kind))
    for lacking in good:
        with pytest.raises(MessageError, match="is not a message of the kind"):
            decoded(msgspec.json.encode({name: value for name, value in good.items() if name != lacking}), kind)
    for nothing in (b"", b"null", b"[]", b"{}", encoded(Enrolment(NUMBER, "a"))):
        with pytest.raises(MessageError, match="is not a message of the kind"):
            decoded(nothing, kind)


CUT = st.integers(0, 40).map(lambda end: encoded(Enrolment(NUMBER, "a"))[:end])


def refusal(data: bytes, kind: Any) -> MessageError | None:
    try:
        assert encoded(decoded(data, kind))
    except MessageError as error:
        return error
    return None


@given(st.binary(max_size=200) | CUT, st.sampled_from(KINDS))
def test_bytes_of_a_stranger(data: bytes, kind: Any) -> None:
    told = refusal(data, kind)
    assert told is None or (told.__cause__, told.__context__) == (None, None)


def test_a_body_larger_than_any_message_is_not_even_read() -> None:
    with pytest.raises(MessageError):
        decoded(encoded(ScoreReply(NUMBER, "a", bytes(MOST_BYTES))), ScoreReply)


# What a plan's records cannot have.

PLAN = fa.Plan(**SMALL, covariates=["x"], federated="one-message")


def factor(n: int, seed: int = 1, scale: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([np.ones(n), rng.normal(size=(n, 2)) * scale])
    return np.linalg.qr(np.vstack([rows, np.zeros((3, 3))]), mode="r")


def refused(share: ServerShare, message: Any) -> str:
    before = share.dumps()
    with pytest.raises(MessageError) as told:
        mode_of(share.plan).check(share, message, None)
    assert share.dumps() == before
    assert not any(character.isdigit() for character in str(told.value).replace("0", ""))
    return str(told.value)


def test_factors_that_no_records_have() -> None:
    share = ServerShare.of(PLAN)
    R = factor(5)
    mode_of(share.plan).check(share, DeviceMoments.of(NUMBER, "a", 5, R), None)
    assert "not one of so many records" in refused(share, DeviceMoments.of(NUMBER, "a", 6, R))
    assert "an arm that the plan has not" in refused(share, DeviceMoments.of(NUMBER, "c", 5, R))
    assert "more directions than records" in refused(share, DeviceMoments.of(NUMBER, "a", 1, factor(3) / np.sqrt(3)))
    for bad in (np.nan, np.inf, -np.inf, 1e41):
        wrong = R.copy()
        wrong[1, 2] = bad
        assert "not finite or too large" in refused(share, DeviceMoments.of(NUMBER, "a", 5, wrong))
    with pytest.raises(MessageError, match="holds 2 numbers where the plan makes 6"):
        mode_of(share.plan).check(share, DeviceMoments(NUMBER, "a", 5, bytes(16)), None)
    plan = federated(fa.Plan(**SMALL, weight="w", covariates=["x"]), "one-message")
    weighted = ServerShare.of(plan)
    assert "no intercept" in refused(weighted, DeviceMoments.of(NUMBER, "a", 5, R * [0, 1, 1]))


def test_a_slip_of_units_is_refused_once_others_are_here() -> None:
    share = share_of(PLAN, [DeviceMoments.of(new_number(), "ab"[i % 2], 20, factor(20, i)) for i in range(60)])
    mode_of(share.plan).check(share, DeviceMoments.of(NUMBER, "a", 20, factor(20, 99, scale=1e3)), None)  # a whale
    assert "absurdly large" in refused(share, DeviceMoments.of(NUMBER, "a", 20, factor(20, 99, scale=1e9)))


def test_scores_longer_than_the_arms_records_allow() -> None:
    plan, rows = make_trial(3, n=200, units=True, covariates=1)
    modal = federated(plan, "scores")
    devices = devices_of(modal, rows)
    share = share_of(modal, [moments(kept) for kept in devices])
    published = Published.of(share.trial)
    good = answer(modal, published, devices[0])
    values = mode_of(modal).check(share, good, published)
    for bad in (values * 1e6, values[:-1], np.append(values, 1.0), values * np.nan, np.full_like(values, 1e39)):
        with pytest.raises(MessageError):
            mode_of(modal).check(share, ScoreReply(NUMBER, good.arm, packed(bad)), published)
    with pytest.raises(MessageError, match="an arm that the plan has not"):
        mode_of(modal).check(share, ScoreReply(NUMBER, "c", good.scores), published)


def test_no_device_is_refused_for_being_all_there_is() -> None:
    """The limit is reached when one device has all of an arm's records, and is no tighter."""
    plan, rows = make_trial(3, n=60, units=True, covariates=1)
    rows["unit"] = rows["group"]
    modal = federated(plan, "scores")
    devices = devices_of(modal, rows)
    share = share_of(modal, [moments(kept) for kept in devices])
    published = Published.of(share.trial)
    for kept in devices:
        mode_of(modal).check(share, answer(modal, published, kept), published)


def test_every_mode_of_the_vocabulary_is_an_object_with_its_report() -> None:
    assert list(MODES) == list(vocabulary.MODES)
    assert {name: mode.reports for name, mode in MODES.items()} == {
        "one-message": DeviceMoments,
        "scores": ScoreReply,
        "delta": DeviceSums,
        "sums": GroupSums,
        "shares": SplitSums,
    }


def test_what_is_published_may_be_longer_than_any_message() -> None:
    """It grows with arms, outcomes and estimators; a device that could not read it would be missing for good."""
    columns = [f"x{i}" for i in range(20)]
    outcomes = [f"y{i}" for i in range(20)]
    plan = fa.Plan(
        name="wide",
        arm="g",
        arms={"a": 0.5, "b": 0.5},
        outcomes=outcomes,
        covariates=columns,
        federated=fa.Federated("scores"),
    )
    rng = np.random.default_rng(1)
    trial = fa.Trial(msgspec.structs.replace(plan, federated=None, moments={}))
    trial.fold({"g": np.tile(["a", "b"], 100), **{name: rng.normal(size=200) for name in (*columns, *outcomes)}})
    arms = in_one_frame(arms_of(trial.tallies))
    published = Published(plan, arms, models_of(plan, arms)).message("replying", 0.0)
    sent = encoded(published)
    assert len(sent) > most_bytes(plan)
    assert decoded(sent, PublishedCoefficients, most=None) == published

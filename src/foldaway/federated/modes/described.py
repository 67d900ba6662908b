"""What a federated plan asks of its devices and of the coordinator, in sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foldaway.federated.coordinator.replies import Replies
from foldaway.federated.messages import MOST_RECORDS, Model, Moments, Report, Scores, Sums, encoded
from foldaway.inference.offered import estimators_of
from foldaway.plan import Plan

_TIMES = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def described(plan: Plan) -> list[str]:
    """Paragraphs about a federated plan; none about any other.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="delta")
        >>> for sentence in described(plan)[0].split(". "):
        ...     print(sentence)
        Federated, delta: a device keeps a count and 1 sum, and no record
        It sends them once, in at most 40 bytes.
    """
    if plan.federated is None:
        return []
    sent = {"one-message": _one_message, "scores": _scores, "delta": _delta}[plan.federated.mode]
    return [f"Federated, {plan.federated.mode}: {sent(plan)}", " ".join(_counted(plan)), " ".join(_kept_for(plan))]


def _one_message(plan: Plan) -> str:
    message = _moments(plan)
    told = (
        f"a device keeps the triangular factor of its records, {_numbers(message.factor)}, and no record. It sends "
        f"that once, in at most {_size(message)}."
    )
    if plan.unit is None:
        return told
    return f"{told} A site sends tallies, if every arm that has units has at least {plan.privacy.cohort:,} of them."


def _delta(plan: Plan) -> str:
    message = Sums.of(bytes(16), _longest_arm(plan), MOST_RECORDS, np.zeros(len(plan.outcomes)))
    sums = _many(len(plan.outcomes), "sum")
    return f"a device keeps a count and {sums}, and no record. It sends them once, in at most {_size(message)}."


def _scores(plan: Plan) -> str:
    moments, replies = _moments(plan), _no_replies(plan)
    reply = Scores.of(bytes(16), _longest_arm(plan), replies.sums)
    leverage = _leverage(plan)
    corrected = "" if leverage is None else f", plain and corrected for leverage ({leverage})"
    summed = len(plan.arms) * (replies.sums.size + replies.products.size)
    return (
        f"a device keeps its records until the close. Before, it sends moments of those that are new, "
        f"{_numbers(moments.factor)} in at most {_size(moments)} each time; at the close, as its reply, its scores"
        f"{corrected}, {_numbers(reply.scores)} in at most {_size(reply)}. The coordinator keeps sums of the replies, "
        f"{summed:,} numbers."
    )


def _counted(plan: Plan) -> Iterator[str]:
    """What is counted in devices."""
    wait = plan.privacy.max_wait
    early = "" if wait is None else f", or by what has come in {_time(wait)} (`max_wait`)"
    yield (
        "Two states that the coordinator stores or answers differ by at least "
        f"{_many(plan.privacy.cohort, 'message')} of devices (`cohort`){early}."
    )
    if plan.privacy.remainder == "include":
        yield "What is short of a cohort at the close is included (`remainder`), be it a single device's."
    else:
        yield "What is short of a cohort at the close is left out (`remainder`), and its devices are missing."
    if plan.mode == "scores":
        least = max(plan.privacy.min_per_arm, plan.privacy.cohort)
        yield f"Nothing is published to devices unless every arm has moments of {_many(least, 'device')}."
    fewest = _many(plan.privacy.min_per_arm, "device")
    yield f"There are no effects unless every arm has reports of {fewest} (`min_per_arm`)."


def _kept_for(plan: Plan) -> Iterator[str]:
    """How long replies are waited for, and records kept."""
    if plan.federated is not None and plan.federated.mode == "scores":
        yield (
            f"Replies count for {_time(plan.federated.reply_deadline)} after the close (`reply_deadline`), or until "
            f"{100 * plan.federated.reply_share:.4g} % of the devices in the coefficients have replied (`reply_share`)."
        )
    days = _time(plan.privacy.retention)
    yield f"A device deletes what it keeps {days} after its first record (`retention`), sent or not."


def _moments(plan: Plan) -> Moments:
    """The longest message with a factor."""
    columns = len(plan.columns)
    return Moments.of(bytes(16), _longest_arm(plan), MOST_RECORDS, np.zeros((columns, columns)))


def _no_replies(plan: Plan) -> Replies:
    """The sums of no replies to all models of the plan."""
    breads: list[bytes] | None = None if _leverage(plan) is None else []
    models = [Model(name, place, [], breads) for place in range(len(plan.outcomes)) for name in estimators_of(plan)]
    return Replies.empty(models, len(plan.regressors))


def _leverage(plan: Plan) -> str | None:
    return None if plan.federated is None else plan.federated.leverage


def _longest_arm(plan: Plan) -> str:
    return max(plan.arms, key=lambda arm: len(arm.encode()))


def _size(message: Report) -> str:
    return _many(len(encoded(message)), "byte")


def _numbers(packed: bytes) -> str:
    return _many(len(packed) // 8, "number")


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _time(seconds: float) -> str:
    """In the largest unit that is not longer."""
    unit, size = next((unit, size) for unit, size in _TIMES if seconds >= size)
    told = f"{seconds / size:.4g}"
    return f"{told} {unit}{'' if told == '1' else 's'}"

"""What says whether to trust effects: the arms' counts, whether they fit the plan, and what was lost; also in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from foldaway.effects.effect import Effect, sentence
from foldaway.effects.effects import Effects
from foldaway.effects.headline import with_correction
from foldaway.inference.loss import Loss, loss_of
from foldaway.inference.rounding import coarse_p_value, round_count
from foldaway.inference.sample_ratio import SUSPICIOUS, SampleRatio
from foldaway.plan import Plan
from foldaway.plan.vocabulary import ESTIMATORS, MEDIAN_OF_MEANS
from foldaway.records.faults import SEVERAL_ARMS, WITHIN, Faults, excess

ROUNDED = (
    "Levels are rounded to a quarter of their standard error and counts to match, so that no person's value can be "
    "worked out from the results."
)


_MOST_NAMED = 5

EITHER = "Either the randomisation is broken, or an arm changes how many records a unit has."
"""What it may mean that records of units do not fit the plan's probabilities."""


class Outlying(NamedTuple):
    """Groups of devices whose sums of an outcome stand out among those of their arm (`inference/standing_out.py`)."""

    outcome: str
    arm: str
    groups: Sequence[int]


class Checks(NamedTuple):
    """What says whether to trust the effects: the arms' counts, whether they fit the plan, the faulty records.

    Attributes:
        losses: What the arms lost of outcomes and records, and whether alike.
        excess: That more records were dropped than the plan allows; empty if there were not.
        few_faults: Whether some faulty records are too few to be counted.
        few_clipped: Whether some clipped values are.
        rounded: Whether they are told to others.
        outlying: Groups of devices that stand out. Others are not told: one device with a large value may be why.
    """

    counts: dict[str, int]
    ratio: SampleRatio
    faults: Faults
    losses: Sequence[Loss] = ()
    excess: str = ""
    few_faults: bool = False
    few_clipped: bool = False
    rounded: bool = False
    outlying: Sequence[Outlying] = ()

    @classmethod
    def of(
        cls, plan: Plan, counts: dict[str, int], ratio: SampleRatio, faults: Faults, losses: Sequence[Loss] = ()
    ) -> Checks:
        """With what was lost of records."""
        dropped = [faults.records[arm] for arm in plan.arms]
        if any(dropped):
            records = np.array([n + lost for n, lost in zip(counts.values(), dropped, strict=True)], dtype=np.float64)
            loss = loss_of(None, list(plan.arms), np.array(dropped, dtype=np.float64)[:, None], records[:, None])
            # Faulty records are not counted by stratum, and arms hold strata in different proportions.
            untested = plan.shares_differ
            losses = [*losses, replace(loss, p_value=None) if untested else loss]
        return cls(counts, ratio, faults, losses, excess(faults, sum(counts.values()), plan.drop_limit))

    def told(self, plan: Plan) -> Checks:
        """As they are told to others: counts rounded, and none of fewer faults than the smallest cell."""
        smallest = plan.privacy.smallest_cell
        faults = self.faults.at_least(smallest, round_count)
        return Checks(
            _rounded(self.counts),
            _told_ratio(self.ratio),
            faults,
            # A loss that tells of a few is not told.
            [_told_loss(each) for each in self.losses if not any(0 < lost < smallest for lost in each.lost.values())],
            excess(self.faults, sum(self.counts.values()), plan.drop_limit, faults),
            few_faults=len(faults.records) < len(self.faults.records),
            few_clipped=len(faults.clipped) < len(self.faults.clipped),
            rounded=True,
        )


def _rounded(counts: Mapping[str, float]) -> dict[str, int]:
    return {arm: round_count(n) for arm, n in counts.items()}


def _told_loss(loss: Loss) -> Loss:
    p_value = coarse_p_value(loss.p_value)
    return replace(loss, lost=_rounded(loss.lost), records=_rounded(loss.records), p_value=p_value)


def _told_ratio(ratio: SampleRatio) -> SampleRatio:
    return replace(
        ratio,
        observed=_rounded(ratio.observed),
        expected={arm: float(n) for arm, n in _rounded(ratio.expected).items()},
        p_value=coarse_p_value(ratio.p_value),
    )


def assembled(plan: Plan, rows: Sequence[Effect], checks: Checks, notes: Sequence[str]) -> Effects:
    """The rows with all that belongs to them."""
    faults = checks.faults
    if checks.excess:
        why = sentence(checks.excess)
        rows = [replace(row.without_numbers(checks.excess), relative_why=why, anytime_why=why) for row in rows]
    effects = Effects(
        [_cautioned(row, checks.ratio) for row in rows],
        trial=plan.name,
        confidence=plan.confidence,
        counts=checks.counts,
        sample_ratio=checks.ratio,
        dropped=dict(sorted(faults.records.items())),
        faults=list(faults),
        losses=checks.losses,
        alarm=_alarm(plan, checks),
        notes=[*_notes_on_faults(checks, plan), *notes, *([ROUNDED] if checks.rounded else [])],
        rounded=checks.rounded,
        plan=plan,
    )
    return with_correction(effects)


def _cautioned(row: Effect, ratio: SampleRatio) -> Effect:
    """The row, with a note if it takes the plan's probabilities for those of records that do not fit them."""
    if not ESTIMATORS[row.estimator].assumes or ratio.state == "passes":
        return row
    doubt = "may not be the ones used for the allocation" if ratio.state == "open" else "the arms' counts contradict"
    said = f"{row.estimator} relies on the plan's probabilities, which {doubt}: prefer another estimator."
    return replace(row, note=said if row.note is None else f"{said} {row.note}")


def _alarm(plan: Plan, checks: Checks) -> str | None:
    """What to read before any effect."""
    said = [
        ratio_alarm(checks.ratio),
        f"No effect is shown: {checks.excess}" if checks.excess else None,
        *_loss_alarms(plan, checks.losses),
        *map(_outlying_alarm, checks.outlying),
    ]
    return " ".join(filter(None, said)) or None


def _loss_alarms(plan: Plan, losses: Sequence[Loss]) -> Iterator[str]:
    """What to read before an effect, where the arms lost different shares; once for outcomes that went together."""
    failing = [
        loss
        for loss in losses
        if loss.state == "fails" and not (loss.outcome is None and plan.grouped)  # those of a unit may come together
    ]
    for those in together(failing):
        of = ", ".join(map(repr, titles(plan, those))) or "their records as faulty"
        shares = ", ".join(f"{arm} {_share(those[0], arm)}" for arm in those[0].lost)
        yield (
            f"The arms lost different shares of {of} (p below {SUSPICIOUS}): {shares}. Those who remain are not "
            "comparable, so the effect may come from who is missing. Find out why before you trust it."
        )


def _outlying_alarm(found: Outlying) -> str:
    """What to read before an effect, where groups of devices stand out."""
    shown = ", ".join(map(str, found.groups[:_MOST_NAMED]))
    more = f" and {len(found.groups) - _MOST_NAMED} more" if len(found.groups) > _MOST_NAMED else ""
    which = f"Group {shown} stands out" if len(found.groups) == 1 else f"Groups {shown}{more} stand out"
    return (
        f"{which} in {found.outcome!r} among those of arm {found.arm!r}, further than chance explains: devices in "
        f"{'it' if len(found.groups) == 1 else 'them'} may have sent wrong numbers. Compare with {MEDIAN_OF_MEANS!r}, "
        "which few devices cannot move far."
    )


def together(losses: Sequence[Loss]) -> list[list[Loss]]:
    """Losses of outcomes that went together, such as several quantiles of one column."""
    found: dict[tuple[object, ...], list[Loss]] = {}
    for loss in losses:
        lost = (loss.outcome is None, loss.p_value, *loss.lost.items(), *loss.records.items())
        found.setdefault(lost, []).append(loss)
    return list(found.values())


def titles(plan: Plan, losses: Sequence[Loss]) -> list[str]:
    """What people call the outcomes that were lost."""
    return [plan.outcome(loss.outcome).title for loss in losses if loss.outcome is not None]


def _share(loss: Loss, arm: str) -> str:
    percent = float(f"{100 * loss.lost[arm] / max(loss.records[arm], 1):.2g}")
    return f"{percent:g} %"


def ratio_alarm(ratio: SampleRatio) -> str | None:
    """What to read first where the arms' counts do not fit."""
    if ratio.state not in ("look", "fails"):
        return None
    cause = "Find out why before you trust any effect."
    if ratio.state == "look":
        cause = f"{EITHER} In the first case no effect can be trusted, so find out which it is."
    return (
        f"The arms' {ratio.counted} do not fit the plan's probabilities (p below {SUSPICIOUS}): {seen(ratio)} "
        f"expected. {cause}"
    )


def seen(ratio: SampleRatio) -> str:
    """The arms' counts, each beside the one that the plan's probabilities give."""
    return ", ".join(f"{arm}: {ratio.observed[arm]:,} for {ratio.expected[arm]:,.0f}" for arm in ratio.observed)


def _tested(loss: Loss) -> str:
    if loss.p_value is None:
        return "; it is unknown whether the arms differ in this"
    if loss.state == "fails":  # the alarm says so
        return ""
    look = ". Look into this: the arms may have lost different shares" if loss.state == "look" else ""
    return f"; p = {loss.p_value:.2g} for no difference between the arms{look}"


def _notes_on_faults(checks: Checks, plan: Plan) -> Iterator[str]:
    """What to know about faulty records."""
    faults, small = checks.faults, f" {small_counts(plan)}" if checks.rounded else ""
    if checks.few_faults and not faults:
        yield f"Faulty records were left out, but fewer than {plan.privacy.smallest_cell} of any arm."
    if checks.few_clipped and not faults.clipped:
        yield f"Values outside their bounds were clipped, but fewer than {plan.privacy.smallest_cell} of any arm."
    if faults:
        by_arm = ", ".join(f"{arm or 'arm unknown or unread'} {n:,}" for arm, n in sorted(faults.records.items()) if n)
        reasons = f" ({'; '.join(faults.lines())})" if faults.lines() else ""
        yield f"Faulty records left out: {by_arm}{reasons}. If this depends on the arm, the effects are biased.{small}"
        if any(fault.rule == SEVERAL_ARMS for fault in faults):
            yield f"Some were left out because their unit is in several arms. {WITHIN}"
    for those in together(checks.losses):
        loss = those[0]
        lost = ", ".join(f"{arm}: {n:,} of {loss.records[arm]:,} ({_share(loss, arm)})" for arm, n in loss.lost.items())
        if loss.outcome is not None and any(loss.lost.values()):
            without = " or ".join(map(repr, titles(plan, those)))
            yield f"Records without {without}: {lost}{_tested(loss)}."
        elif loss.outcome is None and loss.state == "open" and plan.within_strata:
            yield (
                "Whether the arms' shares of faulty records differ is not tested: they are not counted by "
                "stratum or site, and the arms' probabilities differ between these."
            )
        elif loss.outcome is None and loss.state in ("look", "fails") and plan.grouped:
            yield (
                f"The arms' shares of faulty records differ: {lost}{_tested(loss)}. The test assumes that records are "
                "independent; the difference may be chance if the records of a unit are faulty together."
            )
        elif loss.outcome is None and loss.state == "look":
            yield f"Shares of faulty records: {lost}{_tested(loss)}."
    columns: dict[str, list[str]] = {}
    for fault in faults.clipped:
        columns.setdefault(fault.column, []).append(f"{fault.arm} {fault.records:,}")
    for column, counts in columns.items():
        yield f"Values of {column!r} outside the plan's bounds were clipped: {', '.join(counts)}.{small}"


def small_counts(plan: Plan) -> str:
    """Why counts of faults that others see do not add up."""
    return f"Counts are rounded, and those below {plan.privacy.smallest_cell} are not shown, so they need not add up."


def left_out_notes(plan: Plan, columns: Sequence[int]) -> list[str]:
    """What to say of columns of covariates without use."""
    if not columns:
        return []
    names = " and ".join(f"“{plan.regressors[1 + column]}”" for column in columns)
    each = "it is" if len(columns) == 1 else "each is"
    return [
        f"The effects are not adjusted for {names}: {each} the same in all records, determined by the covariates "
        "listed before it, or too close to zero to compute with (below 1e-40)."
    ]

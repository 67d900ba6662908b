"""The scorecard: one line for each outcome and arm, with both levels, the effect, its interval and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons, family
from foldaway.effects.looks import look_sentences
from foldaway.effects.numbers import interval_text, signed
from foldaway.effects.verdict import NONE, UNDECIDED, Verdict, verdicts_of
from foldaway.errors import many
from foldaway.table import compact, number, places_for, text_table
from foldaway.tallies.answer import NOT_ADJUSTED

CORRECTION_NAMES = {"holm": "Holm", "benjamini-hochberg": "Benjamini and Hochberg"}
"""Whose correction allows for several comparisons."""

# As much of a name as a line has room for at least.
_SHORTEST = 8

# Columns of a scorecard that names the arm in each line.
_WITH_ARMS = 7

_UNIT = re.compile(r" \([^()]{1,6}\)$")


class ScorecardLine(NamedTuple):
    """A comparison's verdict and its numbers as text, in the decimal places that the effect's error deserves."""

    verdict: Verdict
    heading: str
    control_level: str
    level: str
    effect: str
    interval: str


def lines_of(effects: Findings, *, short: bool = False) -> list[ScorecardLine]:
    """The lines of a scorecard; short ones have large numbers in thousands, millions and so on."""
    leads = [each.lead for each in comparisons(effects)]
    lines = []
    for said, row in zip(verdicts_of(effects), leads, strict=True):
        text = partial(compact, digits=3) if short else partial(number, places=places_for([row.std_error]))
        control, level, effect = map(text, (said.control_level, said.level, said.estimate))
        interval = interval_text(said.ci_lower, said.ci_upper, text=text)
        lines.append(ScorecardLine(said, effects.heading(row.outcome), control, level, signed(effect), interval))
    return lines


def scorecard(effects: Findings, *, short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Header and rows; with a column for the arm if there are several."""
    lines = lines_of(effects, short=short)
    several = len({line.verdict.arm for line in lines}) > 1
    names = [[line.heading, *([line.verdict.arm] if several else [])] for line in lines]
    arms = ["control", "in arm"] if several or not lines else [lines[0].verdict.control, lines[0].verdict.arm]
    interval = f"{100 * effects.confidence:g} % interval"
    header = ["outcome", *(["arm"] if several else []), *arms, "effect", interval, "verdict"]
    return header, [
        [*name, line.control_level, line.level, line.effect, line.interval, line.verdict.words]
        for name, line in zip(names, lines, strict=True)
    ]


def _cut(header: list[str], rows: list[list[str]], names: int, ends: int, width: int) -> bool:
    """Shorten the longest names, those of the arms in the header among them, until the lines fit; whether they do."""
    table = [header, *rows]
    arms = header[names:ends]
    whole = [[row[c] for row in rows] if c < names else arms for c in range(ends)]

    def widths() -> list[int]:
        return [max(len(row[c]) for row in table) for c in range(len(header))]

    while (over := sum(now := widths()) + 2 * (len(header) - 1) - width) > 0:
        text = [max((len(row[c]) for row in rows), default=0) for c in range(len(header))]
        # A heading is worth no more room than what stands below it.
        spare = {c: now[c] - max(_SHORTEST, text[c] if c >= names else 0) for c in range(ends)}
        widest = max(spare, key=lambda c: (spare[c], now[c]))
        if spare[widest] <= 0:
            return False
        short = shortened(whole[widest], now[widest] - min(over, spare[widest], max(1, spare[widest] // 2)))
        if widest < names:
            for row, name in zip(rows, whole[widest], strict=True):
                row[widest] = short[name]
        else:
            header[widest] = short[arms[widest - names]]
    return True


def shortened(names: Iterable[str], most: int) -> dict[str, str]:
    """Names in so many characters that stay distinct: cut at the end, or else in the middle, or else numbered.

    A short unit of measure at the end of a name stays.

    Example:
        >>> list(shortened(["Revenue per visit (€)", "Revenue per order (€)"], 17).values())
        ['Revenue…visit (€)', 'Revenue…order (€)']
    """
    names = list(dict.fromkeys(names))
    for end in (0, most // 2, *range(1, most - 1)):
        short = [_short(name, most, end) for name in names]
        if len(set(short)) == len(names):
            return dict(zip(names, short, strict=True))
    return {name: _short(f"{place}. {name}", most) for place, name in enumerate(names, 1)}


def _short(name: str, most: int, end: int = 0) -> str:
    """A name in so many characters, of which so many, or what whole words these are, are of its end."""
    if len(name) <= most:
        return name
    found = _UNIT.search(name)
    unit = found[0] if found is not None and len(found[0]) < most - 3 else ""
    rest = name.removesuffix(unit)
    end = min(end, most - 2 - len(unit))
    words = re.search(rf"\b\w.{{0,{end - 1}}}$", rest) if end > 0 else None
    last = words[0] if words else rest[len(rest) - max(end, 0) :]
    return f"{rest[: most - 1 - len(last) - len(unit)].rstrip()}…{last}{unit}"


def as_text(effects: Findings, width: int) -> str:
    """The scorecard as text, names cut short so that lines fit."""
    for short, control_only in ((False, False), (True, False), (True, True)):
        header, rows = scorecard(effects, short=short)
        names = 2 if len(header) == _WITH_ARMS else 1
        if control_only:  # the arm's level is the control's and the effect
            for row in (header, *rows):
                del row[names + 1]
        if _cut(header, rows, names, names + 2 - control_only, width):
            break
    wide = max(len(row[-1]) for row in [header, *rows])
    for row in [header, *rows]:
        row[-1] = row[-1].ljust(wide)  # words are set left
    return "\n".join(line.rstrip() for line in text_table(header, rows, left=names).splitlines())


def explanations(effects: Findings) -> list[str]:
    """What a reader of the verdicts should know, each in a sentence or two."""
    said, found = verdicts_of(effects), []
    if effects.plan.looks is not None:
        return [
            *look_sentences(effects),
            *dict.fromkeys(each.lead.note for each in comparisons(effects) if each.lead.note),
        ]
    if any(each.decided and not each.holds for each in said):
        found.append(
            "“One look” means that the verdict holds only if this is the only time that you look at the results. All "
            "other verdicts hold however often you look."
        )
    levels = {effects.plan.outcome(each.outcome).level for each in said if each.decided} - {"mean", "share"}
    if effects.plan.of_devices_sums and any(each.decided for each in said):
        found.append("All verdicts of a federated trial with sums are for one look: sums allow no other test.")
    elif levels:
        of = " and ".join(f"{level}s" for level in sorted(levels))
        found.append(f"Verdicts on {of} are always for one look: there is no test for them that allows several.")
    found += _waiting(said, final=effects.final)
    found += [each.lead.note for each in comparisons(effects) if each.lead.note]
    tested = [row for row in (each.lead for each in comparisons(effects)) if row.p_adjusted is not None]
    if tested:
        name = CORRECTION_NAMES[effects.plan.correction]
        # Whether one would be decided if there were no others.
        alpha = 1 - effects.confidence
        alone = any(
            (row.p_value or 0.0) < alpha <= (row.p_adjusted or 0.0) for row in tested if row.p_value is not None
        )
        enough = ", so an interval that leaves out zero is not enough" if alone else ""
        found.append(f"The verdicts allow for {len(family(effects))} comparisons ({name}){enough}.")
    if any((row.why or "").endswith(NOT_ADJUSTED[1:]) for row in effects):  # it begins with a capital there
        found.append(f"The covariates are not used: {NOT_ADJUSTED}")
    if any(each.question == "alike" for each in said):
        two_tests = f"{100 * max(2 * effects.confidence - 1, 0):g} %"
        found.append(
            f"Whether arms are alike is decided by the {two_tests} interval, which is shown for that question."
        )
    return list(dict.fromkeys(found))


def _waiting(said: Sequence[Verdict], *, final: bool) -> list[str]:
    """Why there are no verdicts, and how much longer the others take, or would have taken in a trial that is over."""
    several = len({each.arm for each in said}) > 1
    names = [f"{each.label}, {each.arm}" if several else each.label for each in said]
    reasons: dict[str, list[str]] = {}
    for name, each in zip(names, said, strict=True):
        if each.verdict == NONE and each.why:
            reasons.setdefault(each.why, []).append(name)
    found = [why if len(of) == len(said) else f"{'; '.join(of)}: {why}" for why, of in reasons.items()]
    for name, each in zip(names, said, strict=True):
        if each.more_records is not None:
            until = "decided" if each.verdict == UNDECIDED else "certain however often you look"
            more = f"about {many(each.more_records, 'more record')}"
            found.append(
                f"{name}: the trial ended before this was {until}. If the effect had stayed as it is, that would "
                f"have taken {more}."
                if final
                else f"{name}: if the effect stays as it is, it will take {more} until this is {until}."
            )
    return found

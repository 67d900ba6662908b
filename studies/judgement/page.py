"""The page: every law of every cell, the figure that was found, and whether the law holds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from studies.findings import Findings, Table, filled
from studies.judgement.design import COVERS, GRID, WRONG, Design, Law
from studies.judgement.runs import Grid
from studies.judgement.tally import Sum, Tally

TOPICS = {
    "shares": "Records convert with the stated probability. In “doubled”, the treatment doubles it. Units have a "
    "probability of their own (beta-binomial, correlation .3). “As others are told” reads the rounded effects, and "
    "counts trials in which others see another verdict than the owner.",
    "revenue": "The stated share of records has a lognormal amount (σ = 1), all others have none. In “half as much "
    "again”, treated amounts are 1.5 times as large: an interval then has to cover, or its row has to have a note.",
    "units": "Records of a unit share a normal effect as large as their own noise; units were randomised. “Uneven” "
    "units have Pareto sizes (index 2, at most 200). In villages, people were randomised, and effects differ between "
    "villages around none. “Still withheld” has more bootstrap replicates than records.",
    "any time": "50 looks at trials without an effect. “Ever wrong”: the any-time verdict finds one at any look.",
    "quantiles": "The quartiles and the 90th percentile of counts, rounded values and continuous values, in arms that "
    "are alike; units share part of their values. In “a fifth more”, treated values are 1.2 times as large.",
    "totals": "2,000 units with gamma-distributed activity. The treatment gives 15 % more records, as valuable or each "
    "worth less, so that totals are equal; the randomisation is sound, so “no verdict” is a fault. By segment, the "
    "effect on every unit is the same, so levels do not differ.",
    "strata": "Three hospitals treat 20, 50 and 80 % and differ in their means; a covariate predicts the outcome. The "
    "width is that of the leading row over the standard error of the blocked (and adjusted) difference from all rows, "
    "by unit. “Whole apart from its segments” is how many standard errors lie between the whole and the mean of its "
    "two halves, weighted by size.",
    "levels": "Whether effects differ between levels of a segment, beside the interaction F of a regression on kept "
    "rows at 5 %. “Power behind” is the share of trials found by F less the share found by foldaway. “As z” puts "
    "p-values on the scale of a normal deviate: their spread over eight keys, and their distance from F's.",
    "adjusted": "One covariate with these slopes in the two arms; each arm has about 300 units or more. The width is "
    "that of `adjusted` over `difference` in the same trial.",
    "sample ratio": "“False alarm”: a sound trial alarms at any of 135 looks. “Alarm”: a trial whose arms came in "
    "other proportions than planned alarms at its end.",
    "words": "Constructed cases: a guardrail that is harmed for certain, by less than its margin; arms that lose 7.7 "
    "and 10 % of their records (p = .01).",
    "beside": "Numbers that belong together, apart in standard errors: the compliers' effect and the ratio of the "
    "adjusted rows beside it; `adjusted` before and after the trial is saved.",
}
"""What the designs of a topic are, and what their figures mean."""

HEADER = ["topic", "cell", "what", "limit", "figure", "holds", "trials", "besides"]
SUMMARY = ["topic", "what", "cell nearest to the limit", "limit", "figure", "cells", "hold"]
ERRORS = 1.96


def findings(grid: Grid, trials: int) -> Findings:
    """The table and what it says."""
    rows = [row for (design, cell), tally in grid.items() for row in _rows(design, cell, tally)]
    ones = [sums for tally in grid.values() for name, sums in tally.sums.items() if name == WRONG.figure]
    said = Counter(row[HEADER.index("holds")] for row in rows)
    return Findings(
        "Verdicts and the rows that lead",
        f"""Are verdicts wrong no more often than they say? This study simulates trials of hard designs, folds them with
        `fa.Trial`, and reads them by `effects.verdicts()` and by the rows that lead.

        “Wrong” is the part of trials without any effect in which the verdict for one look finds one, at 95 %
        confidence. The limit of {100 * WRONG.limit:.1f} % is 5 % and three Monte Carlo standard errors of 2,000 trials.
        “Covers” counts trials that show an interval; its limit of {100 * COVERS.limit:.1f} % is 95 % less three
        standard errors. Trials that withhold a verdict are not wrong.

        Figures are means over {trials:,} trials, or over fewer where the file says so, each with {ERRORS} Monte Carlo
        standard errors. A law “holds” if the figure is within the limit, and does not if the figure is beyond it by
        more than these; between the two it is unclear. The table has, for each kind of law, the cell that is nearest to
        its limit or farthest beyond.""",
        HEADER,
        rows,
        _answer(ones, said),
        left=3,
        details=_topics(grid),
        summary=Table(SUMMARY, list(_worst(grid)), 3),
    )


def _topics(grid: Grid) -> str:
    there = dict.fromkeys(design.topic for design, _ in grid)
    return "## The designs\n\n" + "\n\n".join(filled(f"**{topic}**: {TOPICS[topic]}") for topic in there)


def _rows(design: Design, cell: str, tally: Tally) -> Iterator[list[str]]:
    name = f"{design.name}, {cell}" if cell else design.name
    legislated = {law.figure for law in design.laws}
    besides = ", ".join(
        f"{figure} {_figure(of, share=_is_share(of))}"
        for figure, of in tally.sums.items()
        if figure not in legislated and of.n and of.total
    )
    for place, law in enumerate(design.laws):
        of = tally.sums.get(law.figure, Sum())
        found = (
            "none" if not of.n else f"{_figure(of, share=law.share)} ± {_number(ERRORS * of.error, share=law.share)}"
        )
        yield [
            design.topic,
            name,
            law.figure,
            _limit(law),
            found,
            law.holds(of.mean, of.error),
            f"{tally.trials:,}",
            "" if place else besides,
        ]


def _worst(grid: Grid) -> Iterator[list[str]]:
    """Of each topic and law how many cells there are, in how many it holds, and where it holds by the least."""
    found: dict[tuple[str, Law], list[tuple[str, Sum]]] = defaultdict(list)
    for (design, cell), tally in grid.items():
        for law in design.laws:
            of = tally.sums.get(law.figure, Sum())
            found[design.topic, law].append((f"{design.name}, {cell}" if cell else design.name, of))
    for (topic, law), cells in found.items():
        hold = sum(law.holds(of.mean, of.error) == "yes" for _, of in cells)
        there = [(name, of) for name, of in cells if of.n]
        name, of = (min if law.least else max)(there, key=lambda one: one[1].mean, default=("", Sum()))
        figure = f"{_number(of.mean, share=law.share)} ± {_number(ERRORS * of.error, share=law.share)}"
        yield [topic, law.figure, name, _limit(law), figure if there else "none", f"{len(cells)}", f"{hold}"]


def _is_share(of: Sum) -> bool:
    return of.squares <= of.n * max(of.mean, 0.0) * (1 + 1e-9) and of.mean <= 1


def _figure(of: Sum, *, share: bool) -> str:
    return _number(of.mean, share=share)


def _number(value: float, *, share: bool) -> str:
    if math.isinf(value):
        return "–"
    return f"{100 * value:.1f} %" if share else f"{value:.3g}"


def _limit(law: Law) -> str:
    return f"{'≥' if law.least else '≤'} {_number(law.limit, share=law.share)}"


def _answer(ones: list[Sum], holds: Counter[str]) -> str:
    said = [
        f"Of {holds.total()} laws, {holds['yes']} hold, {holds['unclear']} are unclear and {holds['no']} do not hold."
    ]
    if holds["not told"]:
        said.append(f"Of {holds['not told']} there is no figure, because all trials withhold it.")
    ones = [each for each in ones if each.n]
    if ones:
        mean = sum(each.mean for each in ones) / len(ones)
        worst = max(each.mean for each in ones)
        error = math.sqrt(sum(each.error**2 for each in ones)) / len(ones)
        said.append(
            f"Over the {len(ones)} cells without an effect that are looked at once, verdicts are wrong in "
            f"{100 * mean:.2f} % of trials on average (± {100 * ERRORS * error:.2f} points; the limit is "
            f"{100 * GRID:.1f} %) and in {100 * worst:.1f} % in the worst cell."
        )
    return " ".join(said)

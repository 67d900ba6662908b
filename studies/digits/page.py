"""The page: digits by set and solver, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from studies.digits.sets import Digits
from studies.digits.solvers import FOLDAWAY, RECURSION, SOLVERS
from studies.figures import COLOURS, drawn, style
from studies.findings import Findings, markdown_table

_BATCH_QR = "statsmodels, QR"


def findings(found: Sequence[Digits], draws: int) -> Findings:
    """The tables and what they say."""
    header = ["solver", *_sets(found)]
    coef = {(row.set, row.solver): row.coef for row in found}
    errors = {(row.set, row.solver): row.std_error for row in found}
    with_errors = [name for name in SOLVERS if any(errors[of, name] is not None for of in _sets(found))]
    return Findings(
        "Right digits",
        f"""The table shows how many decimal digits of the worst coefficient are right: minus the logarithm of its
        relative error, at most 16. The first sets are NIST's Statistical Reference Datasets for linear regression with
        their certified answers (Wampler4 and 5 are made from 1 and 3). Of each other kind we drew {draws} sets at
        random, and the table shows medians; there the truth is least squares in rational numbers, computed from exactly
        the doubles that the solvers got.

        foldaway gets the rows all at once, one by one, in batches of five, or in four shards that are merged. The
        others get all rows at once; a solver that fails, or leaves out a column, counts as having no right digits. The
        recursion is Algorithm 1 of the paper to the letter, started from as few records as identify the coefficients.

        The polynomial has degree 10, like NIST's Filip. In the nearly collinear sets, a column is the sum of two others
        except for one part in a million. Large means are covariates around 10 million with a standard deviation of 1,
        and large responses are outcomes around a billion with a standard deviation of about 1. Mixed scales are columns
        between 10⁻¹² and 10¹².""",
        header,
        [[name, *(f"{coef[of, name]:.1f}" for of in header[1:])] for name in SOLVERS],
        _answer(coef, header[1:]),
        details="## Classical standard errors\n\n"
        "The same for standard errors, from the solvers that give them, with the truth for the kinds drawn at random\n"
        "in rational numbers again. Where the certified error is zero (Wampler1 and 2, exact fits), the digits are\n"
        "those of the absolute error.\n\n"
        + markdown_table(
            header, [[name, *(f"{errors[of, name] or 0:.1f}" for of in header[1:])] for name in with_errors], 1
        ),
        figure="Right digits of the worst coefficient by set and solver; the numbers are in the table",
        files={"svg": picture(coef, header[1:])},
        packages=("foldaway", "numpy", "scipy", "statsmodels", "pyfixest", "matplotlib"),
    )


def _sets(found: Sequence[Digits]) -> list[str]:
    return list(dict.fromkeys(row.set for row in found))


def _answer(coef: dict[tuple[str, str], float], sets: Sequence[str]) -> str:
    def gaps(name: str) -> dict[str, float]:
        """How many digits a solver has less than foldaway at its worst."""
        return {of: min(coef[of, way] for way in FOLDAWAY) - coef[of, name] for of in sets}

    behind = gaps(_BATCH_QR)
    worst, best = min(sets, key=lambda of: behind[of]), max(sets, key=lambda of: behind[of])
    literal = gaps(RECURSION)
    lost = max(sets, key=lambda of: literal[of])
    spread = max(max(coef[of, way] for way in FOLDAWAY) - min(coef[of, way] for way in FOLDAWAY) for of in sets)
    return f"""However it folds the rows, foldaway has about as many right digits as a QR of all rows. The number of
    right digits of its worst way, minus that of statsmodels' QR, is between {behind[worst]:+.1f} (on {worst}) and
    {behind[best]:+.1f} (on {best}). Its ways differ from one another by up to {spread:.1f} digits, which is chance in
    the rounding.

    The literal recursion keeps (X'X)⁻¹ and starts from an inverse, so it loses twice as many digits as the columns
    cost: on {lost} it has {coef[lost, RECURSION]:.1f} digits where foldaway has
    {literal[lost] + coef[lost, RECURSION]:.1f}."""


def picture(coef: dict[tuple[str, str], float], sets: Sequence[str]) -> str:
    """A row for each set: the range of foldaway's ways as a bar, a mark for every other solver."""
    others = [name for name in SOLVERS if name not in FOLDAWAY]
    with style():
        figure = Figure(figsize=(8.5, 0.36 * len(sets) + 1.6), layout="constrained")
        ax = figure.subplots()
        at = np.arange(len(sets))
        ours = np.array([[coef[of, way] for way in FOLDAWAY] for of in sets])
        low, high = ours.min(axis=1), ours.max(axis=1)
        ax.barh(at, high - low + 0.16, left=low - 0.08, height=0.62, color="#9ecae9", label="foldaway, all ways", lw=0)
        for name, mark, colour in zip(others, "os^Dv*X", COLOURS, strict=False):
            shown = [coef[of, name] for of in sets]
            ax.plot(shown, at, mark, color=colour, markersize=5, label=name, clip_on=False, alpha=0.9)
        ax.set_yticks(at, sets)
        ax.set_ylim(len(sets) - 0.4, -0.6)
        ax.set_xlim(0, 16)
        ax.set_xticks(range(0, 17, 2))
        ax.grid(axis="x", color="#e5e5e5", lw=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(length=0)
        ax.set_xlabel("right digits of the worst coefficient")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8.5)
        return drawn(figure)

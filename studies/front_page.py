"""The front page's pictures, of a trial that is folded away and also kept: `python -m studies.front_page` draws them.

One shows the effect and its interval as records arrive, the other what each analysis holds meanwhile.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import foldaway as fa
from foldaway.simulation.datasets import checkout
from studies.figures import COLOURS, drawn, style

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

PLAN = fa.Plan(
    name="checkout-button",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    unit="user_id",
)
KEY = bytes(range(16))  # always the same groups, so that the pictures are the same in every run

# Each colour as a light page has it and as a dark one does.
_INK, _SOFT, _GROUND = "#333333", "#888888", "#ffffff"
_DARK = {_INK: "#e2e4e9", _SOFT: "#8d93a0", _GROUND: "#1e2129", COLOURS[0]: "#56B4E9", COLOURS[1]: "#E69F00"}


class Point(NamedTuple):
    """Both analyses after so many records: estimate and end of the interval, and bytes held."""

    records: int
    folded: tuple[float, float, int]
    kept: tuple[float, float, int]


def points(records: int = 100_000, step: int = 4_000) -> list[Point]:
    """Fold a trial and keep its rows, and look at both after every few records."""
    trial, rows, found = fa.Trial(PLAN, key=KEY), list[pa.RecordBatch](), list[Point]()
    for batch in checkout(records, chunk=step):
        trial.fold(batch)
        rows.append(batch)
        [row] = trial.effects().filter(estimator="difference", se_kind="jackknife")
        assert row.estimate is not None
        assert row.ci_upper is not None
        table = pa.Table.from_batches(rows)
        revenue, variant = table["revenue"].to_numpy(), table["variant"].to_numpy()
        control, treated = (revenue[variant == arm] for arm in PLAN.arms)
        estimate = treated.mean() - control.mean()
        reach = 1.96 * math.sqrt(sum(each.var(ddof=1) / len(each) for each in (control, treated)))
        assert math.isclose(row.estimate, estimate, rel_tol=1e-9)
        found.append(
            Point(
                trial.n,
                (row.estimate, row.ci_upper - row.estimate, len(trial.dumps())),
                (float(estimate), reach, table.nbytes),
            )
        )
    return found


def effect(found: list[Point]) -> Figure:
    """The effect and its 95 % interval."""
    figure, axes = _panel("Effect on revenue, with its 95 % interval")
    at = np.array([point.records for point in found])
    kept, folded = (np.array([getattr(point, name)[:2] for point in found]).T for name in ("kept", "folded"))
    axes.fill_between(at, kept[0] - kept[1], kept[0] + kept[1], color=COLOURS[1], alpha=0.25, linewidth=0)
    axes.plot(at, kept[0], color=COLOURS[1], label="all rows kept")
    axes.errorbar(
        at, *folded, color=COLOURS[0], linestyle="none", marker="o", markersize=3.5, linewidth=1, label="foldaway"
    )
    axes.axhline(0, color=_SOFT, linewidth=0.8)
    axes.legend(frameon=False, loc="upper right", labelcolor=_INK)
    return figure


def held(found: list[Point]) -> Figure:
    """The bytes that each analysis holds."""
    figure, axes = _panel("What is held, in megabytes")
    at = [point.records for point in found]
    for name, colour, label in (("kept", COLOURS[1], "all rows kept"), ("folded", COLOURS[0], "foldaway")):
        sizes = [getattr(point, name)[2] / 1e6 for point in found]
        axes.plot(at, sizes, color=colour, marker="o" if name == "folded" else None, markersize=3.5)
        size = f"{sizes[-1]:.1f} MB" if sizes[-1] > 1 else f"{1e3 * sizes[-1]:.1f} kB"
        beside = (-36, -8) if name == "kept" else (0, 8)
        axes.annotate(
            f"{label}: {size}", (at[-1], sizes[-1]), beside, textcoords="offset points", ha="right", color=colour
        )
    return figure


def _panel(title: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(4.2, 3.0), layout="constrained")
    axes.set_title(title, color=_INK, fontsize=11)
    axes.set_xlabel("records that have arrived", color=_INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xticks(range(0, 100_001, 25_000))
    axes.set_xlim(0, 103_000)
    axes.tick_params(colors=_SOFT, labelcolor=_INK)
    for spine in axes.spines.values():
        spine.set_color(_SOFT)
    return figure, axes


def themed(picture: str) -> str:
    """The picture in the colours of the page that shows it, light or dark."""
    names = {light: f"var(--c{number})" for number, light in enumerate(_DARK)}
    for light, name in names.items():
        picture = picture.replace(light, name).replace(light.lower(), name)

    def root(colours: list[str]) -> str:
        return ":root{" + "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours)) + "}"

    rules = f"{root(list(_DARK))}@media (prefers-color-scheme: dark){{{root(list(_DARK.values()))}}}"
    return picture.replace(" <defs>", f" <style>{rules}</style>\n <defs>", 1)


def main() -> None:
    """Draw both pictures and write them to docs/pictures."""
    with style(), plt.rc_context({"font.size": 10}):
        found = points()
        for name, figure in (("effect", effect(found)), ("held", held(found))):
            (PICTURES / f"{name}.svg").write_text(themed(drawn(figure)), encoding="utf-8")
            plt.close(figure)
    last = found[-1]
    print(f"{last.records:,} records: estimates {last.folded[0]!r} and {last.kept[0]!r}; ", end="")
    print(f"half widths {last.folded[1]:.4f} and {last.kept[1]:.4f}; bytes {last.folded[2]:,} and {last.kept[2]:,}")


if __name__ == "__main__":
    main()

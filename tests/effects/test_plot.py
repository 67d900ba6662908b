"""The forest plot: what is drawn is what was found, and no screen is needed."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.headline import comparisons
from reported import HOSTILE, case, renamed
from sizes import mostly_slow
from trials import known


def points(axes: Any) -> list[tuple[float, float]]:
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines if line.get_marker() == "o"]


def bars(axes: Any) -> list[list[float]]:
    drawn = [each for each in axes.collections if isinstance(each, LineCollection)]
    thick = [each for each in drawn if np.max(each.get_linewidth()) == 6]
    return [[float(x) for x in each.get_segments()[0][:, 0]] for each in thick]


@pytest.mark.parametrize("estimators", mostly_slow([False, True], True))
def test_what_is_drawn_is_what_was_found(estimators: bool) -> None:
    effects = case("many").effects()
    figure = effects.plot(estimators=estimators)
    panels: dict[str, list[Effect]] = {}
    for each in comparisons(effects):
        panels.setdefault(each.outcome, []).extend(each.best if estimators else [each.lead])
    assert [axes.get_title("left") for axes in figure.axes] == list(panels)
    for axes, rows in zip(figure.axes, panels.values(), strict=True):
        assert points(axes) == [(row.estimate, y) for y, row in enumerate(rows)]
        assert np.allclose(bars(axes), [[known(row.ci_lower), known(row.ci_upper)] for row in rows])
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert all(label.startswith(row.arm) for label, row in zip(labels, rows, strict=True))
        low, high = axes.get_xlim()
        assert low < min(known(row.ci_lower if row.anytime_ci_lower is None else row.anytime_ci_lower) for row in rows)
        assert high > max(known(row.ci_upper if row.anytime_ci_upper is None else row.anytime_ci_upper) for row in rows)
    figure.savefig(BytesIO(), format="svg")


def test_survival_outcomes_have_their_curves_below() -> None:
    arms, chance = {"a": 0.5, "b": 0.5}, np.random.default_rng(2)
    outcomes: list[Any] = [fa.Survival("days", "gone_$x", until=20, bins=20), "y"]
    trial = fa.Trial(fa.Plan(name="s", arm="g", arms=arms, outcomes=outcomes))
    days = np.ceil(chance.exponential(12, 400))
    rows = {"g": ["a", "b"] * 200, "days": np.minimum(days, 20), "gone_$x": days <= 20, "y": chance.normal(size=400)}
    trial.fold(rows)
    effects = trial.effects()
    figure = effects.plot()
    forest, plain, curves = figure.axes
    assert [each.get_title("left") for each in (forest, plain)] == ["mean days within 20", "y"]
    assert curves.get_title("left") == "Survival curves: days"
    (shown,) = effects.curves
    for line, each in zip(curves.lines, shown.curves, strict=True):
        drawn = dict(zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True))
        assert {time: drawn[time] for time in shown.times} == dict(zip(shown.times, each.survival, strict=True))
        assert line.get_label() == each.arm
    figure.savefig(BytesIO(), format="svg")
    assert len(effects.filter(outcome="y").plot().axes) == 1


def test_axes_of_ones_own() -> None:
    effects = case("many").effects()
    figure = Figure()
    axes = figure.subplots()
    assert effects.filter(outcome="y1").plot(axes) is figure
    assert len(points(axes)) == 4
    with pytest.raises(ValueError, match="one pair of axes can show only one outcome"):
        effects.plot(axes)


def test_intervals_with_one_end_come_from_the_edge_and_margins_are_dotted() -> None:
    outcomes = [fa.Mean("y", better="lower", margin=9), fa.Mean("z", better="higher", margin=9)]
    trial = fa.Trial(fa.Plan(name="m", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes))
    trial.fold({"g": ["a", "b"] * 200, "y": [i % 7 for i in range(400)], "z": [i % 11 for i in range(400)]})
    upper, lower = (each.lead for each in comparisons(trial.effects()))
    assert (upper.ci_lower, lower.ci_upper) == (-np.inf, np.inf)
    worse, better = trial.effects().plot().axes
    ((edge, end),) = bars(worse)
    assert (edge < worse.get_xlim()[0], end) == (True, upper.ci_upper)
    ((end, edge),) = bars(better)
    assert (edge > better.get_xlim()[1], end) == (True, lower.ci_lower)
    for axes, margin in ((worse, 9.0), (better, -9.0)):
        assert margin in [np.asarray(line.get_xdata())[0] for line in axes.lines if line.get_linestyle() == ":"]
        assert axes.get_xlim()[0] < margin < axes.get_xlim()[1]
        assert "dotted: the margin" in axes.get_xlabel().replace("\n", " ")


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no effects to draw"):
        case("empty").effects().plot()


def test_numbers_that_do_not_exist_are_left_out() -> None:
    figure = case("extreme").effects().filter(estimator="difference").plot()
    assert [len(bars(axes)) for axes in figure.axes] == [1, 1, 0, 1]
    assert all(len(points(axes)) == 1 for axes in figure.axes)
    figure.savefig(BytesIO(), format="png")


@pytest.mark.parametrize("name", [HOSTILE.replace("\u202e", ""), "$x^2$", "$\\frac{"])
def test_names_are_no_formulas(name: str) -> None:
    with pytest.warns(fa.SampleRatioWarning):
        figure = renamed(name).effects().plot()
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    assert b"<script" not in drawn.getvalue()


def test_long_names_stay_on_the_page() -> None:
    words = "a name of very many words that nobody would read to its end in a table or in a picture"
    arms = {f"{words} {i}": 0.5 for i in range(2)}
    outcome = fa.Mean("y", label=f"{words}, {words}", measure="thousands of euros")
    trial = fa.Trial(fa.Plan(name="long", arm="g", arms=arms, outcomes=[outcome]))
    trial.fold({"g": list(arms) * 50, "y": list(range(100))})
    for estimators in (False, True):
        figure = trial.effects().plot(estimators=estimators)
        figure.draw_without_rendering()
        for axes in figure.axes:
            box = axes.get_tightbbox()
            assert box is not None
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_matplotlib_is_asked_for_only_when_it_is_needed() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None\n"
        "import foldaway as fa\n"
        "plan = fa.Plan(name='p', arm='g', arms={'a': 0.5, 'b': 0.5}, outcomes=['y'])\n"
        "trial = fa.Trial(plan)\n"
        "trial.fold({'g': list('aabb'), 'y': [1, 2, 3, 5]})\n"
        "effects = trial.effects()\n"
        "trial.report()\n"
        "try: effects.plot()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "matplotlib is not installed: pip install 'foldaway[plot]', or '.[plot]' in a checkout.\n"

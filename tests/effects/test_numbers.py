"""Shares of the control's level are shown where that level is clearly above zero, by one rule everywhere."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.numbers import relative_interval_text, relative_tells, relative_text
from foldaway.report.page.page import effects_page
from pages import parsed, tables

PLAN = fa.Plan(name="near-zero", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"])


def effects_at(level: float, lift: float) -> fa.Effects:
    rng = np.random.default_rng(4)
    arm = np.arange(2000) % 2
    trial = fa.Trial(PLAN)
    trial.fold({"g": np.array(["a", "b"])[arm], "y": level + lift * arm + rng.normal(size=2000)})
    return trial.effects()


@pytest.mark.parametrize(
    ("level", "lift", "tells"),
    [(10.0, 1.0, True), (1.0, 5.0, True), (-0.05, 0.046, False), (0.02, 0.5, False), (-10.0, 1.0, False)],
)
def test_a_share_is_shown_of_a_level_clearly_above_zero(level: float, lift: float, tells: bool) -> None:
    effects = effects_at(level, lift)
    assert [relative_tells(row) for row in effects] == [tells] * len(effects)
    assert ("– Relative to a: " in effects.to_string(all=True)) is tells
    [numbers] = [t for t in tables(parsed(effects_page(effects).html)) if "relative" in t.header]
    shown = [row[numbers.header.index("relative") :][:2] for row in numbers.rows]
    assert all(cells == ["–", "–"] for cells in shown) is not tells
    assert all("%" in cell for cells in shown for cell in cells) is tells


def row(**changed: Any) -> Effect:
    found: Effect = effects_at(10.0, 1.0)[0]
    return msgspec.structs.replace(found, **changed)


def test_the_rule_at_its_edges() -> None:
    assert relative_text(row(relative=0.1, relative_std_error=0.49)) == "+10.0 %"
    assert relative_text(row(relative=0.1, relative_std_error=0.5)) == "–"
    assert relative_text(row(relative=6.0, relative_std_error=2.9)) == "+600 %"
    assert relative_text(row(control_level=0.0)) == "–"
    assert relative_text(row(relative_std_error=None)) == "–"
    assert relative_interval_text(row(relative_ci_lower=-0.02, relative_ci_upper=0.2)) == "-2.00 % to +20.0 %"

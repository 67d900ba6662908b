"""The study of judgement: its references are right, its laws can be broken, and its numbers can be repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.judgement import differing, rare, reading, units, within  # noqa: E402
from studies.judgement.design import COVERS, EVER, WRONG, Design, Found, Law  # noqa: E402
from studies.judgement.designs import DESIGNS  # noqa: E402
from studies.judgement.page import HEADER, TOPICS  # noqa: E402
from studies.judgement.page import findings as page_of  # noqa: E402
from studies.judgement.runs import Grid, simulated  # noqa: E402
from studies.judgement.tally import Tally  # noqa: E402

from studies import __main__ as command  # noqa: E402
from studies import findings  # noqa: E402


def design(end: str) -> Design:
    """The one whose title ends like this."""
    found: Design
    (found,) = [each for each in DESIGNS if each.title.endswith(end)]
    return found


# The references.


def test_the_interaction_of_kept_rows_is_that_of_a_regression() -> None:
    import pandas as pd
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    level, d, y = differing.Levels(5, 12, treated=0.25, apart=0.5).draw(np.random.default_rng(1))
    rows = pd.DataFrame({"y": y, "d": d.astype(int), "level": level})
    small, large = (smf.ols(f"y ~ C(level) {sign} d", rows).fit() for sign in "+*")
    assert differing.interaction(level, d, y) == pytest.approx(anova_lm(small, large)["Pr(>F)"][1], rel=1e-9)


def test_the_interaction_of_kept_rows_holds_its_level() -> None:
    rng = np.random.default_rng(2)
    found = [differing.interaction(*differing.Levels(20, 60).draw(rng)) < 0.05 for _ in range(1_000)]
    assert np.mean(found) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 1_000))


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("adjusted", [False, True])
def test_the_error_of_kept_rows_within_strata_is_that_of_their_blocked_difference(each: int, adjusted: bool) -> None:
    rng, z = np.random.default_rng(3), []
    for _ in range(300):
        ward = within.ward(rng, 400, each)
        y = ward.y - (2 * ward.before[ward.unit] if adjusted else 0.0)  # less what is known to be due to the covariate
        hospital, treated = ward.hospital[ward.unit], ward.treated[ward.unit]
        effect = sum(
            np.mean(hospital == each)
            * (y[(hospital == each) & treated].mean() - y[(hospital == each) & ~treated].mean())
            for each in range(3)
        )
        z.append(effect / within.kept_rows(ward, adjusted=adjusted))
    assert np.std(z) == pytest.approx(1, abs=4 / np.sqrt(2 * 300))


# What is noted.


def test_a_verdict_on_no_effect_is_wrong_if_and_only_if_its_interval_leaves_out_zero() -> None:
    rng = np.random.default_rng(4)
    of, simulate = reading.plan(0.5, ["y"], unit="unit"), units.records(60, 4)
    for _ in range(30):
        ((said, row),) = reading.leads(reading.folded(of, simulate(rng), rng).effects())
        notes = reading.notes_of(said, row, reading.NO_EFFECT)
        assert (said.estimate, said.ci_lower) == (row.estimate, row.ci_lower)
        assert said.ci_lower is not None
        assert said.ci_upper is not None
        assert notes["wrong"] == (not notes["covers"]) == (not said.ci_lower <= 0 <= said.ci_upper)


def test_looking_again_and_again_stops_at_the_first_wrong_verdict() -> None:
    of = reading.plan(0.5, [rare.converts()])
    none = reading.many_looks(of, rare.shares(0.5, 0.3, 600), looks=6)(np.random.default_rng(5))[""]
    many = reading.many_looks(of, rare.shares(0.5, 0.2, 6_000, 3.0), looks=6)(np.random.default_rng(6))[""]
    assert none["ever wrong"] is False
    assert none["looks with an any-time interval"] == pytest.approx(1, abs=0.5)
    assert many["ever wrong"] is True


def test_sums_by_group_of_units_are_wrong_no_more_often_than_they_say() -> None:
    (tally,) = simulated([design("units: 120 units of 6, sums")], 150, 7, 1).values()
    assert tally.sums["wrong"].mean <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150)
    assert tally.sums["covers"].mean == pytest.approx(1 - tally.sums["wrong"].mean)


# Laws and the page.


def test_a_law_is_broken_only_beyond_chance() -> None:
    assert [WRONG.holds(mean, 0.005) for mean in (0.05, 0.065, 0.07, 0.08)] == ["yes", "yes", "unclear", "no"]
    assert [COVERS.holds(mean, 0.005) for mean in (0.95, 0.93, 0.9)] == ["yes", "unclear", "no"]
    assert Law("x", 0.0, never=True).holds(0.01, 1.0) == "no"


def test_the_page_says_which_laws_do_not_hold() -> None:
    def always(rng: np.random.Generator) -> Found:
        return {"": {"wrong": True, "withheld": rng.random() < 0.5}}

    def never(rng: np.random.Generator) -> Found:
        return {"p50": {"wrong": False}, "p90": {"wrong": None}}

    designs = [Design("shares", "bad", always), Design("shares", "good", never, (WRONG, EVER))]
    found = page_of(simulated(designs, 60, 1, 1), 60)
    cells = [dict(zip(HEADER, row, strict=True)) for row in found.rows]
    assert [(each["cell"], each["what"], each["holds"]) for each in cells] == [
        ("bad", "wrong", "no"),
        ("good, p50", "wrong", "yes"),
        ("good, p50", "ever wrong", "not told"),
        ("good, p90", "wrong", "not told"),
        ("good, p90", "ever wrong", "not told"),
    ]
    assert cells[0]["figure"].startswith("100.0 %")
    assert "withheld" in cells[0]["besides"]
    assert "1 do not hold" in found.answer
    assert found.summary is not None
    worst = [dict(zip(found.summary.header, row, strict=True)) for row in found.summary.rows]
    assert [(each["what"], each["cell nearest to the limit"], each["cells"], each["hold"]) for each in worst] == [
        ("wrong", "bad", "3", "1"),
        ("ever wrong", "", "2", "0"),
    ]
    assert "[judgement.csv](judgement.csv)" in found.page("judgement", "")


def test_every_design_has_laws_and_a_name_of_its_own() -> None:
    assert len({each.title for each in DESIGNS}) == len(DESIGNS)
    assert all(each.laws and each.trials(10) >= 1 for each in DESIGNS)
    assert {each.topic for each in DESIGNS} == set(TOPICS)


def test_a_cells_numbers_depend_on_nothing_but_its_seed() -> None:
    chosen = [design("2 % of 1,000, 95/5"), design("0 of 100 against 200 of 9,900")]
    here, turned, elsewhere = (
        simulated(chosen, 30, 3, 1),
        simulated(chosen[::-1], 30, 3, 1),
        simulated(chosen, 30, 3, 2),
    )

    def told(grid: Grid) -> dict[tuple[str, str], Tally]:
        return {(of.title, cell): tally for (of, cell), tally in grid.items()}

    assert told(here) == told(turned) == told(elsewhere)
    assert told(here) != told(simulated(chosen, 30, 4, 1))
    assert told(here)["shares: 2 % of 1,000, 95/5", ""].trials == 30
    assert {each.trials for title, each in told(here).items() if "0 of 100" in title[0]} == {1}


def test_the_command_runs_chosen_cells_and_keeps_no_page_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(findings, "PAGES", tmp_path)
    command.main(["judgement", "--trials", "2", "--processes", "1", "--cells", "0 OF 100"])
    shown = capsys.readouterr()
    assert "0 of 100 against 200 of 9,900" in shown.out
    assert "judgement, times 25 trials: 1 in" in shown.err
    for words, why in ((["--cells", "0 of 100", "--write"], "every cell"), (["--cells", "nonsense"], "nonsense")):
        with pytest.raises(SystemExit, match=why):
            command.main(["judgement", *words])
    assert not list(tmp_path.iterdir())

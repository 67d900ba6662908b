"""A trial whose effects are told once, with noise: nothing before, the same ever after, and nothing exact is left."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.effects.door import TOLD
from foldaway.evidence.certificate import issue
from foldaway.evidence.ledger import ANSWERED, ENDED, KEY_DESTROYED, KEY_IN_USE, REGISTERED
from foldaway.evidence.verifying import verify
from foldaway.keeping.saved import StreamPositions, load
from foldaway.keeping.user_keys import user_signer
from foldaway.report.page.plan_summary import summary
from foldaway.tallies import Lean
from foldaway.tallies.release import noise_scale
from foldaway.trial import finish_ending

KEY = bytes(16)


def plan_of(**settings: Any) -> fa.Plan:
    about = {"arm": "group", "arms": {"a": 0.5, "b": 0.5}, "outcomes": [fa.Mean("y", bounds=(0, 40))]}
    return fa.Plan(**{"name": "told", **about, "unit": "u", "records_per_unit": "one", "release": 1.0, **settings})


def rows(n: int = 20_000, effect: float = 2.0, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arm = rng.random(n) < 0.5
    y = np.clip(rng.gamma(4, 3, n) + effect * arm, None, 39)
    return {"group": np.where(arm, "b", "a"), "u": np.arange(n), "y": y}


def folded(plan: fa.Plan, data: dict[str, Any] | None = None) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY if plan.keyed else None)
    trial.fold(rows() if data is None else data)
    return trial


def test_before_the_release_every_question_gets_the_same_words_however_many_have_come() -> None:
    said = set()
    for n in (0, 1, 20_000):
        trial = folded(plan_of(), rows(n))
        for ask in (trial.effects, trial.report, trial.told, lambda of=trial: of.read(TOLD)):
            with pytest.raises(fa.Unreleased) as told:
                ask()
            said.add(str(told.value))
    assert len(said) == 1
    assert not any(sign.isdigit() for sign in said.pop())


def test_the_ledger_of_a_release_has_nothing_that_depends_on_exact_tallies(tmp_path: Path) -> None:
    """One person who alone has an amount: an audit of the exact tallies would solve for them, and say so."""
    ledgers = []
    for n in (0, 150, 151, 6_000):
        data = rows(n)
        data["y"] = np.where(np.arange(n) == 150, 7.0, 0.0)
        trial = folded(plan_of(), data)
        trial.save(tmp_path / "open")
        trial = fa.Trial.load(tmp_path / "open", key=KEY)
        trial.end()
        trial.save(tmp_path / "released", positions=StreamPositions("orders", places={"": (n,)}))
        finish_ending(tmp_path / "released", given=True)
        saved = load(tmp_path / "released")
        assert saved.positions is None
        entries = [(each.kind, each.content.get("records")) for each in saved.ledger if each.kind != ENDED]
        ledgers.append(entries)
        assert saved.final is not None
        issued = issue(user_signer(), trial.plan.canonical().decode(), saved.final.effects, saved.ledger, [])
        assert verify(issued.dumps()).good
    assert all(entries == ledgers[0] for entries in ledgers)
    assert {kind for kind, _ in ledgers[0]} == {REGISTERED, KEY_IN_USE, ANSWERED, KEY_DESTROYED}


def test_a_release_of_nobody_is_noise_and_has_no_numbers() -> None:
    """To refuse it would tell that nobody came."""
    effects = fa.Trial(plan_of(), key=KEY).end()
    assert not any(row.reliable for row in effects)


def test_a_release_is_drawn_once_and_nothing_exact_is_left() -> None:
    trial = folded(plan_of(drop_limit=0.05))
    trial.fold({"group": ["a", "b"], "u": [-1, -2], "y": [99.0, None]})
    assert isinstance(trial.tallies, Lean)
    exact = trial.tallies.sums
    assert exact is not None
    first = trial.end()
    assert trial.end().rows == first.rows
    state = trial.dumps()
    again = fa.Trial.loads(state)
    assert again.released
    assert again.effects().rows == again.end().rows == first.rows
    assert again.dumps() == state
    assert len(state) < 3_000
    for name, array in exact.arrays().items():
        if array.any():
            assert array.tobytes()[:64] not in state, name
    assert not first.dropped
    assert not first.faults
    assert not again.dropped
    assert "the exact ones are gone" in again.report().html
    with pytest.raises(fa.EndedError):
        trial.fold(rows())
    with pytest.raises(fa.StateError, match="cannot be merged"):
        trial.merge(folded(trial.plan))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"unit": None, "records_per_unit": "many"},
        {"records_per_unit": "together", "release": {"epsilon": 1.0, "unit_records": 2}},
        {"outcomes": [fa.Total("y", bounds=(0, 40))]},
    ],
)
def test_a_release_is_the_exact_effect_and_some_noise_which_its_error_knows(settings: Any) -> None:
    plan = plan_of(**settings)
    data = rows(400_000)  # enough for noise not to be most of it by chance
    exact = folded(fa.Plan(**{**_settings(plan), "release": None, "records_per_unit": "many"}), data).effects()[0]
    told = folded(plan, data).end()[0]
    assert exact.estimate is not None
    assert exact.std_error is not None
    assert told.estimate is not None
    assert told.std_error is not None
    assert told.widening is not None
    assert told.se_kind == "jackknife"
    assert (told.epsilon, told.delta, told.protects) == (1.0, 1e-6, plan.protects)
    # 16 groups know their error to a fifth or so, and no two runs have the same noise.
    assert abs(told.estimate - exact.estimate) < 8 * told.std_error
    assert 0.4 < told.std_error / exact.std_error < 3 * told.widening
    assert told.widening > 1


def _settings(plan: fa.Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in fa.Plan.__struct_fields__}


def test_shares_of_independent_records_need_no_groups() -> None:
    data = rows()
    data["y"] = (data["y"] > 15).astype(float)
    plan = plan_of(outcomes=[fa.Mean("y", bounds=(0, 1))])
    trial = folded(plan, data)
    exact = folded(fa.Plan(**{**_settings(plan), "release": None}), data).effects()[0]
    effects = trial.end()
    told = effects[0]
    assert isinstance(trial.tallies, Lean)
    assert trial.tallies.records.shape == (2, 1)
    assert told.se_kind == "welch"
    assert told.widening is not None
    assert exact.std_error is not None
    assert told.std_error == pytest.approx(told.widening * exact.std_error, rel=0.02)
    assert 1 < told.widening < 1.05
    assert effects.sample_ratio.ok


def test_an_arm_that_noise_drowns_is_not_told() -> None:
    effects = folded(plan_of(), rows(300)).end()
    assert not effects[0].reliable
    assert effects[0].estimate is None
    assert "cannot be distinguished from the noise" in str(effects)


def test_every_result_says_what_was_spent_and_on_what() -> None:
    effects = folded(plan_of(), rows(100_000)).end()
    sentence = "It protects each unit, if it has one record, as the plan promises."
    back = fa.Effects.from_json(effects.to_json())
    for text in (" ".join(str(effects).split()), effects.to_html(), " ".join(back.notes)):
        assert "ε = 1, δ = 1e-06" in text
        assert sentence in text
        assert "times as wide as without noise" in text
    assert back.rows == effects.rows
    assert effects.to_arrow().column("epsilon").to_pylist() == [1.0]
    assert effects.to_dicts()[0]["protects"] == "unit"
    record = folded(plan_of(records_per_unit="many")).end()
    assert "each record; the more records a unit has, the less it is protected" in " ".join(record.notes)


def test_a_plan_can_be_checked_where_what_draws_the_noise_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    noise_scale.cache_clear()
    said = " ".join(summary(plan_of()).split())
    assert "told is a valid plan" in said
    assert "How many records an arm needs is not known here, because opendp is not installed" in said


def test_the_command_line_releases_once_and_nobody_can_open_what_was_exact(tmp_path: Path) -> None:
    plan, state, data = tmp_path / "plan.toml", tmp_path / "state", tmp_path / "rows.csv"
    plan_of().save(plan)
    table = rows(3_000)
    lines = ["group,u,y", *(f"{g},{u},{y:.3f}" for g, u, y in zip(*table.values(), strict=True))]
    data.write_text("\n".join(lines))
    run = foldaway("run", plan, data, "--save", state, env={"XDG_STATE_HOME": str(tmp_path / "home")})
    assert run.stdout == ""
    assert "published once, with noise" in " ".join(run.stderr.split())
    copy = tmp_path / "exact"
    shutil.copy(state, copy)
    home = {"XDG_STATE_HOME": str(tmp_path / "home")}
    first = foldaway("end", state, "--json", "--yes", env=home)
    second = foldaway("end", state, "--json", env=home)
    assert "std.err." in foldaway("end", state, "--all", env=home).stdout
    foldaway("certificate", state, env=home)
    verified = " ".join(foldaway("verify", f"{state}.certificate.json", env=home).stdout.split())
    assert "to the end, the keys included" in verified  # a release needs no audit
    assert '"epsilon":1.0' in first.stdout
    assert first.stdout == second.stdout
    with pytest.raises(fa.StateError, match="encrypted under a key"):
        fa.Trial.load(copy)
    assert not list((tmp_path / "home" / "foldaway" / "keys").iterdir())

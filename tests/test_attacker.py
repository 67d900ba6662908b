"""An attacker with the exported state and every identifier: what the key keeps from them, and why it must be destroyed.

The weights of a unit are the same in all its records, and a replicate's total weight is in the state. So whoever can
make a unit's weights can see whether the unit is in the totals. The tests play it with guessed keys, where nothing may
come of it, and with the true key, where nearly everything does: so the attack is a real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import foldaway as fa
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.numerics.kernels.weights import Kind
from foldaway.plan import Bootstrap
from resampling import KEY, folded, of_records, unit_weights
from sizes import mostly_slow
from written_weights import weights

KINDS: list[Kind] = ["poisson", "double-or-nothing"]
GROUP = 12
B = 256


def plan_of(kind: Kind, replicates: int = B) -> fa.Plan:
    return fa.Plan(
        name="target",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        unit="who",
        moments=fa.Moments(bootstrap=Bootstrap(replicates, kind)),
    )


def state_of(plan: fa.Plan, who: Sequence[str], key: bytes, rng: np.random.Generator) -> bytes:
    """The exported state of a trial of these units, with outcomes that tell nothing of who they are."""
    records = [name for name in who for _ in range(2)]
    arms = np.tile(["a", "b"], len(records) // 2)
    trial = fa.Trial(plan, key=key)
    trial.fold({"group": arms, "y": rng.normal(size=len(records)), "who": records})
    trial.end(without_effects=True)
    return trial.dumps()


def exported_totals(state: bytes) -> list[Floats]:
    """The replicates' sums of each arm, as anybody can read them who has the state: no code of foldaway's in it."""
    body = msgspec.msgpack.decode(state[8 + 2 + 32 :])
    found = []
    for arm in body["tallies"]["arms"]:
        _, (shape, data) = arm["tallies"]["replicates"]
        found.append(np.frombuffer(data, dtype="<f8").reshape(shape))
    return found


def weight_totals(state: bytes) -> Floats:
    """Each replicate's total weight, as it varies: the first of the sums is that of the intercept."""
    total = np.sum([totals[:, 0] for totals in exported_totals(state)], axis=0)
    centred: Floats = total - total.mean()
    return centred


def guessed_weights(who: Sequence[str], keys: Iterable[bytes], plan: fa.Plan) -> NDArray[np.float64]:
    """The weights under each key, taken as it is and as a trial would use it: keys by units by B."""
    assert plan.bootstrap is not None
    names, kind = pa.array(list(who)), plan.bootstrap.weights
    used = [as_used for key in keys for as_used in (key, Secret(key).of_units(plan.fingerprint))]
    return np.array([weights(hash_identifiers(names, key), B, kind) for key in used], dtype=np.float64)


def best_match(state: bytes, guesses: NDArray[np.float64]) -> float:
    """How well the totals fit the summed weights of a group, under the key that fits best; guesses are keys by B."""
    centred = guesses - guesses.mean(axis=1, keepdims=True)
    total = weight_totals(state)
    fits = centred @ total / (np.linalg.norm(centred, axis=1) * np.linalg.norm(total))
    return float(fits.max())


def successes(kind: Kind, trials: int, keys: Sequence[bytes] | None) -> int:
    """How often the attacker tells which of two groups was in the trial; with the trial's own key if none are given."""
    rng = np.random.default_rng(1)
    plan = plan_of(kind)
    groups = [[f"user-{i}" for i in range(g * GROUP, (g + 1) * GROUP)] for g in (0, 1)]
    guesses = None if keys is None else [guessed_weights(group, keys, plan).sum(axis=1) for group in groups]
    right = 0
    for _ in range(trials):
        truth, key = int(rng.integers(2)), rng.bytes(16)
        state = state_of(plan, groups[truth], key, rng)
        of_groups = guesses or [guessed_weights(group, [key], plan).sum(axis=1) for group in groups]
        fits = [best_match(state, of_group) for of_group in of_groups]
        right += int(np.argmax(fits)) == truth
    return right


@pytest.mark.parametrize(
    ("kind", "trials"), mostly_slow([("poisson", 150), *((kind, 500) for kind in KINDS)], ("poisson", 150))
)
def test_without_the_key_nobody_can_tell_which_group_was_in_the_trial(kind: Kind, trials: int) -> None:
    rng = np.random.default_rng(2)
    keys = [bytes(16), b"\xff" * 16, KEY, *(rng.bytes(16) for _ in range(300))]
    right = successes(kind, trials, keys)
    assert abs(right - trials / 2) < 3 * np.sqrt(trials) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_key_everybody_could(kind: Kind) -> None:
    assert successes(kind, 100, None) >= 99


def member_scores(kind: Kind, trials: int, *, know_key: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """For trials with and without one unit: how its weights fit the totals, and whether it was in."""
    rng = np.random.default_rng(3)
    plan = plan_of(kind)
    others = [f"user-{i}" for i in range(1, 6)]
    scores, inside = np.empty(trials), rng.random(trials) < 0.5
    for i in range(trials):
        key = rng.bytes(16)
        state = state_of(plan, ["user-0", *others] if inside[i] else ["user-6", *others], key, rng)
        guess = key if know_key else rng.bytes(16)
        scores[i] = best_match(state, guessed_weights(["user-0"], [guess], plan)[1])
    return scores, inside


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_without_the_key_nobody_can_tell_whether_a_unit_was_in_the_trial(kind: Kind) -> None:
    trials = 1_000
    scores, inside = member_scores(kind, trials, know_key=False)
    right = np.sum((scores > np.median(scores)) == inside)
    assert abs(right - trials / 2) < 3 * np.sqrt(trials) / 2
    # Not only at that threshold: the scores inside and outside are of one distribution.
    ranks = pd.Series(scores).rank()
    outside = trials - inside.sum()
    spread = np.sqrt(inside.sum() * outside * (trials + 1) / 12)
    assert abs(ranks[inside].sum() - inside.sum() * (trials + 1) / 2) < 3 * spread


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_key_everybody_could_tell_that_too(kind: Kind) -> None:
    scores, inside = member_scores(kind, 100, know_key=True)
    assert np.mean((scores > 0.2) == inside) >= 0.97


def test_an_end_leaves_the_attacker_nothing_to_make_weights_from() -> None:
    plan = plan_of("poisson")
    trial = fa.Trial(plan, key=KEY)
    trial.fold({"group": ["a", "b"], "y": [1.0, 2.0], "who": ["user-0", "user-1"]})
    held = trial.secret.found()
    trial.end(without_effects=True)
    for ended in (trial, trial.copy(), trial + fa.Trial(plan), fa.Trial.loads(trial.dumps(), key=KEY)):
        with pytest.raises(fa.EndedError):
            _ = ended.key
    assert held is not None
    assert not held.held


# Why there is a floor on the records, and why the key is destroyed: the equations behind the replicates.


def raw_sums(trial: fa.Trial) -> list[Floats]:
    """Each arm's replicate sums of the raw outcome, from the state: y = F[0, y] + F[y, y] t, with t in the frame."""
    body = msgspec.msgpack.decode(trial.dumps()[8 + 2 + 32 :])
    sums = []
    for arm in body["tallies"]["arms"]:
        shape, frame = arm["frame"]
        F = np.frombuffer(frame, dtype="<f8").reshape(shape)
        _, (shape, data) = arm["tallies"]["replicates"]
        totals = np.frombuffer(data, dtype="<f8").reshape(shape)
        sums.append(F[0, -1] * totals[:, 0] + F[-1, -1] * totals[:, -1])
    return sums


def records_of(n: int, per_unit: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    who = np.repeat([f"user-{i}" for i in range(n // per_unit)], per_unit)
    return pd.DataFrame({"group": np.repeat(rng.choice(["a", "b"], n // per_unit), per_unit), "who": who}).assign(
        y=rng.lognormal(3, 1, n)
    )


def solved(trial: fa.Trial, units: dict[str, list[str]]) -> dict[str, float]:
    """What the replicates say of each unit to one who has the key: W'y = sums, solved for y."""
    found: dict[str, float] = {}
    for sums, who in zip(raw_sums(trial), units.values(), strict=True):
        W = unit_weights(trial.plan, who).astype(float)
        found |= dict(zip(who, np.linalg.lstsq(W.T, sums, rcond=None)[0].tolist(), strict=True))
    return found


def test_with_the_key_and_no_more_records_than_replicates_every_outcome_can_be_solved_for() -> None:
    rows = records_of(150)
    trial = folded(plan_of("poisson", 150), rows)
    found = solved(trial, {arm: rows["who"][rows["group"] == arm].tolist() for arm in ("a", "b")})
    np.testing.assert_allclose([found[who] for who in rows["who"]], rows["y"], rtol=1e-6)
    # Hence the floor: a trial of this size shows nothing that comes from the replicates.
    for row in trial.effects().filter(se_kind="bootstrap"):
        assert not row.reliable
        assert (row.std_error, row.percentile_ci_lower, row.percentile_p_value, row.replicates) == (None,) * 4
    larger = records_of(400)
    assert min((larger["group"] == arm).sum() for arm in ("a", "b")) > 150
    assert len(folded(trial.plan, larger).effects().filter(se_kind="bootstrap")) > 0


def test_of_units_with_several_records_it_is_their_sums() -> None:
    """The floor counts records: units are never counted, since that would mean to remember them."""
    rows = records_of(600, per_unit=6)
    trial = folded(plan_of("poisson", 200), rows)
    units = {arm: rows["who"][rows["group"] == arm].unique().tolist() for arm in ("a", "b")}
    found = solved(trial, units)
    sums = rows.groupby("who")["y"].sum()
    np.testing.assert_allclose([found[who] for who in sums.index], sums, rtol=1e-6)


def test_of_many_more_units_than_replicates_it_is_nothing() -> None:
    rows = records_of(3_000)
    trial = folded(plan_of("poisson", 100), rows)
    found = solved(trial, {arm: rows["who"][rows["group"] == arm].tolist() for arm in ("a", "b")})
    y = rows["y"].to_numpy()
    guess = np.array([found[who] for who in rows["who"]])
    assert np.mean(np.abs(guess - y) < 0.01 * y) < 0.05
    assert np.corrcoef(guess, y)[0, 1] < 0.4


def test_without_the_key_the_equations_cannot_be_written_down() -> None:
    rows = records_of(150)
    trial = folded(plan_of("poisson", 150), rows, key=bytes(range(100, 116)))
    found = solved(trial, {arm: rows["who"][rows["group"] == arm].tolist() for arm in ("a", "b")})  # under KEY
    guess = np.array([found[who] for who in rows["who"]])
    assert abs(np.corrcoef(guess, rows["y"])[0, 1]) < 0.3


def test_weights_of_records_without_a_unit_cannot_be_made_from_the_key_alone() -> None:
    """They are numbered under a nonce that never leaves the process: two trials of the same records differ."""
    plan, rows = of_records()
    one, other = (exported_totals(folded(plan, rows).dumps())[0][:, 0] for _ in range(2))
    assert not np.array_equal(one, other)
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one))


def test_the_attackers_reading_of_the_state_is_right() -> None:
    rows = records_of(60)
    trial = folded(plan_of("poisson", 20), rows)
    for arm, sums, totals in zip(("a", "b"), raw_sums(trial), exported_totals(trial.dumps()), strict=True):
        mine: Any = rows[rows["group"] == arm]
        W = unit_weights(trial.plan, mine["who"]).astype(float)
        np.testing.assert_allclose(totals[:, 0], W.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(sums, W.T @ mine["y"].to_numpy(), rtol=1e-9)

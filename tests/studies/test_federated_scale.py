"""Simulated devices against a real coordinator: the real client's code, beside an analysis that kept every row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foldaway.errors import FoldawayError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.federated_scale import memory_told  # noqa: E402
from studies.federated_scale.population import CHUNK, World, clients  # noqa: E402
from studies.federated_scale.run import simulate  # noqa: E402

# What rounding changes at the most, in standard errors: two levels by half a step, with an error of two digits. That
# the numbers before rounding are those of kept rows is for tests/federated to say.
ROUNDED = 0.25


def all_of(world: World) -> list[tuple[bytes, str, str]]:
    plan = world.plan
    return [(c.identity, c.role, repr(c.records)) for start in world.chunks for c in clients(world, plan, start)]


def test_a_world_follows_from_its_seed_and_a_smaller_one_is_its_beginning() -> None:
    large, small = World(700, drop_out=0.2, late=0.1, seed=3), World(550, drop_out=0.2, late=0.1, seed=3)
    assert all_of(large) == all_of(large)
    assert all_of(large)[:550] == all_of(small)
    assert all_of(World(20, seed=4)) != all_of(World(20, seed=3))
    assert len({identity for identity, *_ in all_of(large)}) == 700 > CHUNK


def test_roles_come_in_their_shares() -> None:
    roles = [role for _, role, _ in all_of(World(4000, drop_out=0.3, late=0.1))]
    assert roles.count("drops out") == pytest.approx(1200, abs=150)
    assert roles.count("is late") == pytest.approx(400, abs=100)


@pytest.mark.slow
def test_in_mode_one_message() -> None:
    found = simulate(World(100, drop_out=0.1, late=0.1), processes=1)
    assert found.enrolled == 100
    assert found.reported == found.states["counted"]
    assert found.missing == found.states["dropped out"] + found.states["missed"] > 10
    assert max(found.differences) < ROUNDED
    assert found.report_numbers == 6
    assert 64 < found.report_bytes < 64 + 105  # six numbers in base64, and the rest of the message
    assert found.messages["enrolments"] == 100


@pytest.mark.slow
def test_in_mode_scores_only_moments_short_of_a_cohort_are_left_out() -> None:
    told = []
    world = World(80, "scores")
    summary = simulate(world, processes=2, progress=lambda what, done: told.append((what, done)))
    assert summary.enrolled == summary.reported + summary.missing == 80
    assert summary.missing < world.plan.privacy.cohort
    assert summary.integrity is not None
    assert sum(done for what, done in told if what == "collect") == 80
    assert len(summary.memory) == 3


@pytest.mark.slow
def test_who_does_not_ask_again_is_counted_all_the_same() -> None:
    summary = simulate(World(120, "delta", ask_again=0.1), processes=1)
    assert (summary.enrolled, summary.reported) == (120, 120)
    assert summary.states["pending"] + summary.states["counted"] == 120
    assert summary.states["pending"] > 0
    assert summary.messages["enrolments"] == 120 <= summary.messages["reports"] < 150
    assert summary.disk > 120 * 16
    assert summary.worked > 0


@pytest.mark.parametrize(("end", "flat"), [(2**20, True), (2**20 + 100_000, False)])
def test_the_study_says_of_memory_what_was_measured(end: int, flat: bool) -> None:
    class Measured:
        world = World(1000)
        growth = (end - 2**20) / 500

    told = memory_told([Measured()])  # type: ignore[list-item]
    assert ("keeps nothing of a device" in told) is flat
    assert ("is not flat" in told) is not flat


@pytest.mark.slow
@pytest.mark.parametrize("world", [World(100, "scores", drop_out=0.9), World(10, drop_out=0.9)])
def test_too_few_devices_are_said_to_be_too_few(world: World) -> None:
    with pytest.raises(FoldawayError, match="too few devices"):
        simulate(world, processes=1)

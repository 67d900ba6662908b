"""Attacks on disks: with the defences off they find what is there, with the defences nothing."""

from __future__ import annotations

import pytest

from postgres import Postgres
from studies import disk_attacks as attacks


def test_former_states_of_a_trial_that_has_ended_are_noise_in_tables_and_log(postgres: Postgres) -> None:
    with attacks.undefended():
        found = attacks.database_attack(postgres, 3, seed=2)
    assert found[attacks.STATES] == 3
    assert found[attacks.AMOUNTS] > 0.9 * 3 * attacks.UNITS
    assert not any(attacks.database_attack(postgres, 3, seed=2).values())


@pytest.mark.parametrize("ending", attacks.ENDINGS)
def test_a_saved_states_former_bytes_are_overwritten(ending: str) -> None:
    with attacks.undefended():
        assert attacks.former_bytes(ending, seed=2)
    assert not attacks.former_bytes(ending, seed=2)


@pytest.mark.parametrize("which", attacks.PLANTS)
def test_a_planted_key_is_refused(which: str) -> None:
    with attacks.undefended():
        assert attacks.planted(which)
    assert not attacks.planted(which)

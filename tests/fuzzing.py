"""Hypothesis as these tests want it: the same cases in every run, however slow the machine."""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings

fuzz = partial(
    settings,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

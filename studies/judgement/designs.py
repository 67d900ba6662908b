"""Every design of the study."""

from __future__ import annotations

from studies.judgement import beside, checks, differing, rare, steps, totals, unequal, units, within

DESIGNS = tuple(
    design
    for room in (rare, units, steps, totals, within, differing, unequal, checks, beside)
    for design in room.designs()
)

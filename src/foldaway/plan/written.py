"""The settings of a plan, beside those of its parts, as they may be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from foldaway.plan.allocation import WrittenArms
from foldaway.plan.columns import Characteristic, Column, Columns, Covariate, Segment
from foldaway.plan.looks import Looks
from foldaway.plan.outcomes import Outcome
from foldaway.plan.part import Count, Part
from foldaway.plan.parts import Coefficients, Federated, Moments, Privacy, Release, Strata
from foldaway.plan.protocol import Estimand, Flow
from foldaway.plan.vocabulary import MANY, Hash, ModeName, RecordsPerUnit

_COLUMNS = "a list of columns, each its name or a table with its `column` and what else is said of it"
Covariates = Annotated[Sequence[Covariate | str | Mapping[str, Any]], Meta(description=_COLUMNS)]
Segments = Annotated[Sequence[Segment | str | Mapping[str, Any]], Meta(description=_COLUMNS)]
Characteristics = Annotated[Sequence[Characteristic | str | Mapping[str, Any]], Meta(description=_COLUMNS)]
Outcomes = Annotated[
    Sequence[Outcome | str | Mapping[str, Any]],
    Meta(description="a list of outcomes, each the name of a column or a table with its `kind`"),
]
Confidence = Annotated[float, Meta(ge=0.5, lt=1, description="a number from 0.5 to below 1, for example 0.95")]
DropLimit = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1, for example 0.05")]


class Written(Part, frozen=True, kw_only=True, eq=False):
    """Every setting of a plan, as it may be written.

    Attributes:
        name: The trial's name (letters, digits, dot, dash, underscore).
        arm: The column that names the arm.
        arms: Probability of each arm; the first arm is the control. If the column spells an arm differently, a table
            with its ``share`` and the ``values`` that stand for it, such as ``{"control": 0.5, "new": {"share": 0.5,
            "values": ["new", "New"]}}``.
        outcomes: What to compare: means (a column name is short for one), shares, ratios, quantiles, totals and
            survival.
        covariates: Columns measured before treatment, for precision.
        segments: Columns for whose values effects are shown separately, with a test of whether they differ.
        baseline: Columns measured before treatment, for the table of baseline characteristics by arm. A record may lack
            them.
        strata: The column that names the stratum within which a unit was randomised, and the arms' probabilities in
            each.
        unit: The column that names what was randomised; also the cluster, unless the plan names one.
        cluster: The column that names the clusters within which units were randomised, such as villages with people of
            both arms; errors allow for what units of a cluster have in common. Without a `unit`, each record was
            randomised. A unit belongs to one cluster.
        weight: The column of observation weights.
        received: The column that says whether, or how much of, the treatment was taken up; gives the compliers' effect.
        confidence: Coverage of the intervals.
        correction: How p-values and verdicts allow for several comparisons (outcomes, arms; segments among themselves):
            ``"holm"`` bounds the chance of any false finding, ``"benjamini-hochberg"`` the part of false ones among the
            findings, ``"none"`` takes each comparison by itself. Guardrails are tested apart.
        records_per_unit: ``"many"``, or a promise. ``"one"``: no unit has more than one record, so records are
            independent. ``"together"``: all records of a unit come in one batch, and a unit is in one arm; gives CR0
            and CR1. A unit in both arms is refused within a batch; in different batches it would count as two,
            unnoticed.
        expected_units: About how many units, or records without a `unit`, the trial is to have in all arms. Units are
            dealt into as many groups as leave `privacy.smallest_cell` of them in each (128 without it), and the
            any-time interval is tightest there (at 10,000 without it).
        hash: How identifiers are dealt into groups: ``"siphash"``, or ``"sha256"``, which warehouses can compute too.
        coefficients: How covariates predict each outcome (`plan.calibrated` finds them). If left out, they are found
            from the trial's own records when it is first saved.
        drop_limit: The largest part of all records that may be faulty. At 0 a batch with a faulty record is refused
            whole. Above 0 such records are dropped and counted; while they are more, no effect is shown.
        looks: When the trial is looked at, and how much of the error rate each look may spend. Without it, verdicts
            hold however often you look.
        moments: To keep moments beside sums: for exact regressions, robust errors and the bootstrap.
        privacy: How many units must stand behind what is stored and answered.
        federated: What devices or sites, which keep their records, send; or just the mode.
        release: For effects that are published once, with noise, under a privacy budget; or just ε.
        estimand: What the trial estimates, in words: printed with the plan, the report and the dossier.
        flow: Who was assessed before there were records, for the flow diagram in the report.
    """

    name: str
    arm: Column
    arms: WrittenArms
    outcomes: Outcomes
    covariates: Covariates = Columns()
    segments: Segments = Columns()
    baseline: Characteristics = Columns()
    unit: Column | None = None
    cluster: Column | None = None
    weight: Column | None = None
    received: Column | None = None
    confidence: Confidence = 0.95
    correction: Literal["holm", "benjamini-hochberg", "none"] = "holm"
    records_per_unit: RecordsPerUnit = MANY
    expected_units: Count | None = None
    hash: Hash = "siphash"
    drop_limit: DropLimit = 0.0
    coefficients: Coefficients | Mapping[str, Any] | None = None
    looks: Looks | Mapping[str, Any] | None = None
    moments: Moments | Mapping[str, Any] | None = None
    strata: Strata | str | Mapping[str, Any] | None = None
    privacy: Privacy | Mapping[str, Any] = Privacy()
    federated: Federated | ModeName | Mapping[str, Any] | None = None
    release: Release | float | Mapping[str, Any] | None = None
    estimand: Estimand | Mapping[str, Any] | None = None
    flow: Flow | Mapping[str, Any] | None = None

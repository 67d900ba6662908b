"""A trial at many sites: each folds its own patients, and only tallies travel.

Five clinics try a treatment. None of them may hand over patients' records, and some have too few to tell by themselves.
Each folds its records under the same plan and sends its state: sums over hundreds of patients, in two kilobytes.
Merged, these give to the last digits what one analysis of all records would have given. (The state of a handful of
patients would say much about them: clinics as small as that should not send one in the clear.)

    python examples/many_sites.py [report.html]
"""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

import foldaway as fa
from foldaway.simulation.datasets import clinic

TRUE_EFFECT = 1.0
PATIENTS = [1_800, 950, 2_600, 1_400, 750]
CLINICS = [f"c{number:02d}" for number in range(len(PATIENTS))]

# Everybody gets the plan beforehand. Its fingerprint goes with every state: one made under another plan is refused.
PLAN = fa.Plan(
    name="five-clinics",
    arm="arm",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["score"],
    covariates=["baseline", "age"],
    moments=fa.Moments(estimators=["regression", "difference"]),
)


def at_a_clinic(number: int) -> bytes:
    """Runs where the records are; what it returns is all that leaves."""
    trial = fa.Trial(PLAN)
    for batch in clinic(number, PATIENTS[number], effect=TRUE_EFFECT):
        trial.fold(batch)
    return trial.dumps()


def answer(trial: fa.Trial) -> Any:
    return trial.effects().filter(estimator="regression", se_kind="HC1")[0]


def told(effect: Any) -> str:
    return f"{effect.estimate:5.2f}   95 % interval [{effect.ci_lower:5.2f}, {effect.ci_upper:4.2f}]"


states = [at_a_clinic(number) for number in range(len(PATIENTS))]
trials = [fa.Trial.loads(state, PLAN) for state in states]
whole = reduce(fa.Trial.merge, trials)

print("What each clinic can say by itself, adjusted for baseline and age:\n")
for name, state, trial in zip(CLINICS, states, trials, strict=True):
    print(f"  {name}   {trial.n:>5,} patients   {told(answer(trial))}   sent {len(state):,} bytes")
print(f"\n  all   {whole.n:>5,} patients   {told(answer(whole))}   the truth is {TRUE_EFFECT:.2f}")

pooled = fa.Trial(PLAN)  # what nobody here may do: all records in one place
for number, patients in enumerate(PATIENTS):
    for batch in clinic(number, patients, effect=TRUE_EFFECT):
        pooled.fold(batch)
ours, theirs = answer(whole), answer(pooled)
gap = max(abs(ours.estimate / theirs.estimate - 1), abs(ours.std_error / theirs.std_error - 1))
print(f"\nWith all records in one place it would have been the same, up to a relative difference of {gap:.0e}.")

if len(sys.argv) > 1:
    whole.report().save(sys.argv[1])
    print(f"The report is in {sys.argv[1]}.")

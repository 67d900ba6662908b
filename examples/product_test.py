"""A product test with CUPED: what users spent before the trial makes the answer more precise.

A shop tries a new checkout button on half of its users. Revenue varies widely between users, and much of that was there
before the trial. Adjusting for earlier revenue takes it out: the method is known as CUPED (Deng et al. 2013). What is
kept are sums by arm, without anybody's earlier revenue. Every user has one record here, and the plan promises so;
without that promise sums would be kept by group of users, and the errors would allow for users who come back.

    python examples/product_test.py [report.html]
"""

from __future__ import annotations

import sys

import foldaway as fa
from foldaway.simulation.datasets import checkout

TRUE_EFFECT = 1.0
USERS = 100_000

plan = fa.Plan(
    name="checkout-button",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    covariates=["revenue_before"],
    unit="user_id",
    records_per_unit="one",
)

trial = fa.Trial(plan)
for batch in checkout(USERS, effect=TRUE_EFFECT):  # as it comes from a queue, a file, a database
    trial.fold(batch)  # taken in and forgotten
trial.fix()  # from now on there is nothing but sums
state = trial.dumps()

effects = trial.effects()
plain, cuped = (effects.filter(estimator=name, se_kind="welch")[0] for name in ("difference", "adjusted"))
reduction = 1 - (cuped.std_error / plain.std_error) ** 2

print(f"{USERS:,} users saw one of two checkout buttons. Did the new one raise revenue?\n")
for name, effect in (("plain difference", plain), ("with CUPED", cuped)):
    interval = f"[{effect.ci_lower:.2f}, {effect.ci_upper:.2f}]"
    print(f"  {name:<17} {effect.estimate:.2f}   95 % interval {interval}   standard error {effect.std_error:.3f}")
print(f"\nThe truth, which only a simulation knows, is {TRUE_EFFECT:.2f}.")
print(f"Earlier revenue explains away {reduction:.0%} of the variance: the plain difference would need", end=" ")
print(f"{USERS / (1 - reduction):,.0f} users to be as precise.")
print(f"All that was kept are {len(state):,} bytes, the plan among them.")

if len(sys.argv) > 1:
    trial.report().save(sys.argv[1])
    print(f"The report is in {sys.argv[1]}.")

"""The analysis, fixed beforehand.

`Plan` is the analysis together with its parts, which ``parts`` declares; `outcomes` has a file for each kind of
outcome. ``part`` brings what a person wrote to its types, ``rules`` says what is wrong with the whole.
"""

from foldaway.plan.columns import Characteristic, Covariate, Segment
from foldaway.plan.looks import Information, Looks
from foldaway.plan.outcomes import Mean, Outcome, Quantile, Ratio, Share, Survival, Total
from foldaway.plan.parts import Bootstrap, Coefficients, Federated, Moments, Privacy, Release, Strata
from foldaway.plan.plan import Plan
from foldaway.plan.protocol import Estimand, Flow

__all__ = [
    "Bootstrap",
    "Characteristic",
    "Coefficients",
    "Covariate",
    "Estimand",
    "Federated",
    "Flow",
    "Information",
    "Looks",
    "Mean",
    "Moments",
    "Outcome",
    "Plan",
    "Privacy",
    "Quantile",
    "Ratio",
    "Release",
    "Segment",
    "Share",
    "Strata",
    "Survival",
    "Total",
]

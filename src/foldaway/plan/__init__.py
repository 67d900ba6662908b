"""The analysis, fixed beforehand.

`Plan` is the analysis together with its parts (`Privacy`, `Federated`, `Bootstrap`, `Coefficients`, `Strata`,
`Release`), each in a file that declares its settings; `outcomes` has a file for each kind of outcome. ``part`` brings
what a person wrote to its types, ``rules`` says what is wrong with the whole.
"""

from foldaway.plan.bootstrap import Bootstrap
from foldaway.plan.coefficients import Coefficients
from foldaway.plan.federated import Federated
from foldaway.plan.outcomes import Mean, Outcome, Quantile, Ratio, Share, Total
from foldaway.plan.plan import Plan
from foldaway.plan.privacy import Privacy
from foldaway.plan.release import Release
from foldaway.plan.strata import Strata

__all__ = [
    "Bootstrap",
    "Coefficients",
    "Federated",
    "Mean",
    "Outcome",
    "Plan",
    "Privacy",
    "Quantile",
    "Ratio",
    "Release",
    "Share",
    "Strata",
    "Total",
]

"""The analysis, fixed beforehand.

``settings`` brings what a person wrote to its types, ``rules`` says what is wrong with it, ``plan`` is the plan.
"""

from foldaway.plan.bootstrap import Bootstrap
from foldaway.plan.plan import Plan

__all__ = ["Bootstrap", "Plan"]

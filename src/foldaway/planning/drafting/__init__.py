"""A first plan for data that are there: what a look at them tells, the arms in them, and the plan with what is assumed.

Of the values in the data only names of arms and of levels are ever shown, and only if several records have them.
Probabilities are never taken from the counts, or the sample-ratio check would compare the counts with themselves.
"""

from foldaway.planning.drafting.draft import Draft, draft
from foldaway.planning.drafting.look import Roles, SeenRecords

__all__ = ["Draft", "Roles", "SeenRecords", "draft"]

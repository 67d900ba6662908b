"""Why a number is withheld, in sentences that several readers share; each begins in the middle of one."""

from foldaway.plan import Plan

CONSTANT = "all records of an arm have the same value of this outcome, so it has no standard error."
EXPLAINED = (
    "too little variation is left for a standard error: the covariates explain nearly every difference between "
    "records, or a few records have nearly all of the weight."
)
PLANNED = "the plan has planned looks, so there is no interval for any number of looks."
CARRIED = "one record has nearly all of an arm's weight, so there is no standard error."
OUTCOME_TOO_SMALL = (
    "the outcome's values are too close to zero to compute with: squares of numbers below 1e-100 are lost. Record it "
    "in a smaller unit of measure, so that its numbers are larger."
)


def few_carry(plan: Plan) -> str:
    """Why others are not told where few of an arm carry an outcome, or all but a few: one reason, whichever it is."""
    least = plan.privacy.smallest_cell
    return f"fewer than {least} of an arm carry this outcome, or fewer than {least} do not."

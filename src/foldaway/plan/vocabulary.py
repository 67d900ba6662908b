"""The vocabulary: every estimator, kind of error and federated mode, each declared once.

A declaration says what the word is called and means, what it needs of a plan, where it ranks and what is kept for it.
Rules, offers, tallies, tables, reports and the dashboard read it here, and compare no name with another. How an
estimator is computed is in the file of its name in `foldaway.inference.estimators`, how an error is in
`foldaway.inference.variance`, how a mode works in `foldaway.federated.modes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from foldaway.plan.fixed_point import fits

# What is kept for errors, by the names under which the tallies stand in an arm and its state.
RECORDS, UNITS, REPLICATES = "records", "units", "replicates"

# What a trial keeps: sums by arm and group, or the moments of its rows.
Keep = Literal["sums", "moments"]
SUMS: Final = "sums"
MOMENTS: Final = "moments"

# What a plan says of the records of a unit.
RecordsPerUnit = Literal["one", "many", "together"]
ONE: Final = "one"
MANY: Final = "many"
TOGETHER: Final = "together"

# How identifiers are hashed where units are dealt into groups.
Hash = Literal["siphash", "sha256"]
SIPHASH: Final = "siphash"

# A word without a rank leads only where there is none that has one.
UNRANKED = 99

ModeName = Literal["one-message", "scores", "delta", "sums", "shares"]


class Need(NamedTuple):
    """What a word needs of the plan, and what a plan that names it without that is told (of ``{name}``)."""

    met: Callable[[Any], bool]
    fault: str


@dataclass(frozen=True)
class Word:
    """A word that a plan may use.

    Attributes:
        name: What plans, states and tables call it.
        phrase: What it is or does, for people.
        needs: What a plan must have for it.
        rank: Its place among those that a result may lead with, best first.
    """

    SENTENCE: ClassVar[str] = "It is {}."

    name: str
    phrase: str
    needs: tuple[Need, ...] = ()
    rank: int = UNRANKED

    @property
    def sentence(self) -> str:
        """The phrase as a sentence about it."""
        return self.SENTENCE.format(self.phrase)

    def faults(self, plan: Any) -> Iterator[str]:
        """A sentence for each need that the plan does not meet."""
        return (need.fault.format(name=self.name) for need in self.needs if not need.met(plan))

    def suits(self, plan: Any) -> bool:
        """Whether the plan has all that it needs."""
        return not any(self.faults(plan))


@dataclass(frozen=True)
class EstimatorWord(Word):
    """An estimator; its phrase says what it estimates.

    Attributes:
        because: Why it leads.
        sources: What it is computed from.
        adjusts: Whether it makes use of the covariates.
        by_arm: Whether it has coefficients for each arm, so that it leads only where no arm is small.
        residuals_of: The estimator whose residuals its own scores are combined from, where that is another one.
        assumes: Whether it takes the plan's probabilities as those that records came with.
        by_name: Whether it is reported only where a plan names it.
        own: Whether it reads only those kinds of outcome that name it.
        of_effects: Whether it is a ratio of effects, with an error by groups alone.
    """

    because: str = "the plan has no covariates to adjust for."
    sources: tuple[Keep, ...] = (SUMS,)
    adjusts: bool = False
    by_arm: bool = False
    residuals_of: str = ""
    assumes: bool = False
    by_name: bool = False
    own: bool = False
    of_effects: bool = False


@dataclass(frozen=True)
class Error(Word):
    """A kind of standard error; its phrase says what it allows for.

    Attributes:
        setting: The setting of a plan that asks for it.
        source: What it is computed from.
        tally: The tally that it is read from; none for those that the factors give.
        only_for: The estimators that have it; all if empty.
        by_name: Whether a plan has it only if it names it.
    """

    SENTENCE: ClassVar[str] = "It {}."

    setting: str = "errors"
    source: Keep = MOMENTS
    tally: str = ""
    only_for: tuple[str, ...] = ()
    by_name: bool = False

    @property
    def by_unit(self) -> bool:
        """Whether it comes from the scores of units, and so allows for records of one unit being alike."""
        return self.tally == UNITS

    @property
    def clusters(self) -> bool:
        """Whether it allows for units with several records, wherever it is offered."""
        return self.by_unit or self.name == JACKKNIFE

    def serves(self, estimator: EstimatorWord) -> bool:
        """Whether the estimator has it."""
        return self.source in estimator.sources and (not self.only_for or estimator.name in self.only_for)


@dataclass(frozen=True)
class ModeWord(Word):
    """What devices send in a federated trial; its phrase says what a device does.

    Attributes:
        collects: The tallies that are not kept, since devices send their part of them at the end.
        sites: Whether sites, which hold many units, may take part as well.
        keeps: What the coordinator keeps.
        two_servers: Whether two servers keep it, of which neither can read what it has without the other.
    """

    SENTENCE: ClassVar[str] = "Each device {}."

    collects: tuple[str, ...] = ()
    sites: bool = False
    keeps: Keep = MOMENTS
    two_servers: bool = False

    @property
    def at_end(self) -> bool:
        """Whether there are effects at the end alone."""
        return bool(self.collects)


_Word = TypeVar("_Word", bound=Word)


def _by_name(*words: _Word) -> dict[str, _Word]:
    return {word.name: word for word in words}


_DRAWN_HERE = Need(
    lambda plan: plan.federated is None,
    "`moments.bootstrap` cannot be combined with `federated`: devices would have to draw its weights.",
)
_NO_COVARIATES = Need(
    lambda plan: not plan.covariates,
    'mode "{name}" sends only sums of outcomes: leave out `covariates`, or choose "one-message".',
)
_COUNTED = Need(
    lambda plan: plan.weight is None,
    'mode "{name}" counts records: leave out `weight`, or choose "one-message".',
)
_CALIBRATED = Need(
    lambda plan: not plan.covariates or plan.coefficients is not None,
    'mode "{name}" sends no covariates, but outcomes less what these predict: find `coefficients` in records from '
    "before the trial (`foldaway plan calibrate`), or leave out `covariates`.",
)
_BOUNDED = Need(
    lambda plan: not plan.unbounded,
    'mode "{name}" adds up whole numbers, which needs `bounds` for every column: add those of each outcome and of each '
    "covariate without levels.",
)
_EXPECTED = Need(
    lambda plan: plan.expected_units is not None,
    'mode "{name}" adds up numbers of 64 bits, and must know how many devices there may be: add `expected_units`.',
)
_PAIRED = Need(
    lambda plan: len(plan.federated.servers) == 2,
    'mode "{name}" needs `federated.servers`: first the leader, then the helper, each with its `url` and the `key` '
    "that `foldaway key new-server` has printed there.",
)
_ONE_LOOK = Need(
    lambda plan: plan.looks is None,
    'mode "{name}" has no effects before the trial ends: leave out `looks`.',
)
_ROOMY = Need(
    lambda plan: bool(plan.unbounded) or plan.expected_units is None or fits(plan),
    "sums of so many records and devices could overflow 64 bits: lower `expected_units` or `federated.device_records`, "
    "or take narrower `bounds`.",
)
_COVARIATES = Need(lambda plan: bool(plan.covariates), "the estimator {name!r} needs `covariates`.")
_REGRESSORS = Need(lambda plan: len(plan.regressors) > 1, "the estimator {name!r} needs `covariates`.")
_ONE_STRATUM = Need(
    lambda plan: plan.strata is None,
    "the estimator {name!r} cannot allow for `strata`: choose difference, regression or interacted.",
)
_FROM_MOMENTS = Need(lambda plan: plan.keeps == MOMENTS, "{name!r} is read from moments: add a `[moments]` table.")
FROM_SUMS = Need(
    lambda plan: plan.keeps_sums, "{name!r} is read from sums by group, which devices send only in mode sums."
)
# Moments are of outcomes that are means of one value.
SUMS_ALONE = Need(lambda plan: plan.keeps == SUMS, "{name!r} is read from sums by group: leave out `moments`.")
_DEVICES = Need(
    lambda plan: plan.federated is not None and plan.keeps_sums and plan.unit is None and plan.release is None,
    "the estimator {name!r} is for groups of devices: it needs mode sums, without `unit` or `release`.",
)
_RECEIVED = Need(lambda plan: plan.received is not None, "the estimator {name!r} needs `received`.")
_GROUPED = Need(
    lambda plan: plan.grouped, "the error {name!r} needs units with several records (`unit`), or `cluster`."
)
_RECORDS_HERE = Need(lambda plan: plan.federated is None, "the error {name!r} does not work in a federated plan.")
_SQUARES_TOLD = Need(
    lambda plan: plan.release is None or plan.by_shares,
    "the error {name!r} needs sums of squares, which a `release` does not publish.",
)
_ONE_DESIGN = Need(
    lambda plan: plan.strata is None or not plan.grouped,
    "the error {name!r} compares records within `strata`, but the plan's units may have several records: choose "
    "jackknife.",
)
_UNWEIGHTED = Need(lambda plan: plan.weight is None, "the error {name!r} needs records without weights.")
_WHOLE_UNITS = Need(
    lambda plan: plan.whole_units or plan.federated is not None,
    'the error {name!r} needs `records_per_unit = "together"`.',
)

TOTAL, COMPLIERS, DIFFERENCE, MEDIAN_OF_MEANS = "total", "compliers", "difference", "median_of_means"

# In the order in which they are reported.
ESTIMATORS = _by_name(
    EstimatorWord(DIFFERENCE, "the plain difference between the arms", rank=4, sources=(SUMS, MOMENTS)),
    EstimatorWord(
        "adjusted",
        "the difference between the arms' means, minus what the covariates predict",
        needs=(_COVARIATES, FROM_SUMS),
        rank=1,
        because="it subtracts from each outcome what the covariates predict, which leaves the effect unchanged and "
        "narrows the interval.",
        adjusts=True,
    ),
    EstimatorWord(
        "regression",
        "the difference adjusted for the covariates",
        needs=(_REGRESSORS, _FROM_MOMENTS),
        rank=3,
        sources=(MOMENTS,),
        because="it adjusts for the covariates, and the arms are too small to be adjusted each on its own.",
        adjusts=True,
    ),
    EstimatorWord(
        "interacted",
        "the difference adjusted for the covariates, arm by arm",
        needs=(_REGRESSORS, _FROM_MOMENTS),
        rank=2,
        sources=(MOMENTS,),
        because="it adjusts for the covariates arm by arm, which in large samples is never less precise than the plain "
        "difference (Lin 2013).",
        adjusts=True,
        by_arm=True,
    ),
    EstimatorWord(
        "ipw",
        "the difference between the arms' means, with each record weighted by 1 over the probability of its arm",
        needs=(_FROM_MOMENTS, _ONE_STRATUM),
        rank=5,
        sources=(MOMENTS,),
        residuals_of="difference",
        assumes=True,
    ),
    EstimatorWord(
        "horvitz_thompson",
        "the mean over all records of outcomes divided by the probability of their arm, as in the paper",
        needs=(_FROM_MOMENTS, _ONE_STRATUM),
        rank=7,
        sources=(MOMENTS,),
        residuals_of="difference",
        assumes=True,
        by_name=True,
    ),
    EstimatorWord(
        COMPLIERS,
        "the effect on those who take the treatment up because they were assigned to it",
        needs=(_RECEIVED, FROM_SUMS),
        because="the plan asks for the effect of what was received.",
        of_effects=True,
    ),
    EstimatorWord(
        MEDIAN_OF_MEANS,
        "the difference between the medians of the groups' means, which few bad devices cannot move far",
        needs=(_DEVICES,),
        rank=8,
    ),
    EstimatorWord(
        TOTAL,
        "the difference between totals: what all units together would have had in the arm and in the control",
        needs=(FROM_SUMS,),
        rank=6,
        own=True,
        because="the plan asks for this outcome's total, which no adjustment changes.",
    ),
)

CLASSICAL, HC2, HC3, CR0, CR1, BOOTSTRAP = "classical", "HC2", "HC3", "CR0", "CR1", "bootstrap"
WELCH, JACKKNIFE = "welch", "jackknife"
_UNEQUAL, _UNITS = "allows for unequal spread", "allows for units with several records"

ERRORS = _by_name(
    Error(
        WELCH,
        "assumes that records are independent, and that each arm has its own spread",
        (FROM_SUMS, _RECORDS_HERE, _SQUARES_TOLD, _ONE_DESIGN),
        rank=2,
        source=SUMS,
    ),
    Error(JACKKNIFE, f"{_UNITS}, however they are scattered", (FROM_SUMS, _GROUPED), rank=1, source=SUMS),
    Error(CLASSICAL, "assumes that the spread is equal in all arms", (_FROM_MOMENTS, _RECORDS_HERE)),
    Error("HC0", f"{_UNEQUAL}, without a correction for small samples", (_FROM_MOMENTS, _RECORDS_HERE), tally=RECORDS),
    Error("HC1", _UNEQUAL, (_FROM_MOMENTS, _RECORDS_HERE), rank=6, tally=RECORDS),
    # For other estimators leverage is not 1/n of the arm.
    Error(
        HC2,
        f"{_UNEQUAL}, as Welch's test does",
        (_FROM_MOMENTS, _RECORDS_HERE, _UNWEIGHTED),
        rank=5,
        tally=RECORDS,
        only_for=("difference", "ipw"),
    ),
    Error(
        HC3,
        f"{_UNEQUAL}, as leaving out each record in turn would",
        (_FROM_MOMENTS, _RECORDS_HERE, _UNWEIGHTED),
        tally=RECORDS,
        only_for=("difference",),
        by_name=True,
    ),
    Error(CR0, f"{_UNITS}, without a correction for few units", (_FROM_MOMENTS, _WHOLE_UNITS), tally=UNITS),
    Error(CR1, _UNITS, (_FROM_MOMENTS, _WHOLE_UNITS), rank=3, tally=UNITS),
    Error(
        BOOTSTRAP,
        "comes from the spread of the effect over reweighted copies of the trial",
        (_FROM_MOMENTS, _DRAWN_HERE),
        rank=4,
        setting="bootstrap",
        tally=REPLICATES,
    ),
)

MODES: dict[str, ModeWord] = _by_name(
    ModeWord("one-message", "sends its tallies once", sites=True),
    ModeWord("scores", "sends tallies during the trial, and its scores at the end", collects=(UNITS,)),
    ModeWord("delta", "sends sums of outcomes alone", (_NO_COVARIATES, _COUNTED)),
    ModeWord("sums", "sends sums of outcomes and its random group", (_CALIBRATED, _COUNTED), sites=True, keeps=SUMS),
    ModeWord(
        "shares",
        "sends its sums in two halves, each for a server that learns nothing from it",
        (_CALIBRATED, _COUNTED, _BOUNDED, _EXPECTED, _PAIRED, _ROOMY, _ONE_LOOK),
        keeps=SUMS,
        two_servers=True,
    ),
)


def best(words: dict[str, _Word], names: Iterable[str]) -> str:
    """The name that ranks first; the first of those of one rank.

    Example:
        >>> best(ERRORS, ["classical", "HC0", "HC1", "CR0", "CR1"])
        'CR1'
    """
    return min(names, key=lambda name: words[name].rank if name in words else UNRANKED)

"""The parts of a plan, each a table of its own: what its settings must be, and what is wrong with them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta

from foldaway.plan.columns import Column, Levels, level_faults
from foldaway.plan.part import Count, Fixed, Part, Seconds
from foldaway.plan.vocabulary import MODES, ModeName

Retention = Annotated[float, Meta(ge=60, le=10**9, description="a number of seconds from 60 to 10^9")]


class Privacy(Part, frozen=True, kw_only=True):
    """How many units must stand behind what is stored and shown, and how long a device may keep its records.

    Attributes:
        cohort: The fewest distinct units that must come before tallies are stored again. Without a `unit`, every record
            is one; in a federated plan every device.
        smallest_cell: The fewest units of every arm behind effects that others see, in all and since the last answer.
        retention: In a federated plan, seconds that a device may keep its records.

    Example:
        >>> Privacy(cohort=50).smallest_cell
        10
    """

    TABLE: ClassVar[str] = "privacy"

    cohort: Count = 100
    smallest_cell: Count = 10
    retention: Retention = 2_592_000.0


Shares = Annotated[
    Mapping[str, Mapping[str, float]],
    Meta(description="a table for each stratum, with the probability of every arm in it"),
]

# Their codes travel as 16-bit integers.
MOST_STRATA = 10_000


class Strata(Part, frozen=True):
    """The strata within which units were randomised, such as sites or the weeks of a ramp-up.

    In short: the column alone, of a covariate or segment with levels.

    Attributes:
        column: The column that names a record's stratum.
        probabilities: For each stratum, the probabilities of the arms.
        levels: The strata, in place of `probabilities`, if the arms have the probabilities in `arms` in each. May be
            left out if the column is a covariate or segment with levels.

    Example:
        >>> strata = Strata("week", {"1": {"control": 0.9, "new": 0.1}, "2": {"control": 0.5, "new": 0.5}})
        >>> strata.probabilities["1"]["new"]
        0.1
    """

    TABLE: ClassVar[str] = "strata"
    SHORT: ClassVar[str] = "column"

    column: Column
    probabilities: Shares = Fixed()
    levels: Levels | None = None

    @property
    def listed(self) -> Mapping[str, Sequence[str]]:
        """By its column, the strata; nothing if another part of the plan lists them."""
        strata = self.levels or tuple(self.probabilities)
        return {self.column: strata} if strata else {}

    @property
    def alike(self) -> bool:
        """Whether the arms have the same probabilities in all strata."""
        return len({frozenset(shares.items()) for shares in self.probabilities.values()}) < 2

    def faults(self) -> Iterator[str]:
        """What is wrong with the levels and the probabilities."""
        if not self.column:
            yield "`strata.column` has a column without a name."
        if self.levels is not None and self.probabilities:
            yield "`strata` has both `levels` and `probabilities`, which name the strata already: leave out `levels`."
        yield from level_faults(self.column, self.levels)
        if len(self.probabilities) > MOST_STRATA:
            yield f"`strata.probabilities` must have no more than {MOST_STRATA:,} strata."
        for stratum, shares in self.probabilities.items():
            if any(not 0 < share < 1 for share in shares.values()):
                yield f"the probabilities of the stratum {stratum!r} must lie between 0 and 1."
            elif not math.isclose(total := math.fsum(shares.values()), 1, abs_tol=1e-9):
                yield f"the probabilities of the stratum {stratum!r} add up to {total:.10g} instead of 1."

    def misfits(self, arms: Mapping[str, float]) -> Iterator[str]:
        """A sentence for each stratum that does not have the plan's arms."""
        for stratum, shares in self.probabilities.items():
            if set(shares) != set(arms):
                yield f"the stratum {stratum!r} must have a probability for each of {', '.join(arms)}, and no other."


Numbers = Annotated[Mapping[str, float], Meta(description="a table with a number for each column of covariates")]
Slopes = Annotated[
    Mapping[str, Mapping[str, float]], Meta(description="a table for each outcome, with a number for each column")
]


class Coefficients(Part, frozen=True, kw_only=True):
    """How covariates predict each outcome: the prediction is the sum of slope · (column − center).

    Columns are the covariates, or for a categorical one its levels but the first, as in ``country[fr]``. Any numbers
    leave the effect unbiased; those of earlier records make its interval narrow. A ratio has slopes for both of its
    columns, and a share or a capped mean under the name that it has by default.

    Attributes:
        center: The mean of each column among earlier records.
        slopes: By outcome, the slope of each column.

    Example:
        >>> Coefficients(center={"before": 12.0}, slopes={"revenue": {"before": 0.8}}).slopes["revenue"]
        {'before': 0.8}
    """

    TABLE: ClassVar[str] = "coefficients"

    center: Numbers
    slopes: Slopes

    @classmethod
    def none(cls, columns: Iterable[str], outcomes: Iterable[str]) -> Self:
        """Those that predict nothing."""
        zeros = dict.fromkeys(columns, 0.0)
        return cls(center=zeros, slopes={outcome: dict(zeros) for outcome in outcomes})

    def misfits(self, columns: tuple[str, ...], outcomes: tuple[str, ...]) -> Iterator[str]:
        """A sentence for each table that does not have a number for every column, or a table for every outcome."""
        if set(self.slopes) != set(outcomes):
            yield "`coefficients.slopes` must have a table for each outcome and no other."
        tables = {"center": self.center, **{f"slopes.{outcome}": table for outcome, table in self.slopes.items()}}
        for name, table in tables.items():
            if set(table) != set(columns):
                yield f"`coefficients.{name}` must have a number for each of {', '.join(columns)}, and no other."


# Each replicate keeps its own sums for every arm.
MOST_REPLICATES = 100_000

Weights = Literal["poisson", "double-or-nothing"]
Replicates = Annotated[int, Meta(ge=2, le=MOST_REPLICATES, description=f"a whole number from 2 to {MOST_REPLICATES:,}")]


class Bootstrap(Part, frozen=True):
    """The bootstrap, by unit if the plan has one and by record if not. In short: the number of replicates alone.

    Attributes:
        replicates: The number of replicates.
        weights: What a unit weighs in each replicate: ``"poisson"`` for Poisson(1), or ``"double-or-nothing"`` for 0 or
            2 (Owen and Eckles 2012), several times as fast.

    Example:
        >>> Bootstrap(1000).weights
        'poisson'
    """

    TABLE: ClassVar[str] = "moments.bootstrap"
    SHORT: ClassVar[str] = "replicates"

    replicates: Replicates
    weights: Weights = "poisson"


Estimators = Annotated[Sequence[str], Meta(description="a list of estimators")]
Errors = Annotated[Sequence[str], Meta(description="a list of kinds of standard error")]


class Moments(Part, frozen=True, kw_only=True):
    """Moments of the plan's columns, kept beside sums: for exact regressions, robust errors and the bootstrap.

    They say far more about single people than sums do. The table's presence asks for them, even an empty one.

    Attributes:
        estimators: Those to report, from sums as well; if left out, all that the plan allows but
            ``"horvitz_thompson"``, the paper's inverse-probability mean.
        errors: The kinds of standard error to report (welch, jackknife; from moments classical, HC0, HC1, HC2, HC3,
            CR0, CR1); if left out, all that the plan allows but HC3. With ``["classical"]`` alone no robust tally is
            kept, whose cost grows with the fourth power of the number of columns.
        bootstrap: The bootstrap, or just its number of replicates.

    Example:
        >>> Moments(errors=["HC1"], bootstrap=1000).bootstrap
        Bootstrap(replicates=1000, weights='poisson')
    """

    TABLE: ClassVar[str] = "moments"

    estimators: Estimators = ()
    errors: Errors = ()
    bootstrap: Bootstrap | int | Mapping[str, Any] | None = None


Share = Annotated[float, Meta(gt=0, le=1, description="a number above 0 and at most 1, for example 0.9")]


Sites = Annotated[int, Meta(ge=1, le=10_000, description="a whole number from 1 to 10,000")]


SiteShares = Annotated[
    Mapping[str, Mapping[str, float]],
    Meta(description="a table for each of some sites, with the probability of every arm at it"),
]
Neighbours = Annotated[Mapping[str, str], Meta(description="a table of sites, each with the name of its neighbour")]
Url = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^/?#@\s]+$",
        max_length=1_000,
        description="a server's address without a path, such as https://trials.example",
    ),
]
PublicKey = Annotated[
    str,
    # 65 bytes that begin with 4: a point of P-256, not compressed.
    Meta(pattern="^B[A-Za-z0-9+/]{86}=$", description="88 characters, printed by `foldaway key new-server`"),
]


class Server(Part, frozen=True):
    """One of the two servers of mode shares.

    Attributes:
        url: Its address.
        key: The public half of its key pair, as ``foldaway key new-server`` prints it.
    """

    TABLE: ClassVar[str] = "federated.servers"
    LISTED: ClassVar[bool] = True

    url: Url
    key: PublicKey


Servers = Annotated[
    Sequence[Server | Mapping[str, Any]],
    Meta(description="a list of two tables with `url` and `key`: the leader's, then the helper's"),
]


class Federated(Part, frozen=True):
    """What devices send, and how long the coordinator waits for it. In short: the mode alone.

    The device is the unit, and `privacy.cohort` counts devices.

    Attributes:
        mode: What a device sends: ``"one-message"`` (its triangular factor, once), ``"scores"`` (factors during the
            trial, its score at the end), ``"delta"`` (counts and sums only), ``"sums"`` (the same and a random
            group) or ``"shares"`` (the same in two halves, for two servers of which neither can read them). Sites,
            which name their `unit`, take part in ``"sums"`` and, with `records_per_unit = "together"`, in
            ``"one-message"``.
        reply_deadline: Seconds in which reports still count once the trial has begun to end.
        reply_share: The part of the devices whose reports end the wait early; in mode ``scores``, of those in the
            coefficients.
        device_records: The most records of a device: it takes no more, and the coordinator refuses a message that
            claims more. At sites it limits each unit in mode ``one-message``.
        invited: Whether a device needs an invitation (`foldaway token invite`), which is good for one device.
        sites: The fewest sites (known by the labels of their tokens) that must have reported before there are effects.
        within_sites: Whether effects compare the arms within sites, where sites send sums and the plan has no `strata`.
            Devices count as one site.
        probabilities: By site, the probabilities of its arms where they are not those in `arms`.
        joined: By site, another that it counts as. Within a site, an arm that is in a single group of units has no
            error, and effects are withheld: join small sites to their neighbours before the trial begins.
        servers: In mode ``shares`` the two servers: first the leader, to which devices send, then the helper.

    Example:
        >>> Federated("scores").reply_share
        1.0
    """

    TABLE: ClassVar[str] = "federated"
    SHORT: ClassVar[str] = "mode"

    mode: ModeName
    reply_deadline: Seconds = 3_600.0
    reply_share: Share = 1.0
    device_records: Count = 1_000
    invited: bool = False
    sites: Sites | None = None
    within_sites: bool = True
    probabilities: SiteShares = Fixed()
    joined: Neighbours = Fixed()
    servers: Servers = ()

    @property
    def pair(self) -> tuple[Server, Server]:
        """The leader and the helper of mode shares."""
        leader, helper = (Server.of(each) for each in self.servers)
        return leader, helper

    def faults(self) -> Iterator[str]:
        """What is wrong with what is said of servers and sites."""
        if self.servers and not MODES[self.mode].two_servers:
            yield '`federated.servers` are for mode "shares": leave them out.'
        keys, urls = ({getattr(each, name) for each in self.servers} for name in ("key", "url"))
        if len(self.servers) == 2 and (len(keys) < 2 or len(urls) < 2):
            yield "`federated.servers` must be two servers, each with an address and a key of its own."
        for site, shares in self.probabilities.items():
            if any(not 0 < share < 1 for share in shares.values()):
                yield f"the probabilities of the site {site!r} must lie between 0 and 1."
            elif not math.isclose(total := math.fsum(shares.values()), 1, abs_tol=1e-9):
                yield f"the probabilities of the site {site!r} add up to {total:.10g} instead of 1."
        for site, other in self.joined.items():
            if other in self.joined:
                yield f"`federated.joined` joins {site!r} to {other!r}, which is joined itself: name its own neighbour."
            if self.probabilities.get(site) != self.probabilities.get(other):
                yield f"`federated.joined` joins {site!r} to {other!r}, whose arms have other probabilities."

    def misfits(self, arms: Mapping[str, float]) -> Iterator[str]:
        """A sentence for each site that does not have the plan's arms."""
        for site, shares in self.probabilities.items():
            if set(shares) != set(arms):
                yield f"the site {site!r} must have a probability for each of {', '.join(arms)}, and no other."


Epsilon = Annotated[float, Meta(gt=0, le=20, description="a number above 0 and at most 20, for example 1.0")]
Delta = Annotated[float, Meta(gt=0, le=1e-3, description="a number above 0 and at most 0.001, for example 1e-6")]
NoisyGroups = Annotated[int, Meta(ge=8, le=1024, description="a power of two from 8 to 1,024")]


class Release(Part, frozen=True):
    """A release with noise: differentially private, (ε, δ), and spent once. In short: ε alone.

    Until the release nothing exact is told; after it, the exact tallies are gone.

    Attributes:
        epsilon: ε: how far one unit can move the odds of any answer, as an exponent.
        delta: δ: the chance that it moves them further; well below one over the number of units.
        unit_records: With `records_per_unit = "together"`, the most records of a unit; further ones are faulty. Noise
            grows with it.
        noisy_groups: Into how many groups units are dealt for the release. Noise grows with its square root.

    Example:
        >>> Release(1.0).delta
        1e-06
    """

    TABLE: ClassVar[str] = "release"
    SHORT: ClassVar[str] = "epsilon"

    epsilon: Epsilon
    delta: Delta = 1e-6
    unit_records: Count | None = None
    noisy_groups: NoisyGroups = 16

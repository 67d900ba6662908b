"""What all kinds of outcome have in common."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from foldaway.errors import PlanError, did_you_mean
from foldaway.plan.limits import ColumnLimits
from foldaway.plan.outcomes.binning import Binning
from foldaway.plan.outcomes.domain import Domain
from foldaway.plan.outcomes.value import Value
from foldaway.plan.part import Part, home_of, settings_of
from foldaway.plan.vocabulary import ESTIMATORS, Need

Column = Annotated[str, Meta(min_length=1, description="the name of a column")]
Name = Annotated[str, Meta(description="a name that no other outcome has")]
_AMOUNT = (
    "a number above 0 in the outcome's own unit of measure, or a percentage of the control's level such as \"0.5%\""
)
_SHARE = r"^(\d{0,4}\.?\d{1,9}) ?%\Z"
Margin = Annotated[float, Meta(gt=0, lt=1e40, description=_AMOUNT)] | Annotated[str, Meta(pattern=_SHARE)]
Question = Literal["better", "not worse", "alike"]
Role = Literal["primary", "guardrail", "secondary"]

DEFAULT = "mean"
"""The kind of a table that names none."""


class Outcome(Part, frozen=True, kw_only=True):
    """An outcome: what is compared, what it is called, and which way is better.

    Attributes:
        name: What results call it; made of its columns if left out.
        label: What people read in place of the name.
        measure: The unit of measure, such as ``"€"`` or ``"ms"``.
        better: Whether ``"higher"`` or ``"lower"`` is better.
        margin: How large a difference from the control still makes no difference, or that as a percentage of its level.
            With `better` alone, the outcome is a guardrail: it may be worse by no more than this.
        question: What to show, in place of a plain comparison: ``"better"`` (one-sided; by more than the `margin`, if
            there is one), ``"not worse"`` by more than the `margin`, or ``"alike"``, within the `margin` in either
            direction.
        role: What it counts for: a ``"primary"`` outcome is to become better, a ``"guardrail"`` must not become worse,
            a ``"secondary"`` one informs. If left out, an outcome to be shown not worse is a guardrail, any other with
            `better` or a `question` primary, and the rest secondary.
        missing: Whether a record without it is faulty, ``"refused"``, or counts for all other outcomes, ``"allowed"``.
    """

    TABLE: ClassVar[str] = "outcomes"
    LISTED: ClassVar[bool] = True
    KIND: ClassVar[str] = ""
    LEVEL: ClassVar[str] = "mean"
    """What an arm's level is of all outcomes of the kind, unless they say otherwise (`level`)."""
    READ_BY: ClassVar[tuple[str, ...]] = tuple(name for name, word in ESTIMATORS.items() if not word.own)
    """The estimators that it has, if the plan has them."""
    NEEDS: ClassVar[tuple[Need, ...]] = ()
    """What it needs of a plan."""
    KINDS: ClassVar[dict[str, type[Outcome]]] = {}

    name: Name = ""
    label: str = ""
    measure: str = ""
    better: Literal["higher", "lower"] | None = None
    margin: Margin | None = None
    question: Question | None = None
    role: Role | None = None
    missing: Literal["refused", "allowed"] = "refused"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self.default_name)

    @property
    def level(self) -> str:
        """What an arm's level of it is."""
        return self.LEVEL

    @property
    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """The numbers of a record that it is computed from: each kind has its own."""

    @property
    def binning(self) -> Binning | None:
        """That of the histogram that it is read from, if it is."""
        return None

    @property
    def domains(self) -> Mapping[str, Domain]:
        """By column, what its numbers may be, where not every number makes sense."""
        return {}

    @property
    def limits(self) -> Mapping[str, ColumnLimits]:
        """By column, the bounds that the plan gives it here."""
        return {}

    @property
    def default_name(self) -> str:
        """What it is called if it is given no name."""
        return self.values[0].name

    @property
    def title(self) -> str:
        """What people read: its label, or its name."""
        return self.label or self.name

    @property
    def heading(self) -> str:
        """The title with the unit of measure."""
        return f"{self.title} ({self.measure})" if self.measure else self.title

    @property
    def asks(self) -> Question | None:
        """The question that a test answers; None for a plain comparison."""
        return self.question or ("not worse" if self.margin is not None else None)

    @property
    def margin_share(self) -> float | None:
        """The margin as a share of the control's level, if it is written as a percentage.

        Example:
            >>> from foldaway.plan import Mean
            >>> Mean("y", better="lower", margin="0.5%").margin_share
            0.005
        """
        share = re.match(_SHARE, self.margin) if isinstance(self.margin, str) else None
        return float(share[1]) / 100 if share else None

    def margin_at(self, level: float) -> float:
        """The margin in the outcome's own unit of measure, where the control is at this level; 0 without one."""
        share = self.margin_share
        return float(self.margin or 0.0) if share is None else share * abs(level)

    @property
    def margin_text(self) -> str:
        """The margin as people read it; empty without one."""
        if self.margin is None:
            return ""
        return f"{self.margin:,g}" if self.margin_share is None else f"{100 * self.margin_share:,g} %"

    @property
    def wanted(self) -> str:
        """What an arm is to be shown to be, for a person; empty for a plain comparison.

        Example:
            >>> from foldaway.plan import Mean
            >>> Mean("y", better="lower", margin=0.5).wanted
            'not worse than the control by more than 0.5'
            >>> Mean("y", better="lower", question="better").wanted, Mean("y", question="alike", margin=2).wanted
            ('better than the control', 'within 2 of the control')
        """
        match self.asks:
            case None:
                return ""
            case "alike":
                return f"within {self.margin_text} of the control"
            case asked:
                return f"{asked} than the control" + (
                    "" if self.margin is None else f" by more than {self.margin_text}"
                )

    @property
    def guardrail(self) -> bool:
        """Whether it is to be shown that the outcome is not worse, and nothing else."""
        return self.asks == "not worse"

    @property
    def counts_as(self) -> Role:
        """Its role when the arm is judged.

        Example:
            >>> from foldaway.plan import Mean
            >>> Mean("y").counts_as, Mean("y", better="higher", margin=1).counts_as
            ('secondary', 'guardrail')
        """
        if self.role is not None:
            return self.role
        return (
            "guardrail" if self.guardrail else "secondary" if self.better is None and self.asks is None else "primary"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        return tuple(dict.fromkeys(value.column for value in self.values))

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        if self.asks in ("better", "not worse") and self.better is None:
            setting = "margin" if self.question is None else "question"
            yield f"the {setting} of {self.default_name!r} needs `better`: whether higher or lower values are better."
        elif self.role in ("primary", "guardrail") and self.better is None and self.asks is None:
            yield f'the role "{self.role}" of {self.default_name!r} needs `better`: whether higher or lower is better.'
        if self.margin_share is not None and not 0 < self.margin_share <= 1:
            yield f"the margin of {self.default_name!r} must be above 0 % and at most 100 %."
        if self.asks in ("not worse", "alike") and self.margin is None:
            yield f'"{self.asks}" needs a `margin`: how far {self.default_name!r} may differ and still count as that.'

    def written(self) -> str | dict[str, Any]:
        """As it is written into a file: settings at their default left out; just the column, if that is all."""
        settings: dict[str, Any] = msgspec.to_builtins(self)
        if self.name == self.default_name:
            del settings["name"]
        if self.KIND == DEFAULT and list(settings) == ["column"]:
            return str(settings["column"])
        return {"kind": self.KIND, **settings}

    @classmethod
    def of(cls, written: Any) -> Self:
        """The outcome that was written: an object, the name of a column, or a table with its `kind`.

        Raises:
            PlanError: A setting is missing, unknown or wrong.
        """
        if isinstance(written, cls):
            return written
        if isinstance(written, str):
            written = {"column": written}
        if not isinstance(written, Mapping):
            raise msgspec.ValidationError("no outcome")
        settings = dict(written)
        name = settings.pop("kind", DEFAULT)
        kind = cls.KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise PlanError(f"an outcome has an unknown kind; the kinds are {', '.join(cls.KINDS)}.")
        if unknown := [name for name in settings if name not in settings_of(kind)]:
            raise PlanError("\n".join(_misplaced(kind, name) for name in unknown))
        needed = [name for name, setting in settings_of(kind).items() if setting.default is msgspec.NODEFAULT]
        if lacking := [f"`{name}`" for name in needed if name not in settings]:
            raise PlanError(f'an outcome of kind "{kind.KIND}" needs {" and ".join(lacking)}.')
        return kind(**settings)  # type: ignore[return-value]


def _misplaced(kind: type[Outcome], name: str) -> str:
    others = [f'"{other.KIND}"' for other in Outcome.KINDS.values() if name in settings_of(other)]
    said = f'{name!r} is not a setting of an outcome of kind "{kind.KIND}"'
    if others:
        return f"{said}, but of kind {' or '.join(others)}."
    if where := home_of(name):
        return f"`{name}` belongs {where}."
    return said + did_you_mean(name, settings_of(kind))

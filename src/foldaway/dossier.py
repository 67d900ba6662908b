"""Papers for the file, from a plan: a record of processing (GDPR Art. 30), an annex to an impact assessment (Art. 35).

What only the controller knows is left open and marked; what follows from the plan is written out, with its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from foldaway.auditing.expected import expected, pace
from foldaway.effects.released import protected
from foldaway.plan import Plan
from foldaway.plan.vocabulary import SUMS
from foldaway.report.page.kept import planned

OPEN = "[To be filled in by the controller]"


class DossierTable(msgspec.Struct, frozen=True):
    """Rows under headings."""

    headings: list[str]
    rows: list[list[str]]


class DossierSection(msgspec.Struct, frozen=True):
    """One question of the law, and its answer."""

    title: str
    law: str
    paragraphs: list[str] = []
    table: DossierTable | None = None


class Dossier(msgspec.Struct, frozen=True):
    """Both papers.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> dossier(plan, 10_000).to_markdown().splitlines()[0]
        '# Data protection file: demo'
    """

    trial: str
    fingerprint: str
    units: int
    record_of_processing: list[DossierSection]
    impact_assessment: list[DossierSection]

    def to_json(self) -> str:
        """For machines."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    def to_markdown(self) -> str:
        """For people."""
        parts = [
            f"# Data protection file: {self.trial}",
            f"Written by foldaway from the plan with the fingerprint `{self.fingerprint}`. What foldaway cannot know "
            f"is marked “{OPEN}”. This is a draft for whoever is responsible, and not legal advice.",
            "## Record of processing activities (GDPR, Article 30)",
            *map(_markdown, self.record_of_processing),
            "## Annex to the data protection impact assessment (GDPR, Article 35)",
            *map(_markdown, self.impact_assessment),
        ]
        return "\n\n".join(parts) + "\n"


def _markdown(section: DossierSection) -> str:
    parts = [f"### {section.title} ({section.law})", *section.paragraphs]
    if section.table is not None:
        rows = [section.table.headings, ["---"] * len(section.table.headings), *section.table.rows]
        parts.append("\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows))
    return "\n\n".join(parts)


def dossier(
    plan: Plan, units: int, *, controller: str = "", purpose: str = "", recipients: Sequence[str] = ()
) -> Dossier:
    """The papers for a trial of this plan; so many units are expected, for the figures of the residual risks."""
    record = list(_record(plan, controller, purpose, recipients))
    return Dossier(plan.name, plan.fingerprint, units, record, list(_assessment(plan, units)))


def _record(plan: Plan, controller: str, purpose: str, recipients: Sequence[str]) -> Iterator[DossierSection]:
    arms = ", ".join(f"“{arm}” ({share:.4g})" for arm, share in plan.arms.items())
    outcomes = ", ".join(f"“{outcome.name}”" for outcome in plan.outcomes)
    question = f"A randomised trial with the arms {arms}. It estimates the differences between them in {outcomes}."
    yield DossierSection("Controller and data protection officer", "Art. 30(1)(a)", [controller or OPEN])
    yield DossierSection("Purpose", "Art. 30(1)(b)", [purpose or OPEN, question])
    who = f"the units in the column “{plan.unit}”" if plan.unit else "whoever a record is about; the plan names no unit"
    yield DossierSection(
        "Data subjects and personal data",
        "Art. 30(1)(c)",
        [f"Data subjects are {who}. The trial reads these fields and no others:"],
        DossierTable(["field", "role", "what becomes of it"], list(_fields(plan))),
    )
    others = f"Effects are shown to: {', '.join(recipients)}." if recipients else OPEN
    spaced = (
        "Nobody receives records. Others receive effects only: rounded to a quarter of their standard error, from at "
        f"least {plan.privacy.smallest_cell:,} units in every arm, and new ones only after the trial has grown."
    )
    yield DossierSection("Recipients", "Art. 30(1)(d)", [others, spaced])
    yield DossierSection(
        "Transfers to third countries", "Art. 30(1)(e)", [OPEN, "foldaway itself sends nothing anywhere."]
    )
    yield DossierSection(
        "Time limits for erasure", "Art. 30(1)(f)", [], DossierTable(["what", "until when"], list(_limits(plan)))
    )
    yield DossierSection("Security measures", "Art. 30(1)(g)", list(_measures(plan)))


def _fields(plan: Plan) -> Iterator[list[str]]:
    sums = plan.keeps == SUMS
    hashed = "hashed at once under a secret key, never stored; the key is destroyed at the end"
    covariate = "adjusts the outcomes in the same step and is not kept" if sums else "added to sums of products by arm"
    roles: dict[str, tuple[str, str]] = {plan.arm: ("arm", "says which sums a record is added to")}
    roles |= dict.fromkeys(plan.measured, ("outcome", "added to sums; the value is not kept"))
    roles |= dict.fromkeys(plan.covariates, ("covariate", covariate))
    roles |= dict.fromkeys(plan.segments, ("segment", "says which sums a record is added to"))
    if plan.strata is not None:
        roles[plan.strata.column] = ("stratum", "says which sums a record is added to")
    for column, role in ((plan.unit, "identifier of the unit"), (plan.cluster, "identifier of the cluster")):
        if column:
            roles[column] = (role, hashed)
    if plan.weight:
        roles[plan.weight] = ("weight", "multiplies what is added to sums; not kept")
    yield from ([column, role, what] for column, (role, what) in roles.items())


def _limits(plan: Plan) -> Iterator[list[str]]:
    if plan.federated is None:
        yield ["records inside foldaway", "the moment they are folded; in memory only, never on a disk"]
        yield ["files and logs that records come from", f"{OPEN} (`foldaway run --delete-after` deletes files)"]
    else:
        days = plan.privacy.retention / 86_400
        yield ["records on a device", f"the device's report or withdrawal, at most {days:,.4g} days"]
    yield ["tallies (sums over many units, encrypted)", "the end of the trial"]
    yield ["secret key of the trial", "the end of the trial"]
    yield ["effects, plan and ledger (no personal data)", "as long as the controller wishes"]
    yield ["backups of tallies", f"{OPEN} (unreadable once the key is destroyed, unless the key was copied)"]


def _measures(plan: Plan) -> Iterator[str]:
    yield "Tallies are stored encrypted (AES-256-GCM) under a key that is kept apart from them."
    yield (
        f"A state is stored only after {plan.privacy.cohort:,} distinct units have come since the last one, so that "
        "two states never differ by a few people."
    )
    yield "Every step is in a signed ledger, and a certificate proves it to others (`foldaway certificate`)."
    yield "`foldaway audit` attacks the tallies; its result is in the ledger before the end."
    if plan.release is not None:
        yield f"Effects are released once, with noise: ε = {plan.release.epsilon:g}, δ = {plan.release.delta:g}."


def _assessment(plan: Plan, units: int) -> Iterator[DossierSection]:
    kept = [[name, what, f"{numbers:,}"] for name, what, numbers in planned(plan)]
    yield DossierSection(
        "The processing, described",
        "Art. 35(7)(a)",
        ["Each record is added to running sums and is then gone. These numbers are kept, however many records come:"],
        DossierTable(["what", "meaning", "numbers"], kept),
    )
    yield DossierSection(
        "Necessity and proportionality",
        "Art. 35(7)(b)",
        [
            OPEN,
            "The plan is fixed before the first record, so no field is collected for a purpose that is found later. "
            "The effects are the ones that an analysis of stored records would give; storing records is not necessary.",
        ],
    )
    attacks = [*expected(plan, units), *pace(plan, units)]
    noise = "Only noise stops that: a `release` in the plan."
    if plan.release is not None:
        noise = f"The noise of the release bounds what they learn. {protected(plan)}"
    yield DossierSection(
        "Residual risks",
        "Art. 35(7)(c)",
        [
            f"Figures of this plan for {units:,} units. The first concern whoever reads the tallies in the clear, that "
            "is, has both the stored state and its key:",
            *(f"- {sentence}" for sentence in attacks),
            "Risks beyond these figures:",
            "- Whoever knows, or makes up, the records of all others in a group can subtract them and is left with one "
            f"person's values. {noise}",
            "- Records are in the clear before they reach foldaway, and in its memory until they are folded.",
            "- Copies of records, tallies or keys that somebody made outside foldaway are not deleted with the trial.",
        ],
    )
    yield DossierSection("Measures against them", "Art. 35(7)(d)", list(_measures(plan)))
    yield DossierSection(
        "Retention that the law demands",
        "to be checked",
        [
            "If the law requires you to retain source records, foldaway must not be the only place they go to. This "
            "concerns clinical trials above all: ICH E6 (essential records), Regulation (EU) No 536/2014, Article 58 "
            "(the trial master file, 25 years), 21 CFR 312.62(c) (the investigator's records, 2 years after approval)."
            " Archive these records as the law requires, and let foldaway read what the analysis needs.",
        ],
    )

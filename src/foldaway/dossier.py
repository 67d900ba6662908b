"""Papers for the file, from a plan: a record of processing (GDPR Art. 30), an annex to an impact assessment (Art. 35).

What only the controller knows is left open and marked; what follows from the plan is written out, with its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from foldaway.auditing.expected import expected, pace
from foldaway.effects.released import protected
from foldaway.errors import many
from foldaway.keeping.cohort import least_to_publish
from foldaway.plan import Plan
from foldaway.plan.vocabulary import MODES, SUMS
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
    estimand = None
    if plan.estimand is not None and plan.estimand.attributes:
        rows = [[name, text] for name, text in plan.estimand.attributes.items()]
        estimand = DossierTable(["estimand (ICH E9(R1))", "of this trial"], [*rows, ["Variable", outcomes]])
    yield DossierSection("Purpose", "Art. 30(1)(b)", [purpose or OPEN, question], estimand)
    who = f"the units in the column “{plan.unit}”" if plan.unit else "whoever a record is about; the plan names no unit"
    yield DossierSection(
        "Data subjects and personal data",
        "Art. 30(1)(c)",
        [f"Data subjects are {who}. The trial reads these fields and no others:"],
        DossierTable(["field", "role", "what becomes of it"], list(_fields(plan))),
    )
    others = f"Effects are shown to: {', '.join(recipients)}." if recipients else OPEN
    yield DossierSection("Recipients", "Art. 30(1)(d)", [others, _shown(plan), *_shown_beside(plan)])
    yield DossierSection("Transfers to third countries", "Art. 30(1)(e)", [OPEN, *_sent(plan)])
    yield DossierSection(
        "Time limits for erasure", "Art. 30(1)(f)", [], DossierTable(["what", "until when"], list(_limits(plan)))
    )
    yield DossierSection("Security measures", "Art. 30(1)(g)", list(_measures(plan)))


def _shown(plan: Plan) -> str:
    """What others receive."""
    nobody = "Nobody receives records. Others receive effects only"
    least = f"from at least {plan.privacy.smallest_cell:,} units in every arm"
    if plan.release is not None:
        return f"{nobody}: once, when the trial ends, and with noise."
    rounded = f"{nobody}: rounded to a quarter of their standard error, {least}"
    if plan.federated is not None and plan.federated.sites is not None:
        rounded += f", once {many(plan.federated.sites, 'site')} reported"
    if plan.federated is not None and MODES[plan.federated.mode].at_end:
        return f"{rounded}, and once, when the trial has ended."
    return f"{rounded}, and new ones only after the trial has grown."


def _shown_beside(plan: Plan) -> Iterator[str]:
    """What others receive with the effects."""
    if plan.federated is not None and plan.unit is not None and plan.release is None:
        table = " and the baseline table" if plan.baseline else ""
        yield f"Beside the effects, others see the sites' names and numbers of units{table}. All counts are rounded."
    if plan.looks is not None:
        yield "Of planned looks, others see what each has found, without its statistics."


def _sent(plan: Plan) -> Iterator[str]:
    """What leaves the place where records are, and where to."""
    if plan.federated is None:
        yield (
            "foldaway sends nothing anywhere while it folds records where they are. If you send records to a server of "
            "yours (`foldaway send`, or its client), that server folds them and stores none. Where it stands is for "
            "you to say."
        )
        return
    if plan.unit is not None:
        yield f"Each site sends the coordinator, a server of yours: {_SITE_SENDS[plan.federated.mode](plan)}."
        yield (
            "A site also sends how many faulty records it left out, by arm, column and rule, and how many units it has "
            "by arm."
        )
        yield from _site_also_sends(plan)
        if plan.sites_only:
            yield "Devices cannot take part."
    if plan.unit is None or not plan.sites_only:
        who = "Each device" if plan.unit is None else "Devices may take part too. Each"
        yield (
            f"{who} sends the coordinator, a server of yours, its arm and a random number when it joins, and "
            f"{_DEVICE_SENDS[plan.federated.mode]}{_raw_and_adjusted(plan)}. {_seen_of(plan)}"
        )
    if MODES[plan.federated.mode].at_end:
        yield (
            "At the end the coordinator sends every device coefficients, which tell the means, variances and "
            "correlations of all records together."
        )
    yield (
        "Whoever runs the network or the machine in front of the coordinator sees network addresses, times and sizes. "
        "Where the coordinator stands is for you to say."
    )


def _site_also_sends(plan: Plan) -> Iterator[str]:
    """What a site sends beside its sums, and when it sends again."""
    least = f"{plan.privacy.smallest_cell:,}"
    if plan.strata is not None:
        yield "The sums are by stratum as well."
    if plan.segments:
        yield (
            f"It sends the same counts and sums for each value of {' and of '.join(plan.segments)} that at least "
            f"{least} units of every arm have. The values that it leaves out have at least {least} units together, or "
            "none."
        )
    if plan.lacking:
        yield (
            "It sends how many records have each outcome, by arm and group: in each group, none or those of at least "
            f"{least} units."
        )
    if any(each.KIND == "survival" for each in plan.outcomes):
        yield (
            "It sends how many have left, with and without the event, by arm, group and time, only at times between "
            f"which at least {least} records of every arm have left, and as many more than in each message before."
        )
    if plan.baseline:
        yield (
            "It sends, by arm, how many records have a value of each characteristic in `baseline`, the mean or the "
            "share of each level, the sum of squares about it and that of sizes; nothing of a characteristic that "
            f"fewer than {least} units of an arm have a value of. A level may be that of a single unit."
        )
    cells = [what for what, there in (("stratum", plan.strata is not None), ("outcome", plan.lacking)) if there]
    cells += ["characteristic"] if plan.baseline else []
    each = f", and in each {' and each '.join(cells)} at least {least}" if cells else ""
    yield (
        "It may send all of this again as enrolment goes on, in place of what it sent before, once every arm has at "
        f"least {least_to_publish(plan.privacy):,} units more{each}."
    )


_DEVICE_SENDS = {
    "one-message": "once, the number of its records and the triangular factor of their second moments",
    "scores": "the triangular factors of its new records' second moments during the trial, and its scores at the end",
    "delta": "once, the number of its records and the sum of each outcome",
    "sums": "once, its random group, the number of its records, and the sum of each outcome",
    "shares": "once, its random group and, in two random halves that are each sealed for another server, the number "
    "of its records and the sum of each outcome",
}
"""What a device sends, by mode."""


def _seen_of(plan: Plan) -> str:
    """What a server sees of a device's message."""
    if plan.federated is not None and MODES[plan.federated.mode].two_servers:
        return (
            "Neither server can read its halves. At the end both publish their sums of groups of at least "
            f"{plan.privacy.smallest_cell:,} devices. Whoever has both servers' keys could read every message, so name "
            "both parties here."
        )
    return (
        "What a device with one record sends tells that record. The coordinator sees each message for the moment it "
        "takes to fold it."
    )


_SITE_SENDS: dict[str, Callable[[Plan], str]] = {
    "one-message": lambda plan: (
        f"the second moments of each arm's records, of at least {least_to_publish(plan.privacy):,} units, from which "
        "their means, spreads and correlations follow"
    ),
    "sums": lambda plan: (
        f"counts of records, and sums of each outcome{_raw_and_adjusted(plan)}, by arm and "
        "group, each group of at least "
        f"{plan.privacy.smallest_cell:,} units of an arm"
    ),
}
"""What a site sends, by mode."""


def _raw_and_adjusted(plan: Plan) -> str:
    return ", raw and adjusted by the covariates" if plan.keeps == SUMS and plan.covariates else ""


def _identifier(plan: Plan) -> str:
    """What becomes of an identifier."""
    if plan.federated is not None and plan.keyed:
        return (
            "hashed at once under a random key of the site's own, in memory; never sent or stored. The key never "
            "leaves the site, which overwrites it once the coordinator has stored the sums"
        )
    if plan.hashed:
        return "hashed at once under a secret key, never stored; the key is destroyed at the end"
    return "tells units apart within a batch, in memory; neither hashed nor stored, nor sent anywhere by foldaway"


def _fields(plan: Plan) -> Iterator[list[str]]:
    sums = plan.keeps == SUMS
    covariate = "adjusts the outcomes in the same step and is not kept" if sums else "added to sums of products by arm"
    roles: dict[str, tuple[str, str]] = {plan.arm: ("arm", "says which sums a record is added to")}
    roles |= dict.fromkeys(plan.measured, ("outcome", "added to sums; the value is not kept"))
    binned = [column for each in plan.outcomes if each.binning is not None for column in each.columns]
    roles |= dict.fromkeys(binned, ("outcome", "added to sums, and counted in a histogram: only its bin is kept"))
    roles |= dict.fromkeys(plan.covariates, ("covariate", covariate))
    roles |= dict.fromkeys(plan.segments, ("segment", "says which sums a record is added to"))
    shown = "added to counts and sums by arm, for the table of baseline characteristics; the value is not kept"
    for name in plan.baseline:
        role, what = roles.get(name, ("", ""))
        roles[name] = (f"{role}, baseline", f"{what}; {shown}") if role else ("baseline", shown)
    for name in plan.unlisted_characteristics:
        least = f"{plan.privacy.smallest_cell:,} units of each arm"
        roles[name] = ("baseline", f"{shown}; of text, a level's name is kept once {least} have it")
    if plan.strata is not None:
        roles[plan.strata.column] = ("stratum", "says which sums a record is added to")
    for column, role in ((plan.unit, "identifier of the unit"), (plan.cluster, "identifier of the cluster")):
        if column:
            roles[column] = (role, _identifier(plan))
    if plan.weight:
        roles[plan.weight] = ("weight", "multiplies what is added to sums; not kept")
    yield from ([column, role, what] for column, (role, what) in roles.items())


def _limits(plan: Plan) -> Iterator[list[str]]:
    if plan.federated is None:
        yield ["records inside foldaway", "the moment they are folded; in memory only, never on a disk"]
        yield ["files and logs that records come from", f"{OPEN} (`foldaway run --delete-after` deletes files)"]
    if plan.federated is not None and plan.unit is not None:
        yield ["records inside foldaway, at a site", "the moment they are folded; in memory only, never on a disk"]
        yield ["files at a site that records come from", OPEN]
        key = "; until the sums are stored, the key of its groups" if plan.keyed else ""
        yield [
            f"a site's mark (random numbers, a keyed digest of its files, counts of units by arm{_marked(plan)}{key})",
            "the site deletes it after the end",
        ]
    if plan.federated is not None and (plan.unit is None or not plan.sites_only):
        days, reply = plan.privacy.retention / 86_400, "reply" if MODES[plan.federated.mode].at_end else "report"
        yield [
            "what a device keeps of its records (sums of them, no record)",
            f"the device's {reply} or withdrawal, at most {days:,.4g} days",
        ]
    yield ["tallies (sums over many units, encrypted)", "the end of the trial"]
    yield ["secret key of the trial", "the end of the trial"]
    yield ["effects, plan and ledger (no personal data)", "as long as the controller wishes"]
    yield ["backups of tallies", f"{OPEN} (unreadable once the key is destroyed, unless the key was copied)"]


def _marked(plan: Plan) -> str:
    """What else a site has to remember of what it sent, so as to know whether enough have come since."""
    further = [what for what, there in (("stratum", plan.strata is not None), ("outcome", plan.lacking)) if there]
    further += ["characteristic"] if plan.baseline else []
    exits = "; how many left at each time that it sent" if plan.bins else ""
    return "".join(f" and {each}" for each in further) + exits


def _measures(plan: Plan) -> Iterator[str]:
    yield "Tallies are stored encrypted (AES-256-GCM) under a key that is kept apart from them."
    yield from _stored(plan)
    yield "Every step is in a signed ledger, and a certificate proves it to others (`foldaway certificate`)."
    if plan.release is None:
        yield "`foldaway audit` attacks the tallies; its result is in the ledger before the end."
    else:
        yield f"Effects are released once, with noise: ε = {plan.release.epsilon:g}, δ = {plan.release.delta:g}."


def _stored(plan: Plan) -> Iterator[str]:
    """When tallies are stored."""
    cohort = f"{plan.privacy.cohort:,}"
    if plan.federated is None:
        yield (
            f"A state is stored only after {cohort} distinct units have come since the last one, so that two states "
            "never differ by a few people."
        )
        return
    if plan.unit is not None:
        yield (
            "A site's tallies are stored as soon as they come. A site sends them only if each of its arms that has "
            f"units has at least {least_to_publish(plan.privacy):,}, so two stored states differ by at least that many."
        )
    if plan.unit is None or not plan.sites_only:
        yield f"Devices' messages are stored only when {cohort} of them have come since the last time."


def _kept_of(plan: Plan) -> str:
    """Of what the numbers that follow are kept."""
    if plan.federated is not None and plan.unit is not None:
        return (
            "The coordinator keeps these numbers, and as many again for each site, however many records the sites have:"
        )
    return "These numbers are kept, however many records come:"


def _assessment(plan: Plan, units: int) -> Iterator[DossierSection]:
    kept = [[name, what, f"{numbers:,}"] for name, what, numbers in planned(plan)]
    yield DossierSection(
        "The processing, described",
        "Art. 35(7)(a)",
        [f"Each record is added to running sums and is then gone. {_kept_of(plan)}"],
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

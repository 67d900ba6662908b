"""Whether anybody could be solved for from the tallies: the verdict of an audit."""

from __future__ import annotations

from foldaway.auditing.finding import Audit
from foldaway.report.drawing.markup import html, prose, tag
from foldaway.report.page.document import Section, table

_TITLE = "Could anybody be solved for?"


def solved(audit: Audit, *, told: bool = False) -> Section:
    """What the attacks found in the tallies behind this page; the page itself has none of these numbers.

    Args:
        audit: The attacks.
        told: Whether the page is for others, who learn only whether there is something to protect.
    """
    if told:
        needs_key = (
            "Not from this page, whose numbers are rounded. The tallies behind it are encrypted; until the trial is "
            "sealed, anyone who had them and their key could work out some people's values."
        )
        return Section("solved", _TITLE, tag("p", needs_key if audit.findings else audit.verdict()))
    rows = [[each.attack, each.outcome, f"{each.near:,}", each.needs or "nothing"] for each in audit.findings]
    found = table("What the attacks found", ["attack", "outcome", "records", "what else it takes"], rows, left=2)
    remedies = dict.fromkeys(each.remedy for each in audit.findings)
    body = html(
        tag("p", audit.verdict(), " This is about the tallies, which are kept encrypted, and not about this page."),
        *([found, *(tag("p", prose(remedy)) for remedy in remedies)] if rows else []),
    )
    return Section("solved", _TITLE, body)

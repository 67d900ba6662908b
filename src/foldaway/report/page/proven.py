"""How the trial can be proven to others: its ledger."""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.evidence.ledger import CLOSED, WRITTEN, Ledger
from foldaway.evidence.verifying import events
from foldaway.report.drawing.markup import html, prose, tag
from foldaway.report.page.document import Section, details, table


def proven(ledger: Ledger) -> Iterator[Section]:
    """What happened and when, and the hash that stands for it; nothing where no ledger outlives the process."""
    if ledger.last(WRITTEN, CLOSED) is None:
        return
    lead = (
        "The trial keeps a ledger: each entry is signed and names the one before it, so none can be changed or removed "
        "unnoticed. If the head below was published elsewhere, nobody can have written the entries later. "
        "`foldaway certificate` gives you a file with all of it, which others can check without trusting you."
    )
    rows = [[time, event[0].upper() + event[1:]] for time, event in events(ledger)]
    entries = details(f"All {len(rows):,} entries", table("The ledger", ["UTC", "what happened"], rows, left=2))
    body = html(tag("p", prose(lead)), tag("p", "Head: ", tag("code", ledger.head)), entries)
    yield Section("proven", "Can it be proven?", body)

"""Files that a command writes for people to send, and the sentence that says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foldaway.cli.terminal.words import tell

if TYPE_CHECKING:
    from foldaway.report.page.document import Report


def save_report(page: Report, target: Path) -> None:
    """Write a report, and say so."""
    page.save(target)
    tell(f"Report written to {target} ({target.stat().st_size:,} bytes). Open it in a browser.")


def save_certificate(data: bytes, target: Path) -> None:
    """Write a certificate, or print it."""
    from foldaway.keeping.disk import replace_file

    if str(target) == "-":
        print(data.decode(), end="")
        return
    replace_file(target, data)
    tell(f"Certificate written to {target}. `foldaway verify {target}` checks it, without a network.")

"""A trial on a server: what commands ask of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foldaway.cli.terminal.connecting import QUESTION, connect
from foldaway.cli.terminal.words import confirm
from foldaway.errors import EstimateError, StateError, instead_of
from foldaway.evidence.ledger import head_sentence
from foldaway.keeping.disk import replace_file, sync_folder
from foldaway.report.page.document import Report

if TYPE_CHECKING:
    from foldaway.client import Client
    from foldaway.effects.outlook import Outlook
    from foldaway.plan import Flow

CHANCE = 0.8
"""The chance to find an effect, unless another is asked for."""


@dataclass(frozen=True)
class ServedTrial:
    """A trial on a server.

    Attributes:
        name: The trial's name.
        server: The server's address.
        token: A token for it; the server says if it is missing.
        authority: A file with the certificate authority for https.
    """

    name: str
    server: str
    token: str | None = None
    authority: Path | None = None

    def named(self, suffix: str) -> Path:
        """Where to write something about the trial, by default: in this folder."""
        return Path(f"{self.name}{suffix}")

    def connect(self, patience: float = QUESTION) -> Client:
        """A client of the server, which goes on trying for so many seconds."""
        return connect(self.server, self.token or "", self.authority, patience=patience)

    def effects(self, *, exact: bool) -> dict[str, Any]:
        """The answer with its effects: those for others, unless they are to be exact."""
        with self.connect() as client:
            return client.effects(self.name, exact=exact)

    def outlook(
        self,
        *,
        records: float | None,
        days: float | None,
        per_day: float | None,
        width: float | None,
        chance: float,
        sequential: bool,
    ) -> Outlook:
        """What it can still find, however often one looks: the server knows how many records come in a day."""
        from foldaway.effects.outlook import Forecast, Outlook

        if per_day is not None or chance != CHANCE:
            raise EstimateError(
                f"a server knows how many records arrive in a day, and its chance to find an effect is {CHANCE}: leave "
                "out --records-per-day and --power."
            )
        by = None if records is None else int(records)
        with self.connect() as client:
            answer = client.outlook(self.name, records=by, days=days, width=width)
        rows = msgspec.convert(answer["rows"], tuple[Forecast, ...])
        about = {field: answer[field] for field in ("records", "by", "days", "power", "confidence")}
        return Outlook(rows=rows, trial=self.name, sequential=True, wanted_width=width, **about)

    def report(self, *, exact: bool, flow: Flow | None = None) -> Report:
        """What it found, as a page; for others, unless it is to be exact. A flow given here stays on this machine."""
        if flow is not None:
            from foldaway.effects import Effects
            from foldaway.report.page.page import effects_page

            return effects_page(Effects.answered(msgspec.json.encode(self.effects(exact=exact))), flow=flow)
        with self.connect() as client:
            return Report(client.report(self.name, exact=exact))

    def end(
        self,
        *,
        deadline: float | None,
        share: float | None,
        without_effects: bool,
        exact: bool,
        confirmed: bool,
        removed: bool = False,
    ) -> tuple[dict[str, Any], str]:
        """End it, after a question unless that is confirmed; the last answer, and a sentence with its ledger's head.

        Raises:
            ServerError: The server refuses: effects would be withheld, for example.
        """
        from foldaway.cli.terminal.waiting import end_and_wait

        changes = deadline is not None or share is not None or without_effects
        with self.connect(60.0) as client:
            status = client.status(self.name)
            stage = (status["federated"] or {}).get("stage", status["status"])
            if not confirmed and (stage == "open" or (stage != "ended" and changes)):
                question = f"This destroys the trial's tallies and its key, and cannot be undone. End {self.name}?"
                confirm(question, f"{self.name} was not ended; nothing has changed.")
            if not confirmed and removed:
                question = f"Its effects, ledger and tokens will be gone from the server. Remove {self.name}?"
                confirm(question, f"{self.name} was not removed; nothing has changed.")
            answer = end_and_wait(
                client, self.name, deadline=deadline, share=share, without_effects=without_effects, exact=exact
            )
            head = client.status(self.name).get("ledger_head")
        return answer, head_sentence(head) if head else ""

    def archive(self, folder: Path) -> None:
        """Write what the server has of it, once it has ended, to a new folder: all files, or none.

        Raises:
            StateError: The folder cannot be made, or the certificate is not valid.
        """
        from foldaway.evidence.verifying import verify

        with self.connect() as client:
            proof, answer = client.certificate(self.name), client.effects(self.name)
            files = {
                "certificate.json": proof,
                "effects.json": msgspec.json.format(msgspec.json.encode(answer), indent=1) + b"\n",
            }
            if answer["effects"] is not None:
                files["report.html"] = client.report(self.name).encode()
        if not (checked := verify(proof)).good:
            raise StateError(f"the server's certificate is not valid, so nothing was removed: {checked.faults[0]}")
        draft = folder.with_name(f".{folder.name}.draft")
        unwritten = f"the archive cannot be written to {folder}: {{}}. Nothing was removed."
        with instead_of(OSError, lambda error: StateError(unwritten.format(error.strerror))):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for name, data in files.items():
                replace_file(draft / name, data)
            draft.rename(folder)
            sync_folder(folder.parent)

    def remove(self) -> None:
        """Remove it from the server."""
        with self.connect() as client:
            client.remove(self.name)

    def certificate(self) -> bytes:
        """What was done and found, signed by the server."""
        with self.connect() as client:
            return client.certificate(self.name)

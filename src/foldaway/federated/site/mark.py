"""What a site remembers of having sent its tallies: a random number, and which records it stands for.

``NAME.site``, in a folder for its owner alone, is made in one step before anything is sent. So whatever is killed, the
same command again has the same number and is counted once; and nobody can try out, from what the coordinator keeps,
which records a site has. (The records' digest is keyed with the number, and stays here with it.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from foldaway.keeping.disk import make_file, sync_folder
from foldaway.errors import SourceError, StateError, instead_of
from foldaway.federated.device.local_store import require_private
from foldaway.federated.messages import new_number
from foldaway.plan import Plan
from foldaway.sources.formats.paths import Stdin, expand


class _Kept(msgspec.Struct, frozen=True):
    fingerprint: str
    number: bytes
    digest: bytes


class SiteMark:
    """The number of one site in one trial.

    Args:
        path: The mark's file.
        number: The number.
        fresh: Whether this run has made it, so that nothing was sent under it before.
    """

    def __init__(self, path: Path, number: bytes, *, fresh: bool) -> None:
        self._path = path
        self.number = number
        self.fresh = fresh

    @classmethod
    def of(cls, plan: Plan, files: Sequence[str], folder: str | Path = "~/.foldaway") -> SiteMark:
        """The mark that stands for these files, made if there is none.

        Raises:
            StateError: The site has sent other records in this trial, or its folder cannot be used.
            SourceError: A file cannot be read.
        """
        place = Path(folder).expanduser()
        require_private(place)
        path, number = place / f"{plan.name}.site", new_number()
        mine = _Kept(plan.fingerprint, number, _digest(number, files))
        with suppress(FileExistsError):
            make_file(path, msgspec.json.encode(mine))
            return cls(path, number, fresh=True)
        found = _read(path)
        if found.fingerprint != plan.fingerprint:
            raise StateError(f"this site knows the trial {plan.name} under another plan; a plan never changes.")
        if found.digest != _digest(found.number, files):
            raise StateError(
                f"this site has already sent tallies for {plan.name}, and of other records than are in these files: "
                "a site is counted once, and nothing was sent. If the files were changed since, send them as they "
                "were; if they are those of another site, give it a folder of its own with --folder."
            )
        return cls(path, found.number, fresh=False)

    def take_back(self) -> None:
        """Forget a number that was not used: the records may be put right, and sent under another."""
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)


def _read(path: Path) -> _Kept:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    raise StateError(f"the site's file {path} cannot be read, or is damaged; without it nobody knows what was sent.")


def _digest(number: bytes, files: Sequence[str]) -> bytes:
    """Of the files' bytes, in whatever order they are named."""
    digests = []
    for path in expand(list(files)):
        if isinstance(path, Stdin):
            raise SourceError("standard input cannot be sent again after a break; give the site's records as files.")
        digests.append(_file_digest(path))
    whole = hashlib.blake2b(digest_size=32, key=number, person=b"foldaway-site")
    for digest in sorted(digests):
        whole.update(digest)
    return whole.digest()


def _file_digest(path: Path) -> bytes:
    with instead_of(OSError, lambda error: SourceError(f"{path} cannot be read: {error.strerror}.")):
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()

"""The trial's secret key: what ties identifiers to arms, groups and bootstrap weights, kept apart from the tallies."""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path

from foldaway.errors import EndedError, PlanError, SourceError
from foldaway.keeping.disk import make_file
from foldaway.keeping.planted import require_own

LENGTH = 16


class Secret:
    """A 128-bit key that can be destroyed.

    Args:
        key: The key; a new random one if left out.

    Example:
        >>> secret = Secret(bytes(16))
        >>> secret.mark() == Secret(bytes(16)).mark()
        True
        >>> secret.destroy()
        >>> secret.of_groups()
        Traceback (most recent call last):
        foldaway.errors.EndedError: the trial has ended: its key was destroyed, so no further record can be folded.
    """

    def __init__(self, key: bytes | bytearray | None = None) -> None:
        if key is not None and (not isinstance(key, bytes | bytearray) or len(key) != LENGTH):
            raise PlanError(f"a key is {LENGTH} bytes, for example from `secrets.token_bytes({LENGTH})`.")
        self._key = bytearray(secrets.token_bytes(LENGTH) if key is None else key)

    def __repr__(self) -> str:
        return "Secret: destroyed" if not self._key else "Secret: held"

    @property
    def held(self) -> bool:
        """Whether the key is still there."""
        return bool(self._key)

    def reveal(self) -> bytes:
        """The key, for another worker of the same trial."""
        if not self._key:
            raise EndedError("the trial has ended: its key was destroyed, so no further record can be folded.")
        return bytes(self._key)

    def mark(self) -> bytes:
        """Eight bytes that tell whether two keys are the same, and nothing else about them."""
        return self._derived(b"mark", 8)

    def of_units(self, plan: str) -> bytes:
        """The key under which identifiers are hashed to bootstrap weights: another one for every plan's fingerprint."""
        return self._derived(b"unit" + plan.encode(), LENGTH)

    def of_groups(self) -> bytes:
        """The key under which identifiers are hashed to groups."""
        return self._derived(b"group", LENGTH)

    def of_warehouse(self) -> bytes:
        """The group key: 32 hexadecimal digits, hashed before an identifier where a database may have to do it too."""
        return self._derived(b"warehouse", LENGTH).hex().encode()

    def of_levels(self) -> bytes:
        """The key under which levels of segments are hashed that the plan does not list."""
        return self._derived(b"level", 32)

    def of_arms(self) -> bytes:
        """The key under which identifiers draw their arms."""
        return self._derived(b"arm", 32)

    def offset(self, groups: int) -> int:
        """The first of those groups that a site's units are dealt into, where it has units for a few groups only."""
        return int.from_bytes(self._derived(b"offset", 8), "little") % groups

    def of_files(self) -> bytes:
        """The key that saved files are encrypted under."""
        return self._derived(b"file", 32)

    def of_signing(self) -> bytes:
        """The seed of the key that ledgers are signed with."""
        return self._derived(b"sign", 32)

    def commitment(self, data: bytes) -> str:
        """A hash of tallies that tells nobody without the key anything, not even whether a guess at them is right."""
        return blake2b(data, key=self._derived(b"commit", 32), digest_size=32).hexdigest()

    def of_shard(self, shard: bytes) -> bytes:
        """The key under which the records of a shard are numbered, so that no two shards share weights."""
        return self._derived(b"shard" + shard, LENGTH)

    def destroy(self) -> None:
        """Overwrite the key and let go of it."""
        self._key[:] = bytes(len(self._key))
        self._key = bytearray()

    def _derived(self, purpose: bytes, length: int) -> bytes:
        return blake2b(purpose, key=self.reveal(), digest_size=length, person=b"foldaway-key").digest()


def read_or_make_key(path: Path, *, new: bool = True) -> bytes:
    """The key in a file of its own, as hexadecimal text; made, for its owner alone, if it is not there and may be.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "trial.key")
        ...     read_or_make_key(file) == read_or_make_key(file), oct(file.stat().st_mode & 0o777)
        (True, '0o600')
    """
    require_own(path, SourceError)
    try:
        if new and not path.exists():
            # Whole or not at all: half a key would stop whoever comes after a crash.
            make_file(path, f"{secrets.token_hex(LENGTH)}\n".encode())
    except FileExistsError:
        pass  # somebody was faster
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be made: {error.strerror}.") from None
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        raise SourceError(f"there is no key file {path}; the state needs the key that it was made with.") from None
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        key = b""
    if len(key) != LENGTH:
        raise SourceError(f"the key file {path} does not hold a key: {2 * LENGTH} hexadecimal digits.")
    return key

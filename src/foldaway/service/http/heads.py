"""Heads of requests that say one thing to every reader.

The parser refuses what has two lengths, folded lines, or characters that may not be there. It takes some more heads
that a proxy may read in another way, and these are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST_HEAD = 2**16
"""Bytes; of the trailers of a body as well, and of whatever else comes between two pieces of it."""

_LENGTHS = {b"content-length", b"transfer-encoding"}
_ONCE = re.compile(
    rb"authorization|content-encoding|content-length|content-type|foldaway-[a-z-]+|host|transfer-encoding"
)


class Ambiguous(ValueError):
    """The head of a request can be read in two ways."""


def require_one_meaning(method: bytes, version: str, headers: Sequence[tuple[bytes, bytes]], *, upgrades: bool) -> None:
    """Refuse a head that another reader may take for something else.

    Args:
        method: The request's method.
        version: The version of HTTP.
        headers: Its fields, with names in small letters.
        upgrades: Whether it asks for another protocol: then the parser takes what follows for that protocol's, though
            it is the body of a request in this one.

    Raises:
        Ambiguous: It is another version than 1.0 and 1.1, has no host, has a field twice that the server goes by, or
            asks for another protocol and has a body.

    Example:
        >>> require_one_meaning(b"GET", "1.1", [(b"host", b"x")], upgrades=False)
        >>> require_one_meaning(b"GET", "1.1", [(b"host", b"x"), (b"host", b"y")], upgrades=False)
        Traceback (most recent call last):
            ...
        foldaway.service.http.heads.Ambiguous
    """
    once = [name for name, _ in headers if _ONCE.fullmatch(name)]
    lengths = [name for name in once if name in _LENGTHS]
    if (
        version not in ("1.0", "1.1")
        or len(set(once)) < len(once)
        or (b"host" not in once and version == "1.1")
        or (b"transfer-encoding" in lengths and version == "1.0")
        or len(lengths) > 1
        or (upgrades and (lengths or method == b"CONNECT"))
    ):
        raise Ambiguous

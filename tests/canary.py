"""Planted records through a server, in every way that records can come; what is left of them, by place."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import foldaway as fa
from bodies import Rows, as_arrow, as_json, as_ndjson, zstd
from foldaway.sources.formats.body import ARROW, JSON, NDJSON
from memory_scan import Hits, Marks, scan_files, scan_process

PLAN = fa.Plan(
    name="canary",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    covariates=["age", {"column": "country", "levels": ["de", "fr", "us"]}],
    unit="user_id",
    moments=fa.Moments(bootstrap=50),
)

KINDS = ("good", "good", "faulty", "cut", "inside", "after", "dropped")
"""Good ones; with faulty records; cut short; with an exception forced before or after the fold; left halfway."""

# Small and large, odd and even: small blocks go through other caches than large ones.
_SIZES = (1, 700, 3, 50, 127, 128, 999, 8, 301)


@dataclass(frozen=True)
class Batch:
    """One request.

    Attributes:
        kind: One of `KINDS`.
        media_type: Its Content-Type.
        encoding: Its Content-Encoding, if any.
        body: Its body.
    """

    kind: str
    media_type: str
    encoding: str | None
    body: bytes = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        packed = {} if self.encoding is None else {"Content-Encoding": self.encoding}
        return {"Content-Type": self.media_type, **packed}


FORMATS: list[tuple[str, Callable[[Rows], bytes]]] = [
    (ARROW, as_arrow),
    (ARROW, partial(as_arrow, compression="lz4")),
    (NDJSON, as_ndjson),
    (JSON, as_json),
]
PACKED: list[tuple[str | None, Callable[[bytes], bytes]]] = [(None, bytes), ("gzip", gzip.compress), ("zstd", zstd)]


def record(marks: Marks, i: int) -> dict[str, Any]:
    return {
        "user_id": marks.identifier(i),
        "variant": ("control", "treatment")[i % 2],
        "age": 20 + i * 7919 % 1000 / 20,
        "country": ("de", "fr", "us")[i % 3],
        "revenue": marks.outcome(i),
    }


def batches(marks: Marks, kinds: Iterable[str] = KINDS) -> Iterator[Batch]:
    """Every mark once, in batches of every kind, format and encoding."""
    sizes = cycle(_SIZES)
    ways = cycle(product(FORMATS, PACKED, kinds))
    at = 0
    while at < marks.count:
        (media_type, write), (encoding, pack), kind = next(ways)
        stop = min(at + next(sizes), marks.count)
        rows = [record(marks, i) for i in range(at, stop)]
        at = stop
        if kind == "faulty":
            rows[0]["variant"] = "nobody"
            rows[-1]["revenue"] = str(rows[-1]["revenue"]) + "?" if write in (as_ndjson, as_json) else None
        body = pack(write(rows))
        yield Batch(kind, media_type, encoding, cut(body) if kind == "cut" else body)


def cut(body: bytes) -> bytes:
    """Two thirds of a body, and never whole lines alone, which would be a shorter body and nothing wrong with it."""
    return body[: len(body) * 2 // 3].rstrip(b"}\n")


def drop(batch: Batch, port: int, path: str, headers: dict[str, str], trust: ssl.SSLContext | None = None) -> None:
    """Send two thirds of a request and hang up."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(batch.body)}"]
    lines += [f"{name}: {value}" for name, value in {**batch.headers, **headers}.items()]
    plain = socket.create_connection(("127.0.0.1", port))
    with plain if trust is None else trust.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + batch.body[: len(batch.body) * 2 // 3])


@dataclass
class Report:
    """What was found, by place."""

    planted: int
    places: dict[str, Hits] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(self.places.values())

    def __str__(self) -> str:
        lines = [f"{self.planted:,} identifiers and outcomes planted; of these are left:"]
        lines += [f"{'':24}{'identifiers':>12}{'outcomes':>12}{'as text':>12}{'fragments':>12}"]
        for place, hits in self.places.items():
            counts = (len(hits.identifiers), len(hits.outcomes), len(hits.texts), hits.fragments)
            lines.append(f"{place:24}" + "".join(f"{count:12,}" for count in counts))
            lines += [f"    {where}: {times}" for where, times in hits.places.items()]
        return "\n".join(lines)


def report(
    marks: Marks,
    *,
    pid: int | None,
    data: Iterable[Path] = (),
    temporary: Iterable[Path] = (),
    logs: bytes = b"",
    responses: bytes = b"",
) -> Report:
    """Search a process (if it is alive), the files under folders, what it has written and what it has answered."""
    places = {} if pid is None else {"process memory": scan_process(pid, marks)}
    places |= {
        "data folder": scan_files(data, marks),
        "temporary folders": scan_files(temporary, marks),
        "logs": marks.find(logs),
        "responses": marks.find(responses),
    }
    return Report(marks.count, places)

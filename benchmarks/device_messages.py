"""Messages of devices a second, in every mode, beside a bare Litestar handler that reads the body and answers 200.

Both run under uvicorn with the same parser and loop, in a process of their own, and are asked by the same client over
the same connections, in turns. The client is a process too, and shares the machine's cores: the table says how much of
the processor's time each message costs it and the server. The server does as `foldaway serve` does by itself: it
stores enrolments at once, and reports on a tick once a cohort has come.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
import psutil
from measure import show
from single_requests import bare_handler

from foldaway.federated.messages import (
    DeviceMessage,
    DeviceMoments,
    DeviceSums,
    Enrolment,
    GroupSums,
    new_number,
    packed,
)
from foldaway.plan import Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "clients/python/src"))

from foldaway_device.modes.mode import Holding
from foldaway_device.modes.scores import Scores
from foldaway_device.plan import read_plan
from served import Served

LIMIT = 0.5
AIM = 3_000  # messages a second
CONNECTIONS = 64
DEVICES = int(os.environ.get("DEVICES", "20000"))


class Load(NamedTuple):
    """What became of some messages.

    Attributes:
        seconds: Until all were answered.
        served: Seconds of the processor's time of the server.
        sent: The same of this process.
        memory: The server's resident bytes before and after.
    """

    seconds: float
    served: float
    sent: float
    memory: tuple[int, int]


def main() -> None:
    """Print the table."""
    rows = []
    with bare_handler("httptools") as bare:
        for mode in ("sums", "delta", "one-message", "scores"):
            with crowd(mode) as (server, token, phases):
                for kind, bodies in phases:
                    path, port = f"/v1/trials/{mode}/{kind}", int(server.url.rpartition(":")[2])
                    peer = load(bare, None, path, token, bodies)
                    ours = load(port, server.pid, path, token, bodies)
                    rows.append(row(mode, kind, ours, peer, bodies))
    title = (
        f"{DEVICES:,} devices over {CONNECTIONS} connections; aim {AIM:,} messages/s, limit {LIMIT} of the bare handler"
    )
    show(title, rows, ["mode", "messages", "bytes", "a second", "bare", "×", "server ms", "client ms", "memory"])


def row(mode: str, kind: str, ours: Load, peer: Load, bodies: Sequence[bytes]) -> list[str]:
    count = len(bodies)
    rate, bare = count / ours.seconds, count / peer.seconds
    each = [f"{1000 * seconds / count:.2f}" for seconds in (ours.served, ours.sent)]
    memory = " → ".join(f"{size / 2**20:.0f}" for size in ours.memory)
    size = f"{sum(map(len, bodies)) / count:.0f}"
    return [mode, kind, size, f"{rate:,.0f}", f"{bare:,.0f}", f"{rate / bare:.2f}", *each, f"{memory} MiB"]


@contextmanager
def crowd(mode: str) -> Iterator[tuple[Served, str, Iterator[tuple[str, list[bytes]]]]]:
    """A server, the token of a trial on it, and what all devices send, one kind of message after the other."""
    plan = plan_of(mode)
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), None, "--quiet", tick=None) as server:
        headers = {"Authorization": f"Bearer {server.admin}", "Content-Type": "application/json"}
        made = httpx.post(f"{server.url}/v1/trials", content=plan.to_json(), headers=headers, timeout=60).json()
        yield server, made["ingest_token"], phases_of(plan, server, made["ingest_token"])


def plan_of(mode: str) -> Plan:
    return Plan.of(
        {
            "name": mode,
            "arm": "variant",
            "arms": {"control": 0.5, "treatment": 0.5},
            "outcomes": ["revenue"],
            "covariates": [] if mode in ("sums", "delta") else ["before"],
            "federated": mode,
        }
    )


def phases_of(plan: Plan, server: Served, token: str) -> Iterator[tuple[str, list[bytes]]]:
    """Every device has one to five records, and its own numbers for its messages."""
    rng = np.random.default_rng(0)
    numbers = [new_number() for _ in range(DEVICES)]
    arms = rng.choice(list(plan.arms), DEVICES).tolist()
    sizes = rng.integers(1, 6, DEVICES).tolist()
    yield "enrolments", [encoded(Enrolment(number, arm)) for number, arm in zip(numbers, arms, strict=True)]
    factors = [factor(rng.normal(10, 2, (n, len(plan.columns) - 1))) for n in sizes]
    devices = list(zip(numbers, arms, sizes, factors, strict=True))
    if plan.name == "sums":
        groups = rng.integers(0, plan.groups, DEVICES).tolist()
        yield (
            "reports",
            [
                encoded(GroupSums(number, arm, n, group, packed(R[0, 1:] * R[0, 0])))
                for (number, arm, n, R), group in zip(devices, groups, strict=True)
            ],
        )
        return
    if plan.name == "delta":
        yield (
            "reports",
            [encoded(DeviceSums(number, arm, n, packed(R[0, 1:] * R[0, 0]))) for number, arm, n, R in devices],
        )
        return
    if plan.name == "one-message":
        yield "reports", [encoded(DeviceMoments.of(*device)) for device in devices]
        return
    yield "moments", [encoded(DeviceMoments.of(new_number(), *device[1:])) for device in devices]
    with server.http() as admin:
        ended = admin.post(f"/v1/trials/{plan.name}/end", json={"deadline": 3600})
        assert ended.status_code in (200, 202), ended.text
    with server.http(token) as device:
        published = device.get(f"/v1/trials/{plan.name}/coefficients").json()
    read, mode = read_plan(plan.canonical()), Scores()
    upper = np.triu_indices(len(plan.columns))
    yield (
        "reports",
        [
            msgspec.json.encode(mode.report(read, Holding(base64(number), arm, 0, n, R[upper].tolist()), published))
            for number, arm, n, R in devices
        ],
    )


def factor(values: Any) -> Any:
    rows = np.column_stack([np.ones(len(values)), values])
    R = np.zeros((rows.shape[1],) * 2)
    found = np.linalg.qr(rows, mode="r")
    R[: len(found)] = found * np.where(np.diag(found) < 0, -1, 1)[:, None]
    return R


def base64(number: bytes) -> str:
    return str(msgspec.to_builtins(number))


def encoded(message: DeviceMessage) -> bytes:
    return msgspec.json.encode(message)


def load(port: int, pid: int | None, path: str, token: str, bodies: Sequence[bytes]) -> Load:
    """Send all, over as many connections, each after the answer to the last."""
    server = psutil.Process(pid)  # for the bare handler this process, of which nothing is shown
    served, memory = sum(server.cpu_times()[:2]), server.memory_info().rss
    sent, start = time.process_time(), time.perf_counter()
    asyncio.run(_load(port, path, token, bodies))
    seconds, sent = time.perf_counter() - start, time.process_time() - sent
    return Load(seconds, sum(server.cpu_times()[:2]) - served, sent, (memory, server.memory_info().rss))


async def _load(port: int, path: str, token: str, bodies: Sequence[bytes]) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    loop, rest = asyncio.get_running_loop(), iter(bodies)
    senders = [_Sender(head, rest) for _ in range(CONNECTIONS)]
    for sender in senders:
        await loop.create_connection(partial(_same, sender), "127.0.0.1", port)
    await asyncio.gather(*(sender.done for sender in senders))


def _same(sender: _Sender) -> _Sender:
    return sender


class _Sender(asyncio.Protocol):
    """One connection, without a library, which would cost more than the server."""

    def __init__(self, head: bytes, bodies: Iterator[bytes]) -> None:
        self._head, self._bodies, self._come = head, bodies, b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        body = next(self._bodies, None)
        if body is None:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))

    def data_received(self, data: bytes) -> None:
        self._come += data
        head, found, body = self._come.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        if head[9:12] != b"200":
            self.done.set_exception(SystemExit(self._come.decode()))
            return
        self._come = b""
        self._send()


if __name__ == "__main__":
    main()

"""One record per request: the collecting service beside a bare Litestar handler that reads the body and answers 200.

All run under uvicorn with the same loop, in a process of their own, and are asked by the same client over the same
number of connections, in turns. The bare handler runs with either parser: h11, which uvicorn has by itself, and
httptools, which the service has. The service's process overwrites what it frees, the bare handler's does not. The
records have no number, so each is answered once it is folded.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, Request, post
from measure import show

from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from foldaway.sources.formats.body import JSON

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from service_load import create

from postgres import free_port
from served import Served

LIMIT = 0.5
CONNECTIONS = 32  # as many as one token may hold at a time
REQUESTS = 4_000  # a round
ROUNDS = 5


def main() -> None:
    """Print the table."""
    bodies = [
        msgspec.json.encode([record]) for batch in checkout(REQUESTS, chunk=REQUESTS) for record in batch.to_pylist()
    ]
    path = f"/v1/trials/{PLAN.name}/records"
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder), None, "--quiet") as server,
        bare_handler("h11") as slow,
        bare_handler("httptools") as fast,
    ):
        token = create(server)
        ports = {"foldaway": int(server.url.rpartition(":")[2]), "bare, h11": slow, "bare, httptools": fast}
        rounds: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(ROUNDS + 1):
            for name, at in ports.items():
                rounds[name].append(asyncio.run(ask(at, path, token, bodies)))
    rates = {name: REQUESTS / min(times[1:]) for name, times in rounds.items()}  # the first round is not timed
    rows = [[name, f"{rate:,.0f}", f"{rates['foldaway'] / rate:.2f}"] for name, rate in rates.items()]
    title = f"Single records as JSON, {CONNECTIONS} connections, best of {ROUNDS} rounds; limit {LIMIT} of bare, h11"
    show(title, rows, ["", "requests/s", "foldaway ×"])


async def ask(port: int, path: str, token: str, bodies: list[bytes]) -> float:
    """Seconds until all were answered with a success."""
    start = time.perf_counter()
    await asyncio.gather(*(converse(port, path, token, bodies[i::CONNECTIONS]) for i in range(CONNECTIONS)))
    return time.perf_counter() - start


async def converse(port: int, path: str, token: str, bodies: list[bytes]) -> None:
    """Send bodies over one connection, each after the answer to the last: without a library, which would cost more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {JSON}\r\nContent-Length: "
    ).encode()
    for body in bodies:
        writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer[9:12] in (b"200", b"202"), answer
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    writer.close()


@contextmanager
def bare_handler(parser: str) -> Iterator[int]:
    """The peer, in a process of its own; its port."""
    port = free_port()
    process = get_context("spawn").Process(target=serve_bare, args=(port, parser), daemon=True)
    process.start()
    try:
        asyncio.run(until_open(port))
        yield port
    finally:
        process.terminate()
        process.join()


async def until_open(port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(600):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            return
        except OSError:
            await asyncio.sleep(0.05)
    raise SystemExit("The bare handler does not start.")


def serve_bare(port: int, parser: Any) -> None:
    """Litestar and nothing else: the body is read, and the answer is an empty object."""

    @post(["/v1/trials/{name:str}/records", "/v1/trials/{name:str}/{kind:str}"], status_code=200)
    async def records(request: Request[Any, Any, Any], name: str) -> dict[str, str]:
        await request.body()
        return {}

    uvicorn.run(
        Litestar([records], openapi_config=None, logging_config=None),
        host="127.0.0.1",
        port=port,
        http=parser,
        loop="asyncio",
        ws="none",
        access_log=False,
        log_config=None,
    )


if __name__ == "__main__":
    main()

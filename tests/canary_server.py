"""A minimal server around `ingest.decode` and a trial, for the canary test; prints its port.

With "hardened" as its second argument it takes all the care that a server can take, with "usual" none.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from litestar import Litestar, Request, Response, post
from litestar.logging.config import LoggingConfig

import foldaway as fa
from foldaway.errors import IngestError, RecordError
from foldaway.forgetting.harden import forget_now, harden, settle
from foldaway.forgetting.rehearsal import rehearse
from foldaway.sources.formats.body import Limits, decode, wipe


class Folding:
    """What is done in the one thread that folds."""

    def __init__(self, plan: fa.Plan, hardened: bool) -> None:
        self.trial = fa.Trial(plan)
        self.hardened = hardened
        self.thread = ThreadPoolExecutor(1)

    def receive(self, body: bytearray, media_type: str, encoding: str | None, fail: bool) -> str:
        decoded = decode(body, media_type, encoding, self.trial.plan, Limits())
        try:
            if fail:
                raise RuntimeError("forced")
            self.trial.fold(decoded.records, text=True, unreadable=decoded.ragged)
        finally:
            if self.hardened:
                decoded.wipe()
        return f"{self.trial.n}"

    def forget(self) -> None:
        forget_now()


def make_app(folding: Folding) -> Litestar:
    async def taken(request: Request[Any, Any, Any]) -> str:
        body = bytearray()
        loop = asyncio.get_running_loop()
        try:
            async for chunk in request.stream():
                body += chunk
            kind, encoding = request.headers.get("Content-Type", ""), request.headers.get("Content-Encoding")
            fail = request.query_params.get("fail")
            answer = await loop.run_in_executor(folding.thread, folding.receive, body, kind, encoding, fail == "inside")
            if fail is not None:
                raise RuntimeError("forced")
            return answer
        finally:
            if folding.hardened:
                wipe(body)
                # Later, when nothing of this request is left but what nobody looks after.
                loop.call_later(0.1, folding.thread.submit, folding.forget)

    @post("/records", status_code=200)
    async def records(request: Request[Any, Any, Any]) -> Response[str]:
        try:
            return Response(await taken(request))
        except IngestError as error:
            return Response(str(error), status_code=error.status)
        except RecordError as error:
            return Response(str(error), status_code=422)

    return Litestar([records], logging_config=LoggingConfig(log_exceptions="always"), openapi_config=None)


def main(plan: str, care: str, *certificate: str) -> None:
    if care == "hardened":
        for sentence in harden():
            print(sentence, file=sys.stderr, flush=True)
        rehearse()
        settle()
    folding = Folding(fa.Plan.loads(plan), care == "hardened")
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app(folding),
        http="httptools",
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])

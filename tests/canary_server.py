"""A minimal server around `ingest.decode` and a trial, for the canary test: run as a program, port and trial given."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from litestar import Litestar, Request, Response, post

import foldaway as fa
from foldaway.errors import IngestError, RecordError
from foldaway.service.decoy import fold_decoy
from foldaway.service.harden import forget_now, harden, settle
from foldaway.service.ingest import Limits, decode, wipe
from foldaway.service.rehearsal import rehearse
from foldaway.service.wiped_arrays import wipe_arrays


def make_app(plan: fa.Plan) -> Litestar:
    trial = fa.Trial(plan)
    thread = ThreadPoolExecutor(1, initializer=wipe_arrays if os.environ.get("CANARY_ARRAYS", "1") == "1" else None)

    def receive(*arguments: Any) -> str:
        try:
            return receive_one(*arguments)
        finally:
            if os.environ.get("CANARY_FORGET", "1") == "1":
                fold_decoy(plan, int(os.environ.get("DECOY", "0")))
                forget_now()

    def receive_one(body: bytearray, media_type: str, encoding: str | None, fail: bool) -> str:
        decoded = decode(body, media_type, encoding, plan, Limits())
        if fail:
            raise RuntimeError("forced")
        trial.fold(decoded.records, text=decoded.text, unreadable=decoded.ragged)
        decoded.wipe()
        return f"{trial.n}"

    @post("/records", status_code=200)
    async def records(request: Request[Any, Any, Any]) -> Response[str]:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(
                thread,
                receive,
                body,
                request.headers.get("Content-Type", ""),
                request.headers.get("Content-Encoding"),
                "fail" in request.query_params,
            )
        except IngestError as error:
            return Response(str(error), status_code=error.status)
        except RecordError as error:
            return Response(str(error), status_code=422)
        finally:
            wipe(body)
        if "after" in request.query_params:
            raise RuntimeError("forced")
        return Response(answer)

    return Litestar([records], logging_config=None, openapi_config=None)


if __name__ == "__main__":
    if os.environ.get("CANARY_HARDEN", "1") == "1":
        print(harden(), file=sys.stderr, flush=True)
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(fa.Plan.loads(sys.argv[1]))
    config = uvicorn.Config(
        app,
        http=os.environ.get("CANARY_HTTP", "h11"),
        loop=os.environ.get("CANARY_LOOP", "asyncio"),
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="off",
    )
    if os.environ.get("CANARY_REHEARSE", "1") == "1":
        rehearse()
        settle()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listener])

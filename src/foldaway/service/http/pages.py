"""The dashboard's files, which ask the API for what they show, with the reader's token; and the page of the API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import PathParameter

from foldaway.inference.sample_ratio import SUSPICIOUS
from foldaway.keeping.cohort import GROWTH
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, MODES, Word
from foldaway.service.http.api_page import api_page
from foldaway.service.http.bodies import Asked

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_HEADERS = {
    # Nothing from elsewhere, nothing inline, nothing to elsewhere: a name that looks like a script stays a name.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a new version of the server has a new version of the pages
}


def page_routes() -> list[Any]:
    """The handlers."""

    @get("/", include_in_schema=False)
    async def front() -> Response[bytes]:
        return _file("index.html")

    @get("/dashboard/{file:str}", include_in_schema=False)
    async def part(file: Annotated[str, PathParameter()]) -> Response[bytes]:
        return _file(file)

    @get("/api", include_in_schema=False)
    async def api(request: Asked) -> Response[bytes]:
        return Response(api_page(request.app), media_type="text/html", headers=_HEADERS)

    return [front, part, api]


def _file(name: str) -> Response[bytes]:
    content = _files().get(name)
    if content is None:
        raise NotFoundException
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(content, media_type=kind, headers=_HEADERS)


@cache
def _files() -> dict[str, bytes]:
    """All of them, by name: an address can name one of these and nothing else."""
    folder = resources.files("foldaway.service.http") / "dashboard"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS}
    return {**files, "vocabulary.js": _vocabulary()}


def _vocabulary() -> bytes:
    """The words and ranks that the page shares with reports and tables, as a script that others import."""
    tables: list[Mapping[str, Word]] = [ESTIMATORS, ERRORS]
    ranked = [{n: {"phrase": w.phrase, "sentence": w.sentence, "rank": w.rank} for n, w in t.items()} for t in tables]
    modes = {n: {"sentence": m.sentence, "at_end": m.at_end, "sites": m.sites} for n, m in MODES.items()}
    constants = {
        "ESTIMATORS": ranked[0],
        "ERRORS": ranked[1],
        "MODES": modes,
        "SUSPICIOUS": SUSPICIOUS,
        "GROWTH": GROWTH,
    }
    return b"".join(b"export const %s = %s;\n" % (k.encode(), msgspec.json.encode(v)) for k, v in constants.items())

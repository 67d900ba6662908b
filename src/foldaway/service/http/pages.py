"""The dashboard's files, which ask the API for what they show, with the reader's token; and the page of the API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import PathParameter

from foldaway.inference.sample_ratio import SUSPICIOUS
from foldaway.keeping.cohort import GROWTH
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, MODES, Word
from foldaway.report.drawing.markup import Child, Html, html, tag
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

# In place of the framework's own words.
_DONE = {"200": "Done.", "201": "Created.", "204": "Done; the answer has no body."}


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
        return Response(_api_page(request.app), media_type="text/html", headers=_HEADERS)

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


def _api_page(app: Litestar) -> bytes:
    """The API as a page to read, made from the OpenAPI document: no script, and nothing from elsewhere."""
    document = app.openapi_schema.to_schema()
    chapters: dict[str, list[Html]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "summary" in operation:
                chapter = operation.get("tags", ["other"])[0]
                chapters.setdefault(chapter, []).append(_operation(path, method.upper(), operation, document))
    title = f"{document['info']['title']} {document['info']['version']}: HTTP API"
    intro = (
        "All addresses that need a token take it in a header, Authorization: Bearer TOKEN. Refusals are "
        "application/problem+json with a sentence that says what is wrong. The same as a document for machines: ",
        tag("a", "openapi.json", href="schema/openapi.json"),
        ".",
    )
    body = html(
        tag("header", tag("h1", title), class_="top"),
        tag("main", tag("p", intro), [(tag("h2", name), cards) for name, cards in chapters.items()], class_="api"),
    )
    head = html(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Html('<link rel="icon" href="dashboard/icon.svg">'),
        [Html(f'<link rel="stylesheet" href="dashboard/{name}.css">') for name in ("style", "api")],
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'.encode()


def _operation(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> Html:
    """One address and method: what it takes, what it answers, and how to ask with curl."""
    parameters = [
        (html(tag("code", each["name"]), f", {each['in']}{'' if each.get('required') else ', optional'}"), each)
        for each in operation.get("parameters", [])
    ]
    body = operation.get("requestBody")
    rows: list[tuple[Child, Child]] = [(name, each.get("description", "")) for name, each in parameters]
    if body is not None:
        kinds = [(tag("code", kind), " ") for kind in body["content"]]
        rows.append((f"body{'' if body.get('required') else ', optional'}", (body.get("description", ""), " ", kinds)))
    for status, answer in operation["responses"].items():
        rows.append((tag("code", status), (_DONE.get(status, answer["description"]), _fields(answer, document))))
    return tag(
        "details",
        tag("summary", tag("code", f"{method} {path}"), f"  {operation['summary']}"),
        tag("pre", tag("code", _curl(path, method, operation))),
        tag("table", tag("tbody", [tag("tr", tag("th", name, scope="row"), tag("td", what)) for name, what in rows])),
        class_="card",
    )


def _fields(answer: dict[str, Any], document: dict[str, Any]) -> Child:
    """The fields of an answer, if it is an object of ours; those of problems are the same everywhere."""
    for kind, content in answer.get("content", {}).items():
        schema = content.get("schema", {})
        name = schema.get("$ref", schema.get("items", {}).get("$ref", "")).rpartition("/")[2]
        if name and "problem" not in kind:
            fields = document["components"]["schemas"][name].get("properties", {})
            return (" Fields: ", [(", " if i else "", tag("code", field)) for i, field in enumerate(fields)], ".")
    return None


def _curl(path: str, method: str, operation: dict[str, Any]) -> str:
    """How to ask; what stands in capitals is to be filled in."""
    address = path.replace("{", "").replace("}", "").replace("name", "NAME")
    words = ["curl"] + ([f"-X {method}"] if method != "GET" else [])
    if operation.get("security"):
        words.append('-H "Authorization: Bearer $FOLDAWAY_TOKEN"')
    if body := operation.get("requestBody"):
        words.append(f'-H "Content-Type: {next(iter(body["content"]))}" --data-binary @FILE')
    return " ".join([*words, f"$FOLDAWAY_SERVER{address}"])

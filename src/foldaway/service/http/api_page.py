"""The API as a page to read, made from the OpenAPI document: no script, and nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from litestar import Litestar

from foldaway.report.drawing.markup import Child, Html, html, tag

# In place of the framework's own words.
_DONE = {"200": "Done.", "201": "Created.", "204": "Done; the answer has no body."}


def api_page(app: Litestar) -> bytes:
    """The page."""
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

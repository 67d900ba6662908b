"""The addresses of trials: register, look at, read and end them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, cast

import msgspec
from litestar import MediaType, Response, delete, get, post
from litestar.params import QueryParameter

from foldaway.errors import IngestError, instead_of
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting.answers import Answer, History, Series
from foldaway.service.collecting.service import Ahead, Created, TrialStatus
from foldaway.service.http.access import Access, Name
from foldaway.service.http.bodies import Asked, read_body, read_text, require_kind
from foldaway.service.http.documents import EndOperation, PlanOperation, about
from foldaway.service.keys.tokens import Scope

After = Annotated[int, QueryParameter(ge=0, le=2**53, description="Only points with more records than this.")]
Outcome = Annotated[str | None, QueryParameter(description="Only estimates of this outcome.")]
Arm = Annotated[str | None, QueryParameter(description="Only estimates for this arm.")]
EstimatorName = Annotated[str | None, QueryParameter(description="Only estimates by this estimator.")]
Records = Annotated[int | None, QueryParameter(ge=1, le=10**15, description="By so many records in all.")]
Days = Annotated[float | None, QueryParameter(ge=1e-6, le=10**6, description="By so many days from now.")]
Width = Annotated[
    float | None, QueryParameter(ge=1e-300, le=1e300, description="How wide an interval may be, from end to end.")
]

_PLAN_BYTES = 2**20
_ENDING_BYTES = 2**12


def trial_routes(access: Access, patience: float) -> list[Any]:
    """The handlers."""
    thread, needs = access.thread, access.needs
    service = thread.service

    def look(address: str, summary: str, *statuses: int, scopes: tuple[Scope, ...] = ("read",), **more: Any) -> get:
        """An address below a trial's own, for those who hold one of these tokens."""
        settings = about("trials", summary, needs(*scopes), 404, *statuses)
        return get("/v1/trials/{name:str}" + address, **settings, **more)

    @post("/v1/trials", **about("trials", "Register a plan", needs("team"), 409, 410, 422, body=PlanOperation))
    async def create(request: Asked) -> Created:
        text = await read_text(request, ("application/json", "application/toml"), _PLAN_BYTES, patience)
        created = await thread.run(service.create, text, request.scope["state"]["token"].team)
        request.scope["state"]["fingerprint"] = created.fingerprint
        return created

    every = "All trials; with a team's token, the team's, and with a token to read one, that one"

    @get("/v1/trials", **about("trials", every, access.listed, stamped=False))
    async def trials(request: Asked) -> list[TrialStatus]:
        token = request.scope["state"]["token"]
        if token.team is not None:
            return await thread.run(service.statuses_of, token.team)
        if token.trial is None:
            return await thread.run(service.statuses)
        return [await thread.run(partial(service.status, token.trial, reader=True))]

    @look("", "The status of a trial")
    async def status(request: Asked, name: Name) -> TrialStatus:
        return await thread.run(partial(service.status, name, reader=_reads(request)))

    @look("/plan", "The plan", scopes=("read", "ingest", "site"))
    async def plan(name: Name) -> Response[dict[str, Any]]:
        # The canonical form as it is: a client hashes these bytes, and need not be able to write them.
        row = await thread.run(service.store.trial, name)
        return cast("Response[dict[str, Any]]", Response(row.plan.encode(), media_type="application/json"))

    @look("/effects", "The effects so far, rounded for others", 422, 425)
    async def effects(request: Asked, name: Name) -> Answer:
        return await thread.run(partial(service.effects, name, reader=_reads(request)))

    @look(
        "/effects/exact",
        "The effects so far, not rounded; the server counts such requests",
        410,
        422,
        425,
        scopes=("admin",),
    )
    async def exact(name: Name) -> Answer:
        return await thread.run(partial(service.effects, name, exact=True))

    page = "The report: the effects so far, as a page to read or send"

    @look("/report", page, 422, 425, media_type=MediaType.HTML)
    async def report(name: Name) -> str:
        return await thread.run(service.report, name)

    same = "The same, not rounded; the server counts such requests"

    @look("/report/exact", same, 410, 422, 425, scopes=("admin",), media_type=MediaType.HTML)
    async def exact_report(name: Name) -> str:
        return await thread.run(partial(service.report, name, exact=True))

    @look("/history", "How the estimates have moved: the answers that were given", 400)
    async def history(
        request: Asked,
        name: Name,
        after: After = 0,
        outcome: Outcome = None,
        arm: Arm = None,
        estimator: EstimatorName = None,
    ) -> History:
        if not request.query_params.get("after", "0").isdigit():
            raise IngestError(400, "after is a whole number in digits.")  # not 1e3, which is read as one
        return await thread.run(service.history, name, after, Series(outcome, arm, estimator))

    @look("/outlook", "What the trial can still find, from the answers that were given", 400, 410, 422, 425)
    async def outlook(name: Name, records: Records = None, days: Days = None, width: Width = None) -> Ahead:
        return await thread.run(service.outlook, name, records, days, width)

    ended = "End a trial; answers with its final effects, or with the devices whose reports are still missing"

    @post(
        "/v1/trials/{name:str}/end",
        status_code=200,
        **about("trials", ended, needs("team"), 404, 409, 410, 422, body=EndOperation),
    )
    async def end(request: Asked, name: Name) -> Answer:
        wanted = await _read_end_request(request, patience)
        if wanted is not None and wanted.exact and _reads(request):
            raise IngestError(403, "`exact` needs an admin token: leave it out, and the answer has rounded effects.")
        return await thread.run(service.end, name, wanted)

    gone = "Remove a trial that has ended and its tokens from the server; its name is not used again"

    @delete("/v1/trials/{name:str}", **about("trials", gone, needs("team"), 404, 409, stamped=False))
    async def remove(name: Name) -> None:
        await thread.run(service.remove, name)

    @look(
        "/certificate",
        "A signed file about a trial that has ended, which proves what happened: plan, effects and ledger",
        409,
    )
    async def certificate(name: Name) -> Response[bytes]:
        return Response(await thread.run(service.certificate, name), media_type=MediaType.JSON)

    return [
        create,
        trials,
        status,
        plan,
        effects,
        exact,
        report,
        exact_report,
        history,
        outlook,
        certificate,
        end,
        remove,
    ]


def _reads(request: Asked) -> bool:
    """Whether somebody else than an administrator asks, who decides by exact counts of devices when to end."""
    return bool(request.scope["state"]["token"].scope != "admin")


async def _read_end_request(request: Asked, patience: float) -> EndRequest | None:
    """How to end a trial; none if the request has no body."""
    body = await read_body(request.scope, request.receive, _ENDING_BYTES, patience)
    if not body:
        return None
    require_kind(request.scope, "application/json")
    say = 'say {"deadline": seconds, "share": above 0 and at most 1, "without_effects": true, "exact": true}, or some.'
    with instead_of(ValueError, IngestError(400, say)):
        return msgspec.json.decode(body, type=EndRequest)

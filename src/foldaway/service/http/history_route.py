"""The address of a trial's course."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import QueryParameter

from foldaway.errors import IngestError
from foldaway.service.collecting.history import History, Series
from foldaway.service.http.access import Name, Needs
from foldaway.service.http.documents import STAMPED, TOKEN, refusals
from foldaway.service.http.work import Work

After = Annotated[int, QueryParameter(ge=0, le=2**53, description="Only points with more records than this.")]
Outcome = Annotated[str | None, QueryParameter(description="Only estimates of this outcome.")]
Arm = Annotated[str | None, QueryParameter(description="Only estimates for this arm.")]
EstimatorName = Annotated[str | None, QueryParameter(description="Only estimates by this estimator.")]


def history_routes(work: Work, needs: Needs) -> list[Any]:
    """The handler."""

    @get(
        "/v1/trials/{name:str}/history",
        guards=[needs("read")],
        summary="How the estimates have moved, at points a cohort or more of records apart",
        responses=refusals(400, 401, 403, 404, 503),
        response_headers=STAMPED,
        security=TOKEN,
        tags=["trials"],
    )
    async def history(
        request: Request[Any, Any, Any],
        name: Name,
        after: After = 0,
        outcome: Outcome = None,
        arm: Arm = None,
        estimator: EstimatorName = None,
    ) -> History:
        if not request.query_params.get("after", "0").isdigit():
            raise IngestError(400, "after is a whole number in digits.")  # not 1e3, which is read as one
        return await work.run(work.service.history, name, after, Series(outcome, arm, estimator))

    return [history]

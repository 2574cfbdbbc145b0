"""Endpoints of arrays of jobs."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from fairlead.cluster.front.api.bodies import Cancelled
from fairlead.cluster.front.api.dependencies import Context, answer
from fairlead.cluster.front.api.params import LARGEST_ID
from fairlead.cluster.front.api.schema import answers
from fairlead.cluster.front.compute_turns import ComputedRoute

router = APIRouter(prefix="/v1/arrays", tags=["jobs"], route_class=ComputedRoute)
ArrayPath = Annotated[
    int, Path(ge=0, le=LARGEST_ID, description="Id of the array, which is that of its first task.")
]


@router.post("/{array}/cancel", summary="Cancel an array", responses=answers(Cancelled, 404, 429))
def cancel(context: Context, array: ArrayPath) -> Response:
    """End all tasks of an array for good that have not ended: all of them or none. Answers with their
    ids."""
    return answer(Cancelled(context.facade.cancel_array(context.caller, array)))

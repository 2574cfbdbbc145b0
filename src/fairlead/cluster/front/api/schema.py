"""The OpenAPI description: FastAPI's paths and msgspec's schemas of the structs."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import fairlead
from fairlead.cluster.front.api import bodies as models
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.accounting import UsageView
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    DeviceUsageView,
    Explanation,
    JobView,
    LostWork,
    NodeView,
    ReloadAnswer,
    Sample,
    StatusView,
    WhatIf,
)
from fairlead.cluster.protocol.audit import AuditPage
from fairlead.cluster.protocol.job_search import FoundJobs
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_job_spec import BOUNDS
from fairlead.cluster.protocol.study import SearchView, StudySpec

_REF = "#/components/schemas/{name}"
_STRUCTS = (
    ReloadAnswer,
    UsageView,
    AuditPage,
    Caller,
    Comparison,
    DeviceUsageView,
    Explanation,
    FoundJobs,
    JobSpec,
    JobView,
    LostWork,
    MetricCurve,
    NodeView,
    Sample,
    SearchView,
    StatusView,
    StudySpec,
    AttemptView,
    WhatIf,
    models.Health,
    models.LogPart,
    models.NewToken,
    models.NewUser,
    models.PolicyChange,
    models.ErrorBody,
    models.SearchStarted,
    models.Submitted,
    models.WeightChange,
)
_DESCRIPTION = (
    "Submit jobs to a live Fairlead cluster, watch them, and ask why they are where they are. Every "
    "request but /health carries a token. Refusals are JSON with one sentence. Times are seconds since "
    "the cluster was first started, unless they say otherwise."
)
TAGS = [
    {"name": "jobs", "description": "Submit, watch and steer jobs."},
    {"name": "searches", "description": "Search for good parameters of a job."},
    {"name": "cluster", "description": "The cluster as a whole, its nodes and its policy."},
    {"name": "users", "description": "Who may use the cluster. For admins."},
    {"name": "records", "description": "What is kept about the past."},
    {"name": "server", "description": "The server itself."},
]
_REFUSALS = {
    400: "Something in the request cannot be used; the sentence names it.",
    401: "The token is missing or not known.",
    403: "The role of the token does not allow this.",
    404: "It is not there, or not the caller's to see.",
    409: "It cannot be done as things are.",
    413: "The body is too large.",
    415: "The body is not announced as JSON.",
    429: "Too many of these at once.",
    503: "It cannot be done now; try again.",
}


def answers(kind: Any, *refusals: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of an endpoint: its answer, what every endpoint may refuse, and these."""
    problem = _content(models.ErrorBody)
    given: dict[int | str, dict[str, Any]] = {status: {"description": "Done."}}
    if kind is not None:
        given[status] |= _content(kind)
    for refusal in sorted({400, 401, 403, 503, *refusals}):
        given[refusal] = {"description": _REFUSALS[refusal], **problem}
    return given


def no_content(*refusals: int) -> dict[str, Any]:
    """Arguments of the decorator of an endpoint whose answer is empty, and that may refuse with these."""
    return {"status_code": 204, "responses": answers(None, *refusals, status=204)}


def takes(kind: Any) -> dict[str, Any]:
    """The ``openapi_extra`` of an endpoint that ``body_of(kind)`` reads for."""
    return {"requestBody": {"required": True, **_content(kind)}}


def _content(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {"content": {"application/json": {"schema": schema}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description, as JSON objects."""
    described = get_openapi(
        title="Fairlead",
        version=fairlead.__version__,
        description=_DESCRIPTION,
        tags=TAGS,
        routes=app.routes,
    )
    _, schemas = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    _add_bounds(schemas["JobSpec"]["properties"])
    described.setdefault("components", {})["schemas"] = schemas
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # ours are 400
    return described


def _add_bounds(properties: dict[str, Any]) -> None:
    for name, (least, most) in BOUNDS.items():
        schema = properties[name]
        schema = schema["anyOf"][0] if "anyOf" in schema else schema
        schema |= {"minimum": least, "maximum": most}
    properties["command"]["minItems"] = 1

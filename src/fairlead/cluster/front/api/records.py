"""Endpoints of what is kept about the past: the audit log, and what was used."""

import re
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BeforeValidator

from fairlead.cluster.front.api.dependencies import Context, admin, answer
from fairlead.cluster.front.api.schema import answers
from fairlead.cluster.front.compute_turns import ComputedRoute
from fairlead.cluster.protocol.accounting import UsageView, check_groupings
from fairlead.cluster.protocol.audit import AuditFilter, AuditPage, audit_time
from fairlead.errors import ConfigError

router = APIRouter(prefix="/v1", tags=["records"], route_class=ComputedRoute)

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _as_day(value: object) -> object:
    """Numbers, which would be taken for seconds since 1970, are no days."""
    if isinstance(value, str) and not _DAY.fullmatch(value):
        raise ValueError("expected a day as 2026-01-31")
    return value


MAX_ENTRIES = 10_000  # in one answer
LATEST_S = 2e11  # of the wall clock; later times have five digits in their years
Cursor = Annotated[
    str,
    Query(
        pattern=r"^([0-9]{1,20}-[0-9]{1,18})?$",
        description="From the answer before; empty: from the oldest entry.",
    ),
]
Text = Annotated[str, Query(max_length=256)]
Time = Annotated[
    float | None,
    Query(ge=0, le=LATEST_S, allow_inf_nan=False, description="Seconds since 1970, UTC."),
]
Groupings = Annotated[
    str,
    Query(
        max_length=64,
        description="Some of tenant, user, type, and one of day, week and month, with commas between them.",
    ),
]
Day = Annotated[
    date | None, BeforeValidator(_as_day), Query(description="A day (UTC), as 2026-01-31.")
]
Limit = Annotated[int, Query(ge=1, le=MAX_ENTRIES, description="At most so many entries.")]


@router.get(
    "/audit",
    summary="Read the audit log",
    dependencies=[Depends(admin)],
    responses=answers(AuditPage),
)
def audit(
    context: Context,
    user: Text = "",
    action: Text = "",
    since: Time = None,
    until: Time = None,
    cursor: Cursor = "",
    limit: Limit = 1_000,
) -> Response:
    """Entries of the audit log, oldest first: of this user and action, from `since` on and before `until`.
    For the next page give the cursor; `more` says whether there is one already. For admins."""
    if since is not None and until is not None and until <= since:
        raise ConfigError(f"until: must be after {since:g} (since), got '{until:g}'")
    wanted = AuditFilter(
        user=user,
        action=action,
        since="" if since is None else audit_time(since),
        until="" if until is None else audit_time(until),
    )
    return answer(context.facade.audit(context.caller, wanted, cursor, limit))


@router.get("/accounting", summary="Show what was used", responses=answers(UsageView))
def accounting(
    context: Context, by: Groupings = "", since: Day = None, until: Day = None
) -> Response:
    """Device time that was billed, and what it costs where types have prices, by groups that add up to the
    total exactly; from the day `since` on and before the day `until`. To a user their tenant's, to an admin
    all. Attempts that run are counted until now."""
    groupings = check_groupings([name for name in by.split(",") if name], "by")
    if since is not None and until is not None and until <= since:
        raise ConfigError(f"until: expected a day after {since} (since), got '{until}'")
    return answer(context.facade.accounting(context.caller, groupings, since, until))

"""Parameters that several endpoints share, with their limits."""

from typing import Annotated

from fastapi import Path, Query

from fairlead.cluster.protocol.access import TENANT

NAME = r"^[A-Za-z0-9._-]{1,64}$"
LARGEST_ID = 2**53 - 1

JobPath = Annotated[int, Path(ge=0, le=LARGEST_ID, description="Id of the job.")]
NodePath = Annotated[str, Path(pattern=NAME, description="Name of the node.")]
UserPath = Annotated[str, Path(pattern=NAME, description="Name of the user.")]
TenantQuery = Annotated[str, Query(pattern=rf"^{TENANT}$", description="Tenant.")]

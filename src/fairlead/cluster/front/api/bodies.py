"""Bodies of the API, besides the structs of fairlead.cluster.protocol.job_spec, views and access."""

import msgspec

from fairlead.cluster.protocol.access import Role


class ErrorBody(msgspec.Struct, frozen=True):
    """The reason why a request was refused."""

    error: str  # one sentence


class Health(msgspec.Struct, frozen=True):
    """Answer of ``/health``: the server is up."""

    status: str
    version: str


class Submitted(msgspec.Struct, frozen=True):
    """The jobs are durably accepted."""

    ids: list[int]  # in the order of the specs


class Cancelled(msgspec.Struct, frozen=True):
    """The jobs are ended for good."""

    ids: list[int]


class SearchStarted(msgspec.Struct, frozen=True):
    """The search is durably accepted."""

    id: int


class LogPart(msgspec.Struct, frozen=True):
    """A piece of a job's output."""

    text: str
    cursor: str  # give it to get what comes next


class WeightChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that changes a job's weight."""

    weight: float


class PolicyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new policy, as ``fairlead policies`` lists them."""

    policy: str


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user of the cluster."""

    user: str
    tenant: str = ""  # needed for the role "user"
    role: Role = "user"
    lasts_s: float | None = (
        None  # seconds for which the token is good; None = until there is another
    )


class NewToken(msgspec.Struct, frozen=True):
    """The token of a user. It is shown once; the server keeps a hash of it."""

    token: str

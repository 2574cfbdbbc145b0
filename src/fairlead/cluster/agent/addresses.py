"""Addresses at which ranks of an attempt find its rank 0, and the ports that an attempt gets on its node."""

import secrets
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fairlead.cluster.agent.ports import free_ports
from fairlead.cluster.protocol.messages import Assignment
from fairlead.cluster.protocol.progress_url import PORT
from fairlead.errors import ConfigError

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RankZeroAddress:
    """In messages it is ``host:port:rank_sync_port:secret``; the host may be an IPv6 address."""

    host: str
    port: int  # of torch.distributed's store
    rank_sync_port: int  # of Fairlead's own rendezvous between ranks
    secret: str  # that a rank must know there

    @classmethod
    def parse(cls, text: str, job: int) -> "RankZeroAddress":
        """Parse an address as orders contain it. Raises ConfigError."""
        parts = text.rsplit(":", 3)
        if len(parts) != 4 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ConfigError(f"job {job}: master: expected host:port:gang_port:secret")
        host, port, rank_sync_port, secret = parts
        return cls(host, int(port), int(rank_sync_port), secret)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}:{self.rank_sync_port}:{self.secret}"


@dataclass(frozen=True)
class GivenAddresses:
    """Addresses and files that were given to one attempt."""

    here: RankZeroAddress | None = None  # of rank 0 for the ranks here; None: the orders will tell
    elsewhere: RankZeroAddress | None = None  # the same for ranks elsewhere, where rank 0 is here
    progress_port: int = 0  # on which the job answers how far it is, 0 = the agent chose none
    files_of: int = 0  # the attempt whose files its ranks write to; 0 = its own

    @property
    def ports(self) -> set[int]:
        """Ports on this node, whether the attempt listens there yet or not."""
        known = set() if self.here is None else {self.here.port, self.here.rank_sync_port}
        return known | {self.progress_port}


def assign_addresses(
    assignment: Assignment, host: str, taken: AbstractSet[int] = frozenset()
) -> GivenAddresses:
    """Choose ports for what listens on this node. host: where other nodes reach it; taken: ports that other
    attempts on this node were given. Raises ConfigError."""
    if not assignment.has_rank_0:
        return GivenAddresses()
    port, rank_sync_port = free_ports(2, taken)
    single_node = len(assignment.ranks) == assignment.world_size
    here = RankZeroAddress(
        _LOOPBACK if single_node else host, port, rank_sync_port, secret=secrets.token_hex(16)
    )
    progress_port = 0
    if assignment.unmanaged and PORT in assignment.progress_url:
        (progress_port,) = free_ports(1, taken | {port, rank_sync_port})
    return GivenAddresses(here, None if single_node else here, progress_port)

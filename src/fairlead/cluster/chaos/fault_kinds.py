"""All kinds of faults."""

from fairlead.cluster.chaos import (
    faults,
    node_faults,
    state_faults,
)
from fairlead.cluster.chaos.cluster import (
    LEASE_S,
    NODES,
    SOLVE_S,
)
from fairlead.cluster.chaos.faults import Fault
from fairlead.cluster.chaos.workload import GRACE_S

_NODES = tuple(NODES)
_SHORT_S = (0.0, 1.0)
_AROUND_LEASE_S = (LEASE_S * 0.3, LEASE_S * 2.5)  # some outlast the lease, some the node
_LONG_S = (LEASE_S * 0.3, LEASE_S * 6)
_BELOW_LEASE_S = (0.0, LEASE_S)
_NODE_LOST_S = (
    LEASE_S * 1.5 + GRACE_S,
    LEASE_S * 3 + GRACE_S,
)  # until its jobs have been started elsewhere
_OTHER_TARGETS = (
    "state",
    "checkpoints",
    "clock",
    "jobs",
    "policy",
    "solver",
)  # what is no process of ours


def _once(name: str, about: str, inject: faults.Inject, target: str) -> Fault:
    """Return a fault that the cluster itself puts right at once."""
    return Fault(name, about, (target,), _SHORT_S, inject)


def _node(name: str, about: str, inject: faults.Inject) -> Fault:
    """A node, put right at once."""
    return Fault(name, about, _NODES, _SHORT_S, inject)


def _lasting(name: str, about: str, inject: faults.Inject, *targets: str) -> Fault:
    """Something that lasts up to some leases; a node unless a target is named."""
    return Fault(name, about, targets or _NODES, _AROUND_LEASE_S, inject, leases=True)


def _long(name: str, about: str, inject: faults.Inject) -> Fault:
    """A node; something that may last until the node has put it right itself."""
    return Fault(name, about, _NODES, _LONG_S, inject, leases=True)


def _brief(name: str, about: str, inject: faults.Inject, *targets: str) -> Fault:
    """Something that lasts a lease at most; a node unless a target is named."""
    return Fault(name, about, targets or _NODES, _BELOW_LEASE_S, inject)


def _exclusive(name: str, about: str, inject: faults.Inject, *more: str) -> Fault:
    """The whole cluster, and no other fault beside it."""
    return Fault(name, about, ("server", *_NODES, *more), _SHORT_S, inject, exclusive=True)


_DISK_FULL_S = (0.5, LEASE_S * 2)
_ALL = (
    _brief("kill-server", "and start it again", faults.kill_server, "server"),
    _lasting("kill-agent", "and start it again", faults.kill_agent),
    _exclusive("kill-all", "server and agents at once", faults.kill_all),
    _node("kill-spawner", "the process that owns the ranks", faults.kill_spawner),
    _node("kill-prefork", "the process that ranks are forked from", faults.kill_zygote),
    _node("kill-rank", "one process of a job", faults.kill_rank),
    _node("kill-job", "all processes of a job", faults.kill_job),
    _once("kill-solver", "", faults.kill_solver, "solver"),
    _lasting("freeze-server", "driver and front, SIGSTOP", faults.freeze_server, "server"),
    _lasting("freeze-driver", "what decides, SIGSTOP", faults.freeze_driver, "server"),
    _lasting("freeze-front", "what renews leases, SIGSTOP", faults.freeze_front, "server"),
    _once("kill-front", "what renews leases", faults.kill_front, "server"),
    _lasting("freeze-agent", "SIGSTOP, longer than a lease", faults.freeze_agent),
    _long("freeze-spawner", "what owns the ranks, SIGSTOP", faults.freeze_spawner),
    _lasting("freeze-node", "agent and jobs: zombies", faults.freeze_node),
    _lasting("freeze-rank", "SIGSTOP, longer than a lease", faults.freeze_rank),
    Fault("freeze-solver", "", ("solver",), (0.0, SOLVE_S * 2), faults.freeze_solver),
    Fault("fill-state", "disk of the server", ("state",), _DISK_FULL_S, faults.fill_state),
    Fault("fill-checkpoints", "disk", ("checkpoints",), _DISK_FULL_S, faults.fill_checkpoints),
    _node("cut", "connections of an agent", faults.cut),
    _lasting("slow", "network of an agent", faults.slow),
    _lasting("partition", "agent and server, longer than a lease", faults.partition),
    _lasting("unruly", "messages doubled, late, in another order", faults.repeat_messages),
    _brief("set-clock", "wall clock of all processes", faults.set_clock, "clock"),
    _brief("pause", "a job, and resume it", faults.pause, "jobs"),
    _brief("drain", "a node, and undrain it", faults.drain),
    _once("policy", "set another one", faults.policy, "policy"),
    _brief("twin-beside", "an agent of the same name beside a living one", node_faults.twin_agent),
    _lasting(
        "twin-takeover",
        "an agent of the same name while the first one is frozen",
        node_faults.twin_takeover,
    ),
    Fault(
        "kill-node", "agent and spawner", _NODES, _NODE_LOST_S, node_faults.kill_node, leases=True
    ),
    _brief("lose-agent-state", "kill -9, its files deleted", node_faults.lose_agent_state),
    _brief("damage-agent-state", "kill -9, its files damaged", node_faults.damage_agent_state),
    _brief("fill-agent", "disk of an agent", node_faults.fill_agent),
    _lasting("break-starts", "every start on a node fails", node_faults.break_starts),
    _brief("break-path", "an agent whose PATH leads nowhere", node_faults.break_path),
    _node("bury-node", "dead for the rest of the group", node_faults.lose_node),
    _exclusive(
        "damage-state",
        "the server's files damaged: refused, or nothing lost",
        state_faults.damage_state,
        *_OTHER_TARGETS,
    ),
    _exclusive(
        "older-state",
        "the server's whole state replaced by an older copy: halted, then nothing lost",
        state_faults.older_state,
        *_OTHER_TARGETS,
    ),
)
FAULTS = {kind.name: kind for kind in _ALL}

"""The live cluster as its autoscaler sees it, and the autoscaler of a server."""

import contextlib
import secrets
from collections.abc import Collection
from pathlib import Path

from fairlead.cluster.autoscaling.autoscaler import Autoscaler
from fairlead.cluster.autoscaling.demand import JobClass
from fairlead.cluster.autoscaling.engine_config import EngineConfig
from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.protocol.audit import SERVER_USER
from fairlead.cluster.server.rates import by_accelerator, job_type_of_row, table_for
from fairlead.cluster.server.service import Service
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster, Node

_ITSELF = Caller(SERVER_USER, "", "admin")
_NAME = (
    "engine.name"  # file of the server's directory: by what the engine tells this cluster's nodes
)


class LiveScaledCluster:
    """Asks the server as an administrator does. Any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def nodes(self) -> list[NodeView]:
        """Return all nodes."""
        return self._service.nodes(_ITSELF)

    def demand(self, accelerators: Collection[str]) -> list[JobClass]:
        """Return the jobs that run, or would, with their rates on these types, whether there are any."""
        state, admission = self._service.engine.state, self._service.engine.parts.jobs.admission
        rows = {
            job: row
            for job, row in state.registry.jobs.copy().items()
            if row.open and row.state != "paused" and not admission.held.has(row)
        }
        nodes = tuple(Node(name, name, 1) for name in sorted(accelerators))
        cluster = Cluster(nodes)
        table = table_for(state.options.catalogue, cluster, rows, space_sharing=False)
        found: dict[tuple[int, int, float], list[JobRow]] = {}
        for row in rows.values():
            at = table.row(job_type_of_row(row))
            if at is not None:
                found.setdefault((at, row.scale_factor, row.weight), []).append(row)
        classes = []
        for (at, devices, weight), alike in found.items():
            rates = by_accelerator(table.slots, table.rate[at])
            rates = {name: rates[name] for name in accelerators if rates.get(name, 0.0) > 0}
            if rates:
                steps = max(max(row.total_steps - row.steps, 0.0) for row in alike)
                classes.append(
                    JobClass(
                        count=len(alike),
                        devices=devices,
                        weight=weight,
                        rates=rates,
                        left_s=steps / max(rates.values()),
                    )
                )
        return classes

    def drain(self, node: str) -> None:
        """Have its jobs leave a node, and give it none."""
        with contextlib.suppress(NotFoundError):  # it has left since
            self._service.drain(_ITSELF, node)


def autoscaler_of(
    config: EngineConfig, service: Service, directory: Path, agent_address: str
) -> Autoscaler:
    """Return the autoscaler of a server. agent_address: on which it listens for agents. Raises ConfigError
    where the token with which nodes enrol cannot be read."""
    path = Path(config.token_file) if config.token_file else directory / "agent.token"
    try:
        token = path.read_text().strip()
    except OSError as problem:
        raise ConfigError(
            f"{path}: the token with which nodes enrol cannot be read ({problem.strerror}); token_file of "
            "--engine-config names another file"
        ) from None
    launcher = config.launcher(
        cluster=_cluster_name(directory), directory=directory, server=agent_address, token=token
    )
    return Autoscaler(config, launcher, LiveScaledCluster(service))


def _cluster_name(directory: Path) -> str:
    """The name by which an engine tells the nodes of this cluster, made at the first start."""
    path = directory / _NAME
    if not path.exists():
        path.write_text(f"{secrets.token_hex(3)}\n")
    return path.read_text().strip()

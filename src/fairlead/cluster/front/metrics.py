"""The metrics of a live cluster for Prometheus.

``Counters`` are incremented where things happen. ``ClusterCollector`` asks the facade at every scrape for
what can be asked, so that no number is kept twice. Nothing here uses prometheus_client's global registry.
"""

import os
from collections import Counter as Tally
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.cluster.front.facade import Facade
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    ENDED_STATES,
    NodeView,
    StatusView,
    TenantView,
)
from fairlead.cluster.protocol.node_states import NODE_STATES

SCRAPER = Caller(user="metrics", tenant="", role="admin")
_BUCKETS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
)  # seconds
_ORDERS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0)
_SLOW = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)


class Counters:
    """The driver's counters and timings since it was started; Prometheus copes with restarts."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.round_decision_seconds = Histogram(
            "fairlead_round_decision_seconds",
            "Time to decide a round, without the solve.",
            buckets=_SLOW,
            registry=r,
        )
        self.solve_seconds = Histogram(
            "fairlead_solve_seconds", "Time to solve for new shares.", buckets=_SLOW, registry=r
        )
        self.solve_failures = Counter(
            "fairlead_solve_failures", "Solves without an answer; the old shares hold.", registry=r
        )
        self.submissions = Counter("fairlead_jobs_submitted", "Jobs accepted.", registry=r)
        self.preemptions = Counter(
            "fairlead_preemptions",
            "Jobs taken off their devices by a round's decision.",
            registry=r,
        )
        self.job_failures = Counter(
            "fairlead_job_failures", "Starts of jobs that failed.", registry=r
        )
        self.deadlines_missed = Counter(
            "fairlead_deadlines_missed",
            "Jobs that ended after their deadlines, or were dropped or killed with one.",
            registry=r,
        )
        self.nodes_cordoned = Counter(
            "fairlead_nodes_cordoned",
            "Times that a node was taken out of service because jobs failed on it.",
            registry=r,
        )
        self.commit_seconds = Histogram(
            "fairlead_commit_seconds",
            "Time to make a batch of changes durable.",
            buckets=_BUCKETS_S,
            registry=r,
        )


class FrontCounters:
    """The front's counters and timings since it was started."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.lease_renewals = Counter("fairlead_lease_renewals", "Leases renewed.", registry=r)
        self.lease_renewal_seconds = Histogram(
            "fairlead_lease_renewal_seconds",
            "Time to answer an agent's report, which renews its leases.",
            buckets=_BUCKETS_S,
            registry=r,
        )
        self.orders_seconds = Histogram(
            "fairlead_round_orders_seconds",
            "From the end of a round until a node follows the orders that the next one has for it.",
            buckets=_ORDERS,
            registry=r,
        )
        self.http_seconds = Histogram(
            "fairlead_http_request_seconds",
            "Time to answer a request for people and tools.",
            ("code",),
            buckets=_SLOW,
            registry=r,
        )


class ClusterCollector(Collector):
    """Metrics of what the facade shows at the moment of a scrape."""

    def __init__(self, facade: Facade) -> None:
        self.facade = facade

    def describe(self) -> Iterable[Metric]:
        """Registering asks this for names, and so does not ask the cluster."""
        return []

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        status = self.facade.status(SCRAPER)
        yield from _of_tenants(status.tenants)
        yield from _of_status(status)
        yield from _of_nodes(self.facade.nodes(SCRAPER))


def cluster_registry(facade: Facade) -> CollectorRegistry:
    """The cluster's own numbers and those of the processes, beside the counters' registry."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(facade))
    ProcessCollector(pid=os.getppid, registry=registry)  # the driver, which is the server's process
    ProcessCollector("fairlead_front", registry=registry)
    return registry


def _of_tenants(tenants: Iterable[TenantView]) -> Iterable[Metric]:
    jobs = GaugeMetricFamily(
        "fairlead_jobs", "Jobs in the system by state.", labels=("state", "tenant")
    )
    allocated = GaugeMetricFamily(
        "fairlead_tenant_devices", "Devices that a tenant's jobs hold.", labels=("tenant",)
    )
    promised = GaugeMetricFamily(
        "fairlead_tenant_share_promised",
        "Part of all device time that a tenant's weights promise it now.",
        labels=("tenant",),
    )
    received = GaugeMetricFamily(
        "fairlead_tenant_share_received",
        "Part of all device time so far that a tenant received.",
        labels=("tenant",),
    )
    used = CounterMetricFamily(
        "fairlead_device_seconds", "Device time that a tenant received.", labels=("tenant",)
    )
    lost = CounterMetricFamily(
        "fairlead_lost_device_seconds",
        "Device time that went into work done again, starting, loading, saving and stopping.",
        labels=("tenant",),
    )
    for one in tenants:
        for state, number in one.states.items():
            jobs.add_metric((state, one.name), number)
        allocated.add_metric((one.name,), one.devices)
        promised.add_metric((one.name,), one.share_promised)
        received.add_metric((one.name,), one.share_received)
        used.add_metric((one.name,), one.device_s)
        lost.add_metric((one.name,), one.lost_device_s)
    return jobs, allocated, promised, received, used, lost


def _of_status(status: StatusView) -> Iterable[Metric]:
    devices = GaugeMetricFamily(
        "fairlead_devices",
        "Devices by accelerator type: held by jobs, free, or away with their node.",
        labels=("accelerator", "state"),
    )
    for accelerator, (in_all, working, allocated) in status.devices.items():
        devices.add_metric((accelerator, "held"), allocated)
        devices.add_metric((accelerator, "free"), working - allocated)
        devices.add_metric((accelerator, "away"), in_all - working)
    ended = CounterMetricFamily(
        "fairlead_jobs_ended", "Jobs that have left the system, by how.", labels=("state",)
    )
    for state in ENDED_STATES:
        ended.add_metric((state,), status.jobs.get(state, 0))
    policy = GaugeMetricFamily(
        "fairlead_policy_info",
        "The policy in force; always 1.",
        labels=("policy", "profile", "version"),
    )
    policy.add_metric((status.policy, status.profile, status.version), 1)
    return (
        devices,
        ended,
        policy,
        CounterMetricFamily("fairlead_rounds", "Rounds begun so far.", value=status.round + 1),
        GaugeMetricFamily("fairlead_round_seconds", "Length of a round.", value=status.round_s),
        GaugeMetricFamily(
            "fairlead_allocation_stale",
            "1 while shares hold that a failed solve should have replaced.",
            value=float(status.solve.startswith("failed")),
        ),
        *_of_trouble(status),
        GaugeMetricFamily(
            "fairlead_backup_age_seconds",
            "Time since the state of the newest backup; infinite where there is none.",
            value=float("inf") if status.backup_age_s is None else status.backup_age_s,
        ),
        CounterMetricFamily(
            "fairlead_journal_records",
            "Records of the cluster's journal.",
            value=status.journal_records,
        ),
    )


def _of_trouble(status: StatusView) -> Iterable[Metric]:
    """Return the metrics of trouble that somebody should look at."""
    return (
        GaugeMetricFamily(
            "fairlead_halted",
            "1 while nothing is scheduled because nodes know of a later state of the cluster.",
            value=float(bool(status.halted)),
        ),
        GaugeMetricFamily(
            "fairlead_state_unwritable",
            "1 while nothing can be written into the state directory, so nothing new begins.",
            value=float(bool(status.unwritable)),
        ),
        GaugeMetricFamily(
            "fairlead_checkpoints_unavailable",
            "1 while jobs cannot start because the cluster's directory of checkpoints is out of order.",
            value=float(bool(status.checkpoints_trouble)),
        ),
        GaugeMetricFamily(
            "fairlead_jobs_past_deadline",
            "Jobs that have not ended and are past their deadlines.",
            value=float(status.n_past_deadline),
        ),
    )


def _of_nodes(nodes: Sequence[NodeView]) -> Iterable[Metric]:
    family = GaugeMetricFamily("fairlead_nodes", "Nodes by state.", labels=("state",))
    states = dict.fromkeys(NODE_STATES, 0)
    for state, number in (states | Tally(node.state for node in nodes)).items():
        family.add_metric((state,), number)
    each = GaugeMetricFamily(
        "fairlead_node_state",
        "1 for the state that a node is in.",
        labels=("node", "state"),
    )
    parked = GaugeMetricFamily(
        "fairlead_node_parked_bytes", "Memory of parked jobs.", labels=("node",)
    )
    for node in nodes:
        each.add_metric((node.name, node.state), 1)
        parked.add_metric((node.name,), sum(one.memory_bytes for one in node.parked))
    return family, each, parked

"""The problem on which Gavel and POP time their policies.

Jobs of one device each, and a quarter as many devices of each of three types.
"""

from fairlead.analysis.experiments.experiment_context import MEASURED
from fairlead.analysis.experiments.findings import ExperimentContext
from fairlead.analysis.experiments.published.gavel_curves import RATES
from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.arrivals import gavel_arrivals
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from fairlead.simulator.traces.throughput_tables import read_throughputs

TYPES = ("v100", "p100", "k80")
ENTITIES = 5  # of weights 1, 2, 3, 1, 2


def entity(number: int) -> str:
    """The name of an entity, which is the tenant of its jobs."""
    return f"entity-{number}"


def rates(context: ExperimentContext) -> tuple[Throughputs, tuple[str, ...]]:
    """The release's table; without its file, ours with the same rates alone, and a remark that those of
    pairs are modelled."""
    file = MEASURED[RATES]
    try:
        return read_throughputs(context.shared(file)), ()
    except ConfigError:
        return read_throughputs(RATES), (
            f"Rates of two jobs on one device are modelled here: those that were measured are in {file}, "
            "in a directory that --data names.",
        )


def problem(table: Throughputs, jobs: int, seed: int = 0) -> Snapshot:
    """So many jobs of Gavel's generator, dealt to the entities in turn, that have just been submitted."""
    each = max(1, jobs // 4)
    cluster = Cluster.of(dict.fromkeys(TYPES, each), each)
    drawn = gavel_arrivals(
        table.columns(cluster.slots), mean_interarrival_s=0.0, seed=seed, jobs=jobs
    )
    rows = [
        InstanceJob(
            position,
            one.job.family,
            steps_left=one.job.total_steps,
            tenant=entity(position % ENTITIES),
        )
        for position, one in enumerate(drawn)
    ]
    return snapshot_of(rows, cluster, table)

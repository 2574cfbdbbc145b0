"""Fairlead: a scheduler for deep-learning clusters whose accelerators differ.

``simulate`` is the whole of it in one call; the other names are what goes in and comes out.
"""

__version__ = "0.1.0"

from fairlead.errors import CheckError, FairleadError, InputError
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughput import Throughputs
from fairlead.report.metrics import Result
from fairlead.sim.generate import generate
from fairlead.sim.world import World
from fairlead.simulation import Options, simulate
from fairlead.traces.cluster import parse_cluster
from fairlead.traces.read import read_trace
from fairlead.traces.throughputs import read_throughputs

__all__ = [
    "Arrival",
    "CheckError",
    "Cluster",
    "FairleadError",
    "InputError",
    "Job",
    "JobId",
    "Node",
    "Options",
    "RestartCosts",
    "Result",
    "Throughputs",
    "World",
    "__version__",
    "generate",
    "parse_cluster",
    "read_throughputs",
    "read_trace",
    "simulate",
]

"""Every error that Fairlead raises on purpose, in one tree.

    FairleadError
    |-- InputError            something that the user gave cannot be used (exit code 2)
    |   |-- TraceError        a trace file, line or field
    |   |-- ThroughputError   a throughput table, row or key
    |   |-- ClusterError      a cluster description
    |   |-- ConfigError       an option, or a policy name
    |   `-- RunError          a run directory or its journal
    |-- CheckError            a comparison that was asked for does not hold (exit code 1)
    |   `-- ResumeError       a run that is to go on is another one
    |-- SolveError            a policy, planner or solver failed, or ended without an answer
    |-- AllocationError       shares, rounds or devices were answered that break a constraint
    |-- ProtocolError         an event that the core cannot accept in its present state
    |-- WireError             a peer on a socket does not speak our language
    |-- CheckpointError       a checkpoint cannot be used
    |   `-- DamagedError      all checkpoints in a directory are damaged
    |-- StoreError            the state of a live cluster cannot be read or written now (disk full)
    |-- StaleError            an agent that the server does not know any more; it has to register again
    |-- UnreachableError      the server of a live cluster does not answer
    `-- SimulationError       the simulation cannot go on (every job waits for ever)

Messages are one sentence that names the file, the line, the field and the value.
"""


class FairleadWarning(UserWarning):
    """Something is not as its author will have meant it; what was asked for goes on."""


class PartialResultWarning(FairleadWarning):
    """The averages of a run are of fewer jobs than its trace has: some have not ended, or fit nowhere."""


class FairleadError(Exception):
    """Root of the tree: catch this to catch all that Fairlead raises on purpose."""


class InputError(FairleadError):
    """Something that the user gave cannot be used."""


class TraceError(InputError):
    """A trace file, line or field cannot be used."""


class ThroughputError(InputError):
    """A throughput table, row or key cannot be used."""


class ClusterError(InputError):
    """A cluster description cannot be used."""


class ConfigError(InputError):
    """An option or a name cannot be used."""


class RunError(InputError):
    """A run directory or its journal cannot be used."""


class CheckError(FairleadError):
    """A comparison that was asked for does not hold."""


class ResumeError(CheckError):
    """A run that is to go on is not the one whose journal is there; nothing of that has been touched."""


class SolveError(FairleadError):
    """A policy, planner or rule of placement failed, or a solver ended without an answer."""


class AllocationError(FairleadError):
    """Shares that break a constraint, or rounds and devices that cannot be had."""


class ProtocolError(FairleadError):
    """An event arrived that the core cannot accept in its present state."""


class WireError(FairleadError):
    """A peer on a socket does not speak this side's protocol."""


class CheckpointError(FairleadError):
    """A checkpoint cannot be used: it was written for another number of ranks."""


class DamagedError(CheckpointError):
    """None of the checkpoints in a directory is whole."""


class StoreError(FairleadError):
    """The state of a live cluster cannot be read or written now; nothing of the change is in it."""


class StaleError(FairleadError):
    """An agent, or an incarnation of one, that the server does not know; it has to register again."""


class UnreachableError(FairleadError):
    """The server of a live cluster does not answer."""


class SimulationError(FairleadError):
    """The simulation cannot go on."""

"""The scheduler: a state machine that turns events into commands.

It reads no clock, file, socket, environment or random source. Time is a field of every event.
"""

from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, JobEnd
from fairlead.model.events import (
    DevicesBound,
    DevicesKept,
    DevicesOccupied,
    Event,
    JobsCancelled,
    JobsDropped,
    JobsPaused,
    JobsReweighted,
    JobsSubmitted,
    JobTypesLearned,
    NodeLost,
    NodeRecovered,
    NodesAvoided,
    ProgressCorrected,
    RatesLearned,
    RequirementsChanged,
    RestartCostsLearned,
    RoundEnded,
    Solved,
    Stalled,
)
from fairlead.model.job import RestartCosts
from fairlead.model.plan import Planner
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import decisions, job_events, rate_events
from fairlead.scheduler.core.batch_size_events import requirements_changed
from fairlead.scheduler.core.node_events import node_changed
from fairlead.scheduler.core.round_events import round_ended
from fairlead.scheduler.core.scheduler_data import SchedulerOptions, new_data
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.rule import PlacementRule


class Scheduler:
    """Decides, round by round, who runs where. ``handle`` is its only verb; ``data`` is for reading."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        planner: Planner,
        profile: MechanismSettings,
        *,
        restart_costs: RestartCosts | None = None,
        overlap_solves: bool = False,
        policy: str = "",
        placement: PlacementRule | None = None,
        preempted_return: bool = False,
    ) -> None:
        """throughputs: what the scheduler believes; overlap_solves: rounds go on with the last
        allocation while a solve is under way, instead of waiting for it; policy: what the planner was
        made from, name and options; placement: None = the rule of the settings; preempted_return: preempted
        jobs go back to the devices that they had, where they can."""
        options = SchedulerOptions(
            settings=profile,
            restart_costs=restart_costs or RestartCosts(),
            overlap_solves=overlap_solves,
            policy=policy,
            preempted_return=preempted_return,
        )
        self.data = new_data(cluster, throughputs, planner, options, placement)

    def handle(self, event: Event) -> list[Command]:
        """Return the commands in answer to an event. The core's state changes here and nowhere else."""
        s, time_s = self.data, event.time_s
        s.now_s = time_s
        match event:
            case RoundEnded():
                return round_ended(s, event)
            case JobsSubmitted():
                return job_events.submitted(s, event)
            case RequirementsChanged():
                return requirements_changed(s, event)
            case Solved():
                return decisions.solved(s, event)
            case NodeLost():
                return node_changed(s, time_s, event.node, False)
            case NodeRecovered():
                return node_changed(s, time_s, event.node, True)
            case JobsCancelled():
                return job_events.withdrawn(s, event.jobs, JobEnd.CANCELLED, time_s)
            case JobsDropped():
                return job_events.withdrawn(s, event.jobs, JobEnd.DROPPED, time_s)
            case NodesAvoided():
                return job_events.nodes_avoided(s, event)
            case DevicesBound():
                return job_events.devices_bound(s, event)
            case Stalled():
                return decisions.decide(s, time_s, stalled=True)
            case ProgressCorrected():
                return job_events.progress_corrected(s, event)
            case RestartCostsLearned():
                return job_events.restart_costs_learned(s, event)
            case DevicesOccupied():
                return job_events.devices_occupied(s, event)
            case DevicesKept():
                return job_events.devices_kept(s, event)
            case JobsReweighted():
                return job_events.reweighted(s, event)
            case JobsPaused():
                return job_events.paused_or_resumed(s, event)
            case JobTypesLearned():
                return rate_events.job_types_learned(s, event)
            case RatesLearned():
                return rate_events.rates_learned(s, event)

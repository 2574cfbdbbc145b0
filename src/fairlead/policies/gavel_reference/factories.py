"""The policies of Gavel's release, by the names that ours have."""

from collections.abc import Mapping

from fairlead.policies.cost import (
    SpaceSharingThroughputPerCostDeadlines,
    ThroughputPerCostDeadlines,
)
from fairlead.policies.entities import requested_entities
from fairlead.policies.fifo import FastestFirstFifo, FifoShares
from fairlead.policies.gandiva_packing import GandivaPacking
from fairlead.policies.gavel_reference.allox import GavelAlloX
from fairlead.policies.gavel_reference.las import (
    ReleasedAgnosticLas,
    ReleasedLas,
    ReleasedSpaceSharingLas,
)
from fairlead.policies.gavel_reference.linear_objectives import (
    ReleasedThroughputPerCost,
    ReleasedTotalThroughput,
)
from fairlead.policies.gavel_reference.parametric_level import (
    ReleasedAgnosticFinishTime,
    ReleasedAgnosticMakespan,
    ReleasedFinishTime,
    ReleasedMakespan,
    ReleasedSpaceSharingFinishTime,
    ReleasedSpaceSharingMakespan,
)
from fairlead.policies.gavel_reference.space_sharing_fifo import GavelSpaceSharingFifo
from fairlead.policies.gavel_reference.water_filling import (
    ReleasedAgnosticWaterFilling,
    ReleasedWaterFilling,
)
from fairlead.policies.nash import StrategyProof
from fairlead.policies.python_random_stream import PythonRandomStream
from fairlead.policies.request import PolicyFactory
from fairlead.policies.water_filling import SpaceSharingWaterFilling

FACTORIES: Mapping[str, PolicyFactory] = {
    "fifo": lambda request: FifoShares(seed=request.seed),
    "fifo_aware": lambda _: FastestFirstFifo(),
    "fifo_packed": lambda _: GavelSpaceSharingFifo(),
    "gandiva": lambda request: GandivaPacking(random=PythonRandomStream(request.seed)),
    "las": lambda _: ReleasedAgnosticLas(),
    "las_aware": lambda _: ReleasedLas(),
    "las_packed": lambda _: ReleasedSpaceSharingLas(),
    "makespan": lambda _: ReleasedAgnosticMakespan(),
    "makespan_aware": lambda _: ReleasedMakespan(),
    "makespan_packed": lambda _: ReleasedSpaceSharingMakespan(),
    "finish_time": lambda _: ReleasedAgnosticFinishTime(),
    "finish_time_aware": lambda _: ReleasedFinishTime(),
    "finish_time_packed": lambda _: ReleasedSpaceSharingFinishTime(),
    "allox": lambda request: GavelAlloX.of(request.argument),
    "total_throughput": lambda _: ReleasedTotalThroughput(),
    "throughput_per_cost": lambda _: ReleasedThroughputPerCost(),
    "throughput_per_cost_slo": lambda _: ThroughputPerCostDeadlines(all_or_none=True),
    "throughput_per_cost_packed_slo": lambda _: SpaceSharingThroughputPerCostDeadlines(
        all_or_none=True
    ),
    "strategy_proof": lambda _: StrategyProof(weighted=False),
    "water_filling": lambda request: ReleasedAgnosticWaterFilling(
        entities=requested_entities(request.argument)
    ),
    "water_filling_aware": lambda request: ReleasedWaterFilling(
        entities=requested_entities(request.argument)
    ),
    "water_filling_packed": lambda request: SpaceSharingWaterFilling(
        entities=requested_entities(request.argument), spare_pairs=True
    ),
}

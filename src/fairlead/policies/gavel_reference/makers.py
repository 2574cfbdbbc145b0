"""The policies of Gavel's release, by the names that ours have."""

from collections.abc import Mapping

from fairlead.policies.cost import PackedThroughputPerCostSlo, ThroughputPerCostSlo
from fairlead.policies.entities import requested_entities
from fairlead.policies.fifo import FifoAwareShares, FifoShares
from fairlead.policies.gavel_reference.allox import GavelAlloX
from fairlead.policies.gavel_reference.fifo_packed import GavelFifoPacked
from fairlead.policies.gavel_reference.las import (
    ReleasedAgnosticLas,
    ReleasedLas,
    ReleasedPackedLas,
)
from fairlead.policies.gavel_reference.levels import (
    ReleasedAgnosticFinishTime,
    ReleasedAgnosticMakespan,
    ReleasedFinishTime,
    ReleasedMakespan,
    ReleasedPackedFinishTime,
    ReleasedPackedMakespan,
)
from fairlead.policies.gavel_reference.sums import (
    ReleasedThroughputPerCost,
    ReleasedTotalThroughput,
)
from fairlead.policies.gavel_reference.water_filling import (
    ReleasedAgnosticWaterFilling,
    ReleasedWaterFilling,
)
from fairlead.policies.nash import StrategyProof
from fairlead.policies.request import Maker
from fairlead.policies.water_filling import PackedWaterFilling

MAKERS: Mapping[str, Maker] = {
    "fifo": lambda request: FifoShares(seed=request.seed),
    "fifo_aware": lambda _: FifoAwareShares(),
    "fifo_packed": lambda _: GavelFifoPacked(),
    "las": lambda _: ReleasedAgnosticLas(),
    "las_aware": lambda _: ReleasedLas(),
    "las_packed": lambda _: ReleasedPackedLas(),
    "makespan": lambda _: ReleasedAgnosticMakespan(),
    "makespan_aware": lambda _: ReleasedMakespan(),
    "makespan_packed": lambda _: ReleasedPackedMakespan(),
    "finish_time": lambda _: ReleasedAgnosticFinishTime(),
    "finish_time_aware": lambda _: ReleasedFinishTime(),
    "finish_time_packed": lambda _: ReleasedPackedFinishTime(),
    "allox": lambda request: GavelAlloX.of(request.argument),
    "total_throughput": lambda _: ReleasedTotalThroughput(),
    "throughput_per_cost": lambda _: ReleasedThroughputPerCost(),
    "throughput_per_cost_slo": lambda _: ThroughputPerCostSlo(all_or_none=True),
    "throughput_per_cost_packed_slo": lambda _: PackedThroughputPerCostSlo(all_or_none=True),
    "strategy_proof": lambda _: StrategyProof(weighted=False),
    "water_filling": lambda request: ReleasedAgnosticWaterFilling(
        entities=requested_entities(request.argument)
    ),
    "water_filling_aware": lambda request: ReleasedWaterFilling(
        entities=requested_entities(request.argument)
    ),
    "water_filling_packed": lambda request: PackedWaterFilling(
        entities=requested_entities(request.argument), always=True
    ),
}

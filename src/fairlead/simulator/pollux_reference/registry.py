"""The policies of this world by name."""

from collections.abc import Callable

from fairlead.errors import ConfigError
from fairlead.policies.elastic.objectives import ElasticSrpt, Pollux, Sia, TotalGoodput
from fairlead.simulator.pollux_reference.adaptive import AdaptivePolicy
from fairlead.simulator.pollux_reference.policies import (
    ElasticPolicy,
    ReleasedOptimus,
    ReleasedTiresias,
)

POLICIES: dict[str, Callable[[], ElasticPolicy]] = {
    "elastic_srpt": lambda: AdaptivePolicy(ElasticSrpt(), shares_times=True),
    "goodput": lambda: AdaptivePolicy(TotalGoodput()),
    "optimus": ReleasedOptimus,
    "pollux": lambda: AdaptivePolicy(Pollux()),
    "sia": lambda: AdaptivePolicy(Sia()),
    "tiresias": ReleasedTiresias,
}


def elastic_policy(name: str) -> ElasticPolicy:
    """Return a new policy. Raises ConfigError for a name that is not known."""
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r}: --profile pollux has {', '.join(sorted(POLICIES))}")
    return POLICIES[name]()

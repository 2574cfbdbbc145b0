"""The policies of this world by name."""

from collections.abc import Callable, Sequence

from fairlead.errors import ConfigError
from fairlead.policies.elastic.objectives import ElasticSrpt, Pollux, Sia, TotalGoodput
from fairlead.simulator.pollux_reference.adaptive import AdaptivePolicy
from fairlead.simulator.pollux_reference.policies import (
    ElasticPolicy,
    ReleasedOptimus,
    ReleasedTiresias,
)

RELEASED: dict[str, Callable[[], ElasticPolicy]] = {
    "optimus": ReleasedOptimus,
    "tiresias": ReleasedTiresias,
}
ADAPTIVE: dict[str, Callable[[Sequence[str]], ElasticPolicy]] = {
    "elastic_srpt": lambda types: AdaptivePolicy(ElasticSrpt(), True, types),
    "goodput": lambda types: AdaptivePolicy(TotalGoodput(), accelerators=types),
    "pollux": lambda types: AdaptivePolicy(Pollux(), accelerators=types),
    "sia": lambda types: AdaptivePolicy(Sia(), accelerators=types),
}
POLICIES = sorted([*RELEASED, *ADAPTIVE])


def elastic_policy(name: str, accelerators: Sequence[str] = ()) -> ElasticPolicy:
    """Return a new policy. accelerators: type of each node, () = there is one. Raises ConfigError for a name
    that is not known, or a policy that takes all devices for alike where they are not."""
    if name in ADAPTIVE:
        return ADAPTIVE[name](accelerators)
    if name not in RELEASED:
        raise ConfigError(f"policy {name!r}: --profile pollux has {', '.join(POLICIES)}")
    if len(set(accelerators)) > 1:
        raise ConfigError(
            f"policy {name!r}: takes all devices for alike, and the cluster has "
            f"{', '.join(dict.fromkeys(accelerators))}"
        )
    return RELEASED[name]()

"""The policies of Shockwave's release, by the names that ours have: those of Gavel's but for a few."""

from collections.abc import Mapping

from fairlead.model.plan import Policy
from fairlead.policies.allox import AlloX
from fairlead.policies.gavel_reference import factories
from fairlead.policies.request import PolicyFactory, PolicyRequest
from fairlead.policies.shockwave_reference.allox import ReleasedAlloX
from fairlead.policies.simple_share import SimpleShare


def _allox(request: PolicyRequest) -> Policy:
    return ReleasedAlloX(alpha=AlloX.of(request.argument or "0.2").alpha)


FACTORIES: Mapping[str, PolicyFactory] = {
    **factories.FACTORIES,
    "allox": _allox,
    "gandiva_fair": lambda _: SimpleShare(),
}

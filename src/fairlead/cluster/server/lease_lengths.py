"""The longest lives of leases that servers before this one granted: ``--lease`` may have been longer then."""

import msgspec

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.store.lease_lengths import LEASE_LENGTHS, LeaseLength, decode_lengths


def longest_lease_s(state: ClusterState) -> float:
    """Return how long a lease from before may still live, in seconds from now, with what clocks may differ
    by; at least as long as one of this server. Note that this server grants such as well. Call it once, when
    a server starts."""
    mine_s, now_s = state.options.lease_s, state.clock.restored_s
    known = state.store.meta(LEASE_LENGTHS)
    ended_s = {
        one.lease_s: one.until_s
        if one.until_s is not None
        else state.now_s() + one.lease_s * (1 + state.options.rate_bound)
        for one in decode_lengths(known)
        if one.until_s is None or one.until_s > now_s
    }
    lengths = [LeaseLength(lease_s, until_s) for lease_s, until_s in ended_s.items()]
    text = msgspec.json.encode([*lengths, LeaseLength(mine_s, None)]).decode()
    if text != known:
        state.write(lambda t: t.set_meta(LEASE_LENGTHS, text))
    return max([mine_s, *ended_s]) * (1 + state.options.rate_bound)

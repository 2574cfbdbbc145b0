"""The tenants that a caller is shown: an admin all, a user their own and sums over the others."""

from collections.abc import Sequence

import msgspec

from fairlead.cluster.protocol.access import OTHERS, Caller
from fairlead.cluster.protocol.api_models import Sample, TenantView, jobs_wait


def may_see(caller: Caller, tenant: str) -> bool:
    """Return whether the caller may see the jobs of a tenant: an admin all, a user those of their own."""
    return caller.role == "admin" or caller.tenant == tenant


def tenants_for(caller: Caller, views: Sequence[TenantView]) -> tuple[TenantView, ...]:
    """Return the tenants that the caller may see."""
    if caller.role == "admin":
        return tuple(views)
    mine = [view for view in views if view.name == caller.tenant]
    others = [view for view in views if view.name != caller.tenant]
    return (*mine, *([_together(others)] if others else []))


def storage_trouble_for(caller: Caller, trouble: str, jobs: int) -> str:
    """Return the trouble with the storage of checkpoints: folders of jobs are named to the operator alone.
    jobs: that wait for it."""
    if caller.role == "admin" or not trouble:
        return trouble
    return f"{jobs_wait(jobs)} for the storage of checkpoints"


def _together(views: list[TenantView]) -> TenantView:
    """Other tenants, as a user is shown them."""
    return TenantView(
        name=OTHERS,
        jobs=sum(v.jobs for v in views),
        running=sum(v.running for v in views),
        done=sum(v.done for v in views),
        devices=sum(v.devices for v in views),
        share_promised=sum(v.share_promised for v in views),
        share_received=sum(v.share_received for v in views),
        device_s=sum(v.device_s for v in views),
        lost_device_s=sum(v.lost_device_s for v in views),
        mean_rho=None,
    )


def without_others(sample: Sample, tenant: str) -> Sample:
    """A round, with the shares of other tenants as one."""
    share: dict[str, float] = {}
    for name, part in sample.share.items():
        shown = name if name == tenant else OTHERS
        share[shown] = share.get(shown, 0.0) + part
    return msgspec.structs.replace(sample, share=share)

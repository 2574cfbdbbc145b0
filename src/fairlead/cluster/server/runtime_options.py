"""Options that a server takes over while it runs."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Literal

from fairlead.cluster.server.tenant_limits import TenantLimits

LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """Each field can change while the server runs; it is named as its option, with _ for -."""

    tenant_jobs: int = 0  # as in ``TenantLimits``
    tenant_jobs_per_minute: int = 0
    tenant_bytes_per_minute: int = 0
    tenant_output_bytes: int = 0  # of its jobs, that are kept; 0 = as many as there are
    tenant_grace: float = 0.0  # seconds
    user_changes_per_minute: int = 0
    prices: dict[str, float] = field(default_factory=dict)  # $ per device-hour, by type
    log_level: LogLevel = "warning"
    # Days for which these are kept once their job has ended; 0 = for ever, output at most as long as its job:
    keep_ended_jobs: float = 0.0
    keep_logs: float = 0.0
    keep_checkpoints: float = 0.0

    @property
    def tenant_limits(self) -> TenantLimits:
        """Return the limits on what each tenant may submit."""
        return TenantLimits(
            open_jobs=self.tenant_jobs,
            jobs_per_minute=self.tenant_jobs_per_minute,
            bytes_per_minute=self.tenant_bytes_per_minute,
            changes_per_minute=self.user_changes_per_minute,
            grace_s=self.tenant_grace,
        )

    def changed_fields(self, other: "RuntimeOptions") -> list[str]:
        """The names of the fields that are others there."""
        return [
            one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)
        ]


DEFAULT_RUNTIME = RuntimeOptions()
RUNTIME_NAMES = frozenset(one.name for one in fields(RuntimeOptions))


@dataclass(frozen=True, kw_only=True)
class RereadOptions:
    """The options of a configuration file as it is now."""

    runtime: RuntimeOptions
    needs_restart: tuple[str, ...]  # other options whose values are not those of the server's start


Reread = Callable[[], RereadOptions]


def set_log_level(level: LogLevel) -> None:
    """Log records of this level and above, from now on."""
    logging.getLogger().setLevel(level.upper())

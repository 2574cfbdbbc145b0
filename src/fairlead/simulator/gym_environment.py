"""``Environment`` as a ``gymnasium.Env`` with arrays of fixed shapes, for libraries that learn."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import ConfigError, RunError
from fairlead.model.argument_checks import brief_repr, is_whole
from fairlead.model.arrays import Bools, Floats
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.environment import Environment, action_array
from fairlead.simulator.independent_copy import independent_copy
from fairlead.simulator.traces.trace import Trace

try:
    from gymnasium import Env, spaces
except (
    ImportError
):  # all modules are imported to compile what they have; only who makes one needs it
    Env = spaces = None

FEATURES = ("weight", "devices", "age_h", "ran_h", "left_h", "slack_h")
_MAX_ROWS = 100_000  # of the arrays of an observation
NO_DEADLINE_H = 1e6  # the slack of a job without a deadline: a space holds no infinity

Observation: TypeAlias = dict[str, NDArray[Any]]
Array32: TypeAlias = NDArray[np.float32]


_Base: Any = object if Env is None else Env[Observation, Array32]


class GymEnvironment(_Base):  # type: ignore[misc] # Any where it is absent
    """A cluster whose long-run shares an agent decides, as arrays of fixed shapes.

    observation, a dict of arrays; rows of jobs are in order of submission, unused ones are 0:
        jobs (max_jobs, 6): weight, devices, hours since submission, hours of run time, hours of work left on
            its fastest type, hours until its deadline beyond that work (1,000,000 without one, and at most)
        rate (max_jobs, slots): steps/s on each slot type over those on its fastest one
        share (max_jobs, slots): the shares in force
        present (max_jobs,): 1 where a row is a job
        capacity (slots,): devices that a slot type can draw on
    action (max_jobs, slots): requested shares in [0, 1], cut to what fits: what is below 0 counts as 0, what
    is
        above 1 as 1, and nothing counts on a type where the job cannot run; a job that wants more than all
        of its time gets all of it; then all shares on a type are scaled to the devices that it has.
    Jobs beyond the oldest ``max_jobs`` are not shown and wait; info's ``n_hidden`` counts them.
    Rewards, endings and the rest of info are those of ``Environment``.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        trace: Trace | Iterable[Arrival] | str | Path,
        cluster: Cluster | str,
        *,
        max_jobs: int = 64,
        **options: Any,
    ) -> None:
        """trace, cluster, options: those of ``simulate``. max_jobs: rows of observations and actions."""
        if Env is None:
            raise ConfigError(
                "GymEnvironment needs the package gymnasium: pip install 'fairlead[gym]'"
            )
        if not is_whole(max_jobs) or not 1 <= max_jobs <= _MAX_ROWS:
            raise ConfigError(
                f"max_jobs: expected a whole number from 1 to {_MAX_ROWS}, got {brief_repr(max_jobs)}"
            )
        self.environment = Environment(trace, cluster, **options)
        self._snapshot: Snapshot | None = None  # None: before the first reset
        self.max_jobs = max_jobs
        n_slots = self.environment.n_slots
        per_slot = max_jobs, n_slots
        self.action_space = spaces.Box(0.0, 1.0, per_slot, np.float32)
        self.observation_space = spaces.Dict(
            {
                "jobs": spaces.Box(-np.inf, np.inf, (max_jobs, len(FEATURES)), np.float32),
                "rate": spaces.Box(0.0, 1.0, per_slot, np.float32),
                "share": spaces.Box(0.0, 1.0, per_slot, np.float32),
                "present": spaces.MultiBinary(max_jobs),
                "capacity": spaces.Box(0.0, np.inf, (n_slots,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; seed: of noise, failures and the order of types, None: as before."""
        super().reset(seed=seed)
        snapshot, info = self.environment.reset(seed=seed, options=options)
        return self._seen(snapshot, info)

    def step(
        self, action: Array32 | Floats
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Put the shares of an action in force, and go on to the next decision. Raises ConfigError for what
        is no array of that shape, or holds something that is not a number."""
        snapshot = self._snapshot
        if snapshot is None:
            raise RunError("the episode has not begun: call reset() first")
        requested = self._requested(action)
        rows = np.zeros((len(snapshot.jobs), requested.shape[1]))
        rows[: self.max_jobs] = requested[: len(rows)]
        after, reward, terminated, truncated, info = self.environment.step(
            fitting_shares(rows, snapshot)
        )
        seen, info = self._seen(after, info)
        return seen, reward, terminated, truncated, info

    def _requested(self, action: Any) -> Floats:
        """(max_jobs, slots) the action as numbers."""
        requested = action_array(action, self.action_space.shape)
        bad = np.argwhere(~np.isfinite(requested))
        if len(bad):
            row, slot = bad[0].tolist()
            raise ConfigError(
                f"action: row {row}, slot {slot}: expected a number, got {requested[row, slot]}"
            )
        return requested

    def fork(self) -> "GymEnvironment":
        """A copy that goes on by itself from here; either may be abandoned at any time."""
        return independent_copy(self)

    def _seen(self, snapshot: Snapshot, info: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        self._snapshot = snapshot
        n_shown = min(len(snapshot.jobs), self.max_jobs)
        present = np.zeros(self.max_jobs, np.int8)
        present[:n_shown] = 1
        rate = snapshot.solo_rate
        fastest = rate.max(axis=1, keepdims=True)
        observation: Observation = {
            "jobs": self._rows(_features(snapshot, fastest[:, 0])),
            "rate": self._rows(rate / np.maximum(fastest, np.finfo(float).tiny)),
            "share": self._rows(np.clip(snapshot.share, 0.0, 1.0)),
            "present": present,
            "capacity": snapshot.capacity[snapshot.accelerator_of_slot].astype(np.float32),
        }
        return observation, info | {"n_hidden": len(snapshot.jobs) - n_shown}

    def _rows(self, values: Floats) -> Array32:
        """(max_jobs, columns): the oldest jobs' rows, then zeros."""
        rows = np.zeros((self.max_jobs, values.shape[1]), np.float32)
        rows[: len(values)] = values[: self.max_jobs]
        return rows


def fitting_shares(requested: Floats, snapshot: Snapshot) -> Floats:
    """(jobs, slots) shares in proportion to those requested that no job's time and no type's devices exceed.

    requested: (jobs, slots); what is below 0, not a number, or on a type where the job cannot run counts as
    0. First a job that wants more than all of its time gets all of it; then all shares on a type are scaled
    to the devices that it has.
    """
    share = np.where(snapshot.solo_rate > 0, np.nan_to_num(requested, nan=0.0), 0.0).clip(0.0, 1.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    for accelerator, devices in enumerate(snapshot.capacity):
        mine: Bools = snapshot.accelerator_of_slot == accelerator
        used = float((snapshot.job_scale[:, None] * share[:, mine]).sum())
        if used > devices:
            share[:, mine] *= devices / used
    return share


def _features(snapshot: Snapshot, fastest: Floats) -> Floats:
    """(jobs, features), in the order of ``FEATURES``. fastest: (jobs,) steps/s on the fastest type."""
    left_s = snapshot.steps_left / np.maximum(fastest, np.finfo(float).tiny)
    slack_h = (snapshot.deadline_s - left_s) / 3600
    return np.column_stack(
        [
            snapshot.weight,
            snapshot.job_scale,
            snapshot.age_s / 3600,
            snapshot.ran_s / 3600,
            left_s / 3600,
            np.clip(slack_h, -NO_DEADLINE_H, NO_DEADLINE_H),
        ]
    )

"""Starts that have their lease are prepared, and handed to the spawner."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from fairlead.cluster.agent.addresses import RankZeroAddress
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.launch import (
    DirectoryError,
    LastAccess,
    LaunchSite,
    PreparedLaunch,
    launch,
    start_limit_s,
)
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.script_imports import ScriptImports
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import Prepare
from fairlead.cluster.agent.user_rights import launch_as_user
from fairlead.cluster.protocol.messages import DirectoryTrouble
from fairlead.cluster.shortage import is_shortage, lacking
from fairlead.errors import ConfigError

_log = logging.getLogger(__name__)


class AttemptLauncher:
    """``place`` is to be set before the first start. ``changed`` is called when there is news for the
    server."""

    def __init__(
        self, spawner: SpawnerLink, ending: AttemptEnding, changed: Callable[[], None]
    ) -> None:
        self.place: LaunchSite | None = None
        self._spawner = spawner
        self._ending = ending
        self._changed = changed
        self._preparing: dict[Key, asyncio.Task[None]] = {}  # attempts whose orders are being made
        self._imports = ScriptImports(lambda modules: spawner.send(Prepare(modules=modules)))

    def launch(self, attempt: NodeAttempt) -> None:
        """Begin to, if it is time and nobody has: it has its lease, and is known where its rank 0 is."""
        if attempt.state != "starting" or attempt.launched or not attempt.lease.granted:
            return
        master_text = attempt.assignment.master
        if attempt.assignment.world_size > 1 and attempt.addresses.here is None and not master_text:
            return  # rank 0's node has not said yet where it is
        if attempt.key not in self._preparing:
            self._preparing[attempt.key] = asyncio.create_task(self._begin(attempt, master_text))

    async def _begin(self, attempt: NodeAttempt, master_text: str) -> None:
        """told: by the orders, where its rank 0 is."""
        assert self.place is not None
        found, why, obstacle = None, "", ""
        directory: DirectoryTrouble = ""
        path = ""
        of_checkpoints = False
        try:
            master = attempt.addresses.here or RankZeroAddress.parse(
                master_text, attempt.assignment.job
            )
            found = await _prepare(self.place, attempt, master)
        except ConfigError as problem:
            why = str(problem)
            if isinstance(problem, DirectoryError):
                directory, path = problem.trouble, problem.path
                of_checkpoints = problem.of_checkpoints
        except Exception as problem:  # of whatever a job names: its fault, and no end of the agent
            if is_shortage(problem):  # of the node: tried again with the next orders
                obstacle = lacking(problem)
            else:
                _log.exception("job %d cannot be started", attempt.assignment.job)
                why = f"cannot be started: {type(problem).__name__}: {problem}"
        finally:
            del self._preparing[attempt.key]
        now = time.monotonic()
        if attempt.state != "starting":
            return  # it was told to stop meanwhile
        if obstacle:
            attempt.waits(obstacle, now, obstacle=True)
            self._changed()
        elif found is None:
            attempt.failed(
                -1,
                why,
                now,
                directory=directory,
                path=path,
                of_checkpoints=of_checkpoints,
            )
            attempt.record_exit(now)
            self._changed()
        elif attempt.lease.left_s(now) > 0.0:
            modules = self._imports.of(found.script)
            devices = sum(len(rank.devices) for rank in found.order.ranks)
            group = self.place.isolation.groups.of(*attempt.key, devices)
            order = msgspec.structs.replace(found.order, modules=modules, group=group)
            attempt.launched = self._spawner.send(order)
            self._ending.send_deadline(attempt)


async def _prepare(
    place: LaunchSite, attempt: NodeAttempt, master: RankZeroAddress
) -> PreparedLaunch:
    """``launch``. Raises ConfigError, also where a path does not answer in time."""
    last_access = LastAccess()
    limit_s = start_limit_s(attempt.assignment)
    try:
        do = partial(launch, place, attempt, master, last_access)
        if place.isolation.run_as:
            do = partial(launch_as_user, place, attempt, master, last_access, limit_s)
        return await on_thread(do, limit_s)
    except TimeoutError:
        why = f"{last_access.what}: no answer within {limit_s:g} s"
        if last_access.checkpoints:
            raise DirectoryError(why, "out_of_order") from None
        raise ConfigError(why) from None

"""The metrics that jobs report, which the front takes and shows by itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fairlead.cluster.front.logs import LogService
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import LogOffset, MetricChunk
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.store.metric_store import MetricStore, read_curves


class MetricService:
    """Takes pieces of reports on one thread, in their order; any thread may read."""

    def __init__(self, directory: Path, logs: LogService) -> None:
        """directory: of the cluster's state; logs: knows whose job it is, and where its attempts run."""
        self._directory = directory
        self._logs = logs
        self._store = MetricStore(directory)
        self._store.open()
        self._thread = ThreadPoolExecutor(1, "job-metrics")

    def close(self) -> None:
        """Write what has come, and end."""
        self._thread.shutdown()
        self._store.close()

    async def put(self, chunk: MetricChunk) -> LogOffset:
        """Keep a piece. The disk is waited for on another thread than the one that renews leases."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._put, chunk)

    def _put(self, chunk: MetricChunk) -> LogOffset:
        """Reports of attempts that are not here are not kept, nor those from another node than that of rank
        0."""
        key = chunk.job, chunk.attempt
        attempt = self._logs.find_attempt(key)
        if attempt is None or attempt.nodes[0] != chunk.node:
            return LogOffset(offset=chunk.offset + len(chunk.data))
        return LogOffset(offset=self._store.put(key, chunk.offset, chunk.data))

    def read(self, caller: Caller, job: int, name: str = "") -> list[MetricCurve]:
        """The curves of a job. Raises NotFoundError for one that the caller may not see."""
        self._logs.check_visible(caller, job)
        return read_curves(self._directory, job, name)

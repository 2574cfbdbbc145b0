"""Sends the output of ranks, and what they report, to the server."""

import asyncio
import contextlib
import time

from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.node_reports import NodeReports
from fairlead.cluster.agent.report_pace import ReportPace
from fairlead.cluster.agent.server_client import (
    AgentClient,
    RefusedError,
    RegisterAgainError,
    ServerUnreachableError,
    TooLargeError,
)
from fairlead.cluster.protocol.messages import AttemptKey

_LAST_OUTPUT_TIMEOUT_S = 2.0  # for the output of attempts that have ended, before that is reported
_LEAST_OUTPUT_TIMEOUT_S = 1.0  # of these seconds, the first time


class OutputSender:
    """Used on the agent's event loop."""

    def __init__(self, node: str, client: AgentClient, reports: NodeReports, logs: Logs) -> None:
        """node: its name."""
        self._node = node
        self._client = client
        self._reports = reports
        self._logs = logs
        # Ended attempts whose output a report has waited for
        self._waited_for: set[AttemptKey] = set()

    async def send(self) -> bool:
        """Send some of the output. Returns whether all has been told."""
        return await self._logs.send(self._client, self._node, self._reports.incarnation)

    async def send_of_ended(self, pace: ReportPace) -> None:
        """Whoever sees that a job has ended finds all its output where the server takes it in time, and all
        that it has reported (see ``NodeReports``). A server that was away for a while hears of ends as early
        as this node registers. No report waits so long for it that the node would be taken for suspect: much
        that was reported takes many of them (``NodeReports.next`` holds the end back meanwhile)."""
        new = self._reports.new_ends
        is_first, self._waited_for = not new <= self._waited_for, new
        if not new:
            return
        least_s = _LEAST_OUTPUT_TIMEOUT_S if is_first else 0.0
        most_s = max(pace.spare_s(time.monotonic()), least_s)
        with contextlib.suppress(
            TimeoutError,
            ServerUnreachableError,
            RegisterAgainError,
            RefusedError,
            TooLargeError,
        ):
            async with asyncio.timeout(min(most_s, _LAST_OUTPUT_TIMEOUT_S)):
                told = await self.send()
                while not told:  # the value of a trial is its last one
                    incarnation = self._reports.incarnation
                    told = await self._logs.send_metrics(self._client, self._node, incarnation)

    def tidy(self) -> None:
        """Cut files that are too long, and remove those of attempts that are forgotten."""
        self._logs.tidy(time.monotonic())

"""Users of a server under load, in a process of their own: what they do must not hold up the simulated
nodes, whose times are what ``live_load.py`` measures."""

import asyncio
import multiprocessing
import random
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import httpx
import msgspec
import numpy as np
from simulated_nodes import families, job_spec, rates_of

CLIENTS = 32  # users who submit at once, at most


@dataclass(frozen=True, slots=True)
class UsersPlan:
    """The users' plan; times are monotonic seconds."""

    url: str
    token: str
    askers: int  # who ask about one job after the other, without a pause
    jobs: int  # that there are: those are asked about
    rate: float  # single submissions a second
    submit_from: float
    submit_s: float
    ends: float


@dataclass(slots=True)
class UsersSeen:
    """The users' measurements; times are monotonic seconds."""

    submit_at: list[float] = field(default_factory=list)  # when each submission was due
    submit_s: list[float] = field(default_factory=list)  # from then until it was durable
    asked_s: list[float] = field(default_factory=list)  # that questions about jobs took
    failures: int = 0


class Users:
    """See the module."""

    def __init__(self, plan: UsersPlan) -> None:
        self.plan = plan
        self.seen = UsersSeen()
        self.names = families()
        self.rates = rates_of(self.names)
        self.random = np.random.default_rng(1)
        self.due = iter(range(int(plan.rate * plan.submit_s)))

    async def run(self) -> UsersSeen:
        """Until the plan's end."""
        headers = {"Authorization": f"Bearer {self.plan.token}"}
        async with httpx.AsyncClient(base_url=self.plan.url, headers=headers, timeout=60.0) as http:
            asking = [asyncio.create_task(self._ask(http, i)) for i in range(self.plan.askers)]
            await asyncio.gather(*(self._submit(http) for _ in range(CLIENTS)))
            await asyncio.sleep(self.plan.ends - time.monotonic())
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return self.seen

    async def _submit(self, http: httpx.AsyncClient) -> None:
        """One of those who submit: whichever job is due next, late if all were busy."""
        for number in self.due:
            at = self.plan.submit_from + number / self.plan.rate
            await asyncio.sleep(at - time.monotonic())
            seconds = float(self.random.uniform(30.0, 600.0))
            spec = job_spec(self.plan.jobs + number, self.names, self.rates, seconds)
            answer = await http.post(
                "/v1/jobs",
                params={"tenant": f"team-{number % 10}"},
                content=msgspec.json.encode([spec]),
                headers={"Content-Type": "application/json"},
            )
            answer.raise_for_status()
            self.seen.submit_at.append(at)
            self.seen.submit_s.append(time.monotonic() - at)

    async def _ask(self, http: httpx.AsyncClient, number: int) -> None:
        draws = random.Random(number)
        while time.monotonic() < self.plan.ends:
            asked = time.monotonic()
            answer = await http.get(f"/v1/jobs/{draws.randrange(self.plan.jobs)}/explain")
            self.seen.failures += answer.status_code != 200
            self.seen.asked_s.append(time.monotonic() - asked)


def _main(plan: UsersPlan, end: Connection) -> None:
    end.send(asyncio.run(Users(plan).run()))


async def run_users(plan: UsersPlan) -> UsersSeen:
    """The plan carried out by another process. Raises EOFError where that fails."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_main, args=(plan, theirs), daemon=True)
    process.start()
    theirs.close()
    seen: UsersSeen = await asyncio.to_thread(ours.recv)
    await asyncio.to_thread(process.join)
    return seen

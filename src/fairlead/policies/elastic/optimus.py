"""Optimus: devices one after the other to the job whose remaining time they shorten most."""

import heapq

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.policies.elastic.elastic_round import ElasticRound


class Optimus:
    """Optimus (EuroSys'18, section 4.1): each job has its least number of devices, in order of arrival, as
    long as there are any; then, again and again, the job gets its next number whose remaining time falls most
    for each device that this takes. No device is given that shortens nothing.

    A job is placed on the type on which it is fastest with its least number, of those that have devices left,
    and grows there: Optimus knows one type. As there, what a change costs is not weighed.
    """

    def decide(self, jobs: ElasticRound) -> Ints:
        """Return (jobs,) the configuration of each job, -1 = none."""
        free = jobs.capacity.copy()
        chosen = np.full(len(jobs.goodput), -1, np.int64)
        steps = list[tuple[float, int, int]]()
        for job in range(len(chosen)):
            chosen[job] = self._first(jobs, job, free)
            if chosen[job] >= 0:
                self._take(jobs, int(chosen[job]), -1, free)
                self._offer(jobs, job, int(chosen[job]), steps)
        while steps:
            _, job, larger = heapq.heappop(steps)
            present = int(chosen[job])
            more = jobs.devices[larger] - jobs.devices[present]
            if more <= free[jobs.accelerator[larger]]:
                self._take(jobs, larger, present, free)
                chosen[job] = larger
                self._offer(jobs, job, larger, steps)
        return chosen

    def _first(self, jobs: ElasticRound, job: int, free: Ints) -> int:
        """The configuration in which a job begins, -1 = there are no devices for it."""
        fits = (jobs.goodput[job] > 0) & (jobs.devices <= free[jobs.accelerator])
        if not fits.any():
            return -1
        least = fits & (jobs.devices == jobs.devices[fits].min())
        return int(np.where(least, jobs.goodput[job], -1.0).argmax())

    def _offer(
        self, jobs: ElasticRound, job: int, present: int, steps: list[tuple[float, int, int]]
    ) -> None:
        """Add the next number of a job on its type: the seconds saved for each device, negative, the job, and
        the configuration."""
        goodput = jobs.goodput[job]
        same = jobs.accelerator == jobs.accelerator[present]
        more = np.flatnonzero(same & (jobs.devices > jobs.devices[present]) & (goodput > 0))
        if not len(more):
            return
        larger = int(more[jobs.devices[more].argmin()])
        slowest = goodput[goodput > 0].min()
        left_s = jobs.remaining_s[job] * slowest / goodput[[present, larger]]
        saved_s = float(left_s[0] - left_s[1])
        if saved_s > 0:
            devices = int(jobs.devices[larger] - jobs.devices[present])
            heapq.heappush(steps, (-saved_s / devices, job, larger))

    @staticmethod
    def _take(jobs: ElasticRound, now: int, before: int, free: Ints) -> None:
        free[jobs.accelerator[now]] -= jobs.devices[now]
        if before >= 0:
            free[jobs.accelerator[before]] += jobs.devices[before]

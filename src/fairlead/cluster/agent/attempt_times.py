"""When an attempt waited, trained and stopped. Times are monotonic seconds; -1 where a duration is not
known."""

from fairlead.cluster.protocol.messages import (
    AGENT_LEAVES,
    EXPIRED,
    ORPHANED,
    SPAWNER_STALLED,
    SpawnerDeath,
)

INSPECT_AFTER_FRACTION = 2 / 3  # of the grace of an attempt that was told to stop
FIRST_INSPECTION_S = 60.0  # and after so long at the latest
LAST_INSPECTION_S = 20.0  # and before the end of a long grace


class DeviceWait:
    """The time from the order to start until the devices are free."""

    def __init__(self, ordered: float) -> None:
        self._ordered = ordered
        self._since: float | None = None  # it cannot start
        self.obstacle = ""  # what of the node keeps it from starting
        self.free: float | None = None  # when the devices were

    @property
    def is_waiting(self) -> bool:
        """Return whether the attempt was found unable to begin, and has not begun."""
        return self._since is not None and self.free is None

    def record_obstacle(self, obstacle: str, now: float) -> None:
        """It cannot start yet. obstacle: what of the node is in its way, "" = who had its devices. Where that
        changes it has waited from now on."""
        if bool(self.obstacle) != bool(obstacle):
            self._since = None
        self.obstacle = obstacle
        self._since = now if self._since is None else self._since

    def waited_s(self, now: float) -> float:
        """Seconds since it was found that it cannot start; 0 = it can, or has."""
        return now - self._since if self.is_waiting and self._since is not None else 0.0

    def end(self, free: float) -> None:
        """The devices were free at ``free``."""
        self.free, self.obstacle = free, ""

    def admitted(self, now: float) -> None:
        """The order counts from now on; free devices have been waiting for it."""
        self._ordered = now
        self.free = None if self.free is None else now

    @property
    def took_s(self) -> float:
        """From the order to free devices."""
        return between(self._ordered, self.free)


class TrainingTimes:
    """When rank 0 first spoke, when training began and when it paused, and how long it saved."""

    def __init__(self) -> None:
        self.hello: float | None = None  # its start is over: it spoke, or all ranks had come
        self.is_prepared = False  # all ranks of a standby wait
        self.began: float | None = None
        self.paused: float | None = None  # it ended, or an unmanaged job was told to stop
        self.trained_s = -1.0  # that the steps told of last have taken, saves excluded
        self._saves_since: float | None = None
        self._saved_s = -1.0  # in saves that are over; -1 = none has begun
        self._is_released = False  # its saves take no time of its devices any more

    def record_hello(self, now: float) -> None:
        """Rank 0 does; the first time counts."""
        if self.hello is None:
            self.hello = now

    def admitted(self, now: float) -> None:
        """A rank 0 that stood by may load from now on."""
        self.hello = None if self.hello is None else now

    def loading_began(self, at: float) -> None:
        """Rank 0 began to load then: until all other ranks had come it could not."""
        if self.hello is not None:
            self.hello = max(self.hello, at)

    def begin(self, now: float) -> None:
        """Training goes on; the first time counts."""
        if self.began is None:
            self.began, self.trained_s = now, 0.0

    def put_off(self) -> None:
        """Training has not begun yet."""
        self.began = None

    def begin_anew(self, now: float) -> None:
        """Count training from ``now`` on, unless it has paused: what went before was no training."""
        if self.paused is None:
            self.began = now

    def pause(self, now: float) -> None:
        """Note that it no longer trains; the earliest time counts, in whatever order they are heard."""
        if self.began is not None:
            self.paused = now if self.paused is None else min(self.paused, max(now, self.began))

    def ran_s(self, now: float) -> float:
        """Seconds since training began, until it paused; 0 = it has not begun."""
        return 0.0 if self.began is None else (self.paused or now) - self.began

    def progressed(self, now: float, *, saves: bool) -> None:
        """Rank 0 tells of its steps. saves: it saves its state, and was done with these steps when it began
        to."""
        until = now if self._saves_since is None else self._saves_since
        if self.began is not None and self.paused is None:
            self.trained_s = max(until - self.began - max(self._saved_s, 0.0), 0.0)
        if not saves:
            self.saved(now)
        elif self._saves_since is None and not self._is_released:
            self._saves_since, self._saved_s = now, max(self._saved_s, 0.0)

    def saved(self, now: float) -> None:
        """Note the end of a save, if there was one."""
        if self._saves_since is not None:
            self._saved_s, self._saves_since = self.saving_s(now), None

    def release(self, now: float) -> None:
        """Note that it has left its devices. A save that was heard of meanwhile is the one after that."""
        self.pause(now)
        self._saves_since, self._is_released = None, True

    def saving_s(self, now: float) -> float:
        """Seconds of all its saves so far; -1 = none has begun."""
        since = self._saves_since
        return self._saved_s if since is None else self._saved_s + max(now - since, 0.0)


class StopOrder:
    """An order to stop: whether an attempt was given it, why, and how long it took to end."""

    def __init__(self) -> None:
        self._inspections = 0  # of where its ranks stand since
        self._ordered_s: float | None = None
        self._gone: float | None = None
        self._saved_s = 0.0  # in saves before it was given
        self.reason = ""
        self.spawner_death: SpawnerDeath | None = None  # that it ends with
        self.released_s: float | None = None  # when it left its devices, before its end
        self.late_ranks: set[int] = set()  # that ended once much of its grace was over

    @property
    def given(self) -> bool:
        """Return whether it was told to stop."""
        return self._ordered_s is not None

    @property
    def by_agent(self) -> bool:
        """Return whether its agent stopped it of its own accord."""
        return self.reason in (EXPIRED, AGENT_LEAVES, ORPHANED, SPAWNER_STALLED)

    def give(self, reason: str, now: float, saving_s: float = 0.0) -> None:
        """It is told to stop. saving_s: in all its saves so far."""
        self._ordered_s, self.reason, self._saved_s = now, reason, max(saving_s, 0.0)

    def elapsed_s(self, now: float) -> float:
        """Seconds since it was told; 0 = it was not."""
        return 0.0 if self._ordered_s is None else now - self._ordered_s

    def due(self, grace_s: float, now: float) -> bool:
        """Return whether it is time to look at where its ranks stand: when much of its grace is over, and
        once more before the end of a long one."""
        most_s = INSPECT_AFTER_FRACTION * grace_s
        times = sorted({min(most_s, FIRST_INSPECTION_S), max(most_s, grace_s - LAST_INSPECTION_S)})
        if not self.given or self.reason == ORPHANED or self._inspections >= len(times):
            return False
        return self.elapsed_s(now) >= times[self._inspections]

    def record_inspection(self) -> None:
        """A look begins."""
        self._inspections += 1

    @property
    def inspected(self) -> bool:
        """Return whether there was a look."""
        return self._inspections > 0

    def release(self, now: float) -> None:
        """It has left its devices, and is about to be parked."""
        self.released_s = now

    def record_exit(self, now: float) -> None:
        """Its last process has ended. For its devices that was when it left them."""
        self._gone = now if self.released_s is None else min(self.released_s, now)

    def gone_for_s(self, now: float) -> float:
        """Seconds since its last process ended, or left its devices before that; -1 = it has not ended."""
        return between(self._gone, now)

    def took_s(self, saving_s: float) -> float:
        """From the order to the end of the last process, without the time in which it saved. saving_s: in all
        its saves."""
        lasted_s = between(self._ordered_s, self._gone)
        return max(lasted_s - max(saving_s - self._saved_s, 0.0), 0.0) if lasted_s >= 0 else -1.0


def between(begin: float | None, end: float | None) -> float:
    """Seconds, never less than 0; -1 where one of the times is not known."""
    return -1.0 if begin is None or end is None else max(0.0, end - begin)

"""Words about an attempt that was told to stop, and of which something still lives."""

from collections.abc import Iterator, Sequence

from fairlead.cluster.server.attempts import Attempt, holder
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.unbooked_ends import unbooked_end
from fairlead.model.duration_text import duration


def place(attempt: Attempt, ended: Sequence[str] = ()) -> str:
    """The devices of an attempt, in words; those of nodes where it has ended are left out. ended: nodes that
    say so, which may not be booked yet."""
    left = {
        node: devices
        for node, devices in attempt.placement().items()
        if not attempt.has_left(node) and node not in ended
    }
    count = sum(map(len, left.values()))
    return f"{count} x {attempt.record.accelerator} of {','.join(left)}"


def ended_by_agent(fleet: Fleet, attempt: Attempt | None) -> str:
    """Return why an agent ends an attempt that the server has not told it to stop: its spawner has died, a
    rank has failed, here or on another node; "" = it does not."""
    if attempt is None or attempt.stopping or attempt.lost:
        return ""
    if attempt.broken:
        return f"ranks on {attempt.root_failure()[0]} have ended ({attempt.failure()})"
    status = fleet.status(attempt.first_node, attempt.key)
    if status is None or status.state != "stopping":
        return ""
    return status.reason or "its processes are being ended"


def failed_rank(fleet: Fleet, attempt: Attempt | None) -> str:
    """Return how a rank of a gang has failed for which its agent ends the others there; "" = none has."""
    if attempt is None or attempt.stopping or attempt.lost:
        return ""
    for node in attempt.nodes:
        status = fleet.status(node, attempt.key)
        if status is None or status.state != "stopping":
            continue
        if status.reason.startswith("rank "):  # what the agent does on its own account names none
            return status.reason
    return ""


def describe_stop(fleet: Fleet, attempts: Sequence[Attempt], now_s: float) -> str:
    """Return which attempt of a job is being stopped, what it holds, and where the job goes on.
    Without a full stop; "" where none is. attempts: of the job, oldest first; now_s: the cluster's time."""
    holds = holder(attempts)
    if holds is None or holds.lost or not holds.stopping:
        return ""
    newest, ordered_s = attempts[-1], holds.stop_ordered_s
    parts = [f"attempt {holds.record.attempt} is being stopped ({holds.stopping})"]
    if ordered_s is not None:
        parts.append(f"told to stop {duration(max(now_s - ordered_s, 0.0))} ago")
    left = all(map(holds.has_left, holds.nodes))
    does = "stands still" if holds.row.spec.is_suspended else "saves"
    ended = unbooked_end(fleet, holds)
    rest = ended or (
        f"has left its devices, and {does}" if left else f"holds {place(holds)} until it has ended"
    )
    text = f"{', '.join(parts)}{';' if ended else ', and'} {rest}"
    if newest is holds or newest.stopping:
        return text
    return f"{text}; then the job goes on on {place(newest)}"


def stop_sentences(fleet: Fleet, attempts: Sequence[Attempt], now_s: float) -> Iterator[str]:
    """Yield what ``describe_stop`` says as a sentence, and where its ranks stand if they do not end."""
    if text := describe_stop(fleet, attempts, now_s):
        yield f"Its {text}."
        if stall := attempts[0].row.stall:
            yield (
                f"It has {stall}."
                if stall.startswith("not ended")
                else f"It stands still: {stall}."
            )

"""The steps that a job has counted itself, beside its checkpoints: see ``fairlead.client.step_count``."""

from pathlib import Path

from fairlead.client.messages import Loaded
from fairlead.client.step_count import NAME, SIZE, parse_count
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.untrusted_files import read_regular

LIMIT_S = 0.5  # for the file system of the checkpoints to answer


async def counted_steps(checkpoints: Path, job: int, loaded: Loaded) -> int:
    """Return how many steps a start had done, of the whole job, as its job counts; -1 = it does not. loaded:
    what the start said as it began; a count that does not go on from there is another's."""
    try:
        content = await on_thread(
            lambda: read_regular(checkpoints / NAME, SIZE + 1, of_folder=True), LIMIT_S
        )
    except (OSError, TimeoutError):
        return -1
    found = parse_count(content)
    is_its = (found.job, found.lost) == (job, loaded.lost_steps)
    return found.reached if is_its and found.reached >= loaded.step else -1

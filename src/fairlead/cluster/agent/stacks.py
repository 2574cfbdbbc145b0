"""The stacks of ranks that hang: read, compared, and said in one sentence."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fairlead.cluster.agent.rank_failures import clean, one_line
from fairlead.cluster.agent.tracebacks import LIBRARIES

MAX_STACK = 12_000  # bytes of the stacks of one rank
MAX_TEXT_BYTES = 32_000  # of all of them
_FAULTHANDLER = re.compile(
    r'^\s+File "(?P<file>.+)", line (?P<line>[0-9]{1,9}) in (?P<function>.+)$'
)
_PY_SPY = re.compile(r"^\s+(?P<function>.+) \((?P<file>.+):(?P<line>[0-9]{1,9})\)$")
# Characters of a line that is understood: searching takes the square of its length
_MAX_LINE = 1000
_THREAD = re.compile(r"^(Current thread|Thread) ")
# Where a process waits for others: the innermost frames of a hung collective, a queue, a lock.
_WAITS = re.compile(
    r"/torch/distributed/|/multiprocessing/(connection|queues|synchronize|popen_fork)\.py|"
    r"/threading\.py|/queue\.py|/selectors\.py|/socket\.py|/ssl\.py|/horovod/|/mpi4py/"
)
_WAITING_FUNCTION = re.compile(
    r"^(\w+\.)?(all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|barrier|all_to_all\w*|wait|"
    r"join|acquire|recv|recv_bytes|get|poll|select|accept)$"
)


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A line of code."""

    file: str
    line: int
    function: str

    @property
    def is_script(self) -> bool:
        """Return whether it is in the user's own code."""
        return not any(part in self.file for part in LIBRARIES)


@dataclass(frozen=True, slots=True)
class RankStack:
    """Stack of a rank: the frames of its main thread, innermost first."""

    rank: int
    frames: tuple[StackFrame, ...]  # () = its process does not run
    text: str  # of all its threads; or what is the matter with its process

    @property
    def waits(self) -> bool:
        """Return whether it waits for another process."""
        return any(
            _WAITS.search(frame.file) or _WAITING_FUNCTION.match(frame.function)
            for frame in self.frames[:4]
            if not frame.is_script
        )


def read_stack(rank: int, text: str) -> RankStack | None:
    """From what ``faulthandler`` or ``py-spy dump`` has written; None where there is no stack in it."""
    threads: list[list[StackFrame]] = []
    for line in text.splitlines():
        if len(line) > _MAX_LINE:
            continue
        if _THREAD.match(line):
            threads.append([])
        elif (found := _FAULTHANDLER.match(line) or _PY_SPY.match(line)) and threads:
            frame = StackFrame(found["file"], int(found["line"]), found["function"])
            threads[-1].append(frame)
    threads = [frames for frames in threads if frames]
    if not threads:
        return None
    main = [frames for frames in threads if frames[-1].function == "<module>"]
    return RankStack(rank, tuple((main or threads)[-1]), clean(text.strip(), MAX_STACK))


def where(stacks: Sequence[RankStack]) -> str:
    """Return where ranks are in their code, the smallest group first: ``rank 1 is in
    torch.distributed.all_reduce (train.py:57); ranks 0, 2 are in train.py:40 (load)``."""
    places: dict[str, list[int]] = {}
    for stack in sorted(stacks, key=lambda stack: stack.rank):
        place = f"in {_place(stack.frames)}" if stack.frames else stack.text
        places.setdefault(place, []).append(stack.rank)
    order = sorted(places.items(), key=lambda item: (len(item[1]), item[1]))
    return one_line("; ".join(f"{_ranks(ranks)} {place}" for place, ranks in order))


def together(stacks: Sequence[RankStack]) -> str:
    """The stacks of all ranks, one below the other."""
    ordered = sorted(stacks, key=lambda stack: stack.rank)
    return clean(
        "\n\n".join(f"Rank {stack.rank}:\n{stack.text}" for stack in ordered), MAX_TEXT_BYTES
    )


def same_places(one: Mapping[int, RankStack], other: Mapping[int, RankStack]) -> bool:
    """Return whether all ranks are where they were."""
    return one.keys() == other.keys() and all(
        one[rank].frames == other[rank].frames for rank in one
    )


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    shown = ", ".join(map(str, ranks[:4])) + (" ..." if len(ranks) > 4 else "")
    return f"ranks {shown} are"


def _place(frames: Sequence[StackFrame]) -> str:
    inner = frames[0]
    script_frame = next((frame for frame in frames if frame.is_script), None)
    if script_frame is None or script_frame is inner:
        return f"{PurePath(inner.file).name}:{inner.line} ({inner.function})"
    return f"{_dotted(inner)} ({PurePath(script_frame.file).name}:{script_frame.line})"


def _dotted(frame: StackFrame) -> str:
    """A function of a library by the package that people know it by: ``torch.distributed.all_reduce``."""
    path = PurePath(frame.file)
    parts = path.parts
    name = frame.function.rpartition(".")[2]
    roots = [i for i, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    roots = roots or [i for i, part in enumerate(parts) if re.fullmatch(r"python3\.\d+", part)]
    packages = list(parts[roots[-1] + 1 : -1]) if roots else []
    return ".".join([*(packages or [path.stem]), name])

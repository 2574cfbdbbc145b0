"""The last Python traceback in a text: what a process that died of an exception has printed.

Understood are chains ("During handling of the above exception ..."), exception groups, syntax errors, which
have no heading, and the prefix ``[rank0]:`` that PyTorch puts before each line.
"""

import re
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass

HEADER = "Traceback (most recent call last):"
LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
MAX_LINES_AFTER = 400  # lines of output after the traceback of which a process died
_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>[0-9]{1,9})(?:, in (?P<function>.+))?$'
)
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_GROUP = re.compile(r"^(\s*\|\s|\s*\+[-\s]|\s*\+ Exception Group )")
LIBRARIES = tuple(
    {sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {
        "/site-packages/",
        "/dist-packages/",
        "/lib/python",
        "/fairlead/client/",
        "<frozen ",
    }
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """An exception, as it was printed."""

    type: str
    message: str
    file: str  # of the innermost frame in the user's own code; "" = there are no frames
    line: int
    function: str
    traceback: str  # all of it, with the exceptions that it came of


def last_traceback(text: str) -> Parsed | None:
    """None: there is none, or too much was printed after it for it to be the end of the process."""
    lines = [_PREFIX.sub("", line.rstrip("\r")) for line in text.split("\n")]
    heads = [i for i, line in enumerate(lines) if line.rstrip().endswith(HEADER)]
    found = _block(lines, heads[-1]) if heads else None
    syntax = _syntax_error(lines)
    if syntax is not None and (found is None or syntax[0] > found[1]):
        found = syntax
    if found is None:
        return None
    begin, end = found
    if sum(bool(line.strip()) for line in lines[end + 1 :]) > MAX_LINES_AFTER:
        return None
    begin, end = _whole_group(lines, _whole_chain(lines, heads, begin), end)
    return _parsed(lines[begin : end + 1], found[1] - begin)


def _block(lines: Sequence[str], head: int) -> tuple[int, int] | None:
    """(first, last) line of a block that begins with this heading: the last is that of the exception."""
    for i in range(head + 1, len(lines)):
        line = _bare(lines[i])
        if line and not line.startswith((" ", "\t")):
            return (head, i) if _ERROR.match(line) else None
    return None


def _bare(line: str) -> str:
    """Return a line without the margin that exception groups have."""
    return re.sub(r"^\s*\|\s?", "", line) if _GROUP.match(line) else line


def _syntax_error(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and last line of a syntax error of the program itself, which has no heading; None if
    there is none."""
    for end in range(len(lines) - 1, -1, -1):
        if re.match(r"^(SyntaxError|IndentationError|TabError): ", lines[end]):
            for begin in range(end - 1, max(end - 6, -1), -1):
                if _FRAME.match(lines[begin]):
                    return begin, end
    return None


def _whole_chain(lines: Sequence[str], heads: Sequence[int], begin: int) -> int:
    """The first line of the first exception in the chain that ends with the block at ``begin``."""
    earlier = [head for head in heads if head < begin]
    while earlier and any(line.strip() in LINKS for line in lines[max(begin - 3, 0) : begin]):
        begin = earlier.pop()
    return begin


def _whole_group(lines: Sequence[str], begin: int, end: int) -> tuple[int, int]:
    """The lines of the group that a block is part of, or the block itself."""
    if not _GROUP.match(lines[begin]) and not _GROUP.match(lines[end]):
        return begin, end
    while begin > 0 and _GROUP.match(lines[begin - 1]):
        begin -= 1
    while end + 1 < len(lines) and _GROUP.match(lines[end + 1]):
        end += 1
    return begin, end


def _parsed(block: Sequence[str], at: int) -> Parsed | None:
    if _GROUP.match(block[0]):
        errors = [i for i, line in enumerate(block) if _ERROR.match(_bare(line))]
        groups = [i for i in errors if "Group" in _bare(block[i]).partition(":")[0]]
        at = groups[0] if groups else errors[-1] if errors else at
    error = _ERROR.match(_bare(block[at]))
    if error is None:
        return None
    place = script_frame([frame for line in block[:at] if (frame := _FRAME.match(_bare(line)))])
    return Parsed(
        type=error["type"],
        message=(error["message"] or "").strip(),
        file=place["file"] if place else "",
        line=int(place["line"]) if place else 0,
        function=(place["function"] or "") if place else "",
        traceback="\n".join(block),
    )


def script_frame(frames: Sequence[re.Match[str]]) -> re.Match[str] | None:
    """The innermost frame that is not in a library, one in a file before one in ``<string>`` (which may be
    of ``python -c``, or made by a library), else the innermost."""
    script_frames = [
        frame for frame in frames if not any(part in frame["file"] for part in LIBRARIES)
    ]
    in_files = [frame for frame in script_frames if frame["file"] != "<string>"]
    best = in_files or script_frames or frames
    return best[-1] if best else None

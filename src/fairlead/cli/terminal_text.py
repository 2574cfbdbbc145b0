"""What is shown on a terminal, without anything that would take the terminal over. Colours of jobs' output
are kept; other texts that a server has sent have none."""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fairlead.cluster.protocol.plausible import several_lines

_MAX_SEQUENCE = 4096  # characters of an escape sequence whose end is waited for
_COLOUR = r"\x1b\[[0-9;:]*m"
_SEQUENCE = re.compile(
    rf"(?P<colour>{_COLOUR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # a control sequence
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # a string for the terminal: titles, clipboard
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"  # any other control but tab and ends of lines
    r"|[\u202a-\u202e\u2066-\u2069]"  # what follows would be shown in another order
)
_NO_COLOUR = "\x1b[0m"
_EXTENDED = re.compile(r"[345]8[;:](?:5[;:][0-9]*|2(?:[;:][0-9]*){3,5})")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")


# That JSON texts may have as they are, and terminals follow.
_UNESCAPED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class HarmlessConsole(Console):
    """A console on which control characters are blanks, wherever a text comes from."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is to be printed; the console's own controls stay."""
        for one in super().render(renderable, options):
            if one.control or one.text.isprintable():
                yield one
            else:
                yield Segment(several_lines(one.text), one.style)


def harmless_json(text: str) -> str:
    """Return the same value in JSON without control characters."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(colour: str) -> str:
    """Return a colour sequence; "" for one that conceals what follows (8, outside of an extended colour)."""
    codes = re.split("[;:]", _EXTENDED.sub("", colour[2:-1]))
    return "" if any(code.lstrip("0") == "8" for code in codes) else colour


class TerminalFilter:
    """Makes text safe to print, piece after piece."""

    def __init__(self) -> None:
        self._begun = ""  # an escape sequence whose end has not come yet
        self._coloured = False  # does a colour hold that the text has begun?

    def feed(self, text: str) -> str:
        """Return the text without controls. A sequence that is not whole is kept for the next piece."""
        text, self._begun = self._begun + text, ""
        if (begun := _BEGUN.search(text)) is not None and len(text) - begun.start() < _MAX_SEQUENCE:
            text, self._begun = text[: begun.start()], text[begun.start() :]
        kept = _SEQUENCE.sub(lambda found: _visible(found["colour"] or ""), text)
        if colours := re.findall(_COLOUR, kept):
            self._coloured = colours[-1] not in (_NO_COLOUR, "\x1b[m")
        return re.sub(rf"(?!{_COLOUR})\x1b", "", kept)

    def end(self) -> str:
        """Return what is to be printed behind the text: whoever reads on is to see their own colours."""
        return _NO_COLOUR if self._coloured else ""

"""What jobs print is shown on a terminal without what would take the terminal over."""

import pytest

from fairlead.cli.terminal_text import TerminalFilter

EVIL = (
    "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b[2J", "\x1b[10;10H",
    "\x1b[?1049h",
    "\x1bc", "\x1b(0", "\x07", "\x08", "\x9b2J", "\x90q\x9c", "\x00", "\x1b[6n", "\u202e", "\u2067",
    "\x1b[8m", "\x1b[1;08m", "\x1b[38;5;8;8m",
)  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
def test_sequences_that_do_more_than_colour_are_left_out(evil: str) -> None:
    shown = TerminalFilter().feed(f"before{evil}after\n")
    assert shown.startswith("before")
    assert shown.endswith("after\n")
    assert not set(shown) & {
        "\x1b",
        "\x9b",
        "\x90",
        "\x9c",
        "\x07",
        "\x08",
        "\x00",
        "\u202e",
        "\u2067",
    }


def test_colours_tabs_and_progress_bars_stay() -> None:
    grey = "\x1b[38;5;8mgrey\x1b[48;5;8m\x1b[28m"
    text = f"{grey}\x1b[1;31mred\x1b[0m\t10 %\r20 %\n\x1b[38;2;1;2;3mx\x1b[m é日\n"
    assert TerminalFilter().feed(text) == text


@pytest.mark.parametrize("evil", [*EVIL, "\x1b[1;31m"])
def test_a_sequence_that_comes_in_pieces_is_known(evil: str) -> None:
    text = f"a{evil}b\n"
    whole = TerminalFilter().feed(text)
    for at in range(len(text)):
        pieces = TerminalFilter()
        assert pieces.feed(text[:at]) + pieces.feed(text[at:]) == whole


def test_a_sequence_without_end_holds_up_nothing_for_ever() -> None:
    pieces = TerminalFilter()
    shown = pieces.feed("a\x1b]0;") + "".join(pieces.feed("x" * 1000) for _ in range(10))
    assert len(shown) > 5000
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("pieces", "end"),
    [
        (["plain"], ""),
        (["\x1b[30;40m", "black"], "\x1b[0m"),
        (["\x1b[31mred\x1b[0m", " plain"], ""),
        (["\x1b[31mred\x1b[m"], ""),
        (["\x1b[0mplain\x1b[31m"], "\x1b[0m"),
        (["\x1b[31", "mred"], "\x1b[0m"),
    ],
)
def test_a_colour_ends_with_the_text(pieces: list[str], end: str) -> None:
    terminal = TerminalFilter()
    for piece in pieces:
        terminal.feed(piece)
    assert terminal.end() == end
